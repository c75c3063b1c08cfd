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
    // The indexes of engines whose loss has been recorded everywhere.
    let mut recorded = BTreeSet::new();
    loop {
        let mut pause = CHECK_PERIOD;
        for at in 0..shared.engines.len() {
            if shared.engines[at].waits_after_loss()
                && let Err(error) = resume(shared, at, &mut recorded)
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

fn resume(shared: &Shared, at: usize, recorded: &mut BTreeSet<usize>) -> Result<(), ReplicasError> {
    if !recorded.contains(&at) {
        let lost = shared.engines[at].lost_writes();
        tracing::error!(
            lost,
            engine = %shared.kinds[at],
            "acknowledged writes were lost on this node: other replicas may have them"
        );
        shared.lose(|engine_at| engine_at == at)?;
        recorded.insert(at);
    }
    shared.engines[at].go_on()?;
    recorded.remove(&at);
    Ok(())
}

impl Shared {
    /// Begins a new incarnation, and marks the partitions of all stores of these engines as behind.
    fn lose(&self, is_lost: impl Fn(usize) -> bool) -> Result<(), ReplicasError> {
        let _changing = self.changing.lock();
        self.incarnation.fall_behind_anew()?;
        // A group of writes that has begun gives dots of the former incarnation: it has read only data from before the
        // loss. Each later group uses the new one.
        self.dots.iter().for_each(ShardDots::wait_for_group);
        let holding = self.holding.load();
        for store in holding.stores.values() {
            if !is_lost(store.engine_at) || !store.engine.is_durable() || !store.is_compared() {
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
    /// A file or an engine that cannot be written: then the caller has to retry.
    pub fn went_back(&self, lost: &str) -> Result<(), ReplicasError> {
        let shared = &self.shared;
        for engine in shared.engines.iter().filter(|engine| engine.is_local()) {
            engine.note_loss(lost)?;
        }
        tracing::error!(
            lost,
            "acknowledged writes were lost on this node: other replicas may have them"
        );
        shared.lose(|at| shared.engines[at].is_local())
    }

    /// Begins a new incarnation: it is unknown whether the data directory has all writes of the node.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub fn count_anew(&self) -> Result<(), ReplicasError> {
        self.shared.incarnation.renew()
    }
}
