//! The threads that commit, one for each shard: nothing else writes records of the shard's partitions, so that to read,
//! change and write one needs no other lock.
//!
//! A thread takes all that waits, and commits it in groups: the more waits, the more is written at once, and all of it is
//! waited for together where it is to be on the disk. A panic is that of one group: its writers get an error, and the
//! thread goes on with the next.

use std::collections::HashSet;
use std::iter::Peekable;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::vec::Drain;

use fondaco_model::versioned::DotSource;
use fondaco_model::{NodeId, PartitionId};
use parking_lot::{Mutex, MutexGuard};

use crate::error::ReplicasError;
use crate::membership::incarnation::{Incarnation, Lasting};
use crate::metrics::ReplicaCounter;
use crate::partition::Partition;
use crate::shared::Shared;
use crate::writes::commit::{Group, Job, Outcome, sync};
use crate::writes::queue::Queue;

/// How much is committed together, and how much is waited for together: so many writes, and so many bytes, but for one
/// write alone.
const GROUP_MAX: (usize, usize) = (1024, 8 << 20);

/// How much is committed together by an engine that only copies it: what is looked at and what is copied then stays in
/// the processor's caches from the first look to the last copy.
const AT_ONCE_GROUP_MAX: (usize, usize) = (96, 128 << 10);

/// What a shard is given.
pub(crate) enum Work {
    /// Something to write.
    Job(Box<Job>),
    /// Something to do between two groups, when all that was given before is written.
    Between(Box<dyn FnOnce() + Send>),
}

/// The dots of a shard, `None` before its first group. Its thread has them locked while it commits a group.
#[derive(Debug, Default)]
pub(crate) struct ShardDots(Mutex<Option<Dots>>);

impl ShardDots {
    fn lock(&self) -> MutexGuard<'_, Option<Dots>> {
        // A group that panics is caught while this is locked; and dots only grow.
        self.0.lock()
    }

    /// Waits until the group that is being committed, if there is one, is written.
    pub(crate) fn wait_for_group(&self) {
        drop(self.lock());
    }
}

/// Where the dots of a shard come from.
#[derive(Debug)]
pub(crate) struct Dots {
    durable: DotSource,
    volatile: DotSource,
    /// How often another incarnation had been begun by then.
    renewed: u64,
    /// The hashes of keys that were given dots since, if that was while the process runs.
    given: Given,
}

/// Keys that were given dots.
#[derive(Debug)]
enum Given {
    /// Any may have been.
    Any,
    /// These, by the hashes of the keys.
    To(HashSet<u64>),
}

/// How many keys are known to have been given dots; beyond, any may have been.
const GIVEN_MAX: usize = 1 << 16;

impl Dots {
    fn new(incarnation: &Incarnation, node: NodeId) -> Self {
        // Asked first: if one begins meanwhile, these are given up once for nothing.
        let renewed = incarnation.renewed();
        Self {
            renewed,
            given: match renewed {
                0 => Given::Any,
                _ => Given::To(HashSet::new()),
            },
            durable: incarnation.dots(node, Lasting::Durable),
            volatile: incarnation.dots(node, Lasting::Volatile),
        }
    }

    /// Goes on with the incarnation that there is by now.
    pub(crate) fn follow(&mut self, incarnation: &Incarnation) {
        if self.renewed != incarnation.renewed() {
            *self = Self::new(incarnation, self.durable.replica().node);
        }
    }

    /// Whether a key, by its hash, may have been given dots of this incarnation.
    pub(crate) fn may_have_given(&self, hash: u64) -> bool {
        match &self.given {
            Given::Any => true,
            Given::To(hashes) => hashes.contains(&hash),
        }
    }

    /// Where a key, by its hash, gets its next dot from.
    pub(crate) fn of(&mut self, lasting: Lasting, hash: u64) -> &mut DotSource {
        if let Given::To(hashes) = &mut self.given {
            hashes.insert(hash);
            if hashes.len() > GIVEN_MAX {
                self.given = Given::Any;
            }
        }
        match lasting {
            Lasting::Durable => &mut self.durable,
            Lasting::Volatile => &mut self.volatile,
        }
    }
}

/// The threads.
#[derive(Debug)]
pub(crate) struct Committers(Vec<JoinHandle<()>>);

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
        ended.into_iter().collect::<Result<Vec<()>, _>>().ok()?;
        Some(last_counter(shared))
    }
}

