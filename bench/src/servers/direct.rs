//! The engine of a store, called directly, in its own process on the servers' core.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::child::Child;
use crate::dataset::Dataset;
use crate::engines::Candidate;
use crate::engines::mixed::EngineMix;
use crate::machine::dialogue::Dialogue;

/// All records fit, as they do into the share of memory that a node uses of a machine with 24 GiB.
const CACHE_BYTES: u64 = 3 << 30;
/// The duration of writes before the measurement: until the engine cleans or compacts at its steady rate. A log that
/// was just filled has no garbage; the servers that it is compared with have been written to as well.
const WARM_UP: Duration = Duration::from_secs(5);
/// The largest batch: the size of a group commit on a busy node.
pub const BATCH_MAX: u64 = 64;
/// The first mix waits until the engine is filled.
const LIMIT: Duration = Duration::from_secs(120);

/// An engine with as many records as the servers.
pub struct Direct {
    dialogue: RefCell<Dialogue>,
    dir: PathBuf,
}

impl Direct {
    /// Fills an engine, and writes to it before the measurement.
    pub fn start(bench: &Bench, engine: Candidate, dataset: Dataset) -> Result<Self> {
        let name = format!("engine-{}", engine.argument());
        let dir = bench.fresh_dir(&name)?;
        let child = Child::MixEngine {
            engine,
            dir: dir.clone(),
            dataset,
            cache_bytes: CACHE_BYTES,
        };
        let launch = child.launch()?.on_cpu(bench.server_cpu()).log_to(bench.log(&name));
        let direct = Self {
            dialogue: RefCell::new(Dialogue::start(&launch)?),
            dir,
        };
        let mix = EngineMix {
            writes: 1.0,
            zipf: false,
            synced: false,
            batch: BATCH_MAX,
            lasts: WARM_UP.min(bench.round_time() * 2),
        };
        direct.per_cpu_second(mix)?;
        Ok(direct)
    }

    /// Requests per second of its CPU time under a mix.
    pub fn per_cpu_second(&self, mix: EngineMix) -> Result<f64> {
        let answer = self.dialogue.borrow_mut().ask(&serde_json::to_string(&mix)?, LIMIT)?;
        answer
            .parse()
            .with_context(|| format!("the engine's process printed {answer:?}"))
    }

    /// Ends it and deletes its data.
    pub fn end(self) -> Result<()> {
        drop(self.dialogue);
        std::fs::remove_dir_all(&self.dir).with_context(|| format!("could not delete {:?}", self.dir))
    }
}
