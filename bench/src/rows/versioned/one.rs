//! One node, whose core is all that it has, and peers on the same core, one at a time.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Contender, Course, Direct, LOGGED, REDIS_PREFIX, STORE, SYNCED, WRITES_OF_REDIS_MIN, sync_always};
use crate::bench::Bench;
use crate::engines::Candidate;
use crate::load;
use crate::report::markdown::number;
use crate::report::{Figure, Line, Target};
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
        loops: 1,
        ..Settings::default()
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
            "50 connections; one server at a time is asked, on one core, the client on the other, or on what that one leaves. Processor time is all that the server's process used, until it had nothing more to do after a round: its cleaning or merging, and its syncs, are included. Redis lets its log grow here, which by default it writes anew whenever it has doubled: that takes its child process seconds at a time, and would be in some rounds and not in others.".into(),
            format!(
                "So it is counted apart: written anew three times at rest, its log took {} ms of processor time, its child's included, as the median. Where it says so, each write is charged the part of that which falls to it when the log is written anew after as many writes as there are records. What a process costs that writes on meanwhile, whose memory is then copied page by page, is not in it.",
                number(rewriting.as_secs_f64() * 1000.0)
            ),
            "Durability: what is acknowledged is in a log of the operating system, which is synced about once a second (Redis with appendfsync everysec, MariaDB with innodb_flush_log_at_trx_commit = 2), or, where it says so, on the disk (always, 1). fondaco's durability log is that of everysec with engine log, which is synced four times a second; with engine disk it leaves the syncing to the operating system; fsync is always.".into(),
            "MariaDB: prepared statements, one a transaction, each connection a thread of the client, so that nothing is pipelined; a write is an INSERT … ON DUPLICATE KEY UPDATE of a value that differs. Torn pages are prevented, as by default. All its data is in its buffer pool.".into(),
            "The engine called directly: right after each round of the server's on it, by one thread on the same core, from memory; reads one by one, writes in batches of 64, as large as what commits together on a busy node, or of as many as the connections have under way, if that is fewer, each synced where it says so. Processor time is that of its process, what it writes out and merges included, until it had nothing more to do, without the making of the requests. It has neither a network nor versions. fjall is what the engine disk is built on: called without what ours adds to it, with the same settings, and all memory for its blocks.".into(),
            "The engine behind a server without data: what a request takes the engine called directly, and what one takes a server that receives requests, sends replies of the same lengths, and looks nothing up, by epoll, one recv and one send for what a connection has under way; processor time of both, one after the other. A server over the engine that did nothing of its own, and had nothing of several requests to do together, would take as much.".into(),
            memory,
        ],
        ..Measured::default()
    })
}

/// What it takes Redis to write its log anew.
fn rewriting(course: &Course<'_>, redis: &Redis) -> Result<Duration> {
    let mut took = (0..course.rounds())
        .map(|_| redis.rewrite_log())
        .collect::<Result<Vec<_>>>()?;
    took.sort_unstable();
    took.get(took.len() / 2).copied().context("no rounds")
}

/// The lines of writes alone, by processor time, with what it takes Redis to keep its log from growing for ever.
fn with_rewriting(lines: &[Line], records: u64, rewriting: Duration) -> Vec<Line> {
    let is_of_writes = |line: &&Line| line.work.starts_with("writes") && line.ours.unit == "requests/CPU s";
    let lines = lines.iter().filter(is_of_writes).filter_map(|line| {
        let (name, redis) = line.peers.first().filter(|(name, _)| name.starts_with("Redis"))?;
        let rounds = redis.rounds.iter().map(|per_second| {
            let seconds = 1.0 / per_second + rewriting.as_secs_f64() / records as f64;
            1.0 / seconds
        });
        let redis = Figure::new("requests/CPU s", rounds.collect());
        let ratio = line.ours.over(&redis);
        Some(Line {
            work: format!("{}, logs kept short by both", line.work),
            ours: line.ours.clone(),
            ratio: Some((ratio, name.clone())),
            targets: vec![Target::at_least(ratio, WRITES_OF_REDIS_MIN)],
            peers: vec![(name.clone(), redis)],
            memory: String::new(),
        })
    });
    lines.collect()
}
