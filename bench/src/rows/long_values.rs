//! Whether values near the limit delay small ones: latencies of small reads through the router, quiet and beside a client that
//! writes and reads values of 15 MiB there, over the router's connections to the same nodes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Result, ensure};

use super::Measured;
use crate::bench::Bench;
use crate::load::{Group, Span, beside_clients};
use crate::report::Rounds;
use crate::servers::cluster::Cluster;

const STORE: &str = "values";
const RATE: f64 = 2_000.0;
const CONNECTIONS: usize = 16;
const LONG_BYTES: usize = 15 << 20;
const RATIO_MAX: f64 = 1.5;

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let cluster = Cluster::start(bench, "long-values", 3)?;
    cluster.fill_versioned(STORE, [3, 2, 2], dataset)?;
    let router = cluster.router().resp();
    let group = Group {
        connections: CONNECTIONS,
        rate: Some(RATE),
        ..Group::uniform(router, STORE, dataset.records)
    };
    let span = Span::of(bench.round_time());
    let mut rounds = Rounds::default();
    for round in 0..bench.rounds() {
        rounds.add_latency("quiet", &group.run(span, round)?);
        let move_values = |_, stop: &AtomicBool| move_until(router, stop);
        let (busy, values) = beside_clients(1, move_values, || group.run(span, round))?;
        rounds.add_latency("beside long values", &busy);
        let mebibytes = (values * LONG_BYTES as u64) as f64 / f64::from(1 << 20);
        rounds.add("moved", "MiB/s", mebibytes / span.seconds());
    }
    cluster.end()?;
    let work = "p99 of small GETs beside values of 15 MiB";
    Ok(Measured {
        lines: vec![
            rounds
                .compare(work, "beside long values", "quiet", "itself, quiet")
                .at_most(RATIO_MAX),
        ],
        notes: vec![format!(
            "{RATE:.0} GETs a second of values of {} B over {CONNECTIONS} connections to a router of three nodes, N 3, R 2, W 2, beside one client that writes and reads values of 15 MiB in turn: {} MiB a second. Router, nodes, ZooKeeper, load generator and that client share two cores; the load generator goes first, as far as the system allows.",
            dataset.value_bytes,
            rounds.shown("moved")
        )],
        charts: vec![rounds.latencies(
            "long-values",
            "latency of small reads, quiet and beside values of 15 MiB",
            &["quiet", "beside long values"],
        )],
    })
}

/// Writes and reads long values; returns how many.
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
