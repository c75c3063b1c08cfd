//! Engines for records that change: ours compared with the alternatives that it could be built on.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Measured;
use crate::bench::Bench;
use crate::children::Child;
use crate::dataset::Dataset;
use crate::engines::Candidate;
use crate::engines::trial::Findings;
use crate::report::Rounds;

const TRIAL_LIMIT: Duration = Duration::from_secs(300);
const ROUNDS: u64 = 3;
const CACHE_BYTES: u64 = 256 << 20;

/// The lines of the row: what is measured, its unit, and where the findings have it.
type Aspect = (&'static str, &'static str, fn(&Findings) -> f64);

const ASPECTS: [Aspect; 14] = [
    ("writes, random order, in batches of 64, in the log", "records/s", |f| {
        f.written_per_s
    }),
    ("p99 of a batch", "µs", |f| f.batch_us[0]),
    ("p99.9 of a batch", "µs", |f| f.batch_us[1]),
    ("writes, each batch synced", "records/s", |f| f.synced_per_s),
    ("random reads, one thread", "reads/s", |f| f.reads_per_s),
    ("p99 of a read", "µs", |f| f.read_us[0]),
    ("p99.9 of a read", "µs", |f| f.read_us[1]),
    ("p99 of a read while another thread writes", "µs", |f| {
        f.busy_read_us[0]
    }),
    ("p99.9 of a read while another thread writes", "µs", |f| {
        f.busy_read_us[1]
    }),
    ("overwrites by that thread", "records/s", |f| f.overwritten_per_s),
    ("a scan of everything", "records/s", |f| f.scanned_per_s),
    ("disk for each byte of data, after all that", "bytes", |f| f.space),
    ("memory of its own", "MiB", |f| f.resident_mib),
    ("opening it again", "ms", |f| f.open_ms),
];

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.mutable_values();
    let candidates = Candidate::all();
    let mut by_aspect = ASPECTS.map(|_| Rounds::default());
    for _ in 0..bench.rounds().min(ROUNDS) {
        for candidate in &candidates {
            let findings = try_candidate(bench, *candidate, dataset)?;
            for (rounds, (_, unit, of)) in by_aspect.iter_mut().zip(ASPECTS) {
                rounds.add(candidate.title(), unit, of(&findings));
            }
        }
    }
    let titles: Vec<&str> = candidates.iter().map(|candidate| candidate.title()).collect();
    let aspects = ASPECTS.iter().zip(&by_aspect);
    let mut notes = vec![
        "1 M records of 1 KiB, keys in the order of their hashes; each engine in its own process, with 256 MiB of cache for reads, on a disk whose page cache holds everything.".into(),
        "Ours are the engine log, which has all keys in memory, and the engine disk, which consists of fjall's trees. Both also cache records, including written ones, in memory of their own, so that event loops can read them without the disk; their figures include that.".into(),
        "LMDB writes with explicit syncs only; a power failure can then damage it, but not the others.".into(),
    ];
    if !cfg!(feature = "rocksdb") {
        notes.push("Without RocksDB: build with --features rocksdb.".into());
    }
    Ok(Measured {
        lines: aspects
            .map(|((work, ..), rounds)| rounds.beside(*work, titles[0], &titles[1..]))
            .collect(),
        notes,
        ..Measured::default()
    })
}

fn try_candidate(bench: &Bench, engine: Candidate, dataset: Dataset) -> Result<Findings> {
    let dir = bench.fresh_dir("engine")?;
    let trial = Child::TryEngine {
        engine,
        dir: dir.clone(),
        dataset,
        cache_bytes: CACHE_BYTES,
        phase: bench.round_time(),
    };
    let printed = trial.launch()?.log_to(bench.log("engine")).output(TRIAL_LIMIT)?;
    std::fs::remove_dir_all(&dir).with_context(|| format!("could not delete {dir:?}"))?;
    serde_json::from_str(printed.trim()).with_context(|| format!("{} printed {printed:?}", engine.title()))
}
