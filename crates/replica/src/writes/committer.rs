//! The commit threads, one per shard: nothing else writes records of the shard's partitions, so that reading, changing
//! and writing a record needs no other lock.
//!
//! A thread takes all queued writes, and commits them in groups (group commit): the more are queued, the more are
//! written and synced at once. A panic affects one group: its writers get an error, and the thread continues with the
//! next group.

use std::collections::HashSet;
use std::iter::Peekable;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::vec::Drain;

use fondaco_model::NodeId;
use fondaco_model::versioned::DotSource;
use parking_lot::{Mutex, MutexGuard};

use crate::error::ReplicasError;
use crate::membership::incarnation::{Incarnation, Lasting};
use crate::metrics::ReplicaCounter;
use crate::partition::Partition;
use crate::shared::Shared;
use crate::writes::commit::{Group, Job, Outcome, sync};
use crate::writes::queue::Queue;

/// The maximum size of a group, and of a sync: this many writes, and this many bytes, unless a single write is larger.
const GROUP_MAX: (usize, usize) = (1024, 8 << 20);

/// The maximum size of a group for an engine that only copies the data: so records stay in the processor's caches from
/// the first look-up to the last copy.
const AT_ONCE_GROUP_MAX: (usize, usize) = (96, 128 << 10);

/// The input of a shard.
pub(crate) enum Work {
    /// A write.
    Job(Box<Job>),
    /// An action between two groups, after everything queued before it is written.
    Between(Box<dyn FnOnce() + Send>),
}

/// The dots of a shard, `None` before its first group. Its thread holds the lock while it commits a group.
#[derive(Debug, Default)]
pub(crate) struct ShardDots(Mutex<Option<Dots>>);

impl ShardDots {
    fn lock(&self) -> MutexGuard<'_, Option<Dots>> {
        // A panic of a group is caught while this is locked; and dots only grow.
        self.0.lock()
    }

    /// Waits until the group in progress, if there is one, is written.
    pub(crate) fn wait_for_group(&self) {
        drop(self.lock());
    }
}

/// The source of the dots of a shard.
#[derive(Debug)]
pub(crate) struct Dots {
    durable: DotSource,
    volatile: DotSource,
    /// How many incarnations had been begun by then.
    renewed: u64,
    /// The hashes of keys that were given dots since, if the incarnation began while the process runs.
    given: Given,
}

/// Keys that were given dots.
#[derive(Debug)]
enum Given {
    /// Possibly any key.
    Any,
    /// These keys, by hash.
    To(HashSet<u64>),
}

/// How many of them are remembered; beyond, it may be any key.
const GIVEN_MAX: usize = 1 << 16;

impl Dots {
    fn new(incarnation: &Incarnation, node: NodeId) -> Self {
        // Read first: if an incarnation begins meanwhile, these dots are replaced once without need.
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

    /// Switches to the present incarnation.
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

    /// The source of the next dot of a key, by its hash.
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

    /// Commits all queued writes, and ends. Returns the last counter of all dots that were given; `None` if that is
    /// unknown.
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

fn run(shared: &Shared, shard: usize) {
    let queue = &shared.shards[shard];
    let (mut taken, mut written) = (Vec::new(), Written::default());
    while queue.take(&mut taken) {
        write(shared, shard, &mut taken, &mut written);
        written.sync(shared);
    }
}

/// Commits the taken writes in groups. The last ones are not on the disk yet.
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
    /// Commits the queued writes in groups. The last ones are not on the disk yet. Returns whether there were any.
    pub(crate) fn write(&mut self, shared: &Shared, shard: usize) -> bool {
        let mut taken = Vec::new();
        let has_some = shared.shards[shard].take_now(&mut taken);
        write(shared, shard, &mut taken, &mut self.0);
        has_some
    }

    /// Whether a written group waits for the disk before it is answered.
    pub(crate) fn waits_for_sync(&self) -> bool {
        !self.0.unsynced.is_empty()
    }

    /// Waits until all written groups are on the disk.
    pub(crate) fn sync(&mut self, shared: &Shared) {
        self.0.sync(shared);
    }
}

/// Groups that are written, and wait for the disk before they are answered.
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

/// The input that was taken from the queue of a shard.
type Waiting<'a> = Peekable<Drain<'a, (Work, usize)>>;

/// Commits the next group.
fn commit(shared: &Shared, shard: usize, waiting: &mut Waiting<'_>, written: &mut Written) {
    let mut dots = shared.dots[shard].lock();
    let dots = dots.get_or_insert_with(|| {
        let holding = shared.holding.load();
        // Without a node number there are no stores, and nothing is written.
        let node = holding.cluster.as_ref().map_or(NodeId::FIRST, |cluster| cluster.node);
        Dots::new(&shared.incarnation, node)
    });
    dots.follow(&shared.incarnation);
    // Dots only grow, and the rest of a group's state is cleaned up below.
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

/// A group panicked: it may have been written, or not.
fn gave_up(shared: &Shared, shard: usize) {
    tracing::error!(shard, "a group of writes panicked: its outcome is unknown");
    shared.metrics.add(ReplicaCounter::Panics, 1);
    for store in shared.holding.load().stores.values() {
        let own = |partition: &&Arc<Partition>| shared.shard_of(partition) == shard;
        store.all_partitions().filter(own).for_each(|partition| {
            partition.forget_tree();
            partition.followed.end();
        });
    }
}
