//! The benefit of a second event loop, on a machine that also runs the load generator.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::Measured;
use crate::bench::Bench;
use crate::load::{self, Group, KeyChoice, Span, Writes};
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Figure, Line, Target};
use crate::servers::fondaco::{Fondaco, Settings};

const CLIENTS: u64 = 2;
const CONNECTIONS: usize = 16;
const PIPELINE: usize = 64;
const RATIO_MIN: f64 = 1.8;

/// Requests per second, and requests per second of the server's CPU time.
struct Outcome {
    throughput: f64,
    per_cpu_second: f64,
    /// The number of cores that the server kept busy.
    cores_used: f64,
}

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let mut servers = Vec::new();
    for loops in [1, 2] {
        let settings = Settings {
            loops,
            ..Settings::default()
        };
        let server = Fondaco::start(bench, &format!("loops-{loops}"), settings)?;
        server.control().create(STORE)?;
        server.control().deploy(STORE, &version)?;
        servers.push(server);
    }
    let empty = || Figure::new("requests/s", Vec::new());
    let mut throughput = [empty(), empty()];
    let mut capacity = [empty(), empty()];
    let mut cores_used = [empty(), empty()];
    for round in 0..bench.rounds() {
        for (at, server) in servers.iter().enumerate() {
            let outcome = load_both_cores(bench, server, dataset.records, round)?;
            throughput[at].rounds.push(outcome.throughput);
            // The rate that the loops would reach with a core each.
            capacity[at].rounds.push(outcome.per_cpu_second * (at + 1) as f64);
            cores_used[at].rounds.push(outcome.cores_used);
        }
    }
    servers.into_iter().try_for_each(Fondaco::end)?;
    let [one, two] = capacity;
    let [one_shared, two_shared] = throughput;
    let ratio = two.over(&one);
    let shared_ratio = two_shared.over(&one_shared);
    let used = cores_used.map(|figure| number(figure.median()));
    Ok(Measured {
        lines: vec![
            Line {
                work: "capacity by processor time: loops × requests for each second of it".into(),
                ours: two,
                peers: vec![("one loop".into(), one)],
                ratio: Some((ratio, "itself with one loop".into())),
                targets: vec![Target::at_least(ratio, RATIO_MIN)],
                memory: String::new(),
            },
            Line {
                work: "throughput, sharing both cores with the load generator".into(),
                ours: two_shared,
                peers: vec![("one loop".into(), one_shared)],
                ratio: Some((shared_ratio, "itself with one loop".into())),
                targets: Vec::new(),
                memory: String::new(),
            },
        ],
        notes: vec![
            format!(
                "GET, 100 B, {CLIENTS} client threads of {CONNECTIONS} connections, pipeline {PIPELINE}; servers and clients may use both cores. The load generator limits the throughput: of the two cores the server had {} with one loop and {} with two.",
                used[0], used[1]
            ),
            "So the target applies to the rate per CPU time: if the loops disturbed each other (locks, shared cache lines), a second of CPU time would answer fewer requests with two loops than with one. Throughput on idle cores needs a machine with idle cores.".into(),
        ],
        charts: Vec::new(),
    })
}

fn load_both_cores(bench: &Bench, server: &Fondaco, records: u64, round: u64) -> Result<Outcome> {
    let group = Group {
        address: server.resp(),
        connections: CONNECTIONS,
        pipeline: PIPELINE,
        rate: None,
        prefix: format!("{STORE}:"),
        keys: KeyChoice::Uniform { records },
        keys_per_request: 1,
        writes: Writes::default(),
        keep_each: false,
    };
    let span = Span {
        warm_up: Duration::ZERO,
        measured: bench.round_time(),
        stop: None,
    };
    let before = server.process().cpu_time()?;
    let started = Instant::now();
    let requests: u64 = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let group = &group;
                let seed = round * CLIENTS + client;
                scope.spawn(move || load::run(std::slice::from_ref(group), span, seed))
            })
            .collect();
        let joined = clients.into_iter().map(|client| {
            let report = client.join().map_err(|_| anyhow!("a load generator panicked"))??;
            Ok(report[0].requests)
        });
        joined.sum::<Result<u64>>()
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let used = (server.process().cpu_time()? - before).as_secs_f64().max(0.01);
    Ok(Outcome {
        throughput: requests as f64 / seconds,
        per_cpu_second: requests as f64 / used,
        cores_used: used / seconds,
    })
}
