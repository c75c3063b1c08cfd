//! Look-ups in process: each engine runs in a process of its own.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::child::Child;
use crate::engines::Candidate;
use crate::engines::trial::Finding;
use crate::engines::worker::{Answer, Task, Worker};
use crate::machine::disk;
use crate::machine::memory_group::MemoryGroup;
use crate::peers::EngineKind;
use crate::report::markdown::number;
use crate::rows::runner::Running;
use crate::rows::spec::Step;

/// Enough for fjall to cache everything.
const CACHE_BYTES: u64 = 6 << 30;
const TASK_LIMIT: Duration = Duration::from_secs(180);
const TRIAL_LIMIT: Duration = Duration::from_secs(300);
const TRIAL_CACHE_BYTES: u64 = 256 << 20;

/// An engine that is open in a process.
pub struct Opened {
    kind: EngineKind,
    worker: Worker,
    memory: Option<MemoryGroup>,
}

/// Opens all read-only engines with the records of the first argument, on one core and in the page cache, or, if the row has a
/// limit of memory, each within that limit.
pub fn open(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let bench = running.bench;
    let dataset = bench.dataset(step.arguments.first().context("no records")?)?;
    let limit_bytes = running.spec.limit_bytes.map(|limits| limits[usize::from(!bench.quick)]);
    let cpu = bench.server_cpu();
    let copy = bench.fresh_dir("sorted-copy")?;
    if limit_bytes.is_some() {
        // Both searches share their files; shared pages would be charged to only one of them. They are copied before the
        // page cache is dropped: pages read by the copying would stay in memory, charged to no group.
        disk::copy_files(&bench.engine_dir(EngineKind::SortedInterpolation, dataset)?, &copy)?;
    }
    running.kept.engines.clear();
    for kind in EngineKind::ALL {
        let dir = match kind {
            EngineKind::SortedInterpolation if limit_bytes.is_some() => copy.clone(),
            _ => bench.engine_dir(kind, dataset)?,
        };
        match limit_bytes {
            Some(_) => disk::forget(&dir)?,
            None => disk::remember(&dir)?,
        }
        let memory = limit_bytes
            .map(|limit| MemoryGroup::new(kind.argument(), limit))
            .transpose()?;
        let child = Child::Worker {
            engine: kind,
            dir,
            records: dataset.records,
            cache_bytes: limit_bytes.map_or(CACHE_BYTES, |limit| limit / 4),
        };
        let launch = child.launch()?.log_to(bench.log("worker"));
        let worker = Worker::start(&match &memory {
            Some(memory) => launch.within(Some(memory.processes_file())),
            None => launch.on_cpu(cpu),
        })?;
        running.kept.engines.push(Opened { kind, worker, memory });
    }
    Ok(())
}

/// Reads all records of each engine once.
pub fn warm(running: &mut Running<'_>, _: &Step) -> Result<()> {
    for opened in &mut running.kept.engines {
        opened.worker.ask(Task::Warm, TASK_LIMIT)?;
    }
    Ok(())
}

/// Looks random keys up, one after the other: nanoseconds, as `TITLE ns`, and the size of the index, as `TITLE index`. With an
/// argument, only the index is recorded, as `TITLE` and the argument.
pub fn hot_gets(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let (quick, seed) = (running.bench.quick, running.round);
    let index_only = step.arguments.first();
    let dataset = match index_only {
        Some(_) => running.bench.dataset("large")?,
        None => running.dataset,
    };
    let gets = match (index_only, quick) {
        (Some(_), _) => 1,
        (None, true) => 20_000,
        (None, false) => 2_000_000,
    };
    let mut engines = std::mem::take(&mut running.kept.engines);
    let nanoseconds = |answer: Answer| answer.nanoseconds as f64 / answer.gets as f64;
    for Opened { kind, worker, .. } in &mut engines {
        let title = kind.title();
        let answer = worker.ask(Task::Hot { gets, seed }, TASK_LIMIT)?;
        let index = answer.index_bytes as f64 / dataset.records as f64;
        match index_only {
            Some(name) => running.add(&format!("{title} {name}"), "B", index),
            None => {
                running.add(&format!("{title} ns"), "ns", nanoseconds(answer));
                running.add(&format!("{title} index"), "B", index);
            }
        }
        if *kind == EngineKind::Fondaco && index_only.is_none() {
            let many = worker.ask(Task::HotMany { gets, seed }, TASK_LIMIT)?;
            running.add("get_many", "ns", nanoseconds(many));
        }
    }
    running.kept.engines = engines;
    Ok(())
}

