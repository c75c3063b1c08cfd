//! In-process look-ups of data that is not in memory: each engine runs within a memory limit of a tenth of the data,
//! including page cache; disk reads per get, and gets per second.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Measured;
use crate::bench::Bench;
use crate::children::Child;
use crate::machine::disk;
use crate::machine::memory_group::MemoryGroup;
use crate::peers::EngineKind;
use crate::report::markdown::number;
use crate::report::{Chart, Rounds};
use crate::worker::{Task, Worker};

/// Numbers of threads, and their names.
const THREADS: [(u64, &str); 2] = [(1, "1 thread"), (16, "16 threads")];
const TASK_LIMIT: Duration = Duration::from_secs(60);
const READS_A_GET_MAX: f64 = 1.1;
const RATIO_MIN: f64 = 2.0;

struct Contestant {
    engine: EngineKind,
    worker: Worker,
    group: MemoryGroup,
}

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let copy = bench.fresh_dir("sorted-copy")?;
    let mut contestants = start(bench, &copy)?;
    let [mut reads_a_get, mut gets_a_second] = [(); 2].map(|()| THREADS.map(|_| Rounds::default()));
    for round in 0..=bench.rounds() {
        for (at, (threads, _)) in THREADS.into_iter().enumerate() {
            for Contestant { engine, worker, .. } in &mut contestants {
                let reads_before = disk::reads_completed(&bench.work)?;
                let task = Task::Cold {
                    threads,
                    milliseconds: bench.round_time().as_millis() as u64 * 2 / 3,
                    seed: round + 1,
                };
                let answer = worker.ask(task, TASK_LIMIT)?;
                ensure!(answer.gets > 0, "{} got nothing", engine.title());
                let reads = (disk::reads_completed(&bench.work)? - reads_before) as f64;
                // The first round fills the memory.
                if round > 0 {
                    let gets = answer.gets as f64;
                    reads_a_get[at].add(engine.title(), "reads/get", reads / gets);
                    gets_a_second[at].add(engine.title(), "gets/s", gets * 1e9 / answer.nanoseconds as f64);
                }
            }
        }
    }
    let mib = |bytes: u64| number(bytes as f64 / f64::from(1 << 20));
    let in_use = mib(contestants[0].group.usage_bytes()?);
    drop(contestants);
    bench.discard(&EngineKind::ALL[1..], bench.large_values())?;
    std::fs::remove_dir_all(&copy)?;

    let [ours, peers @ ..] = EngineKind::ALL.map(EngineKind::title);
    let (mut lines, mut charts) = (Vec::new(), Vec::new());
    for (at, (threads, title)) in THREADS.into_iter().enumerate() {
        let (reads, gets) = (&reads_a_get[at], &gets_a_second[at]);
        let memory = format!("{}, in use {in_use} MiB", bench.memory_limit_text());
        let best = peers
            .into_iter()
            .max_by(|a, b| gets.median(a).total_cmp(&gets.median(b)));
        let best = best.unwrap_or("nothing");
        let line = gets.beside(format!("rate, {title}"), ours, &peers);
        lines.extend([
            reads
                .beside(format!("disk reads, {title}"), ours, &peers)
                .figure_at_most(READS_A_GET_MAX)
                .memory(memory),
            line.ratio(
                gets.figure(ours).over(&gets.figure(best)),
                format!("{best}, the best of the others"),
            )
            .at_least(RATIO_MIN),
        ]);
        charts.push(Chart::bars(
            format!("cold-get-{threads}"),
            format!("cold GET in process, data 10 × memory, {title}"),
            "gets a second, more is better",
            EngineKind::ALL
                .map(|engine| (engine.title().to_owned(), gets.median(engine.title())))
                .to_vec(),
        ));
    }
    Ok(Measured {
        lines,
        notes: vec![
            "Each engine runs in its own memory control group, which includes the page cache; its files were dropped from the page cache before; one round fills the memory and is not counted.".into(),
            "Disk reads are those that the device completed (/proc/diskstats) during the round, for all processes of the machine.".into(),
            "fjall's block cache gets a quarter of the limit; its blocks are not compressed. LMDB reads without readahead, the sorted index with MADV_RANDOM.".into(),
        ],
        charts,
    })
}

fn start(bench: &Bench, copy: &Path) -> Result<Vec<Contestant>> {
    let dataset = bench.large_values();
    let limit_bytes = bench.memory_limit_bytes();
    // Both searches share their files; shared pages would be charged to only one of them. They are copied before the
    // page cache is dropped: pages read by the copying would stay in memory, charged to no group.
    disk::copy_files(&bench.engine_dir(EngineKind::SortedInterpolation, dataset)?, copy)?;
    let mut contestants = Vec::new();
    for engine in EngineKind::ALL {
        let group = MemoryGroup::new(engine.argument(), limit_bytes)?;
        let dir = match engine {
            EngineKind::SortedInterpolation => copy.to_owned(),
            _ => bench.engine_dir(engine, dataset)?,
        };
        disk::forget(&dir)?;
        let worker = Child::Worker {
            engine,
            dir,
            records: dataset.records,
            cache_bytes: limit_bytes / 4,
        };
        let worker = Worker::start(worker, |launch| launch.within(Some(&group)).log_to(bench.log("worker")))?;
        contestants.push(Contestant { engine, worker, group });
    }
    Ok(contestants)
}
