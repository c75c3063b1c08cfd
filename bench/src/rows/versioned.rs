//! Stores that are written to, over the network: against `redis-server` with its log at equal durability, and
//! against the engine called directly; on one node, and on three that keep every record thrice.
//!
//! The mixes and the size of the values are those of Voldemort's own measurements: 95 % reads, 1 KiB, a million
//! records, uniform and Zipfian.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Measured, engines};
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::engines::Candidate;
use crate::load::{self, Group, GroupReport, KeyChoice, Span, Writes};
use crate::machine::process::cpu_time_of;
use crate::report::markdown::number;
use crate::report::{Figure, Line, Target};
use crate::servers::cluster::Cluster;
use crate::servers::fondaco::{Fondaco, Settings};
use crate::servers::redis::{Log, Redis};

const STORE: &str = "records";
const CONNECTIONS: usize = 50;
const ROUNDS: u64 = 3;
const READS_OF_REDIS_MIN: f64 = 0.7;
const WRITES_OF_REDIS_MIN: f64 = 1.0;
const OF_ENGINE_MIN: f64 = 0.6;

/// A load: which requests, how many under way on each connection, and which ratio to Redis it must reach.
#[derive(Clone, Copy)]
struct Mix {
    title: &'static str,
    writes: f64,
    zipf: bool,
    pipeline: usize,
    of_redis_min: Option<f64>,
}

const fn mix(title: &'static str, writes: f64, zipf: bool, pipeline: usize, of_redis_min: Option<f64>) -> Mix {
    Mix {
        title,
        writes,
        zipf,
        pipeline,
        of_redis_min,
    }
}

const READS: Mix = mix("95 % reads, uniform", 0.05, false, 1, Some(READS_OF_REDIS_MIN));
const HALF: Mix = mix("50 % reads, Zipfian", 0.5, true, 1, None);
const WRITES: Mix = mix("writes, uniform", 1.0, false, 1, Some(WRITES_OF_REDIS_MIN));
const IN_LOG: [Mix; 6] = [
    READS,
    mix("95 % reads, Zipfian", 0.05, true, 1, Some(READS_OF_REDIS_MIN)),
    HALF,
    WRITES,
    mix(
        "95 % reads, Zipfian, pipeline 16",
        0.05,
        true,
        16,
        Some(READS_OF_REDIS_MIN),
    ),
    mix(
        "writes, uniform, pipeline 16",
        1.0,
        false,
        16,
        Some(WRITES_OF_REDIS_MIN),
    ),
];
const SYNCED: [Mix; 2] = [HALF, WRITES];

impl Mix {
    fn group(&self, address: SocketAddr, prefix: &str, dataset: Dataset) -> Group {
        let Dataset { records, value_bytes } = dataset;
        let keys = match self.zipf {
            true => KeyChoice::Zipf { records },
            false => KeyChoice::Uniform { records },
        };
        Group {
            connections: CONNECTIONS,
            pipeline: self.pipeline,
            writes: Writes {
                share: self.writes,
                value_bytes,
            },
            prefix: prefix.to_owned(),
            ..Group::gets(address, "", keys)
        }
    }
}

/// A server under a load: what came of it in each round.
struct Seen {
    per_second: Figure,
    per_cpu_second: Figure,
    /// At 50, 99 and 99.9 %.
    latencies: [Figure; 3],
}

const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

impl Seen {
    fn new() -> Self {
        Self {
            per_second: Figure::new("requests/s", Vec::new()),
            per_cpu_second: Figure::new("requests/CPU s", Vec::new()),
            latencies: [(); 3].map(|()| Figure::new("µs", Vec::new())),
        }
    }

