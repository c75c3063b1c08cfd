//! Engines for records that change: ours compared with the alternatives that it could be built on.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Measured;
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::engines::Candidate;
use crate::engines::trial::Findings;
use crate::machine::process::Launch;
use crate::report::{Figure, Line};

const TRIAL_LIMIT: Duration = Duration::from_secs(300);
const ROUNDS: u64 = 3;
const CACHE_BYTES: u64 = 256 << 20;

/// The subject of a line of the row.
struct Aspect {
    work: &'static str,
    unit: &'static str,
    of: fn(&Findings) -> f64,
}

const ASPECTS: [Aspect; 14] = [
    Aspect {
        work: "writes, random order, in batches of 64, in the log",
        unit: "records/s",
        of: |f| f.written_per_s,
    },
    Aspect {
        work: "p99 of a batch",
        unit: "µs",
        of: |f| f.batch_us[0],
    },
    Aspect {
        work: "p99.9 of a batch",
        unit: "µs",
        of: |f| f.batch_us[1],
    },
    Aspect {
        work: "writes, each batch synced",
        unit: "records/s",
        of: |f| f.synced_per_s,
    },
    Aspect {
        work: "random reads, one thread",
        unit: "reads/s",
        of: |f| f.reads_per_s,
    },
    Aspect {
        work: "p99 of a read",
        unit: "µs",
        of: |f| f.read_us[0],
    },
    Aspect {
        work: "p99.9 of a read",
        unit: "µs",
        of: |f| f.read_us[1],
    },
    Aspect {
        work: "p99 of a read while another thread writes",
        unit: "µs",
        of: |f| f.busy_read_us[0],
    },
    Aspect {
        work: "p99.9 of a read while another thread writes",
        unit: "µs",
        of: |f| f.busy_read_us[1],
    },
    Aspect {
        work: "overwrites by that thread",
        unit: "records/s",
        of: |f| f.overwritten_per_s,
    },
    Aspect {
        work: "a scan of everything",
        unit: "records/s",
        of: |f| f.scanned_per_s,
    },
    Aspect {
        work: "disk for each byte of data, after all that",
        unit: "bytes",
        of: |f| f.space,
    },
    Aspect {
        work: "memory of its own",
        unit: "MiB",
        of: |f| f.resident_mib,
    },
    Aspect {
        work: "opening it again",
        unit: "ms",
        of: |f| f.open_ms,
    },
];

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = Dataset {
        records: if bench.quick { 20_000 } else { 1_000_000 },
        value_bytes: 1024,
    };
    let candidates = Candidate::all();
    let mut findings = vec![Vec::new(); candidates.len()];
    for _ in 0..bench.rounds().min(ROUNDS) {
        for (at, candidate) in candidates.iter().enumerate() {
            findings[at].push(try_candidate(bench, *candidate, dataset)?);
        }
    }
    let figure = |aspect: &Aspect, at: usize| {
        let rounds: &[Findings] = &findings[at];
        Figure::new(aspect.unit, rounds.iter().map(aspect.of).collect())
    };
    let lines = ASPECTS.iter().map(|aspect| Line {
        work: aspect.work.to_owned(),
        ours: figure(aspect, 0),
        peers: candidates
            .iter()
            .enumerate()
            .skip(1)
            .map(|(at, candidate)| (candidate.title().to_owned(), figure(aspect, at)))
            .collect(),
        ratio: None,
        targets: Vec::new(),
        memory: String::new(),
    });
    let mut notes = vec![
        "1 M records of 1 KiB, keys in the order of their hashes; each engine in its own process, with 256 MiB of cache for reads, on a disk whose page cache holds everything.".into(),
        "Ours are the engine log, which has all keys in memory, and the engine disk, which consists of fjall's trees. Both also cache records, including written ones, in memory of their own, so that event loops can read them without the disk; their figures include that.".into(),
        "LMDB writes with explicit syncs only; a power failure can then damage it, but not the others.".into(),
    ];
    if !cfg!(feature = "rocksdb") {
        notes.push("Without RocksDB: build with --features rocksdb.".into());
    }
    Ok(Measured {
        lines: lines.collect(),
        notes,
        ..Measured::default()
    })
}

fn try_candidate(bench: &Bench, candidate: Candidate, dataset: Dataset) -> Result<Findings> {
    let dir = bench.fresh_dir("engine")?;
    let printed = Launch::own()?
        .args(["try-engine", "--engine", candidate.argument(), "--dir"])
        .args([&dir])
        .args([
            "--records",
            &dataset.records.to_string(),
            "--value-bytes",
            &dataset.value_bytes.to_string(),
        ])
        .args(["--cache-bytes", &CACHE_BYTES.to_string()])
        .args(["--milliseconds", &bench.round_time().as_millis().to_string()])
        .log_to(bench.log("engine"))
        .output(TRIAL_LIMIT)?;
    std::fs::remove_dir_all(&dir).with_context(|| format!("could not delete {dir:?}"))?;
    serde_json::from_str(printed.trim()).with_context(|| format!("{} printed {printed:?}", candidate.title()))
}
