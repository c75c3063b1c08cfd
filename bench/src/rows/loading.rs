//! From a Parquet file to the first answer: our push compared with the ways to fill other systems, including
//! conversions.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Measured;
use crate::bench::{Bench, load_launch};
use crate::dataset::Dataset;
use crate::dataset::file::{KEY_COLUMN, VALUE_COLUMN};
use crate::machine::process::Usage;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Chart, Rounds};
use crate::servers::control::PUSH_LIMIT;
use crate::servers::fondaco::{Fondaco, Settings};
use crate::servers::mariadb::MariaDb;
use crate::servers::redis::Redis;
use crate::servers::{last_record_exchange, wait_for_reply};

const LOAD_LIMIT: Duration = Duration::from_secs(240);
const REDIS_MIN: f64 = 2.0;
const ENGINES_MIN: f64 = 1.5;
const MARIADB_MIN: f64 = 5.0;
/// MariaDB takes minutes, so it is loaded less often.
const MARIADB_ROUNDS: u64 = 3;
/// The default of `fondaco push --memory`, and the memory that the process may use in addition.
const MEMORY_BYTES: u64 = 1 << 30;
const MEMORY_BESIDES_BYTES: u64 = 256 << 20;
const ENGINES: [EngineKind; 2] = [EngineKind::Lmdb, EngineKind::Fjall];

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let mut measured = Measured {
        notes: vec![
            "fondaco: `fondaco push` of the file to a running node, with all defaults, until the first GET is answered; durable, with checksums.".into(),
            "Redis: our converter piped into `redis-cli --pipe`; no persistence. LMDB and fjall: read and sorted in memory on both cores, then appended or ingested in bulk, synced, opened, one key read.".into(),
            "MariaDB: our converter, sorted by key, piped into `LOAD DATA LOCAL`; InnoDB with 4 GiB of buffer pool, without double writes, binary log, checks and flushes at commit.".into(),
            "The Parquet file is in the page cache for all. Memory is the peak of the loading process; fondaco's is limited by --memory (1 GiB by default), the peers' is not limited.".into(),
        ],
        ..Measured::default()
    };
    for dataset in [bench.small_values(), bench.large_values()] {
        measure_dataset(bench, dataset, &mut measured)?;
    }
    Ok(measured)
}

fn measure_dataset(bench: &Bench, dataset: Dataset, measured: &mut Measured) -> Result<()> {
    let parquet = bench.parquet(dataset)?;
    std::io::copy(&mut fs::File::open(&parquet)?, &mut std::io::sink())?;
    let [mut times, mut memory] = [Rounds::default(), Rounds::default()];
    for round in 0..bench.rounds() {
        let mut add = |name: &str, usage: Usage| {
            times.add(name, "s", usage.wall.as_secs_f64());
            memory.add(name, "MiB", usage.resident_bytes_max as f64 / f64::from(1 << 20));
        };
        add("fondaco", push_to_fresh_node(bench, &parquet, dataset)?);
        for engine in ENGINES {
            add(engine.title(), load_engine(bench, engine, &parquet)?);
        }
        times.add("Redis", "s", fill_redis(bench, &parquet, dataset)?.as_secs_f64());
        if round < MARIADB_ROUNDS {
            let server = MariaDb::start(bench)?;
            let started = Instant::now();
            server.load(&parquet, dataset)?;
            times.add("MariaDB", "s", started.elapsed().as_secs_f64());
        }
    }
    fs::remove_dir_all(bench.work.join("mariadb")).context("could not delete MariaDB's data")?;

    let work = format!(
        "{} records of {} B",
        number(dataset.records as f64),
        dataset.value_bytes
    );
    let [first, second] = ENGINES.map(EngineKind::title);
    let best = if times.median(first) < times.median(second) {
        first
    } else {
        second
    };
    let shown_memory = format!(
        "fondaco {} MiB, LMDB {} MiB, fjall {} MiB",
        memory.shown("fondaco"),
        memory.shown(EngineKind::Lmdb.title()),
        memory.shown(EngineKind::Fjall.title())
    );
    let against = |peer: &str, name: &str, min: f64| {
        let line = times.line(format!("{work}, against {name}"), "fondaco");
        line.peer(name, times.figure(peer))
            .peer_over_ours("faster")
            .at_least(min)
    };
    let bound = (MEMORY_BYTES + MEMORY_BESIDES_BYTES) as f64 / f64::from(1 << 20);
    let peak = memory.line(format!("{work}, peak memory of the push"), "fondaco");
    measured.lines.extend([
        against("Redis", "Redis", REDIS_MIN),
        against(best, &format!("{best}, the best engine"), ENGINES_MIN).memory(shown_memory),
        against("MariaDB", "MariaDB", MARIADB_MIN),
        peak.figure_at_most(bound),
    ]);
    let bar = |name: &str| (name.to_owned(), times.median(name));
    measured.charts.push(Chart::bars(
        format!("loading-{}", dataset.value_bytes),
        format!("Parquet to serving, {work}"),
        "s, less is better",
        ["fondaco", first, second, "Redis", "MariaDB"].map(bar).to_vec(),
    ));
    Ok(())
}

/// Runs `fondaco push` to a fresh node, until it answers a GET.
pub fn push_to_fresh_node(bench: &Bench, parquet: &Path, dataset: Dataset) -> Result<Usage> {
    let mut server = Fondaco::start(bench, "loading", Settings::default())?;
    let temporary = bench.fresh_dir("push-work")?;
    let path = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not text");
    let started = Instant::now();
    let mut usage = server
        .control()
        .command(&["push", STORE, &path(parquet)?, "--create", "--work", &path(&temporary)?])
        .args(["--key", KEY_COLUMN, "--value", VALUE_COLUMN])
        .run(PUSH_LIMIT)?;
    server.wait_for_last(dataset)?;
    usage.wall = started.elapsed();
    server.end()?;
    Ok(usage)
}

fn load_engine(bench: &Bench, engine: EngineKind, parquet: &Path) -> Result<Usage> {
    let dir = bench.work.join("loading-engine");
    let usage = load_launch(engine, parquet, &dir)?
        .log_to(bench.log("load"))
        .run(LOAD_LIMIT)?;
    fs::remove_dir_all(&dir).with_context(|| format!("could not delete {dir:?}"))?;
    Ok(usage)
}

fn fill_redis(bench: &Bench, parquet: &Path, dataset: Dataset) -> Result<Duration> {
    let mut redis = Redis::start(bench, None)?;
    let started = Instant::now();
    redis.fill(bench, parquet)?;
    let (request, reply) = last_record_exchange(dataset);
    let address = redis.address();
    wait_for_reply(redis.process_mut(), address, &request, &reply, LOAD_LIMIT)?;
    Ok(started.elapsed())
}
