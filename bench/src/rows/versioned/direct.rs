//! The engine of a store, called directly, in its own process on the servers' core.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{CONNECTIONS, Course, Mix};
use crate::children::Child;
use crate::engines::Candidate;
use crate::engines::mixed::EngineMix;
use crate::machine::dialogue::Dialogue;

/// All records fit, as they do into the share of memory that a node uses of a machine with 24 GiB.
const CACHE_BYTES: u64 = 3 << 30;
/// The duration of writes before the measurement: until the engine cleans or compacts at its steady rate. A log that
/// was just filled has no garbage; the servers that it is compared with have been written to as well.
const WARM_UP: Duration = Duration::from_secs(5);
/// The largest batch: the size of a group commit on a busy node.
const BATCH_MAX: u64 = 64;
/// The first mix waits until the engine is filled.
const LIMIT: Duration = Duration::from_secs(120);

/// An engine with as many records as the servers.
pub(super) struct Direct {
    candidate: Candidate,
    dialogue: RefCell<Dialogue>,
    dir: PathBuf,
}

impl Direct {
    /// Fills an engine, and writes to it before the measurement.
    pub(super) fn start(course: &Course<'_>, candidate: Candidate) -> Result<Self> {
        let Course { bench, dataset, .. } = course;
        let name = format!("engine-{}", candidate.argument());
        let dir = bench.fresh_dir(&name)?;
        let engine = Child::MixEngine {
            engine: candidate,
            dir: dir.clone(),
            dataset: *dataset,
            cache_bytes: CACHE_BYTES,
        };
        let cpu = bench.server_cpu().to_string();
        let launch = engine.launch()?.on_cpus(&cpu).log_to(bench.log(&name));
        let direct = Self {
            candidate,
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
        direct.ask(mix)?;
        Ok(direct)
    }

    /// The engine's name in settings.
    pub(super) fn engine(&self) -> &'static str {
        self.candidate.argument()
    }

    /// Requests per second of its CPU time under a mix, in batches as large as the number of writes in flight. Each
    /// batch is synced if the mix syncs each write.
    pub(super) fn per_cpu_second(&self, mix: &Mix, lasts: Duration) -> Result<f64> {
        let under_way = (CONNECTIONS * mix.pipeline) as f64 * mix.writes;
        self.ask(EngineMix {
            batch: (under_way.round() as u64).clamp(1, BATCH_MAX),
            writes: mix.writes,
            zipf: mix.zipf,
            synced: mix.synced,
            lasts,
        })
    }

    fn ask(&self, mix: EngineMix) -> Result<f64> {
        let answer = self.dialogue.borrow_mut().ask(&serde_json::to_string(&mix)?, LIMIT)?;
        answer
            .parse()
            .with_context(|| format!("the engine's process printed {answer:?}"))
    }

    /// Ends it and deletes its data.
    pub(super) fn end(self) -> Result<()> {
        let Self { dialogue, dir, .. } = self;
        drop(dialogue);
        std::fs::remove_dir_all(&dir).with_context(|| format!("could not delete {dir:?}"))
    }
}
