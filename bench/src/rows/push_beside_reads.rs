//! Whether a push delays reads, and reads a push: a version of another store is copied to a node that serves one from memory,
//! or one that is ten times larger than memory.

use std::time::Duration;

use anyhow::Result;

use super::Measured;
use crate::bench::Bench;
use crate::dataset::elsewhere::{Elsewhere, OTHER_FILE_SYSTEM};
use crate::load::{Group, KeyChoice, Span};
use crate::machine::disk;
use crate::machine::memory_group::MemoryGroup;
use crate::peers::fondaco::STORE;
use crate::report::Rounds;
use crate::report::markdown::number;
use crate::servers::control::PUSH_LIMIT;
use crate::servers::fondaco::{Fondaco, Settings};

/// The limit for the 99th percentile of reads from memory, as a multiple of that without a push.
const MEMORY_READ_RATIO_MAX: f64 = 1.5;
/// The same for reads beyond memory.
const DISK_READ_RATIO_MAX: f64 = 2.0;
/// The limit for the duration of a push, as a multiple of its duration without readers.
const PUSH_RATIO_MAX: f64 = 4.0;
/// The requests per second for a store in memory, and their connections.
const RATE: f64 = 10_000.0;
const CONNECTIONS: usize = 16;
/// The connections of the readers of a store that is larger than memory.
const ZIPF_CONNECTIONS: usize = 64;
/// The store that is pushed while [`STORE`] is read beyond memory.
const PUSHED: &str = "pushed";

/// A store in memory is read at a fixed rate.
pub(super) fn measure_tail(bench: &Bench) -> Result<Measured> {
    let served = bench.served_values();
    let pushed = bench.large_values();
    let server = Fondaco::start(bench, "push-tail", Settings::default())?;
    server.control().create("read")?;
    server.control().deploy("read", &bench.version_for("read", served)?)?;
    server.control().create(STORE)?;
    let group = Group {
        connections: CONNECTIONS,
        rate: Some(RATE),
        ..Group::uniform(server.resp(), "read", served.records)
    };
    let mut rounds = Rounds::default();
    for round in 0..bench.rounds() {
        let source = bench.version_elsewhere(STORE, pushed, round)?;
        rounds.add_latency("quiet", &group.run(Span::of(bench.round_time()), round)?);
        let (busy, took) = group.during(PUSH_LIMIT, round, || push(&server, STORE, &source))?;
        rounds.add_latency("during a push", &busy);
        rounds.add("push", "s", took.as_secs_f64());
    }
    server.end()?;
    let work = format!(
        "p99 of reads while {} MB are pushed",
        number(pushed.bytes() as f64 / 1e6)
    );
    Ok(Measured {
        lines: vec![
            rounds
                .compare(work, "during a push", "quiet", "itself, quiet")
                .at_most(MEMORY_READ_RATIO_MAX),
        ],
        notes: vec![format!(
            "{RATE:.0} GETs a second over {CONNECTIONS} connections, uniform over a store in memory; a version of another store is deployed from {OTHER_FILE_SYSTEM}, so that its files are copied, not linked, without a rate limit other than the node's own: {} s per push. Server, copying and load generator share the two cores.",
            rounds.shown("push")
        )],
        charts: vec![rounds.latencies(
            "push-tail",
            "latency of reads, quiet and during a push",
            &["quiet", "during a push"],
        )],
    })
}

/// A store ten times larger than memory is read with a Zipfian distribution, at half the rate that the disk allows.
pub(super) fn measure_zipf(bench: &Bench) -> Result<Measured> {
    let dataset = bench.large_values();
    let version = bench.engine_dir(crate::peers::EngineKind::Fondaco, dataset)?;
    let memory = MemoryGroup::new("push-zipf", bench.memory_limit_bytes())?;
    let settings = Settings {
        group: Some(&memory),
        ..Settings::default()
    };
    let server = Fondaco::serving(bench, "push-zipf", settings, dataset)?;
    server.control().create(PUSHED)?;
    disk::forget(&version)?;
    let keys = KeyChoice::Zipf {
        records: dataset.records,
    };
    let unlimited = Group {
        connections: ZIPF_CONNECTIONS,
        pipeline: 1,
        ..Group::gets(server.resp(), STORE, keys)
    };
    let span = Span::of(bench.round_time());
    // The first run fills the memory.
    unlimited.run(span, 0)?;
    let most = unlimited.run(span, 0)?.requests_per_second();
    let readers = Group {
        pipeline: 16,
        rate: Some(most / 2.0),
        ..unlimited
    };

    let mut rounds = Rounds::default();
    for round in 0..bench.rounds() {
        let source = bench.version_elsewhere(PUSHED, dataset, 2 * round)?;
        let alone = push(&server, PUSHED, &source)?;
        drop(source);
        let source = bench.version_elsewhere(PUSHED, dataset, 2 * round + 1)?;
        rounds.add("quiet push", "s", alone.as_secs_f64());
        rounds.add_latency("quiet", &readers.run(span, round)?);
        let (busy, took) = readers.during(PUSH_LIMIT, round, || push(&server, PUSHED, &source))?;
        rounds.add_latency("during a push", &busy);
        rounds.add("push", "s", took.as_secs_f64());
    }
    server.end()?;
    let limit = bench.memory_limit_text();
    let megabytes = number(dataset.bytes() as f64 / 1e6);
    let line = |work: String, ours: &str, quiet: &str, ratio_max: f64| {
        let line = rounds.line(work, ours).peer("quiet", rounds.figure(quiet));
        line.over_peer("itself, quiet").at_most(ratio_max).memory(&limit)
    };
    Ok(Measured {
        lines: vec![
            line(
                format!("push of {megabytes} MB beside Zipfian readers"),
                "push",
                "quiet push",
                PUSH_RATIO_MAX,
            ),
            line(
                "p99 of these readers".into(),
                "during a push",
                "quiet",
                DISK_READ_RATIO_MAX,
            ),
        ],
        notes: vec![format!(
            "{} GETs a second over {ZIPF_CONNECTIONS} connections, Zipfian (0.99) over {megabytes} MB with a tenth of that as memory: half of the {} that the server reaches without a rate limit. The version is deployed from {OTHER_FILE_SYSTEM}, so that its files are copied. Server, copying and load generator share the two cores and the disk.",
            number(most / 2.0),
            number(most)
        )],
        charts: vec![rounds.latencies(
            "push-zipf",
            "latency of Zipfian reads beyond memory, quiet and during a push",
            &["quiet", "during a push"],
        )],
    })
}

/// The duration of a push of a version of this store.
fn push(server: &Fondaco, store: &str, source: &Elsewhere) -> Result<Duration> {
    server.control().deploy(store, source.path())
}
