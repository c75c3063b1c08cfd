//! The duration of a swap, of a small store and of a large one: over the control port, and for readers in this process
//! on the catalog that a node serves from.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fondaco_format::Version;
use fondaco_model::{StoreKind, VersionNumber};
use fondaco_node::{Catalog, Serving, ServingStore, SharedCatalog, StoreId};

use super::Measured;
use crate::bench::Bench;
use crate::dataset::{Dataset, Random, is_value_of, key};
use crate::report::Rounds;
use crate::report::markdown::number;
use crate::servers::fondaco::{Fondaco, Settings};

const SMALL: Dataset = Dataset {
    records: 9_000,
    value_bytes: 100,
};
/// Within noise.
const RATIO_MAX: f64 = 1.25;
const READERS_PAUSE_MAX_US: f64 = 50.0;
const SWAPS_A_ROUND: u64 = 40;
/// How long a reader is observed around each swap.
const WINDOW: Duration = Duration::from_millis(1);

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let large = if bench.full {
        Dataset {
            records: 10_000_000,
            value_bytes: 1024,
        }
    } else {
        bench.large_values()
    };
    let versions = [("small", SMALL), ("large", large)];
    let mut dirs = Vec::new();
    for (store, dataset) in versions {
        dirs.push(bench.version_for(store, dataset)?);
    }
    let control = over_the_control_port(bench, &dirs)?;
    let mut readers = Vec::new();
    for ((_, dataset), dir) in versions.into_iter().zip(&dirs) {
        readers.push(for_readers(bench, dir, dataset)?);
    }
    let title = format!("store of {} MB", number(large.bytes() as f64 / 1e6));
    let over_port = format!("swap over the control port, {title}");
    let replacing = format!("replacing the catalog, {title}");
    let longest = format!("a reader's longest look-up around a swap, {title}");
    let lines = vec![
        control
            .line(over_port, "large")
            .peer("store of 1 MB", control.figure("small"))
            .over_peer("that of 1 MB")
            .at_most(RATIO_MAX),
        readers[1]
            .line(replacing, "publish")
            .peer("store of 1 MB", readers[0].figure("publish"))
            .over_peer("that of 1 MB")
            .figure_at_most(READERS_PAUSE_MAX_US),
        readers[1]
            .compare(longest, "swap", "no swap", "itself without a swap")
            .figure_at_most(READERS_PAUSE_MAX_US),
    ];
    let mut notes = vec![
        format!(
            "Over the control port: a POST, the metadata written and synced, the catalog replaced, the answer; {SWAPS_A_ROUND} swaps per round, back and forth, stores alternating; the median of each round."
        ),
        format!(
            "For readers: one thread looks keys up continuously, another replaces the catalog {SWAPS_A_ROUND} times per round. The longest look-up within {WINDOW:?} after each swap is recorded; the figure is the median of these in each round, compared with the same without swaps."
        ),
    ];
    if !bench.full {
        notes.push(
            "The large store has about 2 GB here, to limit time and disk space; `bench/run --only swap --full` uses 10 GB."
                .into(),
        );
    }
    Ok(Measured {
        lines,
        notes,
        ..Measured::default()
    })
}

/// The median duration of a swap of each store in each round, in milliseconds.
fn over_the_control_port(bench: &Bench, dirs: &[PathBuf]) -> Result<Rounds> {
    let server = Fondaco::start(bench, "swap", Settings::default())?;
    let stores = ["small", "large"];
    for (store, dir) in stores.into_iter().zip(dirs) {
        server.control().create(store)?;
        // Versions 1 and 2, the same files.
        server.control().deploy(store, dir)?;
        server.control().deploy_again(store, dir)?;
    }
    let agent = ureq::Agent::new_with_defaults();
    let mut rounds = Rounds::default();
    for _ in 0..bench.rounds() {
        let mut swaps = Rounds::default();
        for swap in 0..SWAPS_A_ROUND {
            for store in stores {
                let started = Instant::now();
                server.control().swap(&agent, store, 1 + swap % 2)?;
                swaps.add(store, "ms", started.elapsed().as_secs_f64() * 1e3);
            }
        }
        for store in stores {
            rounds.add(store, "ms", swaps.median(store));
        }
    }
    server.end()?;
    Ok(rounds)
}

/// Microseconds to replace the catalog, and the longest look-ups with and without a swap; medians of each round.
fn for_readers(bench: &Bench, dir: &Path, dataset: Dataset) -> Result<Rounds> {
    let mut versions = Vec::new();
    for number in [1, 2] {
        let version = Version::open(dir)?;
        version.warm()?;
        let number = VersionNumber::new(number).context("version numbers begin at 1")?;
        versions.push((number, Arc::new(version)));
    }
    let name: fondaco_model::StoreName = versions[0].1.manifest().store.clone();
    let catalog = |swap: u64| -> Result<Catalog> {
        let (number, version) = &versions[(swap % 2) as usize];
        Ok(Catalog::new([ServingStore {
            name: name.clone(),
            id: StoreId::new(1).context("store numbers begin at 1")?,
            kind: StoreKind::Batch,
            serving: Serving::Version(*number, Arc::clone(version)),
            others: Vec::new(),
            overlays: Default::default(),
        }]))
    };
    let shared = SharedCatalog::new();
    shared.publish(catalog(0)?);
    let stop = AtomicBool::new(false);
    let longest_ns = AtomicU64::new(0);
    let mut rounds = Rounds::default();
    thread::scope(|scope| -> Result<()> {
        let reader = scope.spawn(|| read_until(&shared, dataset, &stop, &longest_ns));
        let mut swapping = || -> Result<()> {
            for _ in 0..bench.rounds() {
                let mut swaps = Rounds::default();
                for swap in 0..SWAPS_A_ROUND {
                    let next = catalog(swap + 1)?;
                    longest_ns.store(0, Relaxed);
                    thread::sleep(WINDOW);
                    swaps.add("no swap", "µs", longest_ns.swap(0, Relaxed) as f64 / 1e3);
                    let started = Instant::now();
                    shared.publish(next);
                    swaps.add("publish", "µs", started.elapsed().as_secs_f64() * 1e6);
                    thread::sleep(WINDOW);
                    swaps.add("swap", "µs", longest_ns.load(Relaxed) as f64 / 1e3);
                    shared.reap();
                }
                for name in ["publish", "swap", "no swap"] {
                    rounds.add(name, "µs", swaps.median(name));
                }
            }
            Ok(())
        };
        let swapped = swapping();
        stop.store(true, Relaxed);
        reader.join().map_err(|_| anyhow!("the reader panicked"))??;
        swapped
    })?;
    Ok(rounds)
}

/// Looks up some keys repeatedly, and stores the longest look-up in `longest_ns`.
fn read_until(shared: &SharedCatalog, dataset: Dataset, stop: &AtomicBool, longest_ns: &AtomicU64) -> Result<()> {
    const KEYS: u64 = 1000;
    let mut random = Random::new(1);
    while !stop.load(Relaxed) {
        let id = random.below(KEYS.min(dataset.records));
        let started = Instant::now();
        let catalog = shared.load();
        let version = catalog
            .stores()
            .first()
            .and_then(|store| store.version())
            .context("no version is served")?;
        let found = version.get(&key(id))?.is_some_and(|value| is_value_of(id, &value));
        drop(catalog);
        longest_ns.fetch_max(started.elapsed().as_nanos() as u64, Relaxed);
        anyhow::ensure!(found, "record {id} has a wrong value");
    }
    Ok(())
}
