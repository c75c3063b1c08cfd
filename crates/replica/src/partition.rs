//! A partition of a store on a node: its hash tree, and when it was last compared with its other replicas.
//!
//! The tree is built by a scan, while writes go on. Changes during the scan are remembered, and applied when the scan
//! is done: the scan begins between two groups of writes of the partition's shard, so that each change is in exactly
//! one of the two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence,
};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fondaco_model::versioned::{Compared, HashTree};
use fondaco_model::{NodeId, PartitionCount, PartitionId};
use parking_lot::{Mutex, MutexGuard};

use crate::changes::Followed;
use crate::table_key::within;

/// How many changes are remembered while a tree is built. If there are more, it is built again.
const MISSED_MAX: usize = 1 << 20;

/// How many damaged records are remembered.
const DAMAGED_MAX: usize = 1024;

/// The digest of a damaged record that cannot be read at all.
pub(crate) const UNREADABLE: u64 = 0;

/// A partition of a store.
#[derive(Debug)]
pub(crate) struct Partition {
    id: PartitionId,
    /// How many partitions there were when it was made.
    count: PartitionCount,
    /// The partitions that it was split into.
    halves: OnceLock<[Arc<Partition>; 2]>,
    /// Whether requests are still accepted for it.
    is_held: AtomicBool,
    /// Whether all its records were deleted, after it was given up.
    is_cleared: AtomicBool,
    /// Whether acknowledged writes may be lost here and exist only on other nodes.
    is_behind: AtomicBool,
    /// How many keys had a time to live in the last sweep.
    expiring: AtomicU64,
    tree: Mutex<Tree>,
    /// Damaged records that were found: the positions of their keys, and the digests of their present bytes.
    damaged: Mutex<BTreeSet<(u64, u64)>>,
    exchanges: Mutex<Exchanges>,
    /// Its latest changes, while clients follow them.
    pub(crate) followed: Followed,
    /// When another node last asked for its tree, to compare it with its own.
    asked: Mutex<Option<Instant>>,
}

/// A change of a record: its key's position, and the digests of the old and the new record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) position: u64,
    pub(crate) before: Option<u64>,
    pub(crate) after: Option<u64>,
}

#[derive(Debug, Default)]
struct Tree {
    /// The tree of the current table; `None` before the first was built.
    grown: Option<HashTree>,
    /// Changes since the scan for the next tree began; `None` while there is no scan.
    missed: Option<Vec<Change>>,
}

/// When completed exchanges with other replicas began, in milliseconds since the process started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exchanges {
    /// How often the partition was given up, taken back or assigned anew. An exchange that was running during such a
    /// change does not count.
    turn: u64,
    /// The epoch of the routing table that assigned the partition to this node last.
    epoch: u64,
    by_node: BTreeMap<NodeId, Exchanged>,
}

/// Completed exchanges with another replica.
#[derive(Debug, Clone, Copy)]
struct Exchanged {
    /// When the last of them began.
    began_ms: u64,
    /// The most complete comparison of all of them.
    compared: Compared,
}

impl Exchanges {
    fn begin_turn(&mut self) {
        self.turn += 1;
        self.by_node.clear();
    }

    fn begin_turn_of(&mut self, epoch: u64) {
        self.begin_turn();
        self.epoch = epoch;
    }
}

/// An exchange that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Began {
    /// Its begin, in milliseconds since the process started.
    ms: u64,
    turn: u64,
    /// The epoch of the routing table at the begin of the turn; 0 before there was one.
    pub(crate) epoch: u64,
}

impl Partition {
    pub(crate) fn new(count: PartitionCount, id: PartitionId) -> Self {
        Self {
            id,
            count,
            halves: OnceLock::new(),
            is_held: AtomicBool::new(true),
            is_cleared: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            expiring: AtomicU64::new(0),
            tree: Mutex::default(),
            damaged: Mutex::default(),
            exchanges: Mutex::default(),
            followed: Followed::default(),
            asked: Mutex::default(),
        }
    }

