//! Storage that went back to an older state: the data directory was replaced by an older copy, or the database of an engine
//! has failed over to a replica that lagged. What was acknowledged since is not here, and its dots were given.
//!
//! That can be found out while the process runs. Then another incarnation begins before the next dot is given, and nothing
//! of what is concerned is counted by reads until it was compared with others, or an operator gave up what is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::background::Background;
use crate::error::ReplicasError;
use crate::replicas::Replicas;
use crate::shared::Shared;
use crate::writes::committer::ShardDots;

/// How often it is looked whether an engine waits.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How soon what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Lets engines go on that have found a loss, until it is told to end.
pub(crate) async fn run(background: Background) {
    let shared = &background.shared;
    // Those of which what was lost is known everywhere, by their places.
    let mut told = BTreeSet::new();
    loop {
        let mut pause = LOOK_EVERY;
        for at in 0..shared.engines.len() {
            if shared.engines[at].waits_after_loss()
                && let Err(error) = go_on(shared, at, &mut told)
            {
                tracing::warn!(%error, engine = %shared.kinds[at], "an engine that has lost something cannot go on yet");
                pause = AGAIN;
            }
        }
        if !background.signal.pause(pause).await {
            return;
        }
    }
}

fn go_on(shared: &Shared, at: usize, told: &mut BTreeSet<usize>) -> Result<(), ReplicasError> {
    if !told.contains(&at) {
        let lost = shared.engines[at].lost_writes();
        tracing::error!(
            lost,
            engine = %shared.kinds[at],
            "what was acknowledged is not all here any more: other replicas may have it"
        );
        shared.lose(|engine_at| engine_at == at)?;
        told.insert(at);
    }
    shared.engines[at].go_on()?;
    told.remove(&at);
    Ok(())
}

impl Shared {
    /// Begins another incarnation, and lets the partitions of all stores of these engines fall behind.
    fn lose(&self, is_lost: impl Fn(usize) -> bool) -> Result<(), ReplicasError> {
        let _changing = self.changing.lock();
        self.incarnation.fall_behind_anew()?;
        // A group of writes that has begun gives dots of the former incarnation: by what it has read, all of which is from
        // before. Each later one follows.
        self.dots.iter().for_each(ShardDots::wait_for_group);
        let holding = self.holding.load();
        for store in holding.stores.values() {
            if !is_lost(store.engine_at) || !store.engine.is_durable() || !store.is_compared() {
                continue;
            }
            for partition in store.partitions.values() {
                // The tree shows what is lost as if it were here. Comparisons by it that began before the next line do not count.
                partition.forget_tree();
                partition.fall_behind();
            }
        }
        self.exchanging.wake();
        Ok(())
    }
}

impl Replicas {
    /// How far the data directory is, by the count that is kept in it; `None` if it is new.
    pub fn count(&self) -> Option<u64> {
        self.shared.incarnation.count()
    }

    /// The data directory is so far from now on. It is on the disk when this returns.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub fn set_count(&self, count: u64) -> Result<(), ReplicasError> {
        self.shared.incarnation.set_count(count)
    }

    /// The data directory is an older copy of what the node had: what engines have in it lacks what was acknowledged since,
    /// as these words say.
    ///
    /// # Errors
    /// What cannot be written: then it is to be told again.
    pub fn went_back(&self, lost: &str) -> Result<(), ReplicasError> {
        let shared = &self.shared;
        for engine in shared.engines.iter().filter(|engine| engine.is_local()) {
            engine.note_loss(lost)?;
        }
        tracing::error!(
            lost,
            "what was acknowledged is not all here any more: other replicas may have it"
        );
        shared.lose(|at| shared.engines[at].is_local())
    }

    /// Counts anew: it is not known whether the data directory has all that the node has written.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub fn count_anew(&self) -> Result<(), ReplicasError> {
        self.shared.incarnation.renew()
    }
}
