//! One node, with one core, and peers on the same core, one at a time.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Contender, Course, Direct, LOGGED, REDIS_PREFIX, STORE, SYNCED, WRITES_OF_REDIS_MIN, sync_always};
use crate::bench::Bench;
use crate::engines::Candidate;
use crate::load;
use crate::report::markdown::number;
use crate::report::{Figure, Line};
use crate::rows::Measured;
use crate::servers::bare::Bare;
use crate::servers::fondaco::{Fondaco, Settings};
use crate::servers::mariadb::{Commit, MariaDb};
use crate::servers::redis::Redis;

const OURS: &str = "fondaco";
const ON_TREES: &str = "fondaco, engine disk";

pub(in crate::rows) fn measure(bench: &Bench) -> Result<Measured> {
    let course = Course::begin(bench);
    let dataset = course.dataset;
    let cpu = bench.server_cpu().to_string();
    let prefix = format!("{STORE}:");
    let settings = Settings {
        cpus: Some(&cpu),
        ..Settings::one_loop()
    };
    let start = |name, engine| {
        let fondaco = Fondaco::start(bench, name, settings)?;
        let control = fondaco.control();
        control.create_versioned(STORE, &["--engine", engine, "--durability", "log"])?;
        load::fill(fondaco.resp(), &prefix, dataset)?;
        anyhow::Ok(fondaco)
    };
    let fondaco = start("versioned-one", "log")?;
    let trees = start("versioned-one-trees", "disk")?;
    let redis = Redis::start_logging(bench, Some(&cpu))?;
    load::fill(redis.address(), REDIS_PREFIX, dataset)?;
    let parquet = bench.parquet(dataset)?;
    let mariadb = MariaDb::start_durable(bench, Some(bench.server_cpu()))?;
    mariadb.load(&parquet, dataset)?;

    let direct = |candidate| Direct::start(&course, candidate);
    let log = [direct(Candidate::Log)?];
    let disk = [direct(Candidate::Disk)?, direct(Candidate::Fjall)?];
    let bare = Bare::start(bench, bench.server_cpu(), &prefix, dataset.value_bytes)?;

    mariadb.set_commit(Commit::Written)?;
    let mut lines = course.lines(
        &LOGGED,
        &[
            Contender::fondaco(&fondaco, &prefix, OURS, &log),
            Contender::redis(&redis, "Redis, everysec"),
            Contender::fondaco(&trees, &prefix, ON_TREES, &disk),
            Contender::mariadb(&mariadb, "MariaDB, 2"),
            Contender::bare(&bare, &prefix),
        ],
    )?;

    let rewriting = rewriting(&course, &redis)?;
    mariadb.set_commit(Commit::Synced)?;
    redis.sync_always()?;
    for server in [&fondaco, &trees] {
        sync_always(&[server.control()], server.resp(), &prefix, dataset)?;
    }
    let synced = course.lines(
        &SYNCED,
        &[
            Contender::fondaco(&fondaco, &prefix, OURS, &log),
            Contender::redis(&redis, "Redis, always"),
            Contender::fondaco(&trees, &prefix, ON_TREES, &disk),
            Contender::mariadb(&mariadb, "MariaDB, 1"),
            Contender::bare(&bare, &prefix),
        ],
    )?;

    let mib = |bytes: u64| number(bytes as f64 / f64::from(1 << 20));
    let memory = format!(
        "Own memory at the end: fondaco {} MiB, Redis {} MiB.",
        mib(fondaco.process().status_bytes("RssAnon")?),
        mib(redis.process().status_bytes("RssAnon")?),
    );
    mariadb.end()?;
    drop(redis);
    fondaco.end()?;
    trees.end()?;
    log.into_iter().chain(disk).try_for_each(Direct::end)?;
    lines.extend(synced);
    lines.extend(with_rewriting(&lines, dataset.records, rewriting));
    Ok(Measured {
        lines,
        notes: vec![
            "fondaco: a store with engine log; beside it, on a server of its own, one with engine disk.".into(),
            "50 connections; one server at a time is measured, on one core, the client on the other, or on what is left of the first. CPU time is that of the whole server process, until it had finished its background work after a round: its cleaning or compaction, and its syncs, are included. Redis lets its log grow here. By default it rewrites the log whenever it has doubled: that takes its child process seconds at a time, and would fall into some rounds and not into others.".into(),
            format!(
                "So the rewrite is counted separately: three rewrites without other load took {} ms of CPU time, including the child's, as the median. Where the table says so, each write is charged its share, as if the log were rewritten after as many writes as there are records. The cost of copying pages in a process that is written to during the rewrite is not included.",
                number(rewriting.as_secs_f64() * 1000.0)
            ),
            "Durability: an acknowledged write is in a log of the operating system, which is synced about once a second (Redis with appendfsync everysec, MariaDB with innodb_flush_log_at_trx_commit = 2), or, where the table says so, on disk (always, 1). fondaco's durability log corresponds to everysec with engine log, which is synced four times a second; with engine disk it leaves the syncing to the operating system; fsync corresponds to always.".into(),
            "MariaDB: prepared statements, one per transaction, a client thread per connection, so nothing is pipelined; a write is an INSERT … ON DUPLICATE KEY UPDATE of a different value. Torn pages are prevented, as by default. All its data is in its buffer pool.".into(),
            "The engine called directly: right after each round of the server on it, by one thread on the same core, from memory; reads one by one, writes in batches of 64, the size of a group commit on a busy node, or as many as the connections have in flight, if that is fewer, each synced where the table says so. CPU time is that of its process, including flushes and compactions, until it had finished its background work, without generating the requests. It has neither a network nor versions. fjall is the base of the engine disk: called without the layers that ours adds, with the same settings, and all memory for its blocks.".into(),
            "The engine behind a server without data: the CPU time of a request in the engine called directly, plus that in a server that receives requests, sends replies of the same lengths, and looks nothing up, with epoll and one recv and one send for all requests in flight of a connection. A server over the engine that did nothing of its own, and could not combine the work of several requests, would need as much.".into(),
            memory,
        ],
        ..Measured::default()
    })
}

/// The CPU time that Redis needs to rewrite its log.
fn rewriting(course: &Course<'_>, redis: &Redis) -> Result<Duration> {
    let mut took = (0..course.rounds())
        .map(|_| redis.rewrite_log())
        .collect::<Result<Vec<_>>>()?;
    took.sort_unstable();
    took.get(took.len() / 2).copied().context("no rounds")
}

/// The lines of write-only mixes by CPU time, including the log rewrites of Redis.
fn with_rewriting(lines: &[Line], records: u64, rewriting: Duration) -> Vec<Line> {
    let is_of_writes = |line: &&Line| line.work.starts_with("writes") && line.ours.unit == "requests/CPU s";
    let lines = lines.iter().filter(is_of_writes).filter_map(|line| {
        let (name, redis) = line.peers.first().filter(|(name, _)| name.starts_with("Redis"))?;
        let rounds = redis.rounds.iter().map(|per_second| {
            let seconds = 1.0 / per_second + rewriting.as_secs_f64() / records as f64;
            1.0 / seconds
        });
        let redis = Figure::new("requests/CPU s", rounds.collect());
        let work = format!("{}, logs kept short by both", line.work);
        let line = Line::new(work, line.ours.clone()).peer(name, redis);
        Some(line.over_peer(name).at_least(WRITES_OF_REDIS_MIN))
    });
    lines.collect()
}