    /// A round: the load, and what the servers' processes used for it.
    fn round(&mut self, group: &Group, span: Span<'_>, seed: u64, cpu: impl Fn() -> Result<Duration>) -> Result<()> {
        let before = cpu()?;
        let report = GroupReport::of_all(load::run_preferred(std::slice::from_ref(group), span, seed)?)?;
        // At least a tick of the clock that processor time is counted by.
        let used = (cpu()? - before).as_secs_f64().max(0.01);
        self.per_second.rounds.push(report.requests_per_second());
        self.per_cpu_second.rounds.push(report.requests as f64 / used);
        for ((_, quantile), figure) in PERCENTILES.into_iter().zip(&mut self.latencies) {
            figure.rounds.push(report.latency_us(quantile));
        }
        Ok(())
    }
}

fn dataset(bench: &Bench) -> Dataset {
    Dataset {
        records: if bench.quick { 20_000 } else { 1_000_000 },
        value_bytes: 1024,
    }
}

/// The whole of a round counts: processor time is that of all of it.
fn span(bench: &Bench) -> Span<'static> {
    Span {
        warm_up: Duration::ZERO,
        ..Span::of(bench.round_time() * 2 / 3)
    }
}

fn lines(mix: &Mix, peer: &str, ours: Seen, theirs: Seen, of: &str) -> Vec<Line> {
    let ratio = ours.per_cpu_second.over(&theirs.per_cpu_second);
    let throughput_ratio = ours.per_second.over(&theirs.per_second);
    let work = format!("{}{of}", mix.title);
    let mut lines = vec![
        Line {
            work: format!("{work}, a second of server CPU time"),
            ours: ours.per_cpu_second,
            peers: vec![(peer.to_owned(), theirs.per_cpu_second)],
            ratio: Some((ratio, peer.to_owned())),
            targets: mix
                .of_redis_min
                .map(|min| Target::at_least(ratio, min))
                .into_iter()
                .collect(),
            memory: String::new(),
        },
        Line {
            work: format!("{work}, throughput"),
            ours: ours.per_second,
            peers: vec![(peer.to_owned(), theirs.per_second)],
            ratio: Some((throughput_ratio, peer.to_owned())),
            targets: Vec::new(),
            memory: String::new(),
        },
    ];
    if mix.pipeline == 1 {
        let latencies = PERCENTILES.into_iter().zip(ours.latencies).zip(theirs.latencies);
        lines.extend(latencies.map(|(((name, _), ours), theirs)| Line {
            work: format!("{work}, {name}"),
            ratio: Some((ours.over(&theirs), peer.to_owned())),
            ours,
            peers: vec![(peer.to_owned(), theirs)],
            targets: Vec::new(),
            memory: String::new(),
        }));
    }
    lines
}

pub(super) fn measure_one(bench: &Bench) -> Result<Measured> {
    let dataset = dataset(bench);
    let cpu = bench.server_cpu().to_string();
    let prefix = format!("{STORE}:");
    let mut measured = Measured::default();
    let mut in_log = Vec::new();
    for (durability, kept, mixes) in [
        ("log", Log::EverySecond, &IN_LOG[..]),
        ("fsync", Log::Always, &SYNCED[..]),
    ] {
        let settings = Settings {
            cpus: Some(&cpu),
            loops: 1,
            ..Settings::default()
        };
        let fondaco = Fondaco::start(bench, &format!("versioned-{durability}"), settings)?;
        fondaco
            .control()
            .create_versioned(STORE, &["--durability", durability])?;
        let redis = Redis::start_with(bench, Some(&cpu), kept)?;
        load::fill(fondaco.resp(), &prefix, dataset)?;
        load::fill(redis.address(), "key:", dataset)?;
        let (peer, of) = match kept {
            Log::Always => ("Redis, always", ", each write synced"),
            _ => ("Redis, everysec", ""),
        };
        for mix in mixes {
            let (mut ours, mut theirs) = (Seen::new(), Seen::new());
            for round in 0..bench.rounds().min(ROUNDS) {
                let group = mix.group(fondaco.resp(), &prefix, dataset);
                ours.round(&group, span(bench), round, || fondaco.process().cpu_time())?;
                let group = mix.group(redis.address(), "key:", dataset);
                theirs.round(&group, span(bench), round, || redis.process().cpu_time())?;
            }
            if kept == Log::EverySecond && mix.pipeline > 1 {
                in_log.push((mix, ours.per_cpu_second.clone()));
            }
            measured.lines.extend(lines(mix, peer, ours, theirs, of));
        }
        let mib = |bytes: u64| number(bytes as f64 / f64::from(1 << 20));
        measured.notes.push(format!(
            "Memory at the end, {durability}: fondaco {} MiB, Redis {} MiB.",
            mib(fondaco.process().status_bytes("RssAnon")?),
            mib(redis.process().status_bytes("RssAnon")?),
        ));
        fondaco.end()?;
    }
    measured.lines.extend(against_engine(bench, dataset, in_log)?);
    measured.notes.push("50 connections; one server at a time is asked, on one core, the client on the other. Processor time is all that the server's process used, its compaction and its cache included. Redis's log is synced by a thread of it once a second (everysec), or before each acknowledgement of a turn of its loop (always).".into());
    Ok(measured)
}