/// Looks random keys up with so many threads, the argument: gets a second, and disk reads per get.
pub fn cold_gets(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let threads = step.arguments.first().context("no number of threads")?;
    let bench = running.bench;
    let task = Task::Cold {
        threads: threads.parse()?,
        milliseconds: bench.round_time().as_millis() as u64 * 2 / 3,
        seed: running.round + 1,
    };
    let mut engines = std::mem::take(&mut running.kept.engines);
    for Opened { kind, worker, .. } in &mut engines {
        let (title, before) = (kind.title(), disk::reads_completed(&bench.work)?);
        let answer = worker.ask(task, TASK_LIMIT)?;
        ensure!(answer.gets > 0, "{title} got nothing");
        let (reads, gets) = (
            (disk::reads_completed(&bench.work)? - before) as f64,
            answer.gets as f64,
        );
        running.add(&format!("{title} {threads} reads"), "reads/get", reads / gets);
        running.add(
            &format!("{title} {threads} rate"),
            "gets/s",
            gets * 1e9 / answer.nanoseconds as f64,
        );
    }
    let memory = engines.first().and_then(|ours| ours.memory.as_ref());
    if let Some(memory) = memory {
        let in_use = number(memory.usage_bytes()? as f64 / f64::from(1 << 20));
        running.figures.set("in_use", in_use);
    }
    running.kept.engines = engines;
    Ok(())
}

/// Ends the processes, and deletes the files of the records of the first argument, which no later row needs. Chooses the best of
/// the peers, by the figures with the other arguments' names.
pub fn close(running: &mut Running<'_>, step: &Step) -> Result<()> {
    running.kept.engines.clear();
    let [data, aspects @ ..] = &step.arguments[..] else {
        return Ok(());
    };
    let dataset = running.bench.dataset(data)?;
    let is_limited = running.spec.limit_bytes.is_some();
    running
        .bench
        .discard(&EngineKind::ALL[usize::from(is_limited)..], dataset)?;
    for aspect in aspects {
        let peers = EngineKind::ALL[1..]
            .iter()
            .filter(|kind| is_limited || kind.is_peer_database());
        let peers = peers.map(|kind| (kind.title(), format!("{} {aspect}", kind.title())));
        running.figures.choose_best(aspect, peers, !is_limited)?;
    }
    Ok(())
}

/// Tries each engine for records that change. The line of each aspect lacks peers that this program was not built with.
pub fn try_engines(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let bench = running.bench;
    for engine in Candidate::all() {
        let dir = bench.fresh_dir("engine")?;
        let trial = Child::TryEngine {
            engine,
            dir: dir.clone(),
            dataset: running.dataset,
            cache_bytes: TRIAL_CACHE_BYTES,
            phase: bench.round_time(),
        };
        let printed = trial.launch()?.log_to(bench.log("engine")).output(TRIAL_LIMIT)?;
        std::fs::remove_dir_all(&dir).with_context(|| format!("could not delete {dir:?}"))?;
        let findings = serde_json::from_str::<Vec<Finding>>(printed.trim());
        let findings = findings.with_context(|| format!("{engine:?} printed {printed:?}"))?;
        for (aspect, unit, value) in findings {
            running.add(&format!("{} {aspect}", engine.argument()), &unit, value);
        }
    }
    let without = "Without RocksDB: build with --features rocksdb.";
    running
        .figures
        .set("rocksdb", if cfg!(feature = "rocksdb") { "" } else { without });
    Ok(())
}