/// The last counter of all dots that were given.
pub(crate) fn last_counter(shared: &Shared) -> u64 {
    let last = |dots: &ShardDots| dots.lock().as_ref().map_or(0, |dots| dots.durable.last());
    shared.dots.iter().map(last).max().unwrap_or(0)
}

/// Which shard a partition belongs to.
pub(crate) fn shard_of(partition: PartitionId, shards: usize) -> usize {
    partition.get() as usize % shards
}

fn run(shared: &Shared, shard: usize) {
    let queue = &shared.shards[shard];
    let (mut taken, mut written) = (Vec::new(), Written::default());
    while queue.take(&mut taken) {
        write(shared, shard, &mut taken, &mut written);
        written.sync(shared);
    }
}

/// Commits what was taken, in groups. The last of them are not on the disk yet.
fn write(shared: &Shared, shard: usize, taken: &mut Vec<(Work, usize)>, written: &mut Written) {
    let mut waiting = taken.drain(..).peekable();
    while waiting.peek().is_some() {
        commit(shared, shard, &mut waiting, written);
        if written.items >= GROUP_MAX.0 || written.bytes >= GROUP_MAX.1 {
            written.sync(shared);
        }
    }
}

/// A shard without a thread.
#[derive(Default)]
pub(crate) struct DrivenShard(Written);

impl DrivenShard {
    /// Commits what waits, in groups. The last of them are not on the disk yet. Whether something waited.
    pub(crate) fn write(&mut self, shared: &Shared, shard: usize) -> bool {
        let mut taken = Vec::new();
        let has_some = shared.shards[shard].take_now(&mut taken);
        write(shared, shard, &mut taken, &mut self.0);
        has_some
    }

    /// Whether something that is written is to be on the disk before it is answered.
    pub(crate) fn waits_for_sync(&self) -> bool {
        !self.0.unsynced.is_empty()
    }

    /// Waits until all that is written is on the disk.
    pub(crate) fn sync(&mut self, shared: &Shared) {
        self.0.sync(shared);
    }
}

/// What is written, and is to be on the disk before it is answered.
#[derive(Default)]
struct Written {
    unsynced: Vec<Outcome>,
    items: usize,
    bytes: usize,
}

impl Written {
    fn sync(&mut self, shared: &Shared) {
        sync(shared, &mut self.unsynced);
        (self.items, self.bytes) = (0, 0);
    }
}

/// What waits at a shard, and was taken.
type Waiting<'a> = Peekable<Drain<'a, (Work, usize)>>;

/// Commits the next group of what waits.
fn commit(shared: &Shared, shard: usize, waiting: &mut Waiting<'_>, written: &mut Written) {
    let mut dots = shared.dots[shard].lock();
    let dots = dots.get_or_insert_with(|| {
        let holding = shared.holding.load();
        // Without a number the node holds no stores, and nothing is written.
        let node = holding.cluster.as_ref().map_or(NodeId::FIRST, |cluster| cluster.node);
        Dots::new(&shared.incarnation, node)
    });
    dots.follow(&shared.incarnation);
    // Dots only grow, and what else a group leaves behind is told of below.
    let group = AssertUnwindSafe(|| commit_next(Group::new(shared, dots), waiting, written));
    if catch_unwind(group).is_err() {
        gave_up(shared, shard);
    }
}

fn commit_next(mut group: Group<'_>, waiting: &mut Waiting<'_>, written: &mut Written) {
    let (mut items, mut bytes) = (0, 0);
    let (mut items_max, mut bytes_max) = AT_ONCE_GROUP_MAX;
    let mut between = Vec::new();
    let shared = group.shared;
    while items < items_max && bytes < bytes_max {
        match waiting.next() {
            Some((Work::Job(job), length)) => {
                if !job.engine_writes_at_once(shared) {
                    (items_max, bytes_max) = GROUP_MAX;
                }
                items += job.len();
                group.add(*job);
                bytes += length;
            }
            Some((Work::Between(action), _)) => between.push(action),
            None => break,
        }
    }
    written.unsynced.append(&mut group.commit());
    written.items += items;
    written.bytes += bytes;
    if !between.is_empty() {
        written.sync(shared);
        between.into_iter().for_each(|action| action());
    }
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
