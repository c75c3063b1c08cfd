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
use crate::load::{self, Costed, Group, GroupReport, KeyChoice, Span, Writes};
use crate::machine::process::Process;
use crate::machine::settled;
use crate::report::{Figure, Line, Rounds};
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
/// The names of the figures of a contender.
const BY_CPU_TIME: &str = "a second of server CPU time";
const THROUGHPUT: &str = "throughput";
/// The name of the server that only receives and sends.
const BARE: &str = "a server without data";
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

const READS_MIN: Option<f64> = Some(READS_OF_REDIS_MIN);
const WRITES_MIN: Option<f64> = Some(WRITES_OF_REDIS_MIN);
const HALF: Mix = mix("50 % reads, Zipfian", 0.5, true, 1, None);
const WRITES: Mix = mix("writes, uniform", 1.0, false, 1, WRITES_MIN);
const PIPELINED_WRITES: Mix = mix("writes, uniform, pipeline 16", 1.0, false, 16, WRITES_MIN);
const LONG_PIPELINED_WRITES: Mix = mix("writes, uniform, pipeline 64", 1.0, false, 64, WRITES_MIN);
const BATCHES: Mix = Mix {
    keys: 64,
    ..mix("reads of 64 keys a request, Zipfian", 0.0, true, 1, READS_MIN)
};
/// Acknowledged writes are in a log of the operating system.
const LOGGED: [Mix; 9] = [
    mix("95 % reads, uniform", 0.05, false, 1, READS_MIN),
    mix("95 % reads, Zipfian", 0.05, true, 1, READS_MIN),
    HALF,
    WRITES,
    mix("95 % reads, Zipfian, pipeline 16", 0.05, true, 16, READS_MIN),
    PIPELINED_WRITES,
    mix("95 % reads, Zipfian, pipeline 64", 0.05, true, 64, READS_MIN),
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
    fn resp(name: &'static str, address: SocketAddr, prefix: &'a str, process: &'a Process) -> Self {
        Self {
            name,
            target: Loaded::Resp(address, prefix),
            cpu_time: Box::new(|| process.cpu_time()),
            role: Role::Server,
        }
    }

    fn fondaco(fondaco: &'a Fondaco, prefix: &'a str, name: &'static str, engines: &'a [Direct]) -> Self {
        Self {
            role: Role::On(engines),
            ..Self::resp(name, fondaco.resp(), prefix, fondaco.process())
        }
    }

    fn bare(bare: &'a Bare, prefix: &'a str) -> Self {
        Self {
            role: Role::Bare,
            ..Self::resp(BARE, bare.address(), prefix, bare.process())
        }
    }

    fn redis(redis: &'a Redis, name: &'static str) -> Self {
        Self::resp(name, redis.address(), REDIS_PREFIX, redis.process())
    }

    fn mariadb(mariadb: &'a MariaDb, name: &'static str) -> Self {
        Self {
            name,
            target: Loaded::Sql(mariadb.url()),
            cpu_time: Box::new(|| mariadb.cpu_time()),
            role: Role::Server,
        }
    }

    /// The engines behind it that are called directly under a mix. The base of the engine is compared only in mixes with many
    /// requests in flight.
    fn engines(&self, mix: &Mix) -> &'a [Direct] {
        match self.role {
            Role::On(engines) if mix.is_of_many() => engines,
            Role::On(engines) => &engines[..engines.len().min(1)],
            Role::Server | Role::Bare => &[],
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
                group.run(Span::whole(measured), seed)
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
            dataset: bench.mutable_values(),
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

    /// The contenders under a mix, in turns: for each, its figures, and those of its engines by their names.
    fn compare(&self, mix: &Mix, contenders: &[&Contender<'_>]) -> Result<Vec<Rounds>> {
        let mut all: Vec<Rounds> = contenders.iter().map(|_| Rounds::default()).collect();
        let (per_second, per_cpu_second) = match mix.keys {
            1 => ("requests/s", "requests/CPU s"),
            _ => ("keys/s", "keys/CPU s"),
        };
        let keys = mix.keys as f64;
        for round in 0..self.rounds() {
            if round > 0 && self.began.elapsed() > ROUNDS_UNTIL {
                break;
            }
            for (contender, rounds) in contenders.iter().zip(&mut all) {
                // Disk writes left by the previous contender must not count for this one.
                rustix::fs::sync();
                let before = (contender.cpu_time)()?;
                let report = contender.load(mix, self.dataset, self.round_time(mix), round)?;
                let costed = Costed::of(report, settled(&contender.cpu_time)? - before);
                let report = &costed.report;
                rounds.add(THROUGHPUT, per_second, report.requests_per_second() * keys);
                rounds.add(BY_CPU_TIME, per_cpu_second, costed.per_cpu_second() * keys);
                for (name, quantile) in PERCENTILES {
                    rounds.add(name, "µs", report.latency_us(quantile));
                }
                for engine in contender.engines(mix) {
                    rustix::fs::sync();
                    let reached = engine.per_cpu_second(mix, self.round_time(mix))?;
                    rounds.add(engine.engine(), per_cpu_second, reached);
                }
            }
        }
        Ok(all)
    }

    /// The mixes one after the other, for our store, Redis, and others.
    fn lines(&self, mixes: &[Mix], contenders: &[Contender<'_>]) -> Result<Vec<Line>> {
        ensure!(contenders.len() > 1, "no peer to compare with");
        let mut lines = Vec::new();
        for mix in mixes {
            let able: Vec<&Contender<'_>> = contenders.iter().filter(|contender| contender.takes(mix)).collect();
            let all = self.compare(mix, &able)?;
            let seen: Vec<(&Contender<'_>, &Rounds)> = able.into_iter().zip(&all).collect();
            let is_bare = |contender: &Contender<'_>| matches!(contender.role, Role::Bare);
            let bare = seen.iter().find(|(contender, _)| is_bare(contender));
            let bare = bare.map(|(_, rounds)| rounds.figure(BY_CPU_TIME));
            let servers: Vec<_> = seen.iter().filter(|(contender, _)| !is_bare(contender)).collect();
            lines.extend(lines_of(mix, servers[0].1, &servers[1..]));
            for (contender, rounds) in &seen {
                lines.extend(of_engine(mix, contender, rounds, bare.as_ref()));
            }
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
fn lines_of(mix: &Mix, ours: &Rounds, peers: &[&(&Contender<'_>, &Rounds)]) -> Vec<Line> {
    let line = |figure: &str| {
        let named = |(peer, rounds): &&(&Contender<'_>, &Rounds)| (peer.name.to_owned(), rounds.figure(figure));
        let line = ours.line(format!("{}, {figure}", mix.work()), figure);
        let first = peers.first().map_or("", |(peer, _)| peer.name);
        line.peers(peers.iter().map(named)).over_peer(first)
    };
    let by_cpu_time = line(BY_CPU_TIME);
    let by_cpu_time = match mix.of_redis_min {
        Some(min) => by_cpu_time.at_least(min),
        None => by_cpu_time,
    };
    let mut lines = vec![by_cpu_time, line(THROUGHPUT)];
    // In a pipeline, the latency is mostly that of the requests before; in a batch, that of the other keys.
    if !mix.is_of_many() {
        lines.extend(PERCENTILES.map(|(name, _)| line(name)));
    }
    lines
}

/// Our server compared with its engine, per second of CPU time: with the engine alone and its base, in mixes with many
/// requests in flight; and with the sum of the engine and of receiving and sending.
fn of_engine(mix: &Mix, contender: &Contender<'_>, rounds: &Rounds, bare: Option<&Figure>) -> Vec<Line> {
    let engines = contender.engines(mix);
    let Some(own) = engines.first() else {
        return Vec::new();
    };
    let ours = rounds.figure(BY_CPU_TIME);
    let line = |of: &str, peers: Vec<(String, Figure)>| {
        let work = format!("{}, a second of CPU time, engine {}", mix.work(), own.engine());
        let ratio = peers.last().map_or(f64::NAN, |(_, last)| ours.over(last));
        let line = Line::new(work, ours.clone()).peers(peers);
        line.ratio(ratio, of).at_least(OF_ENGINE_MIN)
    };
    let mut lines = Vec::new();
    if mix.is_of_many() {
        lines.extend(engines.iter().map(|engine| {
            let name = engine.engine();
            line(name, vec![(format!("{name}, called directly"), rounds.figure(name))])
        }));
    }
    if let Some(bare) = bare {
        let alone = rounds.figure(own.engine());
        let both = alone.rounds.iter().zip(&bare.rounds);
        let both = both.map(|(alone, bare)| 1.0 / (1.0 / alone + 1.0 / bare));
        let both = Figure::new(&alone.unit, both.collect());
        let peers = vec![(BARE.into(), bare.clone()), ("the engine behind it".into(), both)];
        lines.push(line("both", peers));
    }
    lines
}
