//! Whether a push delays reads: latencies of a store in memory while a version of another store, of several gigabytes,
//! is copied to the same node.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::Measured;
use crate::bench::Bench;
use crate::dataset::elsewhere::{Elsewhere, OTHER_FILE_SYSTEM};
use crate::load::{self, Group, GroupReport, KeyChoice, Span};
use crate::machine::prefer_thread;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::servers::control::PUSH_LIMIT;
use crate::servers::fondaco::{Fondaco, Settings};

const RATE: f64 = 10_000.0;
const CONNECTIONS: usize = 16;
const RATIO_MAX: f64 = 1.5;

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let served = bench.served_values();
    let pushed = bench.large_values();
    let source = bench.version_elsewhere(pushed)?;
    let server = Fondaco::start(bench, "push-tail", Settings::default())?;
    server.control().create("read")?;
    let version = bench.version_for("read", served)?;
    server.control().deploy("read", &version)?;
    server.control().create(STORE)?;

    let uniform = KeyChoice::Uniform {
        records: served.records,
    };
    let group = Group {
        connections: CONNECTIONS,
        rate: Some(RATE),
        ..Group::gets(server.resp(), "read", uniform)
    };
    let microseconds = || Figure::new("µs", Vec::new());
    let (mut quiet, mut pushing) = (microseconds(), microseconds());
    let mut seconds = Figure::new("s", Vec::new());
    let mut distributions = None;
    for round in 0..bench.rounds() {
        let calm = load::run_preferred(std::slice::from_ref(&group), Span::of(bench.round_time()), round)?;
        let calm = GroupReport::of_all(calm)?;
        let (busy, took) = during_a_push(&server, &group, &source, round)?;
        quiet.rounds.push(calm.latency_us(0.99));
        pushing.rounds.push(busy.latency_us(0.99));
        seconds.rounds.push(took.as_secs_f64());
        distributions = Some((calm.distribution(), busy.distribution()));
    }
    server.end()?;
    let ratio = pushing.over(&quiet);
    let charts = distributions.map(|(calm, busy)| Chart::Latencies {
        file: "push-tail".into(),
        title: "latency of reads, quiet and during a push (last round)".into(),
        series: vec![("quiet".into(), calm), ("during a push".into(), busy)],
    });
    Ok(Measured {
        lines: vec![Line {
            work: format!(
                "p99 of reads while {} MB are pushed",
                number(pushed.bytes() as f64 / 1e6)
            ),
            ours: pushing,
            peers: vec![("quiet".into(), quiet)],
            ratio: Some((ratio, "itself, quiet".into())),
            targets: vec![Target::at_most(ratio, RATIO_MAX)],
            memory: String::new(),
        }],
        notes: vec![format!(
            "{RATE:.0} GETs a second over {CONNECTIONS} connections, uniform over a store in memory; a version of another store is deployed from {OTHER_FILE_SYSTEM}, so that its files are copied, not linked, without a rate limit other than the node's own: {} s per push. Server, copying and load generator share the two cores.",
            number(seconds.median())
        )],
        charts: charts.into_iter().collect(),
    })
}

/// Reads from the start of a deploy to its end.
fn during_a_push(server: &Fondaco, group: &Group, source: &Elsewhere, seed: u64) -> Result<(GroupReport, Duration)> {
    let stop = AtomicBool::new(false);
    let span = Span {
        warm_up: Duration::ZERO,
        measured: PUSH_LIMIT,
        stop: Some(&stop),
    };
    let path = source.path().to_str().context("a path that is not text")?;
    let deploy = server.control().command(&["deploy", STORE, path]);
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            load::run(std::slice::from_ref(group), span, seed)
        });
        let usage = deploy.run(PUSH_LIMIT);
        stop.store(true, Relaxed);
        let reports = client.join().map_err(|_| anyhow!("the load generator panicked"))??;
        let report = reports.into_iter().next().context("a load without a report")?;
        ensure!(report.requests > 0, "the push ended before the first read");
        Ok((report, usage?.wall))
    })
}
