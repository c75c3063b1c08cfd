//! In-process look-ups of data in memory, on one core: nanoseconds per get, and the size of the index.

use std::time::Duration;

use anyhow::Result;

use super::Measured;
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::machine::disk;
use crate::machine::process::Launch;
use crate::peers::EngineKind;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::worker::{Task, Worker};

/// Enough for fjall to cache everything.
const CACHE_BYTES: u64 = 6 << 30;
const TASK_LIMIT: Duration = Duration::from_secs(180);
const RATIO_MIN: f64 = 3.0;
const NANOSECONDS_MAX: f64 = 150.0;
const INDEX_BYTES_A_KEY_MAX: f64 = 5.0;

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.small_values();
    let mut workers = start(bench, dataset)?;
    for (_, worker) in &mut workers {
        worker.ask(Task::Warm, TASK_LIMIT)?;
    }
    let gets = if bench.quick { 20_000 } else { 2_000_000 };
    let mut figures = vec![Figure::new("ns", Vec::new()); workers.len()];
    let mut many = Figure::new("ns", Vec::new());
    let mut answers = Vec::new();
    for seed in 0..bench.rounds() {
        answers.clear();
        for ((_, worker), figure) in workers.iter_mut().zip(&mut figures) {
            let answer = worker.ask(Task::Hot { gets, seed }, TASK_LIMIT)?;
            figure.rounds.push(answer.nanoseconds as f64 / answer.gets as f64);
            answers.push(answer);
        }
        let answer = workers[0].1.ask(Task::HotMany { gets, seed }, TASK_LIMIT)?;
        many.rounds.push(answer.nanoseconds as f64 / answer.gets as f64);
    }
    drop(workers);
    bench.discard(&EngineKind::ALL, dataset)?;
    let index_at_1_kib = index_bytes_a_key(bench, bench.large_values())?;

    let engines = EngineKind::ALL.into_iter().zip(&figures);
    let best = engines
        .clone()
        .filter(|(engine, _)| engine.is_peer_database())
        .min_by(|a, b| a.1.median().total_cmp(&b.1.median()))
        .map(|(engine, figure)| (engine.title(), figure.over(&figures[0])));
    let (best_name, ratio) = best.unwrap_or(("nothing", f64::NAN));
    let memory: Vec<String> = EngineKind::ALL
        .iter()
        .zip(answers.iter().zip(&index_at_1_kib))
        .map(|(engine, (answer, at_1_kib))| {
            let small = answer.index_bytes as f64 / dataset.records as f64;
            let title = engine.title();
            format!("{title}: {} index B/key, at 1 KiB {}", number(small), number(*at_1_kib))
        })
        .collect();
    let line = Line {
        work: "Version::get, random existing keys".into(),
        ours: figures[0].clone(),
        peers: peers(&figures),
        ratio: Some((ratio, format!("{best_name}, the best peer database"))),
        targets: vec![
            Target::at_least(ratio, RATIO_MIN),
            Target::figure_at_most(&figures[0], NANOSECONDS_MAX),
        ],
        memory: memory.join("<br>"),
    };
    let many = Line {
        work: "Version::get_many, the same keys".into(),
        ratio: Some((figures[0].over(&many), "one by one".into())),
        ours: many,
        peers: Vec::new(),
        targets: Vec::new(),
        memory: String::new(),
    };
    let index = Line {
        work: "index, bytes a key at 1 KiB values".into(),
        ours: Figure::new("B", vec![index_at_1_kib[0]]),
        peers: EngineKind::ALL[1..]
            .iter()
            .zip(&index_at_1_kib[1..])
            .map(|(engine, bytes)| (engine.title().to_owned(), Figure::new("B", vec![*bytes])))
            .collect(),
        ratio: None,
        targets: vec![Target {
            text: format!("≤ {INDEX_BYTES_A_KEY_MAX} B"),
            reached: index_at_1_kib[0] <= INDEX_BYTES_A_KEY_MAX,
        }],
        memory: String::new(),
    };
    Ok(Measured {
        lines: vec![line, many, index],
        notes: vec![
            "Each engine is open in its own process, warmed by one pass over all keys; rounds alternate. Keys are generated before the clock starts. Every value is compared with its key, for all engines.".into(),
            "fondaco verifies the checksum of each record; LMDB and the sorted index have none; fjall verifies blocks when it loads them into its cache, which holds all of them.".into(),
            "Index bytes: fondaco's index files; LMDB's branch pages (its leaves hold keys as well); fjall's pinned block index and filters; the sorted index's entries.".into(),
        ],
        charts: vec![Chart::Bars {
            file: "hot-get".into(),
            title: "hot GET in process, one core".into(),
            unit: "ns a get, less is better".into(),
            bars: engines.map(|(engine, figure)| (engine.title().to_owned(), figure.median())).collect(),
        }],
    })
}

/// Starts a worker for each engine, all on one core, with their files in the page cache.
fn start(bench: &Bench, dataset: Dataset) -> Result<Vec<(EngineKind, Worker)>> {
    let mut workers = Vec::new();
    for engine in EngineKind::ALL {
        let dir = bench.engine_dir(engine, dataset)?;
        disk::remember(&dir)?;
        let launch = Launch::own()?
            .on_cpus(&bench.server_cpu().to_string())
            .log_to(bench.log("worker"));
        let worker = Worker::start(launch, engine, &dir, dataset.records, CACHE_BYTES)?;
        workers.push((engine, worker));
    }
    Ok(workers)
}

fn index_bytes_a_key(bench: &Bench, dataset: Dataset) -> Result<Vec<f64>> {
    let mut workers = start(bench, dataset)?;
    let ask = |(_, worker): &mut (EngineKind, Worker)| {
        let answer = worker.ask(Task::Hot { gets: 1, seed: 0 }, TASK_LIMIT)?;
        Ok(answer.index_bytes as f64 / dataset.records as f64)
    };
    workers.iter_mut().map(ask).collect()
}

fn peers(figures: &[Figure]) -> Vec<(String, Figure)> {
    let engines = EngineKind::ALL.iter().zip(figures).skip(1);
    engines
        .map(|(engine, figure)| (engine.title().to_owned(), figure.clone()))
        .collect()
}
