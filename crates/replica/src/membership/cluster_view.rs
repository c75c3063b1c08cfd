//! Applies a new cluster state to the replicas of a node: which stores there are, and which of their partitions the
//! node holds. Opens and drops tables, and takes and gives up partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::Release};

use bytes::Bytes;
use fondaco_engine::Table;
use fondaco_model::versioned::Durability;
use fondaco_model::{Copies, NodeId, PartitionCount, PartitionId, Stage};

use crate::error::ReplicasError;
use crate::membership::dropped_stores::{STORE_PREFIX, Tables};
use crate::options::{DroppedReplica, ReplicaView, ReplicatedStore};
use crate::partition::Partition;
use crate::reads::scanning::{Found, RECORD_WIDTH, ReadableScan};
use crate::replicas::Replicas;
use crate::store::{Cluster, Held, HeldStore, Holding};
use crate::table_key::{StoreIdentity, parse_record_key, partition_at, range};

impl Replicas {
    /// Applies the cluster state: which stores there are, and which of their partitions this node holds. Tables of
    /// dropped stores are deleted soon, when they need not be kept any longer, unless the state is only remembered. A
    /// table of a store that the state does not name is kept: the store's record may have been lost.
    ///
    /// # Errors
    /// The first store whose table cannot be opened: all others are up to date, and the caller has to retry.
    pub fn set_view(&self, view: &ReplicaView) -> Result<(), ReplicasError> {
        let _changing = self.shared.changing.lock();
        // Nothing more is deleted until the new state is known.
        self.shared.dropping.want(None);
        self.shared.first_count.get_or_init(|| view.table.partitions());
        let before = self.shared.holding.load_full();
        let settling = before
            .cluster
            .as_ref()
            .filter(|cluster| cluster.table.epoch() == view.table.epoch());
        let unsettled = match settling {
            Some(cluster) => Arc::clone(&cluster.unsettled),
            None => Arc::new(AtomicUsize::new(self.shared.shards.len())),
        };
        let mut holding = Holding {
            cluster: Some(cluster_of(view, &unsettled)),
            stores: BTreeMap::new(),
        };
        let mut failed = Ok(());
        let mut has_fallen = false;
        for store in &view.stores {
            match self.hold(view, store, &before) {
                Ok(held) => {
                    has_fallen |= self.fall_behind(view, &before, &held);
                    holding.stores.insert(held.id, Arc::new(held));
                }
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        let was_live = |node: &NodeId| before.is_live(*node);
        let live = view
            .nodes
            .iter()
            .filter(|&(_, &is_live)| is_live)
            .map(|(&node, _)| node);
        // At the start, all live nodes.
        let returned: BTreeSet<NodeId> = live.filter(|node| !was_live(node)).collect();
        let is_new_table = settling.is_none();
        self.shared.holding.store(Arc::new(holding));
        // A thread that sees the new holding sees the partitions that have fallen behind, too.
        if has_fallen {
            failed = failed.and(self.shared.incarnation.fall_behind());
        }
        if is_new_table {
            self.settle(&unsettled);
        }
        if !returned.is_empty() {
            let mut waiting = self.shared.returned.lock();
            waiting.extend(returned);
        }
        for signal in [
            &self.shared.growing,
            &self.shared.exchanging,
            &self.shared.moving,
            &self.shared.handoff,
        ] {
            signal.wake();
        }
        if !view.is_remembered {
            self.drop_others(&before, view);
        }
        failed
    }

    /// Marks owned partitions of a store as behind if this process, given what it held before, may lack acknowledged
    /// writes of them. Returns whether that has to be remembered.
    fn fall_behind(&self, view: &ReplicaView, before: &Holding, store: &HeldStore) -> bool {
        let held = before.stores.get(&store.id);
        let held = held.filter(|held| held.table.name() == store.table.name());
        if !store.is_compared() || held.is_some_and(|held| Arc::ptr_eq(&held.partitions, &store.partitions)) {
            return false;
        }
        let is_durable = store.engine.is_durable();
        // An earlier process may have acknowledged writes: the store existed when this process first received the
        // cluster state, or could not be opened then.
        let is_old = |cluster: &Cluster| cluster.is_remembered || cluster.stores.contains(&store.identity());
        let is_behind = self.shared.incarnation.is_behind();
        let lacks = !is_durable || is_behind || self.shared.is_lost(store);
        let has_lost = lacks && before.cluster.as_ref().is_none_or(is_old);
        let is_whole = |id: PartitionId| match held {
            None => !has_lost,
            // A node that starts during a plan may be assigned a partition that only its earlier process had compared.
            Some(held) => {
                // Before a split.
                let id = before.count().covering(id, view.table.partitions());
                let known = held.partitions.get(&id.get());
                known.is_some_and(|partition| before.is_synchronised(held, partition))
            }
        };
        let is_shared = |partition: &&Arc<Partition>| {
            let owners = view.table.owners(partition.id());
            let owners = &owners[..owners.len().min(store.copies.owners)];
            // A partition that only this node owns is on no other node: it is behind only if a loss is known.
            let may_wait = owners.len() > 1 || is_durable && self.shared.is_lost(store);
            may_wait && owners.contains(&view.node)
        };
        let owned = store.partitions.values().filter(is_shared);
        let fallen: Vec<_> = owned.filter(|partition| !is_whole(partition.id())).collect();
        fallen.iter().for_each(|partition| partition.fall_behind());
        // A loss of power is recorded separately, since it does not affect all stores.
        is_durable && !fallen.is_empty() && (held.is_some() || is_behind)
    }

    /// This node's part of a store.
    fn hold(&self, view: &ReplicaView, store: &ReplicatedStore, holding: &Holding) -> Result<HeldStore, ReplicasError> {
        let name = table_name(store);
        let before = holding.stores.get(&store.id);
        let before = before.filter(|before| before.table.name() == name);
        let engine_at = self.shared.engine_at(store)?;
        let engine = &self.shared.engines[engine_at];
        let table = match before {
            Some(before) => Arc::clone(&before.table),
            None if self.shared.dropping.is_deleting(&name) => {
                let store = store.name.to_string();
                return Err(ReplicasError::BeingDeleted { store });
            }
            None => engine.open_table(&name)?,
        };
        let promises_more = |before: &HeldStore| {
            before.settings.durability == Durability::Log && store.settings.durability == Durability::Fsync
        };
        if engine.is_local() && before.is_some_and(|before| promises_more(before)) {
            // From now on a loss of power takes no acknowledged write.
            engine.sync()?;
        }
        let copies = view.table.copies(store.id, store.replicas);
        let counts = view.table.counts().get(&store.id);
        // Most changes of a cluster concern something else.
        let unchanged = before.filter(|before| before.epoch == view.table.epoch() && before.copies == copies);
        let (partitions, surplus) = match unchanged {
            Some(before) => (Arc::clone(&before.partitions), Arc::clone(&before.surplus)),
            None => {
                let known = match before {
                    Some(before) => before
                        .all_partitions()
                        .filter(|partition| !partition.is_cleared() || partition.is_held())
                        .map(|partition| (partition.id().get(), Arc::clone(partition)))
                        .collect(),
                    None => found_in(&table, view.table.partitions())?,
                };
                divided(view, copies, known)
            }
        };
        Ok(HeldStore {
            id: store.id,
            created_unix_ms: store.created_unix_ms,
            name: store.name.clone(),
            copies,
            value_type: store.value_type,
            settings: counts.map_or(store.settings, |counts| store.settings.with_quorums(&counts.now)),
            is_dropped: store.is_dropped,
            exceeded_quota_bytes: store.exceeded_quota_bytes,
            engine: Arc::clone(engine),
            engine_at,
            table,
            epoch: view.table.epoch(),
            partitions,
            surplus,
            is_gone: before.map_or_else(Arc::default, |before| Arc::clone(&before.is_gone)),
        })
    }

    /// Tables of stores that the cluster does not know, and that no record declares dropped: they are kept.
    pub fn unexplained_tables(&self) -> Vec<String> {
        self.shared.dropping.unexplained()
    }

    /// Lets the chore delete the tables of stores that were dropped and are not kept.
    fn drop_others(&self, before: &Holding, view: &ReplicaView) {
        let wanted: BTreeSet<String> = view.stores.iter().map(table_name).collect();
        let gone = before
            .stores
            .values()
            .filter(|store| !wanted.contains(store.table.name()));
        gone.for_each(|store| store.is_gone.store(true, Relaxed));
        let dropped = view.dropped.iter().map(dropped_table).collect();
        self.shared.dropping.want(Some(Tables { wanted, dropped }));
        self.shared.dropping.signal.wake();
    }

    /// Counts the shards that have committed all writes admitted under an earlier table: the next owner of a partition
    /// under this table would miss them if it compared before that. Writes that reach a shard later are checked again
    /// there.
    fn settle(&self, unsettled: &Arc<AtomicUsize>) {
        for shard in 0..self.shared.shards.len() {
            let unsettled = Unsettled(Arc::clone(unsettled));
            self.shared.between(shard, move || drop(unsettled));
        }
    }
}

/// A shard that may still commit writes admitted under an earlier table, until this is dropped, even by a group that
/// panics.
struct Unsettled(Arc<AtomicUsize>);

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release);
    }
}

