//! Whether a push and readers share the disk well: a store ten times larger than memory is read with a Zipfian
//! distribution at half the rate that the disk allows, while a version of another store is copied to the same node.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::Measured;
use crate::bench::Bench;
use crate::dataset::elsewhere::{Elsewhere, OTHER_FILE_SYSTEM};
use crate::load::{self, Group, GroupReport, KeyChoice, Span, Writes};
use crate::machine::disk;
use crate::machine::memory_group::MemoryGroup;
use crate::machine::prefer_thread;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::servers::control::PUSH_LIMIT;
use crate::servers::fondaco::{Fondaco, Settings};

const CONNECTIONS: usize = 64;
const PIPELINE_MAX: usize = 16;
/// The limit for the duration of a push, as a multiple of its duration without readers.
const PUSH_RATIO_MAX: f64 = 4.0;
/// The limit for the readers' 99th percentile, as a multiple of that without a push.
const READ_RATIO_MAX: f64 = 2.0;
/// The store of the pushes; the other one is read.
const PUSHED: &str = "pushed";

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.large_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let source = Elsewhere::copy(&bench.version_for(PUSHED, dataset)?)?;
    let group = MemoryGroup::new("push-zipf", bench.memory_limit_bytes())?;
    let settings = Settings {
        group: Some(&group),
        ..Settings::default()
    };
    let server = Fondaco::start(bench, "push-zipf", settings)?;
    server.control().create(STORE)?;
    server.control().create(PUSHED)?;
    server.control().deploy(STORE, &version)?;
    disk::forget(&version)?;
    let readers = |rate: Option<f64>| Group {
        address: server.resp(),
        connections: CONNECTIONS,
        pipeline: if rate.is_some() { PIPELINE_MAX } else { 1 },
        rate,
        prefix: format!("{STORE}:"),
        keys: KeyChoice::Zipf {
            records: dataset.records,
        },
        keys_per_request: 1,
        writes: Writes::default(),
        keep_each: false,
    };
    let run = |group: Group, round: u64| -> Result<GroupReport> {
        let span = Span::of(bench.round_time());
        GroupReport::of_all(load::run_preferred(&[group], span, round)?)
    };
    // The first run fills the memory.
    run(readers(None), 0)?;
    let most = run(readers(None), 0)?.requests_per_second();
    let beside = readers(Some(most / 2.0));

    let figure = |unit: &'static str| Figure::new(unit, Vec::new());
    let (mut quiet_reads, mut busy_reads) = (figure("µs"), figure("µs"));
    let (mut quiet_push, mut busy_push) = (figure("s"), figure("s"));
    let mut distributions = None;
    for round in 0..bench.rounds() {
        quiet_push.rounds.push(push(&server, &source)?.as_secs_f64());
        let quiet = run(beside.clone(), round)?;
        let (busy, took) = during_a_push(&server, &beside, &source, round)?;
        quiet_reads.rounds.push(quiet.latency_us(0.99));
        busy_reads.rounds.push(busy.latency_us(0.99));
        busy_push.rounds.push(took.as_secs_f64());
        distributions = Some((quiet.distribution(), busy.distribution()));
    }
    server.end()?;
    let (reads_ratio, push_ratio) = (busy_reads.over(&quiet_reads), busy_push.over(&quiet_push));
    let memory = format!(
        "limit {} MiB",
        number(bench.memory_limit_bytes() as f64 / f64::from(1 << 20))
    );
    let line = |work: String, busy: Figure, quiet: Figure, ratio: f64, ratio_max: f64| Line {
        work,
        ours: busy,
        peers: vec![("quiet".into(), quiet)],
        ratio: Some((ratio, "itself, quiet".into())),
        targets: vec![Target::at_most(ratio, ratio_max)],
        memory: memory.clone(),
    };
    let megabytes = number(dataset.bytes() as f64 / 1e6);
    let charts = distributions.map(|(quiet, busy)| Chart::Latencies {
        file: "push-zipf".into(),
        title: "latency of Zipfian reads beyond memory, quiet and during a push (last round)".into(),
        series: vec![("quiet".into(), quiet), ("during a push".into(), busy)],
    });
    Ok(Measured {
        lines: vec![
            line(
                format!("push of {megabytes} MB beside Zipfian readers"),
                busy_push,
                quiet_push,
                push_ratio,
                PUSH_RATIO_MAX,
            ),
            line(
                "p99 of these readers".into(),
                busy_reads,
                quiet_reads,
                reads_ratio,
                READ_RATIO_MAX,
            ),
        ],
        notes: vec![format!(
            "{} GETs a second over {CONNECTIONS} connections, Zipfian (0.99) over {megabytes} MB with a tenth of that as memory: half of the {} that the server reaches without a rate limit. The version is deployed from {OTHER_FILE_SYSTEM}, so that its files are copied. Server, copying and load generator share the two cores and the disk.",
            number(most / 2.0),
            number(most)
        )],
        charts: charts.into_iter().collect(),
    })
}

/// The duration of a push.
fn push(server: &Fondaco, source: &Elsewhere) -> Result<Duration> {
    let path = source.path().to_str().context("a path that is not text")?;
    let deploy = server.control().command(&["deploy", PUSHED, path]);
    Ok(deploy.run(PUSH_LIMIT)?.wall)
}

/// Reads from the start of a push to its end.
fn during_a_push(server: &Fondaco, group: &Group, source: &Elsewhere, seed: u64) -> Result<(GroupReport, Duration)> {
    let stop = AtomicBool::new(false);
    let span = Span {
        warm_up: Duration::ZERO,
        measured: PUSH_LIMIT,
        stop: Some(&stop),
    };
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            load::run(std::slice::from_ref(group), span, seed)
        });
        let took = push(server, source);
        stop.store(true, Relaxed);
        let reports = client.join().map_err(|_| anyhow!("the load generator panicked"))??;
        let report = reports.into_iter().next().context("a load without a report")?;
        ensure!(report.requests > 0, "the push ended before the first read");
        Ok((report, took?))
    })
}
