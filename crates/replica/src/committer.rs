//! The threads that commit: one a shard, each the only one to write to its partitions, so that to read, change
//! and write a record needs no lock.
//!
//! A thread takes all that waits, and commits it in groups: the more waits, the more is written at once. A panic is
//! that of one group: who waits for it is told, and the thread goes on with the next.

use std::iter::Peekable;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::vec::Drain;

use fondaco_model::versioned::DotSource;
use fondaco_model::{NodeId, PartitionId};

use crate::commit::{Group, Job};
use crate::error::ReplicasError;
use crate::incarnation::{Incarnation, Lasting};
use crate::metrics::ReplicaCounter;
use crate::partition::Partition;
use crate::queue::Queue;
use crate::shared::Shared;

/// How many writes are committed together at most.
const GROUP_ITEMS_MAX: usize = 1024;

/// How many bytes, but for one write alone.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// What a shard is given.
pub(crate) enum Work {
    /// Something to write.
    Job(Box<Job>),
    /// Something to do between two groups, when all that was given before is written.
    Between(Box<dyn FnOnce() + Send>),
}

/// Where the dots of a shard come from.
pub(crate) struct Dots {
    durable: DotSource,
    volatile: DotSource,
}

impl Dots {
    fn new(incarnation: &Incarnation, node: NodeId) -> Self {
        Self {
            durable: incarnation.dots(node, Lasting::Durable),
            volatile: incarnation.dots(node, Lasting::Volatile),
        }
    }

    pub(crate) fn of(&mut self, lasting: Lasting) -> &mut DotSource {
        match lasting {
            Lasting::Durable => &mut self.durable,
            Lasting::Volatile => &mut self.volatile,
        }
    }
}

/// The threads.
#[derive(Debug)]
pub(crate) struct Committers(Vec<JoinHandle<u64>>);

impl Committers {
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Self, ReplicasError> {
        let thread = |shard: usize| {
            let shared = Arc::clone(shared);
            std::thread::Builder::new()
                .name(format!("commit-{shard}"))
                .spawn(move || run(&shared, shard))
                .map_err(ReplicasError::io("start the thread", "commit".as_ref()))
        };
        (0..shared.shards.len()).map(thread).collect::<Result<_, _>>().map(Self)
    }

    /// Commits what waits, and ends. The last counter of all dots that were given; `None` if that is not
    /// known.
    pub(crate) fn end(&mut self, shared: &Shared) -> Option<u64> {
        shared.shards.iter().for_each(Queue::close);
        let ended: Vec<_> = self.0.drain(..).map(JoinHandle::join).collect();
        ended.into_iter().try_fold(0, |last, ended| Some(last.max(ended.ok()?)))
    }
}

/// Which shard a partition belongs to.
pub(crate) fn shard_of(partition: PartitionId, shards: usize) -> usize {
    partition.get() as usize % shards
}

fn run(shared: &Shared, shard: usize) -> u64 {
    let queue = &shared.shards[shard];
    let mut dots: Option<Dots> = None;
    let mut taken = Vec::new();
    while queue.take(&mut taken) {
        let mut waiting = taken.drain(..).peekable();
        while waiting.peek().is_some() {
            let holding = shared.holding.load();
            // Without a number the node holds no stores, and nothing is written.
            let node = holding.cluster.as_ref().map_or(NodeId::FIRST, |cluster| cluster.node);
            drop(holding);
            let dots = dots.get_or_insert_with(|| Dots::new(&shared.incarnation, node));
            // Dots only grow, and what else a group leaves behind is told of below.
            if catch_unwind(AssertUnwindSafe(|| commit(shared, dots, &mut waiting))).is_err() {
                gave_up(shared, shard);
            }
        }
    }
    dots.map_or(0, |dots| dots.durable.last())
}

/// Commits the next group.
fn commit(shared: &Shared, dots: &mut Dots, waiting: &mut Peekable<Drain<'_, (Work, usize)>>) {
    let mut group = Group::new(shared, dots);
    let (mut items, mut bytes) = (0, 0);
    let mut between = Vec::new();
    while items < GROUP_ITEMS_MAX && bytes < GROUP_BYTES_MAX {
        match waiting.next() {
            Some((Work::Job(job), length)) => {
                items += job.len();
                group.add(*job);
                bytes += length;
            }
            Some((Work::Between(action), _)) => between.push(action),
            None => break,
        }
    }
    group.commit();
    between.into_iter().for_each(|action| action());
}

/// A group ended by a panic: it may have been written, or not.
fn gave_up(shared: &Shared, shard: usize) {
    tracing::error!(
        shard,
        "a group of writes ended by a panic: what came of it is not known"
    );
    shared.metrics.add(ReplicaCounter::Panics, 1);
    for store in shared.holding.load().stores.values() {
        let own = |partition: &&Arc<Partition>| shared.shard_of(partition.id()) == shard;
        store
            .all_partitions()
            .filter(own)
            .for_each(|partition| partition.forget_tree());
    }
}