/// The cluster state for background work: without absent nodes that hold nothing.
fn cluster_of(view: &ReplicaView, unsettled: &Arc<AtomicUsize>) -> Cluster {
    let table = &view.table;
    let joint = table.changes().map(|(_, joint)| joint);
    let lists = table.all_owners().iter().map(Vec::as_slice).chain(joint);
    let holders: BTreeSet<NodeId> = lists.flatten().copied().collect();
    let nodes = view.nodes.iter().map(|(&node, &is_live)| (node, is_live));
    Cluster {
        node: view.node,
        table: Arc::clone(table),
        nodes: nodes
            .filter(|(node, is_live)| *is_live || holders.contains(node))
            .collect(),
        near: view.near.clone(),
        stores: view.stores.iter().map(ReplicatedStore::identity).collect(),
        kept: kept(view).collect(),
        is_remembered: view.is_remembered,
        given_up: given_up(view),
        unsettled: Arc::clone(unsettled),
    }
}

/// The stores that were dropped and may be restored.
fn kept(view: &ReplicaView) -> impl Iterator<Item = StoreIdentity> {
    let dropped = view.dropped.iter().filter(|store| store.is_kept);
    dropped.map(|store| StoreIdentity {
        id: store.id,
        created_unix_ms: store.created_unix_ms,
    })
}

