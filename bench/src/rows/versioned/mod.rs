//! Versioned stores over the network: compared with `redis-server` and MariaDB at equal durability, and with the engine
//! called directly; on one node, and on three nodes with three replicas of each record.
//!
//! The mixes and the size of the values are those of Voldemort's own measurements: 95 % reads, 1 KiB, a million
//! records, uniform and Zipfian.

mod direct;
mod one;
mod three;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::direct::Direct;
pub(super) use self::one::measure as measure_one;
pub(super) use self::three::measure as measure_three;
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::load::sql::{self, SqlLoad};
use crate::load::{self, Group, GroupReport, KeyChoice, Span, Writes};
use crate::machine::settled;
use crate::report::{Figure, Line, Target};
use crate::servers::bare::Bare;
use crate::servers::cluster::wait_until;
use crate::servers::control::ControlPort;
use crate::servers::fondaco::Fondaco;
use crate::servers::mariadb::MariaDb;
use crate::servers::redis::Redis;

/// Our store.
const STORE: &str = "records";
/// The prefix of keys in other systems.
const REDIS_PREFIX: &str = "key:";
const CONNECTIONS: usize = 50;
const ROUNDS: u64 = 3;
/// No further rounds start after this time in a row: preparation and measurement end within twenty minutes.
const ROUNDS_UNTIL: Duration = Duration::from_secs(1080);
const READS_OF_REDIS_MIN: f64 = 0.7;
const WRITES_OF_REDIS_MIN: f64 = 1.0;
const OF_ENGINE_MIN: f64 = 0.6;
const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// A load: the mix of requests, whether each write is synced, the requests in flight on each connection, the keys per
/// read, and the ratio to Redis that it must reach.
#[derive(Debug, Clone, Copy)]
struct Mix {
    title: &'static str,
    writes: f64,
    zipf: bool,
    synced: bool,
    pipeline: usize,
    keys: usize,
    of_redis_min: Option<f64>,
}

const fn mix(title: &'static str, writes: f64, zipf: bool, pipeline: usize, of_redis_min: Option<f64>) -> Mix {
    Mix {
        title,
        writes,
        zipf,
        synced: false,
        pipeline,
        keys: 1,
        of_redis_min,
    }
}

const fn synced(mix: Mix) -> Mix {
    Mix { synced: true, ..mix }
}

const HALF: Mix = mix("50 % reads, Zipfian", 0.5, true, 1, None);
const WRITES: Mix = mix("writes, uniform", 1.0, false, 1, Some(WRITES_OF_REDIS_MIN));
const PIPELINED_READS: Mix = mix(
    "95 % reads, Zipfian, pipeline 16",
    0.05,
    true,
    16,
    Some(READS_OF_REDIS_MIN),
);
const PIPELINED_WRITES: Mix = mix(
    "writes, uniform, pipeline 16",
    1.0,
    false,
    16,
    Some(WRITES_OF_REDIS_MIN),
);
const LONG_PIPELINED_READS: Mix = mix(
    "95 % reads, Zipfian, pipeline 64",
    0.05,
    true,
    64,
    Some(READS_OF_REDIS_MIN),
);
const LONG_PIPELINED_WRITES: Mix = mix(
    "writes, uniform, pipeline 64",
    1.0,
    false,
    64,
    Some(WRITES_OF_REDIS_MIN),
);
const BATCHES: Mix = Mix {
    keys: 64,
    ..mix(
        "reads of 64 keys a request, Zipfian",
        0.0,
        true,
        1,
        Some(READS_OF_REDIS_MIN),
    )
};
/// Acknowledged writes are in a log of the operating system.
const LOGGED: [Mix; 9] = [
    mix("95 % reads, uniform", 0.05, false, 1, Some(READS_OF_REDIS_MIN)),
    mix("95 % reads, Zipfian", 0.05, true, 1, Some(READS_OF_REDIS_MIN)),
    HALF,
    WRITES,
    PIPELINED_READS,
    PIPELINED_WRITES,
    LONG_PIPELINED_READS,
    LONG_PIPELINED_WRITES,
    BATCHES,
];
/// Acknowledged writes are on disk.
const SYNCED: [Mix; 4] = [
    synced(HALF),
    synced(WRITES),
    synced(PIPELINED_WRITES),
    synced(LONG_PIPELINED_WRITES),
];

