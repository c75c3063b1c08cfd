//! The benefit of a second event loop, on a machine that also runs the load generator.

use std::slice::from_ref;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};

use super::Measured;
use crate::bench::Bench;
use crate::load::{self, Costed, Group, GroupReport, Span};
use crate::peers::fondaco::STORE;
use crate::report::{Line, Rounds};
use crate::servers::fondaco::{Fondaco, Settings};

const CLIENTS: u64 = 2;
const CONNECTIONS: usize = 16;
const PIPELINE: usize = 64;
const RATIO_MIN: f64 = 1.8;
/// Servers by their number of loops.
const LOOPS: [(usize, &str); 2] = [(1, "one loop"), (2, "two loops")];

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let start = |(loops, _)| {
        let settings = Settings {
            loops,
            ..Settings::default()
        };
        Fondaco::serving(bench, &format!("loops-{loops}"), settings, dataset)
    };
    let servers = LOOPS.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    let [mut throughput, mut capacity, mut cores] = [(); 3].map(|()| Rounds::default());
    for round in 0..bench.rounds() {
        for ((loops, name), server) in LOOPS.into_iter().zip(&servers) {
            let started = Instant::now();
            let costed = Costed::measure(
                || server.process().cpu_time(),
                || load_both_cores(bench, server, dataset.records, round),
            )?;
            let seconds = started.elapsed().as_secs_f64();
            throughput.add(name, "requests/s", costed.report.requests as f64 / seconds);
            // The rate that the loops would reach with a core each.
            capacity.add(name, "requests/s", costed.per_cpu_second() * loops as f64);
            cores.add(name, "cores", costed.cpu_seconds / seconds);
        }
    }
    servers.into_iter().try_for_each(Fondaco::end)?;
    let line =
        |work: &str, rounds: &Rounds| -> Line { rounds.compare(work, "two loops", "one loop", "itself with one loop") };
    let by_cpu_time = "capacity by processor time: loops × requests for each second of it";
    Ok(Measured {
        lines: vec![
            line(by_cpu_time, &capacity).at_least(RATIO_MIN),
            line("throughput, sharing both cores with the load generator", &throughput),
        ],
        notes: vec![
            format!(
                "GET, 100 B, {CLIENTS} client threads of {CONNECTIONS} connections, pipeline {PIPELINE}; servers and clients may use both cores. The load generator limits the throughput: of the two cores the server had {} with one loop and {} with two.",
                cores.shown("one loop"),
                cores.shown("two loops")
            ),
            "So the target applies to the rate per CPU time: if the loops disturbed each other (locks, shared cache lines), a second of CPU time would answer fewer requests with two loops than with one. Throughput on idle cores needs a machine with idle cores.".into(),
        ],
        ..Measured::default()
    })
}

/// A load from as many threads as there are clients; this one is the first.
fn load_both_cores(bench: &Bench, server: &Fondaco, records: u64, round: u64) -> Result<GroupReport> {
    let group = Group {
        connections: CONNECTIONS,
        pipeline: PIPELINE,
        ..Group::uniform(server.resp(), STORE, records)
    };
    let client = |number: u64| {
        let seed = round * CLIENTS + number;
        load::run(from_ref(&group), Span::whole(bench.round_time()), seed)
    };
    let reports: Result<Vec<GroupReport>> = thread::scope(|scope| {
        let other = scope.spawn(|| client(1));
        let first = client(0);
        let second = other.join().map_err(|_| anyhow!("a load generator panicked"))?;
        Ok([first?, second?].concat())
    });
    GroupReport::of_all(reports?)
}
