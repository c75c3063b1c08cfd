//! Replicas without threads, for a simulation: it says when what waits is committed and synced, and polls the chores. Reads
//! are done at once. All else is the code of nodes.

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

/// What a node holds of the versioned stores, driven step by step. Dropping it is the death of the process.
pub struct DrivenReplicas {
    // Dropped first, as threads in the background end first.
    chores: Vec<DrivenChore>,
    shards: Vec<DrivenShard>,
    replicas: Arc<Replicas>,
}

impl DrivenReplicas {
    /// Opens what there is. It holds nothing before it is told of the cluster.
    ///
    /// # Errors
    /// An engine that cannot be used, or what the host says.
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

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Whether something waits to be committed on a shard.
    pub fn waits(&self, shard: usize) -> bool {
        self.replicas.shared.shards[shard].len() > 0
    }

    /// Commits what waits on a shard, in groups. Answers what need not be on the disk. Whether the rest waits for
    /// [`sync`](Self::sync).
    pub fn write(&mut self, shard: usize) -> bool {
        self.shards[shard].write(&self.replicas.shared, shard);
        self.shards[shard].waits_for_sync()
    }

    /// Waits until all that is written on a shard is on the disk, and answers the rest.
    pub fn sync(&mut self, shard: usize) {
        self.shards[shard].sync(&self.replicas.shared);
    }

    /// The names of the chores.
    pub fn chores(&self) -> Vec<&'static str> {
        self.chores.iter().map(|chore| chore.name).collect()
    }

    /// Polls a chore, if there is a reason to. Whether there was.
    pub fn poll(&mut self, chore: usize) -> bool {
        self.chores[chore].poll()
    }

    /// When a chore is to be polled next; `None` if it waits for something else than time.
    pub fn wakes_at(&self, chore: usize) -> Option<Instant> {
        self.chores[chore].wakes_at()
    }

    /// Ends in good order: commits what waits, and notes that nothing was lost.
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