impl Mix {
    /// The description in the table.
    fn work(&self) -> String {
        let synced = if self.synced { ", each write synced" } else { "" };
        format!("{}{synced}", self.title)
    }

    /// Whether a connection has more than one look-up or write in flight at a time.
    fn is_of_many(&self) -> bool {
        self.pipeline * self.keys > 1
    }

    fn keys(&self, records: u64) -> KeyChoice {
        match self.zipf {
            true => KeyChoice::Zipf { records },
            false => KeyChoice::Uniform { records },
        }
    }

    fn writes(&self, value_bytes: usize) -> Writes {
        Writes {
            share: self.writes,
            value_bytes,
        }
    }
}

/// One of the compared systems.
struct Contender<'a> {
    name: &'static str,
    target: Loaded<'a>,
    /// The CPU time of its processes so far.
    cpu_time: Box<dyn Fn() -> Result<Duration> + 'a>,
    role: Role<'a>,
}

/// The role of a system in the comparison.
#[derive(Clone, Copy)]
enum Role<'a> {
    /// A server only.
    Server,
    /// Our server, on an engine that is also called directly; with the base of that engine, if it has one.
    On(&'a [Direct]),
    /// A server that only receives and sends.
    Bare,
}

/// The target of a load.
enum Loaded<'a> {
    /// A RESP server, keys with this prefix.
    Resp(SocketAddr, &'a str),
    /// A table of MariaDB.
    Sql(String),
}

impl<'a> Contender<'a> {
    fn fondaco(fondaco: &'a Fondaco, prefix: &'a str, name: &'static str, engines: &'a [Direct]) -> Self {
        Self {
            name,
            target: Loaded::Resp(fondaco.resp(), prefix),
            cpu_time: Box::new(|| fondaco.process().cpu_time()),
            role: Role::On(engines),
        }
    }

    fn bare(bare: &'a Bare, prefix: &'a str) -> Self {
        Self {
            name: "a server without data",
            target: Loaded::Resp(bare.address(), prefix),
            cpu_time: Box::new(|| bare.process().cpu_time()),
            role: Role::Bare,
        }
    }

    fn redis(redis: &'a Redis, name: &'static str) -> Self {
        Self {
            name,
            target: Loaded::Resp(redis.address(), REDIS_PREFIX),
            cpu_time: Box::new(|| redis.process().cpu_time()),
            role: Role::Server,
        }
    }

    fn mariadb(mariadb: &'a MariaDb, name: &'static str) -> Self {
        Self {
            name,
            target: Loaded::Sql(mariadb.url()),
            cpu_time: Box::new(|| mariadb.cpu_time()),
            role: Role::Server,
        }
    }

    /// Whether it is compared under a mix: some systems do not support several requests in flight on a connection, or
    /// several keys per request.
    fn takes(&self, mix: &Mix) -> bool {
        !mix.is_of_many() || matches!(self.target, Loaded::Resp(..))
    }

    fn load(&self, mix: &Mix, dataset: Dataset, measured: Duration, seed: u64) -> Result<GroupReport> {
        let (keys, writes) = (mix.keys(dataset.records), mix.writes(dataset.value_bytes));
        match &self.target {
            Loaded::Resp(address, prefix) => {
                let group = Group {
                    connections: CONNECTIONS,
                    pipeline: mix.pipeline,
                    keys_per_request: mix.keys,
                    writes,
                    prefix: (*prefix).to_owned(),
                    ..Group::gets(*address, "", keys)
                };
                // The whole round counts, since the CPU time is that of the whole round.
                let span = Span {
                    warm_up: Duration::ZERO,
                    ..Span::of(measured)
                };
                GroupReport::of_all(load::run_preferred(&[group], span, seed)?)
            }
            Loaded::Sql(url) => {
                let load = SqlLoad {
                    url: url.clone(),
                    connections: CONNECTIONS,
                    keys,
                    writes,
                };
                sql::run(&load, measured, seed)
            }
        }
        .with_context(|| format!("{}: {}", self.name, mix.title))
    }
}

/// The results of a contender under a mix, in each round.
#[derive(Clone)]
struct Seen {
    per_second: Figure,
    per_cpu_second: Figure,
    /// Per second of CPU time of each engine that is called directly.
    engines_per_cpu_second: Vec<Figure>,
    /// At the [`PERCENTILES`].
    latencies: [Figure; 3],
}

