//! Whether values near the limit delay small ones: latencies of small reads through the router, quiet and beside a client that
//! writes and reads values of 15 MiB there, over the router's connections to the same nodes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use super::Measured;
use crate::bench::Bench;
use crate::load::{self, Group, GroupReport, KeyChoice, Span};
use crate::machine::prefer_thread;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::servers::cluster::Cluster;
use crate::servers::replicas::Replicas;

const STORE: &str = "values";
const RATE: f64 = 2_000.0;
const CONNECTIONS: usize = 16;
const LONG_BYTES: usize = 15 << 20;
const RATIO_MAX: f64 = 1.5;

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let cluster = Cluster::start(bench, "long-values", 3)?;
    let settings = ["--engine", "log", "--replicas", "3", "--reads", "2", "--writes", "2"];
    cluster.control().create_versioned(STORE, &settings)?;
    let coordinator = cluster.nodes().first().context("a cluster without nodes")?.resp();
    Replicas::of(coordinator, STORE)?.fill(0..dataset.records, dataset.value_bytes)?;

    let router = cluster.router().resp();
    let uniform = KeyChoice::Uniform {
        records: dataset.records,
    };
    let group = Group {
        connections: CONNECTIONS,
        rate: Some(RATE),
        ..Group::gets(router, STORE, uniform)
    };
    let span = Span::of(bench.round_time());
    let microseconds = || Figure::new("µs", Vec::new());
    let (mut quiet, mut beside, mut moved) = (microseconds(), microseconds(), Figure::new("MiB/s", Vec::new()));
    let mut distributions = None;
    for round in 0..bench.rounds() {
        let reads = || GroupReport::of_all(load::run_preferred(std::slice::from_ref(&group), span, round)?);
        let calm = reads()?;
        let (busy, values) = beside_long_values(router, reads)?;
        quiet.rounds.push(calm.latency_us(0.99));
        beside.rounds.push(busy.latency_us(0.99));
        let mebibytes = (values * LONG_BYTES as u64) as f64 / f64::from(1 << 20);
        moved
            .rounds
            .push(mebibytes / (span.warm_up + span.measured).as_secs_f64());
        distributions = Some((calm.distribution(), busy.distribution()));
    }
    cluster.end()?;
    let ratio = beside.over(&quiet);
    let charts = distributions.map(|(calm, busy)| Chart::Latencies {
        file: "long-values".into(),
        title: "latency of small reads, quiet and beside values of 15 MiB (last round)".into(),
        series: vec![("quiet".into(), calm), ("beside long values".into(), busy)],
    });
    Ok(Measured {
        lines: vec![Line {
            work: "p99 of small GETs beside values of 15 MiB".into(),
            ours: beside,
            peers: vec![("quiet".into(), quiet)],
            ratio: Some((ratio, "itself, quiet".into())),
            targets: vec![Target::at_most(ratio, RATIO_MAX)],
            memory: String::new(),
        }],
        notes: vec![format!(
            "{RATE:.0} GETs a second of values of {} B over {CONNECTIONS} connections to a router of three nodes, N 3, R 2, W 2, beside one client that writes and reads values of 15 MiB in turn: {} MiB a second. Router, nodes, ZooKeeper, load generator and that client share two cores; the load generator goes first, as far as the system allows.",
            dataset.value_bytes,
            number(moved.median())
        )],
        charts: charts.into_iter().collect(),
    })
}

/// Does work while long values are written and read; and how many were.
fn beside_long_values<T>(router: SocketAddr, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let moving = scope.spawn(|| move_until(router, &stop));
        prefer_thread();
        let done = work();
        stop.store(true, Relaxed);
        let moved = moving
            .join()
            .map_err(|_| anyhow!("the client of long values panicked"))??;
        ensure!(moved > 0, "no long value was written");
        Ok((done?, moved))
    })
}

fn move_until(router: SocketAddr, stop: &AtomicBool) -> Result<u64> {
    let mut connection = redis::Client::open(format!("redis://{router}"))?.get_connection()?;
    let value = vec![b'x'; LONG_BYTES];
    let key = format!("{STORE}:long");
    let mut moved = 0;
    while !stop.load(Relaxed) {
        redis::cmd("SET").arg(&key).arg(&value).exec(&mut connection)?;
        let found: Vec<u8> = redis::cmd("GET").arg(&key).query(&mut connection)?;
        ensure!(found == value, "another value was read");
        moved += 2;
    }
    Ok(moved)
}
