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
use crate::report::{Chart, Figure, Line, Target};
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
    let seconds = || Figure::new("s", Vec::new());
    let mib = || Figure::new("MiB", Vec::new());
    let (mut ours, mut redis, mut mariadb) = (seconds(), seconds(), seconds());
    let mut ours_memory = mib();
    let engines = [EngineKind::Lmdb, EngineKind::Fjall];
    let mut engine_times = engines.map(|_| seconds());
    let mut engine_memory = engines.map(|_| mib());
    let in_mib = |usage: Usage| usage.resident_bytes_max as f64 / f64::from(1 << 20);
    for round in 0..bench.rounds() {
        let usage = push(bench, &parquet, dataset)?;
        ours.rounds.push(usage.wall.as_secs_f64());
        ours_memory.rounds.push(in_mib(usage));
        for (at, engine) in engines.into_iter().enumerate() {
            let usage = load_engine(bench, engine, &parquet)?;
            engine_times[at].rounds.push(usage.wall.as_secs_f64());
            engine_memory[at].rounds.push(in_mib(usage));
        }
        redis.rounds.push(fill_redis(bench, &parquet, dataset)?.as_secs_f64());
        if round < MARIADB_ROUNDS {
            let server = MariaDb::start(bench)?;
            let started = Instant::now();
            server.load(&parquet, dataset)?;
            mariadb.rounds.push(started.elapsed().as_secs_f64());
        }
    }
    fs::remove_dir_all(bench.work.join("mariadb")).context("could not delete MariaDB's data")?;

    let work = format!(
        "{} records of {} B",
        number(dataset.records as f64),
        dataset.value_bytes
    );
    let best = engines
        .iter()
        .zip(&engine_times)
        .min_by(|a, b| a.1.median().total_cmp(&b.1.median()));
    let best = best.map(|(engine, figure)| (engine.title(), figure));
    let memory = format!(
        "fondaco {} MiB, LMDB {} MiB, fjall {} MiB",
        number(ours_memory.median()),
        number(engine_memory[0].median()),
        number(engine_memory[1].median())
    );
    let mut bars = vec![("fondaco".to_owned(), ours.median())];
    bars.extend(
        engines
            .iter()
            .zip(&engine_times)
            .map(|(engine, figure)| (engine.title().into(), figure.median())),
    );
    bars.extend([
        ("Redis".to_owned(), redis.median()),
        ("MariaDB".to_owned(), mariadb.median()),
    ]);
    measured.charts.push(Chart::Bars {
        file: format!("loading-{}", dataset.value_bytes),
        title: format!("Parquet to serving, {work}"),
        unit: "s, less is better".into(),
        bars,
    });
    let against = |name: &str, figure: &Figure, min: f64, memory: String| {
        let ratio = figure.over(&ours);
        Line {
            work: format!("{work}, against {name}"),
            ours: ours.clone(),
            peers: vec![(name.to_owned(), figure.clone())],
            ratio: Some((ratio, "faster".into())),
            targets: vec![Target::at_least(ratio, min)],
            memory,
        }
    };
    measured.lines.push(against("Redis", &redis, REDIS_MIN, String::new()));
    if let Some((name, figure)) = best {
        measured.lines.push(against(
            &format!("{name}, the best engine"),
            figure,
            ENGINES_MIN,
            memory,
        ));
    }
    measured
        .lines
        .push(against("MariaDB", &mariadb, MARIADB_MIN, String::new()));
    let bound = (MEMORY_BYTES + MEMORY_BESIDES_BYTES) as f64 / f64::from(1 << 20);
    measured.lines.push(Line {
        work: format!("{work}, peak memory of the push"),
        targets: vec![Target::figure_at_most(&ours_memory, bound)],
        ours: ours_memory,
        peers: Vec::new(),
        ratio: None,
        memory: String::new(),
    });
    Ok(())
}

/// Runs `fondaco push` to a fresh node, until it answers a GET.
fn push(bench: &Bench, parquet: &Path, dataset: Dataset) -> Result<Usage> {
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