impl Seen {
    fn new(mix: &Mix, contender: &Contender<'_>) -> Self {
        let engines = match contender.role {
            Role::On(engines) => engines.len(),
            Role::Server | Role::Bare => 0,
        };
        let (per_second, per_cpu_second) = match mix.keys {
            1 => ("requests/s", "requests/CPU s"),
            _ => ("keys/s", "keys/CPU s"),
        };
        Self {
            per_second: Figure::new(per_second, Vec::new()),
            per_cpu_second: Figure::new(per_cpu_second, Vec::new()),
            engines_per_cpu_second: vec![Figure::new(per_cpu_second, Vec::new()); engines],
            latencies: [(); 3].map(|()| Figure::new("µs", Vec::new())),
        }
    }

    fn add(&mut self, mix: &Mix, report: &GroupReport, used: Duration) {
        let keys = mix.keys as f64;
        self.per_second.rounds.push(report.requests_per_second() * keys);
        // At least a tick of the clock for CPU time.
        let used = used.as_secs_f64().max(0.01);
        self.per_cpu_second.rounds.push(report.requests as f64 * keys / used);
        for ((_, quantile), figure) in PERCENTILES.into_iter().zip(&mut self.latencies) {
            figure.rounds.push(report.latency_us(quantile));
        }
    }
}

/// A running row: its servers and its start time.
struct Course<'a> {
    bench: &'a Bench,
    dataset: Dataset,
    began: Instant,
}

impl<'a> Course<'a> {
    fn begin(bench: &'a Bench) -> Self {
        Self {
            bench,
            dataset: Dataset {
                records: if bench.quick { 20_000 } else { 1_000_000 },
                value_bytes: 1024,
            },
            began: Instant::now(),
        }
    }

    fn rounds(&self) -> u64 {
        self.bench.rounds().min(ROUNDS)
    }

    /// The duration of a round. It is longer for mixes of pipelined writes only: flushes, compactions and log cleaning
    /// would fall entirely into one of several shorter rounds.
    fn round_time(&self, mix: &Mix) -> Duration {
        match mix.writes == 1.0 && mix.is_of_many() {
            true => self.bench.round_time() * 5 / 3,
            false => self.bench.round_time() / 2,
        }
    }