    pub(crate) fn id(&self) -> PartitionId {
        self.id
    }

    /// How many partitions there were when it was made.
    pub(crate) fn count(&self) -> PartitionCount {
        self.count
    }

    /// The partitions that it is split into, which have its state. Their trees are built anew. Those that still have this one, as writes do
    /// that wait for their shard, go on to the right half.
    pub(crate) fn split(&self, count: PartitionCount) -> &[Arc<Self>; 2] {
        let half = |id| {
            let flag = |flag: &AtomicBool| AtomicBool::new(flag.load(Acquire));
            let half = Self {
                is_held: flag(&self.is_held),
                is_cleared: flag(&self.is_cleared),
                is_behind: flag(&self.is_behind),
                exchanges: Mutex::new(self.exchanges().clone()),
                asked: Mutex::new(*self.asked.lock()),
                ..Self::new(count, PartitionId::new(id))
            };
            Arc::new(half)
        };
        // Changes are applied to this partition, or to its halves.
        let mut tree = self.tree();
        *tree = Tree::default();
        let halves = self
            .halves
            .get_or_init(|| [half(2 * self.id.get()), half(2 * self.id.get() + 1)]);
        self.followed.end();
        // A loss that was found meanwhile: either it finds the halves, or they find it.
        fence(SeqCst);
        if self.is_behind() {
            halves.iter().for_each(|half| half.fall_behind());
        }
        halves
    }

    /// The partition that has a position now: this one, or a part that it was split into.
    pub(crate) fn now(self: &Arc<Self>, position: u64) -> &Arc<Self> {
        let mut now = self;
        while let Some(half) = now.half(position) {
            now = half;
        }
        now
    }

    fn half(&self, position: u64) -> Option<&Arc<Self>> {
        let halves = self.halves.get()?;
        Some(&halves[(within(self.count, position) >> 63) as usize])
    }

    /// Whether it was split.
    pub(crate) fn is_split(&self) -> bool {
        self.halves.get().is_some()
    }

