//! Whether a push delays reads: latencies of a store in memory while a version of several gigabytes
//! of another is copied onto the same node.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::Measured;
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::load::{self, Group, GroupReport, KeyChoice, Span};
use crate::machine::prefer_thread;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::servers::fondaco::{Fondaco, PUSH_LIMIT, Settings};

const RATE: f64 = 10_000.0;
const CONNECTIONS: usize = 16;
const PIPELINE_MAX: usize = 16;
const RATIO_MAX: f64 = 1.5;
/// A file system of its own: files cannot be linked from it, only copied.
const OTHER_FILE_SYSTEM: &str = "/dev/shm";

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let served = Dataset {
        records: if bench.quick { 50_000 } else { 1_000_000 },
        value_bytes: 100,
    };
    let pushed = bench.large_values();
    let source = Elsewhere::copy(bench, pushed)?;
    let server = Fondaco::start(bench, "push-tail", Settings::default())?;
    server.create("read")?;
    let version = bench.version_for("read", served)?;
    server.deploy("read", &version)?;
    server.create(STORE)?;

    let group = Group {
        connections: CONNECTIONS,
        pipeline: PIPELINE_MAX,
        rate: Some(RATE),
        prefix: "read:".into(),
        keys: KeyChoice::Uniform {
            records: served.records,
        },
        keys_per_request: 1,
    };
    let microseconds = || Figure::new("µs", Vec::new());
    let (mut quiet, mut pushing) = (microseconds(), microseconds());
    let mut seconds = Figure::new("s", Vec::new());
    let mut distributions = None;
    for round in 0..bench.rounds() {
        let calm = alone(&server, &group, Span::of(bench.round_time()), round)?;
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
            "{RATE:.0} GETs a second over {CONNECTIONS} connections, uniform over a store in memory; a version of another store is deployed from {OTHER_FILE_SYSTEM}, so that its files are copied and not linked, without a rate limit other than the node's own: {} s a push. Server, copying and load generator share the two cores.",
            number(seconds.median())
        )],
        charts: charts.into_iter().collect(),
    })
}

fn alone(server: &Fondaco, group: &Group, span: Span<'_>, seed: u64) -> Result<GroupReport> {
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            load::run(server.resp(), std::slice::from_ref(group), span, seed)
        });
        let reports = client.join().map_err(|_| anyhow!("the load generator panicked"))??;
        reports.into_iter().next().context("a load without a report")
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
    let path = source.0.to_str().context("a path that is no text")?;
    let deploy = server.command(&["deploy", STORE, path]);
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            load::run(server.resp(), std::slice::from_ref(group), span, seed)
        });
        let usage = deploy.run(PUSH_LIMIT);
        stop.store(true, Relaxed);
        let reports = client.join().map_err(|_| anyhow!("the load generator panicked"))??;
        let report = reports.into_iter().next().context("a load without a report")?;
        ensure!(report.requests > 0, "the push was over before anything was read");
        Ok((report, usage?.wall))
    })
}

/// A copy of a version on another file system, deleted in the end.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn copy(bench: &Bench, dataset: Dataset) -> Result<Self> {
        let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
        let here = fs::metadata(&bench.work)?.dev();
        let there = fs::metadata(OTHER_FILE_SYSTEM).with_context(|| format!("there is no {OTHER_FILE_SYSTEM}"))?;
        ensure!(here != there.dev(), "{OTHER_FILE_SYSTEM} is no file system of its own");
        let name = format!("fondaco-bench-{}", std::process::id());
        let copy = Self(PathBuf::from(OTHER_FILE_SYSTEM).join(name));
        fs::create_dir(&copy.0)?;
        for entry in fs::read_dir(&version)? {
            let entry = entry?;
            fs::copy(entry.path(), copy.0.join(entry.file_name()))
                .with_context(|| format!("could not copy a version to {OTHER_FILE_SYSTEM}"))?;
        }
        Ok(copy)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
