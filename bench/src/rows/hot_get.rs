//! In-process look-ups of data in memory, on one core: nanoseconds per get, and the size of the index.

use std::time::Duration;

use anyhow::Result;

use super::Measured;
use crate::bench::Bench;
use crate::children::Child;
use crate::dataset::Dataset;
use crate::machine::disk;
use crate::peers::EngineKind;
use crate::report::{Chart, Rounds};
use crate::worker::{Task, Worker};

/// Enough for fjall to cache everything.
const CACHE_BYTES: u64 = 6 << 30;
const TASK_LIMIT: Duration = Duration::from_secs(180);
const RATIO_MIN: f64 = 3.0;
const NANOSECONDS_MAX: f64 = 150.0;
const INDEX_BYTES_A_KEY_MAX: f64 = 5.0;
const MANY: &str = "get_many";

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.small_values();
    let mut workers = start(bench, dataset)?;
    for (_, worker) in &mut workers {
        worker.ask(Task::Warm, TASK_LIMIT)?;
    }
    let gets = if bench.quick { 20_000 } else { 2_000_000 };
    let [mut times, mut index] = [Rounds::default(), Rounds::default()];
    for seed in 0..bench.rounds() {
        for (name, worker) in &mut workers {
            let answer = worker.ask(Task::Hot { gets, seed }, TASK_LIMIT)?;
            times.add(name, "ns", answer.nanoseconds as f64 / answer.gets as f64);
            index.add(name, "B", answer.index_bytes as f64 / dataset.records as f64);
        }
        let answer = workers[0].1.ask(Task::HotMany { gets, seed }, TASK_LIMIT)?;
        times.add(MANY, "ns", answer.nanoseconds as f64 / answer.gets as f64);
    }
    drop(workers);
    bench.discard(&EngineKind::ALL, dataset)?;
    let index_at_1_kib = index_bytes_a_key(bench, bench.large_values())?;

    let [ours, peers @ ..] = EngineKind::ALL.map(EngineKind::title);
    let databases = EngineKind::ALL.into_iter().filter(|engine| engine.is_peer_database());
    let best = databases
        .map(EngineKind::title)
        .min_by(|a, b| times.median(a).total_cmp(&times.median(b)))
        .unwrap_or("nothing");
    let memory = EngineKind::ALL.map(|engine| {
        let title = engine.title();
        format!(
            "{title}: {} index B/key, at 1 KiB {}",
            index.shown(title),
            index_at_1_kib.shown(title)
        )
    });
    let many = times.line("Version::get_many, the same keys", MANY);
    Ok(Measured {
        lines: vec![
            times
                .beside("Version::get, random existing keys", ours, &peers)
                .ratio(
                    times.figure(best).over(&times.figure(ours)),
                    format!("{best}, the best peer database"),
                )
                .at_least(RATIO_MIN)
                .figure_at_most(NANOSECONDS_MAX)
                .memory(memory.join("<br>")),
            many.ratio(times.figure(ours).over(&times.figure(MANY)), "one by one"),
            index_at_1_kib
                .beside("index, bytes a key at 1 KiB values", ours, &peers)
                .figure_at_most(INDEX_BYTES_A_KEY_MAX),
        ],
        notes: vec![
            "Each engine is open in its own process, warmed by one pass over all keys; rounds alternate. Keys are generated before the clock starts. Every value is compared with its key, for all engines.".into(),
            "fondaco verifies the checksum of each record; LMDB and the sorted index have none; fjall verifies blocks when it loads them into its cache, which holds all of them.".into(),
            "Index bytes: fondaco's index files; LMDB's branch pages (its leaves hold keys as well); fjall's pinned block index and filters; the sorted index's entries.".into(),
        ],
        charts: vec![Chart::bars(
            "hot-get",
            "hot GET in process, one core",
            "ns a get, less is better",
            EngineKind::ALL.map(|engine| (engine.title().to_owned(), times.median(engine.title()))).to_vec(),
        )],
    })
}

/// Starts a worker for each engine, all on one core, with their files in the page cache.
fn start(bench: &Bench, dataset: Dataset) -> Result<Vec<(&'static str, Worker)>> {
    let mut workers = Vec::new();
    for engine in EngineKind::ALL {
        let dir = bench.engine_dir(engine, dataset)?;
        disk::remember(&dir)?;
        let worker = Child::Worker {
            engine,
            dir,
            records: dataset.records,
            cache_bytes: CACHE_BYTES,
        };
        let cpu = bench.server_cpu().to_string();
        let worker = Worker::start(worker, |launch| launch.on_cpus(&cpu).log_to(bench.log("worker")))?;
        workers.push((engine.title(), worker));
    }
    Ok(workers)
}

fn index_bytes_a_key(bench: &Bench, dataset: Dataset) -> Result<Rounds> {
    let mut index = Rounds::default();
    for (name, worker) in &mut start(bench, dataset)? {
        let answer = worker.ask(Task::Hot { gets: 1, seed: 0 }, TASK_LIMIT)?;
        index.add(name, "B", answer.index_bytes as f64 / dataset.records as f64);
    }
    Ok(index)
}
