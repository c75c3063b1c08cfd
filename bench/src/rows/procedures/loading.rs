//! From a Parquet file to the first answer: our push compared with the ways to fill other systems, including conversions.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bench::{Bench, load_launch};
use crate::dataset::Dataset;
use crate::dataset::file::{KEY_COLUMN, VALUE_COLUMN};
use crate::machine::process::Usage;
use crate::peers::EngineKind;
use crate::report::markdown::number;
use crate::rows::runner::Running;
use crate::rows::spec::Step;
use crate::servers::control::PUSH_LIMIT;
use crate::servers::fondaco::{Fondaco, Limits, STORE, Shape};
use crate::servers::last_record_exchange;
use crate::servers::mariadb::MariaDb;
use crate::servers::redis;

const LOAD_LIMIT: Duration = Duration::from_secs(240);
/// MariaDB takes minutes, so it is loaded less often.
const MARIADB_ROUNDS: u64 = 3;
const ENGINES: [EngineKind; 2] = [EngineKind::Lmdb, EngineKind::Fjall];

/// Loads the records of the first argument into all systems. Figures are called after it.
pub fn load_all(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let data = step.arguments.first().context("no records")?;
    let bench = running.bench;
    let dataset = bench.dataset(data)?;
    let parquet = bench.parquet(dataset)?;
    // Into the page cache.
    std::io::copy(&mut fs::File::open(&parquet)?, &mut std::io::sink())?;
    let mut add = |name: &str, usage: Usage| {
        running.add(&format!("{data} {name}"), "s", usage.wall.as_secs_f64());
        let mebibytes = usage.resident_bytes_max as f64 / f64::from(1 << 20);
        running.add(&format!("{data} {name} memory"), "MiB", mebibytes);
    };
    add("fondaco", push_to_fresh_node(bench, &parquet, dataset)?);
    for engine in ENGINES {
        let dir = bench.work.join("loading-engine");
        let launch = load_launch(engine, &parquet, &dir)?.log_to(bench.log("load"));
        add(engine.title(), launch.run(LOAD_LIMIT)?);
        fs::remove_dir_all(&dir).with_context(|| format!("could not delete {dir:?}"))?;
    }
    let took = redis::fill_time(bench, &parquet, last_record_exchange(STORE, dataset))?;
    running.add(&format!("{data} Redis"), "s", took.as_secs_f64());
    if running.round < MARIADB_ROUNDS {
        let server = MariaDb::start(bench, None, false)?;
        let started = Instant::now();
        server.load(&parquet, dataset)?;
        running.add(&format!("{data} MariaDB"), "s", started.elapsed().as_secs_f64());
        server.end()?;
    }
    running
        .figures
        .set(&format!("{data}_records"), number(dataset.records as f64));
    Ok(())
}

/// Chooses the engine that loads these records fastest.
pub fn best_engine(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let data = step.arguments.first().context("no records")?;
    let engines = ENGINES.map(|engine| (engine.title(), format!("{data} {}", engine.title())));
    running.figures.choose_best(data, engines, true)
}

/// Runs `fondaco push` to a fresh node, until it answers a GET.
pub fn push_to_fresh_node(bench: &Bench, parquet: &Path, dataset: Dataset) -> Result<Usage> {
    let mut server = Fondaco::start(bench, "loading", Shape::default(), Limits::default())?;
    let temporary = bench.fresh_dir("push-work")?;
    let path = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not text");
    let started = Instant::now();
    let mut usage = server
        .control()
        .command(&["push", STORE, &path(parquet)?, "--create", "--work", &path(&temporary)?])
        .args(["--key", KEY_COLUMN, "--value", VALUE_COLUMN])
        .run(PUSH_LIMIT)?;
    server.wait_for_last(STORE, dataset)?;
    usage.wall = started.elapsed();
    server.end()?;
    Ok(usage)
}
