//! The duration of a swap, of a small store and of a large one: over the control port, and for readers in this process
//! on the catalog that a node serves from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fondaco_format::Version;
use fondaco_model::{StoreKind, VersionNumber};
use fondaco_node::{Catalog, Serving, ServingStore, SharedCatalog, StoreId};

use super::super::runner::Running;
use super::super::spec::Step;
use crate::dataset::{Dataset, Random, is_value_of, key};
use crate::report::Figures;

const SWAPS_A_ROUND: u64 = 40;
/// How long a reader is observed around each swap.
const WINDOW: Duration = Duration::from_millis(1);

/// The median duration of a swap of each of the stores `small` and `large`, in milliseconds.
pub fn over_the_control_port(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let agent = ureq::Agent::new_with_defaults();
    let mut swaps = Figures::default();
    for swap in 0..SWAPS_A_ROUND {
        for store in ["small", "large"] {
            let started = Instant::now();
            running.control()?.swap(&agent, store, 1 + swap % 2)?;
            swaps.add(store, "ms", started.elapsed().as_secs_f64() * 1e3);
        }
    }
    for store in ["small", "large"] {
        running.add(store, "ms", swaps.median(store));
    }
    Ok(())
}

/// Microseconds to replace the catalog of a store of records, and the longest look-ups with and without a swap; medians of the
/// round.
pub fn for_readers(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let [store, data] = &step.arguments[..] else {
        anyhow::bail!("a store and its records are needed");
    };
    let dataset = running.bench.dataset(data)?;
    let dir = &running.bench.version_for(store, dataset)?;
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
    let mut swaps = Figures::default();
    thread::scope(|scope| -> Result<()> {
        let reader = scope.spawn(|| read_until(&shared, dataset, &stop, &longest_ns));
        let mut swap = |number: u64| -> Result<()> {
            let next = catalog(number + 1)?;
            longest_ns.store(0, Relaxed);
            thread::sleep(WINDOW);
            swaps.add("no swap", "µs", longest_ns.swap(0, Relaxed) as f64 / 1e3);
            let started = Instant::now();
            shared.publish(next);
            swaps.add("publish", "µs", started.elapsed().as_secs_f64() * 1e6);
            thread::sleep(WINDOW);
            swaps.add("swap", "µs", longest_ns.load(Relaxed) as f64 / 1e3);
            shared.reap();
            Ok(())
        };
        let swapped = (0..SWAPS_A_ROUND).try_for_each(&mut swap);
        stop.store(true, Relaxed);
        reader.join().map_err(|_| anyhow!("the reader panicked"))??;
        swapped
    })?;
    for name in ["publish", "swap", "no swap"] {
        running.add(&format!("{store} {name}"), "µs", swaps.median(name));
    }
    Ok(())
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