    /// Whether requests are still accepted for it.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Relaxed)
    }

    /// Accepts requests again, under the routing table of an epoch. Some of its records may have been deleted
    /// meanwhile, which its tree does not reflect.
    pub(crate) fn take_back(&self, epoch: u64) {
        self.is_held.store(true, Relaxed);
        self.exchanges().begin_turn_of(epoch);
        // No more is deleted: deletions that its shard has begun are done before the next scan.
        self.forget_tree();
    }

    /// The epoch of the routing table that assigned it to this node last; 0 if it was there before the first.
    pub(crate) fn assigned_epoch(&self) -> u64 {
        self.exchanges().epoch
    }

    /// Another move assigns it to this node: exchanges under the former one do not count.
    pub(crate) fn begin_anew(&self, epoch: u64) {
        self.exchanges().begin_turn_of(epoch);
    }

    /// Accepts no more requests.
    pub(crate) fn give_up(&self) {
        self.is_cleared.store(false, Relaxed);
        self.is_held.store(false, Relaxed);
        self.followed.end();
        self.exchanges().begin_turn();
    }

    /// Whether acknowledged writes may be lost here and exist only on other nodes: reads must not rely on it.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Acquire)
    }

    /// Acknowledged writes were lost here, until it is compared with others.
    pub(crate) fn fall_behind(&self) {
        self.is_behind.store(true, Release);
        fence(SeqCst);
        self.followed.end();
        self.exchanges().begin_turn();
        self.halves
            .get()
            .into_iter()
            .flatten()
            .for_each(|half| half.fall_behind());
    }

    /// It was compared with enough other replicas.
    pub(crate) fn caught_up(&self) {
        self.is_behind.store(false, Release);
    }

    /// How many keys had a time to live in the last sweep; 0 before the first.
    pub(crate) fn expiring(&self) -> u64 {
        self.expiring.load(Relaxed)
    }

    /// Stores how many keys have a time to live.
    pub(crate) fn swept(&self, expiring: u64) {
        self.expiring.store(expiring, Relaxed);
    }

    /// Whether all its records were deleted.
    pub(crate) fn is_cleared(&self) -> bool {
        self.is_cleared.load(Relaxed)
    }

    /// All its records were deleted.
    pub(crate) fn cleared(&self) {
        self.is_cleared.store(true, Relaxed);
        self.forget_tree();
    }

    /// Applies changes that were written, in this order. Only in the turn of the partition's shard.
    pub(crate) fn changed(&self, changes: impl Iterator<Item = Change> + Clone) {
        let mut tree = self.tree();
        if self.is_split() {
            drop(tree);
            for change in changes {
                if let Some(half) = self.half(change.position) {
                    half.changed([change].into_iter());
                }
            }
            return;
        }
        let mut damaged = self.damaged.lock();
        if !damaged.is_empty() {
            changes.clone().for_each(|change| forget(&mut damaged, change.position));
        }
        drop(damaged);
        if let Some(grown) = &mut tree.grown {
            // Applied back to back, so that memory loads their leaves in parallel.
            changes.clone().for_each(|change| self.apply(grown, change));
        }
        let Some(missed) = &mut tree.missed else { return };
        missed.extend(changes);
        if missed.len() > MISSED_MAX {
            tree.missed = None;
        }
    }

    /// Whether its tree should be built: it has no tree, or one that has become too small.
    pub(crate) fn wants_tree(&self) -> bool {
        let tree = self.tree();
        tree.missed.is_none() && tree.grown.as_ref().is_none_or(HashTree::is_crowded)
    }

    /// Whether its tree has become too small.
    pub(crate) fn has_crowded_tree(&self) -> bool {
        self.with_tree(HashTree::is_crowded).unwrap_or(false)
    }

    /// A scan for its tree begins now. Only in the turn of the partition's shard.
    pub(crate) fn begin_tree(&self) {
        self.tree().missed = Some(Vec::new());
    }

    /// The scan is done, with this result; `None` if it failed. Only in the turn of the partition's shard.
    pub(crate) fn end_tree(&self, scanned: Option<HashTree>) {
        let mut tree = self.tree();
        // There is no tree if too much was written meanwhile, or a stored record was found damaged.
        if let (Some(missed), Some(mut scanned)) = (tree.missed.take(), scanned) {
            missed.into_iter().for_each(|change| self.apply(&mut scanned, change));
            tree.grown = Some(scanned);
        }
    }

    /// The tree no longer matches the table: it is built again.
    pub(crate) fn forget_tree(&self) {
        *self.tree() = Tree::default();
        self.halves
            .get()
            .into_iter()
            .flatten()
            .for_each(|half| half.forget_tree());
    }

    /// A stored record was found damaged: the tree has counted other bytes. A tree that is built later counts these,
    /// however often they are found again. Returns whether this was unknown. Then those who are not in the turn of the
    /// partition's shard look once more: a write may have replaced the record since they read it.
    pub(crate) fn found_damaged(&self, position: u64, digest: u64) -> bool {
        if let Some(half) = self.half(position) {
            return half.found_damaged(position, digest);
        }
        let is_new = self.note_damaged(position, digest);
        if is_new {
            self.forget_tree();
        }
        is_new
    }

    /// Notes a damaged record that neither the tree nor the one under construction counts. Returns whether it was
    /// unknown.
    pub(crate) fn note_damaged(&self, position: u64, digest: u64) -> bool {
        let mut damaged = self.damaged.lock();
        if damaged.len() >= DAMAGED_MAX && !damaged.contains(&(position, digest)) {
            damaged.clear();
        }
        damaged.insert((position, digest))
    }

    /// How many records were found damaged and are not replaced yet; a lower bound if there are many.
    pub(crate) fn damaged(&self) -> usize {
        self.damaged.lock().len()
    }

    /// The record of a key is not damaged any more: damage found there from now on is new.
    pub(crate) fn not_damaged(&self, position: u64) {
        match self.half(position) {
            Some(half) => half.not_damaged(position),
            None => forget(&mut self.damaged.lock(), position),
        }
    }

    /// Queries the tree; `None` before it is built.
    pub(crate) fn with_tree<T>(&self, ask: impl FnOnce(&HashTree) -> T) -> Option<T> {
        self.tree().grown.as_ref().map(ask)
    }

    /// Another node asks for its tree, to compare it with its own.
    pub(crate) fn is_asked(&self, now: Instant) {
        *self.asked.lock() = Some(now);
    }

    /// Whether another node has asked for its tree within this time before now.
    pub(crate) fn was_asked_within(&self, time: Duration, now: Instant) -> bool {
        let asked = *self.asked.lock();
        asked.is_some_and(|asked| now.saturating_duration_since(asked) < time)
    }

    /// An exchange begins now, in milliseconds since the process started.
    pub(crate) fn begin_exchange(&self, now_ms: u64) -> Began {
        let exchanges = self.exchanges();
        Began {
            ms: now_ms,
            turn: exchanges.turn,
            epoch: exchanges.epoch,
        }
    }

    /// An exchange was completed: this replica and that of the node have the same records.
    pub(crate) fn exchanged(&self, node: NodeId, began: Began, compared: Compared) {
        let mut exchanges = self.exchanges();
        if exchanges.turn == began.turn {
            let before = exchanges.by_node.get(&node).copied();
            let exchanged = Exchanged {
                began_ms: before.map_or(began.ms, |before| began.ms.max(before.began_ms)),
                // A more complete earlier comparison still counts.
                compared: match before {
                    Some(before) if before.compared == Compared::Whole => Compared::Whole,
                    _ => compared,
                },
            };
            exchanges.by_node.insert(node, exchanged);
        }
    }

    /// When the last completed exchange with a node began.
    pub(crate) fn exchanged_with(&self, node: NodeId) -> Option<u64> {
        self.exchanges().by_node.get(&node).map(|exchanged| exchanged.began_ms)
    }

    /// The most complete comparison with a node, if there was one.
    pub(crate) fn compared_with(&self, node: NodeId) -> Option<Compared> {
        self.exchanges().by_node.get(&node).map(|exchanged| exchanged.compared)
    }

    /// The time since which there has been an exchange with each of these nodes: the earliest of their last ones.
    /// `None` if there was none with one of them.
    pub(crate) fn exchanged_with_all(&self, nodes: &[NodeId]) -> Option<u64> {
        let exchanges = self.exchanges();
        nodes.iter().try_fold(u64::MAX, |earliest, node| {
            let last = exchanges.by_node.get(node)?;
            Some(earliest.min(last.began_ms))
        })
    }

    fn apply(&self, tree: &mut HashTree, change: Change) {
        tree.replace(within(self.count, change.position), change.before, change.after);
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock()
    }

    fn exchanges(&self) -> MutexGuard<'_, Exchanges> {
        self.exchanges.lock()
    }
}

