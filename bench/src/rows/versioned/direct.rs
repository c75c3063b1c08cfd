//! The engine under a store, called directly, in a process of its own on the servers' core.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{CONNECTIONS, Course, Mix};
use crate::engines::Candidate;
use crate::engines::mixed::EngineMix;
use crate::machine::dialogue::Dialogue;
use crate::machine::process::Launch;

/// All records fit, as they do into the memory that a node takes of a machine of 24 GiB.
const CACHE_BYTES: u64 = 3 << 30;
/// For how long it is written to before it counts: until it cleans or merges as it does for good. A log that has just been
/// filled has no garbage to be cleaned; servers have been written to, too, when they are compared with it.
const WARM_UP: Duration = Duration::from_secs(5);
/// The largest batch: as much as commits together in a group on a busy node.
const BATCH_MAX: u64 = 64;
/// The first mix waits until the engine is filled.
const LIMIT: Duration = Duration::from_secs(120);

/// Such an engine, with as many records as the servers have.
pub(super) struct Direct {
    candidate: Candidate,
    dialogue: RefCell<Dialogue>,
    dir: PathBuf,
}

impl Direct {
    /// Fills one, and has it written to before it counts.
    pub(super) fn start(course: &Course<'_>, candidate: Candidate) -> Result<Self> {
        let Course { bench, dataset, .. } = course;
        let name = format!("engine-{}", candidate.argument());
        let dir = bench.fresh_dir(&name)?;
        let launch = Launch::own()?
            .args(["mix-engine", "--engine", candidate.argument(), "--dir"])
            .args([&dir])
            .args(["--records", &dataset.records.to_string()])
            .args(["--value-bytes", &dataset.value_bytes.to_string()])
            .args(["--cache-bytes", &CACHE_BYTES.to_string()])
            .on_cpus(&bench.server_cpu().to_string())
            .log_to(bench.log(&name));
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

    /// Requests in a second of its processor time under a mix, in batches as large as connections may have writes under
    /// way. Each is synced where each write is.
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
        let answer = self.dialogue.borrow_mut().ask(&mix.line(), LIMIT)?;
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
