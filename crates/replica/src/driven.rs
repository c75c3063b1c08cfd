//! Replicas without threads, for a simulation: the simulation decides when waiting writes are committed and synced, and
//! polls the chores. Reads are done at once. Everything else is the code that nodes run.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use crate::error::ReplicasError;
use crate::host::Host;
use crate::options::{Engines, ReplicaOptions};
use crate::peers::Peers;
use crate::replicas::{Replicas, chores};
use crate::worker::DrivenChore;
use crate::writes::committer::{DrivenShard, last_counter};

/// The replicas of a node, driven step by step. Dropping it simulates a crash of the process.
pub struct DrivenReplicas {
    // Dropped first, as background threads end first.
    chores: Vec<DrivenChore>,
    shards: Vec<DrivenShard>,
    replicas: Arc<Replicas>,
}

impl DrivenReplicas {
    /// Opens the stored data. It holds no partitions before it receives the cluster state.
    ///
    /// # Errors
    /// An engine that cannot be used, or an error of the host.
    pub fn open(
        host: Arc<dyn Host>,
        engines: &Engines,
        peers: Arc<dyn Peers>,
        options: ReplicaOptions,
    ) -> Result<Self, ReplicasError> {
        let replicas = Replicas::without_threads(host, engines, peers, options)?;
        let chore = |(name, signal, work): (_, Arc<_>, fn(&Arc<_>, &Arc<_>) -> _)| {
            let future = work(&replicas.shared, &signal);
            DrivenChore::new(name, signal, future)
        };
        Ok(Self {
            chores: chores(&replicas.shared).into_iter().map(chore).collect(),
            shards: replicas.shared.shards.iter().map(|_| DrivenShard::default()).collect(),
            replicas: Arc::new(replicas),
        })
    }

    /// The number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Whether a shard has writes waiting to be committed.
    pub fn waits(&self, shard: usize) -> bool {
        self.replicas.shared.shards[shard].len() > 0
    }

    /// Commits the waiting writes of a shard, in groups, and answers those that do not wait for the disk. Returns
    /// whether the rest waits for [`sync`](Self::sync).
    pub fn write(&mut self, shard: usize) -> bool {
        self.shards[shard].write(&self.replicas.shared, shard);
        self.shards[shard].waits_for_sync()
    }

    /// Waits until all writes of a shard are on the disk, and answers the rest.
    pub fn sync(&mut self, shard: usize) {
        self.shards[shard].sync(&self.replicas.shared);
    }

    /// The names of the chores.
    pub fn chores(&self) -> Vec<&'static str> {
        self.chores.iter().map(|chore| chore.name).collect()
    }

    /// Polls a chore if it is ready. Returns whether it was.
    pub fn poll(&mut self, chore: usize) -> bool {
        self.chores[chore].poll()
    }

    /// When a chore is to be polled next; `None` if it does not wait for a time.
    pub fn wakes_at(&self, chore: usize) -> Option<Instant> {
        self.chores[chore].wakes_at()
    }

    /// Shuts down cleanly: commits waiting writes, and records that nothing was lost.
    pub fn close(mut self) {
        self.chores.clear();
        for shard in 0..self.shards.len() {
            while self.waits(shard) || self.shards[shard].waits_for_sync() {
                self.write(shard);
                self.sync(shard);
            }
        }
        self.replicas.note_end(Some(last_counter(&self.replicas.shared)));
    }
}

impl Deref for DrivenReplicas {
    type Target = Replicas;

    fn deref(&self) -> &Replicas {
        &self.replicas
    }
}

impl std::fmt::Debug for DrivenReplicas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.replicas.fmt(f)
    }
}