/// Forgets that the record of a key is damaged.
fn forget(damaged: &mut BTreeSet<(u64, u64)>, position: u64) {
    while let Some(&known) = damaged.range((position, 0)..=(position, u64::MAX)).next() {
        damaged.remove(&known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(hash: u64, before: Option<u64>, after: Option<u64>) -> Change {
        Change {
            position: hash,
            before,
            after,
        }
    }

    #[test]
    fn writes_during_the_scan_are_in_the_tree() {
        let partition = Partition::new(PartitionCount::ONE, PartitionId::new(0));
        assert!(partition.wants_tree());
        partition.changed([change(1, None, Some(10))].into_iter());
        partition.begin_tree();
        let missed = [change(1, Some(10), Some(11)), change(2, None, Some(20))];
        partition.changed(missed.into_iter());
        assert!(partition.with_tree(|_| ()).is_none());
        let mut scanned = HashTree::default();
        scanned.replace(1, None, Some(10));
        partition.end_tree(Some(scanned));
        partition.changed([change(3, None, Some(30))].into_iter());
        let mut expected = HashTree::default();
        for (hash, digest) in [(1, 11), (2, 20), (3, 30)] {
            expected.replace(hash, None, Some(digest));
        }
        assert_eq!(partition.with_tree(HashTree::root), Some(expected.root()));
    }

    #[test]
    fn a_tree_forgotten_during_its_scan_is_built_again() {
        let partition = Partition::new(PartitionCount::ONE, PartitionId::new(0));
        partition.begin_tree();
        partition.forget_tree();
        partition.end_tree(Some(HashTree::default()));
        assert!(partition.wants_tree());
    }

    #[test]
    fn the_oldest_last_exchange_counts_for_all_nodes() {
        let partition = Partition::new(PartitionCount::ONE, PartitionId::new(0));
        let [one, two] = [1, 2].map(|number| NodeId::new(number).unwrap());
        assert_eq!(partition.exchanged_with_all(&[]), Some(u64::MAX));
        let exchanged = |node, began_ms| {
            partition.exchanged(node, partition.begin_exchange(began_ms), Compared::Whole);
        };
        exchanged(one, 50);
        assert_eq!(partition.exchanged_with_all(&[one, two]), None);
        exchanged(two, 70);
        exchanged(one, 40);
        assert_eq!(partition.exchanged_with_all(&[one, two]), Some(50));
        assert_eq!(partition.exchanged_with(two), Some(70));
    }

    #[test]
    fn a_complete_comparison_counts_after_the_peer_loses_data() {
        let partition = Partition::new(PartitionCount::ONE, PartitionId::new(0));
        let one = NodeId::FIRST;
        let mut expected = Compared::InPart;
        for compared in [Compared::InPart, Compared::Whole, Compared::InPart] {
            partition.exchanged(one, partition.begin_exchange(1), compared);
            if compared == Compared::Whole {
                expected = compared;
            }
            assert_eq!(partition.compared_with(one), Some(expected));
        }
        partition.fall_behind();
        assert_eq!(partition.compared_with(one), None);
    }

    #[test]
    fn exchanges_across_a_change_of_ownership_do_not_count() {
        let partition = Partition::new(PartitionCount::ONE, PartitionId::new(0));
        let one = NodeId::new(1).unwrap();
        let take_back = |partition: &Partition| partition.take_back(2);
        let begin_anew = |partition: &Partition| partition.begin_anew(3);
        for (change, epoch) in [
            (Partition::give_up as fn(&Partition), 0),
            (take_back, 2),
            (begin_anew, 3),
            (Partition::fall_behind, 3),
        ] {
            let began = partition.begin_exchange(1);
            change(&partition);
            assert_eq!(partition.begin_exchange(1).epoch, epoch);
            partition.exchanged(one, began, Compared::Whole);
            assert_eq!(partition.exchanged_with(one), None);
        }
        partition.exchanged(one, partition.begin_exchange(2), Compared::Whole);
        assert_eq!(partition.exchanged_with(one), Some(2));
    }

    #[test]
    fn taking_a_partition_back_rebuilds_its_tree() {
        let partition = Partition::new(PartitionCount::ONE, PartitionId::new(0));
        partition.begin_tree();
        partition.end_tree(Some(HashTree::default()));
        partition.give_up();
        assert!(!partition.wants_tree());
        partition.take_back(1);
        assert!(partition.wants_tree());
    }

    #[test]
    fn each_damaged_record_rebuilds_the_tree_only_once() {
        let partition = Partition::new(PartitionCount::ONE, PartitionId::new(0));
        let make = || {
            partition.begin_tree();
            partition.end_tree(Some(HashTree::default()));
        };
        make();
        for digest in 0..3 {
            partition.found_damaged(1, digest);
            assert!(partition.wants_tree());
            make();
            partition.found_damaged(1, digest);
            assert!(!partition.wants_tree());
        }
        partition.found_damaged(2, 7);
        assert_eq!(partition.damaged(), 4);
        let written = Change {
            position: 1,
            before: None,
            after: Some(3),
        };
        partition.changed([written].into_iter());
        assert_eq!(partition.damaged(), 1);
        assert!(partition.found_damaged(1, 0), "it is new");
    }
}
