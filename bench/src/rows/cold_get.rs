//! In-process look-ups of data that is not in memory: each engine runs within a memory limit of a tenth of the data,
//! including page cache; disk reads per get, and gets per second.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Measured;
use crate::bench::Bench;
use crate::machine::disk;
use crate::machine::memory_group::MemoryGroup;
use crate::machine::process::Launch;
use crate::peers::EngineKind;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::worker::{Task, Worker};

const THREADS: [u64; 2] = [1, 16];
const TASK_LIMIT: Duration = Duration::from_secs(60);
const READS_A_GET_MAX: f64 = 1.1;
const RATIO_MIN: f64 = 2.0;

struct Contestant {
    engine: EngineKind,
    worker: Worker,
    group: MemoryGroup,
    reads_a_get: Vec<Figure>,
    gets_a_second: Vec<Figure>,
}

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let copy = bench.fresh_dir("sorted-copy")?;
    let mut contestants = start(bench, &copy)?;
    for round in 0..=bench.rounds() {
        for (at, threads) in THREADS.into_iter().enumerate() {
            for contestant in &mut contestants {
                let reads_before = disk::reads_completed(&bench.work)?;
                let task = Task::Cold {
                    threads,
                    milliseconds: bench.round_time().as_millis() as u64 * 2 / 3,
                    seed: round + 1,
                };
                let answer = contestant.worker.ask(task, TASK_LIMIT)?;
                ensure!(answer.gets > 0, "{} got nothing", contestant.engine.title());
                let reads = disk::reads_completed(&bench.work)? - reads_before;
                // The first round fills the memory.
                if round > 0 {
                    contestant.reads_a_get[at]
                        .rounds
                        .push(reads as f64 / answer.gets as f64);
                    let seconds = answer.nanoseconds as f64 / 1e9;
                    contestant.gets_a_second[at].rounds.push(answer.gets as f64 / seconds);
                }
            }
        }
    }
    let measured = report(bench, &contestants);
    drop(contestants);
    bench.discard(&EngineKind::ALL[1..], bench.large_values())?;
    std::fs::remove_dir_all(&copy)?;
    measured
}

fn start(bench: &Bench, copy: &Path) -> Result<Vec<Contestant>> {
    let dataset = bench.large_values();
    let limit_bytes = bench.memory_limit_bytes();
    // Both searches share their files; shared pages would be charged to only one of them. They are copied before the
    // page cache is dropped: pages read by the copying would stay in memory, charged to no group.
    copy_files(&bench.engine_dir(EngineKind::SortedInterpolation, dataset)?, copy)?;
    let mut contestants = Vec::new();
    for engine in EngineKind::ALL {
        let group = MemoryGroup::new(engine.argument(), limit_bytes)?;
        let dir = bench.engine_dir(engine, dataset)?;
        let dir = match engine {
            EngineKind::SortedInterpolation => copy.to_owned(),
            _ => dir,
        };
        disk::forget(&dir)?;
        let launch = Launch::own()?.within(Some(&group)).log_to(bench.log("worker"));
        let worker = Worker::start(launch, engine, &dir, dataset.records, limit_bytes / 4)?;
        contestants.push(Contestant {
            engine,
            worker,
            group,
            reads_a_get: vec![Figure::new("reads/get", Vec::new()); THREADS.len()],
            gets_a_second: vec![Figure::new("gets/s", Vec::new()); THREADS.len()],
        });
    }
    Ok(contestants)
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

fn report(bench: &Bench, contestants: &[Contestant]) -> Result<Measured> {
    let (ours, others) = (&contestants[0], &contestants[1..]);
    let mut lines = Vec::new();
    let mut charts = Vec::new();
    for (at, threads) in THREADS.into_iter().enumerate() {
        let word = if threads == 1 { "thread" } else { "threads" };
        let peers = |figures: fn(&Contestant) -> &Vec<Figure>| -> Vec<(String, Figure)> {
            others
                .iter()
                .map(|peer| (peer.engine.title().to_owned(), figures(peer)[at].clone()))
                .collect()
        };
        let reads = &ours.reads_a_get[at];
        lines.push(Line {
            work: format!("disk reads, {threads} {word}"),
            ours: reads.clone(),
            peers: peers(|contestant| &contestant.reads_a_get),
            ratio: None,
            targets: vec![Target::figure_at_most(reads, READS_A_GET_MAX)],
            memory: format!(
                "limit {} MiB, in use {} MiB",
                number(bench.memory_limit_bytes() as f64 / f64::from(1 << 20)),
                number(ours.group.usage_bytes()? as f64 / f64::from(1 << 20)),
            ),
        });
        let rate = &ours.gets_a_second[at];
        let best = others
            .iter()
            .map(|peer| (peer.engine.title(), &peer.gets_a_second[at]))
            .max_by(|a, b| a.1.median().total_cmp(&b.1.median()));
        let ratio = best.map_or(f64::NAN, |(_, figure)| rate.over(figure));
        let best_name = best.map_or("nothing", |(name, _)| name);
        lines.push(Line {
            work: format!("rate, {threads} {word}"),
            ours: rate.clone(),
            peers: peers(|contestant| &contestant.gets_a_second),
            ratio: Some((ratio, format!("{best_name}, the best of the others"))),
            targets: vec![Target::at_least(ratio, RATIO_MIN)],
            memory: String::new(),
        });
        charts.push(Chart::Bars {
            file: format!("cold-get-{threads}"),
            title: format!("cold GET in process, data 10 × memory, {threads} {word}"),
            unit: "gets a second, more is better".into(),
            bars: contestants
                .iter()
                .map(|contestant| {
                    (
                        contestant.engine.title().to_owned(),
                        contestant.gets_a_second[at].median(),
                    )
                })
                .collect(),
        });
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