/// What the server makes of its engine: a core of it against the engine called by one thread.
fn against_engine(bench: &Bench, dataset: Dataset, served: Vec<(&Mix, Figure)>) -> Result<Vec<Line>> {
    let mut figures = [(); 2].map(|()| Figure::new("requests/s", Vec::new()));
    for _ in 0..bench.rounds().min(ROUNDS) {
        let findings = engines::try_candidate(bench, Candidate::Disk, dataset)?;
        figures[0].rounds.push(findings.reads_per_s);
        figures[1].rounds.push(findings.written_per_s);
    }
    let line = |(mix, ours): (&Mix, Figure)| {
        let engine = figures[usize::from(mix.writes == 1.0)].clone();
        let ratio = ours.over(&engine);
        Line {
            work: format!(
                "{}, a second of server CPU time, of the engine called directly",
                mix.title
            ),
            ours,
            peers: vec![("engine, one thread".into(), engine)],
            ratio: Some((ratio, "engine".into())),
            targets: vec![Target::at_least(ratio, OF_ENGINE_MIN)],
            memory: String::new(),
        }
    };
    Ok(served.into_iter().map(line).collect())
}

pub(super) fn measure_three(bench: &Bench) -> Result<Measured> {
    let dataset = dataset(bench);
    let prefix = format!("{STORE}:");
    let cluster = Cluster::start(bench, "versioned-three", 3)?;
    cluster
        .control()
        .create_versioned(STORE, &["--replicas", "3", "--reads", "2", "--writes", "2"])?;
    let coordinator = cluster.nodes().first().context("a cluster without nodes")?.resp();
    let redis = Redis::start_with(bench, None, Log::EverySecond)?;
    load::fill(coordinator, &prefix, dataset)?;
    load::fill(redis.address(), "key:", dataset)?;
    let mut measured = Measured::default();
    for mix in IN_LOG {
        let mix = Mix {
            of_redis_min: None,
            ..mix
        };
        let (mut ours, mut theirs) = (Seen::new(), Seen::new());
        for round in 0..bench.rounds().min(ROUNDS) {
            let group = mix.group(coordinator, &prefix, dataset);
            ours.round(&group, span(bench), round, || cluster.cpu_time_of_nodes())?;
            let group = mix.group(redis.address(), "key:", dataset);
            theirs.round(&group, span(bench), round, || redis.process().cpu_time())?;
        }
        measured
            .lines
            .extend(lines(&mix, "Redis, everysec, one copy", ours, theirs, ""));
    }
    measured.notes.push("One node is asked, and coordinates: a read asks two replicas, a write asks two for what they have seen and is stored by three. Processor time is that of all three nodes, on the two cores that the client uses, too. Redis keeps each record once, and asks nobody: there is no target.".into());
    measured.notes.push(format!(
        "The load generator itself used {} s of processor time so far.",
        number(cpu_time_of(std::process::id())?.as_secs_f64())
    ));
    cluster.end()?;
    Ok(measured)
}