    /// The contenders under a mix, in turns.
    fn compare(&self, mix: &Mix, contenders: &[&Contender<'_>]) -> Result<Vec<Seen>> {
        let mut seen: Vec<_> = contenders.iter().map(|contender| Seen::new(mix, contender)).collect();
        for round in 0..self.rounds() {
            if round > 0 && self.began.elapsed() > ROUNDS_UNTIL {
                break;
            }
            for (contender, seen) in contenders.iter().zip(&mut seen) {
                // Disk writes left by the previous contender must not count for this one.
                rustix::fs::sync();
                let before = (contender.cpu_time)()?;
                let report = contender.load(mix, self.dataset, self.round_time(mix), round)?;
                seen.add(mix, &report, settled(&contender.cpu_time)? - before);
                if let Role::On(engines) = contender.role {
                    // The base of the engine is compared only in mixes with many requests in flight.
                    let counted = if mix.is_of_many() { engines } else { &engines[..1] };
                    for (engine, figure) in counted.iter().zip(&mut seen.engines_per_cpu_second) {
                        rustix::fs::sync();
                        figure.rounds.push(engine.per_cpu_second(mix, self.round_time(mix))?);
                    }
                }
            }
        }
        Ok(seen)
    }

    /// The mixes one after the other, for our store, Redis, and others.
    fn lines(&self, mixes: &[Mix], contenders: &[Contender<'_>]) -> Result<Vec<Line>> {
        ensure!(contenders.len() > 1, "no peer to compare with");
        let mut lines = Vec::new();
        for mix in mixes {
            let able: Vec<&Contender<'_>> = contenders.iter().filter(|contender| contender.takes(mix)).collect();
            let seen = self.compare(mix, &able)?;
            let is_bare = |contender: &Contender<'_>| matches!(contender.role, Role::Bare);
            let bare = able.iter().zip(&seen).find(|(able, _)| is_bare(able));
            let engines: Vec<_> = able
                .iter()
                .zip(&seen)
                .flat_map(|(able, seen)| of_engine(mix, able, seen, bare.map(|(_, bare)| bare)))
                .collect();
            let mut seen = seen.into_iter();
            let own = seen.next().context("no contender was measured")?;
            let peers = able.iter().skip(1).zip(seen).filter(|(peer, _)| !is_bare(peer));
            let peers: Vec<_> = peers.map(|(peer, seen)| (peer.name, seen)).collect();
            lines.extend(lines_of(mix, &own, &peers));
            lines.extend(engines);
        }
        Ok(lines)
    }
}

/// Makes the store sync each write; returns when all nodes do, all of which own the record that is written for this
/// check.
fn sync_always(nodes: &[&ControlPort], coordinator: SocketAddr, prefix: &str, dataset: Dataset) -> Result<()> {
    let first = nodes.first().context("no nodes")?;
    first.alter(STORE, &["--durability", "fsync"])?;
    let syncs = || -> Result<Vec<u64>> { nodes.iter().map(|node| node.counter("replica_syncs")).collect() };
    wait_until("each write is synced", || {
        let before = syncs()?;
        load::write_records(coordinator, prefix, dataset.value_bytes, [0])?;
        Ok(syncs()?.iter().zip(&before).all(|(now, before)| now > before))
    })
}

/// The lines of a mix; targets apply to the first peer.
fn lines_of(mix: &Mix, ours: &Seen, peers: &[(&'static str, Seen)]) -> Vec<Line> {
    let line = |what: &str, figure: &dyn Fn(&Seen) -> Figure, min: Option<f64>| {
        let ours = figure(ours);
        let peers: Vec<(String, Figure)> = peers
            .iter()
            .map(|(name, seen)| ((*name).to_owned(), figure(seen)))
            .collect();
        let ratio = peers.first().map(|(name, first)| (ours.over(first), name.clone()));
        let targets = ratio
            .iter()
            .zip(min)
            .map(|((ratio, _), min)| Target::at_least(*ratio, min));
        Line {
            work: format!("{}, {what}", mix.work()),
            targets: targets.collect(),
            ours,
            peers,
            ratio,
            memory: String::new(),
        }
    };
    let mut lines = vec![
        line(
            "a second of server CPU time",
            &|seen| seen.per_cpu_second.clone(),
            mix.of_redis_min,
        ),
        line("throughput", &|seen| seen.per_second.clone(), None),
    ];
    // In a pipeline, the latency is mostly that of the requests before; in a batch, that of the other keys.
    if !mix.is_of_many() {
        let percentiles = PERCENTILES.iter().enumerate();
        lines.extend(percentiles.map(|(at, (name, _))| line(name, &|seen| seen.latencies[at].clone(), None)));
    }
    lines
}

/// Our server compared with its engine, per second of CPU time: with the engine alone and its base, in mixes with many
/// requests in flight; and with the sum of the engine and of receiving and sending.
fn of_engine(mix: &Mix, contender: &Contender<'_>, seen: &Seen, bare: Option<&Seen>) -> Vec<Line> {
    let Role::On(engines) = contender.role else {
        return Vec::new();
    };
    let alone = || engines.iter().zip(&seen.engines_per_cpu_second);
    let Some((own, own_alone)) = alone().next() else {
        return Vec::new();
    };
    let line = |of: &str, peers: Vec<(String, Figure)>| {
        let ratio = peers.last().map(|(_, peer)| seen.per_cpu_second.over(peer));
        Line {
            work: format!("{}, a second of CPU time, engine {}", mix.work(), own.engine()),
            ours: seen.per_cpu_second.clone(),
            peers,
            ratio: ratio.map(|ratio| (ratio, of.into())),
            targets: ratio
                .map(|ratio| Target::at_least(ratio, OF_ENGINE_MIN))
                .into_iter()
                .collect(),
            memory: String::new(),
        }
    };
    let mut lines = Vec::new();
    if mix.is_of_many() {
        lines.extend(alone().map(|(engine, alone)| {
            let name = engine.engine();
            line(name, vec![(format!("{name}, called directly"), alone.clone())])
        }));
    }
    if let Some(bare) = bare.map(|bare| &bare.per_cpu_second) {
        let both = own_alone.rounds.iter().zip(&bare.rounds);
        let both = both.map(|(alone, bare)| 1.0 / (1.0 / alone + 1.0 / bare));
        let peers = vec![
            ("a server without data".into(), bare.clone()),
            (
                "the engine behind it".into(),
                Figure::new(&own_alone.unit, both.collect()),
            ),
        ];
        lines.push(line("both", peers));
    }
    lines
}
