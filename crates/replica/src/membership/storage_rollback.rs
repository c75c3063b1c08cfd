//! Storage that was rolled back to an older state: the data directory was replaced by an older copy, or the database of
//! an engine failed over to a replica that lagged. Later acknowledged writes are lost here, and their dots were given.
//!
//! This may be found while the process runs. Then a new incarnation begins before the next dot is given, and counted
//! reads exclude the affected partitions until they were compared with others, or an operator gave up the lost data.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::background::Background;
use crate::error::ReplicasError;
use crate::replicas::Replicas;
use crate::shared::Shared;
use crate::writes::committer::ShardDots;

/// How often engines are checked.
const CHECK_PERIOD: Duration = Duration::from_millis(100);

/// The delay before a failed attempt is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Resumes engines that wait after a loss, until it is ended.
pub(crate) async fn run(background: Background) {
    let shared = &background.shared;
    // The indexes of engines whose loss has been noted everywhere.
    let mut noted = BTreeSet::new();
    loop {
        let mut pause = CHECK_PERIOD;
        for at in 0..shared.engines.len() {
            if let Some(lost) = shared.engines[at].pending_loss()
                && let Err(error) = resume(shared, at, &lost, &mut noted)
            {
                tracing::warn!(%error, engine = %shared.kinds[at], "an engine that has lost data cannot resume yet");
                pause = RETRY_DELAY;
            }
        }
        if !background.signal.pause(pause).await {
            return;
        }
    }
}

fn resume(shared: &Shared, at: usize, lost: &str, noted: &mut BTreeSet<usize>) -> Result<(), ReplicasError> {
    if !noted.contains(&at) {
        shared.lose(|engine_at| engine_at == at, lost)?;
        noted.insert(at);
    }
    shared.engines[at].resume()?;
    noted.remove(&at);
    Ok(())
}

impl Shared {
    /// Notes the loss of these engines, begins a new incarnation, and marks the partitions of all their stores as behind.
    fn lose(&self, has_lost: impl Fn(usize) -> bool, lost: &str) -> Result<(), ReplicasError> {
        tracing::error!(
            lost,
            "acknowledged writes were lost on this node: other replicas may have them"
        );
        let _changing = self.changing.lock();
        let kinds = self.kinds.iter().copied().enumerate();
        let kinds = kinds.filter(|(at, _)| has_lost(*at)).map(|(_, kind)| kind);
        self.incarnation.lose(kinds, lost)?;
        // A group of writes that has begun gives dots of the former incarnation: it has read only data from before the
        // loss. Each later group uses the new one.
        self.dots.iter().for_each(ShardDots::wait_for_group);
        let holding = self.holding.load();
        for store in holding.stores.values() {
            if !has_lost(store.engine_at) || !store.engine.is_durable() || !store.is_compared() {
                continue;
            }
            for partition in store.partitions.values() {
                // The tree still contains the lost records. Comparisons with it that began before the next line do not
                // count.
                partition.forget_tree();
                partition.fall_behind();
            }
        }
        self.exchanging.wake();
        Ok(())
    }
}

impl Replicas {
    /// The count of the data directory, which is stored in it; `None` if the directory is new.
    pub fn count(&self) -> Option<u64> {
        self.shared.incarnation.count()
    }

    /// Sets the count of the data directory. It is on the disk when this returns.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub fn set_count(&self, count: u64) -> Result<(), ReplicasError> {
        self.shared.incarnation.set_count(count)
    }

    /// The data directory is an older copy: its engines lack later acknowledged writes, as `lost` describes.
    ///
    /// # Errors
    /// A file that cannot be written: then the caller has to retry.
    pub fn went_back(&self, lost: &str) -> Result<(), ReplicasError> {
        let engines = &self.shared.engines;
        self.shared.lose(|at| engines[at].is_local(), lost)
    }

    /// Begins a new incarnation: it is unknown whether the data directory has all writes of the node.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub fn count_anew(&self) -> Result<(), ReplicasError> {
        self.shared.incarnation.renew()
    }
}
