//! Decides which partition is compared next, and with which node.
//!
//! Each partition has its turn once a period, with the replica that it was compared with longest ago. Further
//! comparisons are due with a node that came back, and after failures.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_model::NodeId;

use crate::host::{Host, random_fraction};
use crate::partition::Partition;
use crate::store::{HeldStore, Holding};

/// The approximate delay before a failed comparison is retried.
const RETRY: Duration = Duration::from_secs(2);

/// The delay if a plan waits for the comparison: the peer may not have heard of the plan yet.
const RETRY_IN_PLAN: Duration = Duration::from_millis(200);

/// How long the node with the higher number waits before it compares with a node that came back, and how long either
/// side waits while others compare the partition: usually both saw the other return, and then nothing differs any more.
const LATER: Duration = Duration::from_secs(2);

/// How long a partition with lost data leaves it to others to send the data.
const GIVEN_WITHIN: Duration = Duration::from_secs(10);

/// The turns of partitions.
pub(crate) struct Turns {
    host: Arc<dyn Host>,
    period: Duration,
    /// The next turn of each partition of each store, and the epoch that assigned the partition.
    next: HashMap<(u16, u32), (u64, Instant)>,
    /// Further comparisons that are due: with nodes that came back, and those that failed.
    owed: HashMap<(u16, u32, NodeId), Instant>,
    /// Since when partitions with lost data have put off their turns, because others compare them.
    put_off: HashMap<(u16, u32), Instant>,
}

impl Turns {
    /// Turns with this period.
    pub(crate) fn new(host: &Arc<dyn Host>, period: Duration) -> Self {
        Self {
            host: Arc::clone(host),
            period,
            next: HashMap::new(),
            owed: HashMap::new(),
            put_off: HashMap::new(),
        }
    }

    /// Nodes came back: all partitions have to be compared with them. One side is enough if both see the other return,
    /// but if a node was absent only for a moment, it may be the only one that noticed.
    pub(crate) fn owe(&mut self, holding: &Holding, returned: &BTreeSet<NodeId>) {
        let own = holding.cluster.as_ref().map(|cluster| cluster.node);
        let now = self.host.now();
        if returned.is_empty() {
            return;
        }
        for store in holding.stores.values() {
            for partition in store.partitions.values() {
                let others = holding.others(store, partition.id());
                for node in others.into_iter().filter(|node| returned.contains(node)) {
                    let due = if own < Some(node) { now } else { now + LATER };
                    self.owed.insert((store.id, partition.id().get(), node), due);
                }
            }
        }
    }

    /// The nodes to compare a partition with now.
    pub(crate) fn whose(&mut self, holding: &Holding, store: &HeldStore, partition: &Partition) -> BTreeSet<NodeId> {
        let now = self.host.now();
        let id = partition.id();
        let others = holding.others(store, id);
        // A node that gets the partition by a move compares it itself, at the rate of moves.
        let is_ready = |node: &NodeId| holding.is_live(*node) && !holding.is_receiver(store, id, *node);
        let mut live: Vec<NodeId> = others.into_iter().filter(is_ready).collect();
        live.sort_by_key(|&node| !holding.is_near(node));
        // If both sides began at once, they would send each other everything.
        let is_compared = partition.was_asked_within(LATER, now);
        let is_due = |node: &NodeId| {
            let owed = self.owed.get(&(store.id, id.get(), *node));
            owed.is_some_and(|owed| *owed <= now) && !is_compared
        };
        let mut due: BTreeSet<NodeId> = live.iter().copied().filter(is_due).collect();
        let first = || match holding.is_waited_for(store, partition) {
            true => now,
            // Spread over the period.
            false => now + self.period.mul_f64(random_fraction(&*self.host)),
        };
        let epoch = partition.assigned_epoch();
        let (assigned, turn) = self
            .next
            .entry((store.id, id.get()))
            .or_insert_with(|| (epoch, first()));
        if *assigned != epoch {
            // A plan concerns it again, and may wait for it.
            (*assigned, *turn) = (epoch, first().min(*turn));
        }
        // The other side sends lost data to this one, which need not request it meanwhile.
        let is_put_off = is_compared && partition.is_behind() && {
            let since = *self.put_off.entry((store.id, id.get())).or_insert(now);
            now - since < GIVEN_WITHIN
        };
        if *turn <= now && !is_put_off {
            *turn = now + self.period.mul_f64(random_fraction(&*self.host) / 2.0 + 0.75);
            // A node that it was never compared with comes first, and of those one in the same zone.
            let began_ms = |&node: &NodeId| partition.exchanged_with(node).map_or(0, |began_ms| began_ms + 1);
            due.extend(live.into_iter().min_by_key(began_ms));
        }
        due
    }

    /// A comparison of a partition with a node is done, or failed.
    pub(crate) fn had(
        &mut self,
        holding: &Holding,
        store: &HeldStore,
        partition: &Partition,
        peer: NodeId,
        is_done: bool,
    ) {
        let id = partition.id().get();
        let owed = (store.id, id, peer);
        let is_waited_for = holding.is_waited_for(store, partition);
        let retry = if is_waited_for { RETRY_IN_PLAN } else { RETRY };
        match is_done {
            true => drop(self.owed.remove(&owed)),
            // Usually both sides failed at the same time, and must not retry at the same time.
            false => drop(self.owed.insert(
                owed,
                self.host.now() + retry.mul_f64(random_fraction(&*self.host) / 2.0 + 0.75),
            )),
        }
        // A plan waits for it: the next owner follows at once.
        if is_done && is_waited_for {
            self.next
                .insert((store.id, id), (partition.assigned_epoch(), self.host.now()));
        }
    }

    /// Forgets partitions that are no longer held.
    pub(crate) fn forget_others(&mut self, holding: &Holding) {
        let is_held = |store: &u16, partition: &u32| {
            let store = holding.stores.get(store);
            store.is_some_and(|store| store.partitions.contains_key(partition))
        };
        self.next.retain(|(store, partition), _| is_held(store, partition));
        self.owed.retain(|(store, partition, _), _| is_held(store, partition));
        self.put_off.retain(|(store, partition), _| is_held(store, partition));
    }
}