/// Absent nodes that leave for good; none if the state is only remembered.
fn given_up(view: &ReplicaView) -> BTreeSet<NodeId> {
    let is_live = |node: &NodeId| view.nodes.get(node).copied().unwrap_or(false);
    let leaving = view.leaving.iter().copied().filter(|_| !view.is_remembered);
    leaving.filter(|node| !is_live(node)).collect()
}

impl ReplicatedStore {
    fn identity(&self) -> StoreIdentity {
        StoreIdentity {
            id: self.id,
            created_unix_ms: self.created_unix_ms,
        }
    }
}

/// The partitions of a store that the node holds, and those that it has but no longer holds.
fn divided(view: &ReplicaView, copies: Copies, known: BTreeMap<u32, Arc<Partition>>) -> (Held, Arc<[Arc<Partition>]>) {
    let count = view.table.partitions();
    let mut known = among(count, known);
    let mut held = BTreeMap::new();
    for id in count.partitions() {
        if !view.table.holds(view.node, id, copies) {
            continue;
        }
        let partition = known
            .remove(&id.get())
            .unwrap_or_else(|| Arc::new(Partition::new(count, id)));
        match (partition.is_held(), view.table.moves().get(&id)) {
            (false, _) => partition.take_back(view.table.epoch()),
            (true, Some(Stage::Begun { at, .. })) if partition.assigned_epoch() < *at => {
                let mut owners = view.table.owners(id).iter().take(copies.owners);
                // Owners that remain are compared, too, before the number of replicas becomes lower.
                if copies.joint < copies.owners || !owners.any(|owner| *owner == view.node) {
                    partition.begin_anew(view.table.epoch());
                }
            }
            (true, _) => {}
        }
        held.insert(id.get(), partition);
    }
    let surplus: Arc<[Arc<Partition>]> = known.into_values().collect();
    surplus
        .iter()
        .filter(|partition| partition.is_held())
        .for_each(|partition| partition.give_up());
    (Arc::new(held), surplus)
}

/// The name of a store's table. The number may be reused after thousands of other stores; the creation time is not.
fn table_name(store: &ReplicatedStore) -> String {
    name_of(store.id, store.created_unix_ms)
}

/// The name of a dropped store's table, and whether it has to be kept.
fn dropped_table(store: &DroppedReplica) -> (String, bool) {
    (name_of(store.id, store.created_unix_ms), store.is_kept)
}

fn name_of(id: u16, created_unix_ms: u64) -> String {
    format!("{STORE_PREFIX}{id}-{created_unix_ms}")
}

/// Partitions after splits.
fn among(count: PartitionCount, mut known: BTreeMap<u32, Arc<Partition>>) -> BTreeMap<u32, Arc<Partition>> {
    while let Some(doubled) = known.values().find(|partition| partition.count().get() < count.get()) {
        let Some(doubled) = doubled.count().doubled() else {
            break;
        };
        let halves = known.values().flat_map(|partition| partition.split(doubled));
        known = halves.map(|half| (half.id().get(), Arc::clone(half))).collect();
    }
    known
}

/// The partitions that have records in a table.
fn found_in(table: &Arc<dyn Table>, count: PartitionCount) -> Result<BTreeMap<u32, Arc<Partition>>, ReplicasError> {
    let mut found = BTreeMap::new();
    let mut from = Bytes::new();
    loop {
        let mut scan = ReadableScan::begin(table, &from, None, RECORD_WIDTH)?;
        let first = loop {
            match scan.next().transpose()? {
                None => return Ok(found),
                Some(Found::Record(key, _) | Found::Damaged(key, _)) => break key,
                // A partition that is not found is not deleted if it is no longer held.
                Some(Found::Gap(_)) => {}
            }
        };
        let Some((position, _)) = parse_record_key(&first) else {
            return Ok(found);
        };
        let id = partition_at(count, position);
        found.insert(id.get(), Arc::new(Partition::new(count, id)));
        match range(count, id, 0, 0).1 {
            Some(next) => from = next,
            None => return Ok(found),
        }
    }
}
