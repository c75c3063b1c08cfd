//! The versioned stores that a node holds: their tables, and their partitions on this node.
//!
//! A [`Holding`] is immutable, and replaced as a whole when the cluster changes; the partitions in it are carried over.
//! Requests are resolved here: the store by its number and its name, the partition by the key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed};

use bytes::Bytes;
use fondaco_engine::{Engine, Table};
use fondaco_model::versioned::{
    Change as UpdateChange, EngineKind, Other, Update, VersionedSettings, has_all, has_enough,
};
use fondaco_model::{
    Copies, NodeId, PartitionCount, PartitionId, RoutingTable, Slot, StoreName, ValueType, member, slot_of_key,
};
use fondaco_protocol::replica::{ReplicaCommand, ReplicaError, ReplicaErrorCode, ReplicaRequest};

use crate::membership::admitted::admitted;
use crate::membership::incarnation::Lasting;
use crate::partition::Partition;
use crate::table_key::{REPLICA_KEY_BYTES_MAX, StoreIdentity, partition_at, position, record_key};

/// The stores that a node holds, at one moment.
#[derive(Default)]
pub(crate) struct Holding {
    pub(crate) cluster: Option<Cluster>,
    pub(crate) stores: BTreeMap<u16, Arc<HeldStore>>,
}

/// The cluster state of the node.
pub(crate) struct Cluster {
    pub(crate) node: NodeId,
    pub(crate) table: Arc<RoutingTable>,
    pub(crate) nodes: BTreeMap<NodeId, bool>,
    /// The nodes in the zone of this one.
    pub(crate) near: BTreeSet<NodeId>,
    /// All versioned stores, including those that cannot be opened here.
    pub(crate) stores: BTreeSet<StoreIdentity>,
    /// Versioned stores that were dropped and may be restored: their hints wait.
    pub(crate) kept: BTreeSet<StoreIdentity>,
    /// Whether it is remembered from an earlier run: then no data is deleted because of it.
    pub(crate) is_remembered: bool,
    /// Nodes that are not live and hold nothing after the plan in progress: data that only they have is given up.
    pub(crate) given_up: BTreeSet<NodeId>,
    /// How many shards may still commit writes that were admitted under an earlier table.
    pub(crate) unsettled: Arc<AtomicUsize>,
}

/// Partitions by their numbers.
pub(crate) type Held = Arc<BTreeMap<u32, Arc<Partition>>>;

/// A versioned store on a node.
pub(crate) struct HeldStore {
    pub(crate) id: u16,
    pub(crate) created_unix_ms: u64,
    pub(crate) name: StoreName,
    pub(crate) copies: Copies,
    pub(crate) value_type: ValueType,
    /// The epoch of the routing table that its partitions follow from.
    pub(crate) epoch: u64,
    /// With the quorums of the owners.
    pub(crate) settings: VersionedSettings,
    /// Whether it was dropped and can be restored: then no client reads or writes it.
    pub(crate) is_dropped: bool,
    /// The space quota that it exceeds, in bytes.
    pub(crate) exceeded_quota_bytes: Option<u64>,
    pub(crate) engine: Arc<dyn Engine>,
    /// The index of its engine.
    pub(crate) engine_at: usize,
    pub(crate) table: Arc<dyn Table>,
    /// The partitions that accept requests.
    pub(crate) partitions: Held,
    /// Former partitions, which are deleted once their owners have all their records.
    pub(crate) surplus: Arc<[Arc<Partition>]>,
    /// Set when the store is dropped, before its table is.
    pub(crate) is_gone: Arc<AtomicBool>,
}

/// The location of a key.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) partition: Arc<Partition>,
    pub(crate) position: u64,
    pub(crate) key: Bytes,
    /// The key in the store's table.
    pub(crate) table_key: Bytes,
}

impl Holding {
    /// The store of a request.
    ///
    /// # Errors
    /// `NOSTORE`.
    pub(crate) fn store(&self, request: &ReplicaRequest) -> Result<&Arc<HeldStore>, ReplicaError> {
        let is_of_client = match request.operation.command() {
            ReplicaCommand::Put => true,
            ReplicaCommand::Get => request.epoch.is_some(),
            _ => false,
        };
        let store = self.stores.get(&request.store_id);
        let store = store.filter(|store| !(is_of_client && store.is_dropped));
        store.filter(|store| store.name == request.store).ok_or_else(|| {
            let ReplicaRequest { store, store_id, .. } = request;
            ReplicaError::new(
                ReplicaErrorCode::NoStore,
                format!("this node knows no versioned store {store:?} with number {store_id}: ask again in a moment"),
            )
        })
    }

    /// The store with this number, if clients may read and write it.
    pub(crate) fn served(&self, store: u16) -> Option<&Arc<HeldStore>> {
        self.stores.get(&store).filter(|store| !store.is_dropped)
    }

    /// How many partitions there are.
    pub(crate) fn count(&self) -> PartitionCount {
        let table = self.cluster.as_ref().map(|cluster| &cluster.table);
        table.map_or(PartitionCount::ONE, |table| table.partitions())
    }

    /// The partition of a position.
    pub(crate) fn partition_at(&self, position: u64) -> PartitionId {
        partition_at(self.count(), position)
    }

    /// The location of a key of a store, for a command of a coordinator that uses the table of an epoch.
    ///
    /// # Errors
    /// `NOTHERE`, `OLDTABLE`, `BEHIND`, or `BADKEY`.
    pub(crate) fn place(
        &self,
        store: &HeldStore,
        key: &Bytes,
        command: ReplicaCommand,
        epoch: Option<NonZeroU64>,
    ) -> Result<Place, ReplicaError> {
        check_key(key)?;
        let position = store.position(key);
        let id = self.partition_at(position);
        let partition = store.partition(id)?;
        self.admit(id, command, epoch)?;
        let is_counted_read = command == ReplicaCommand::Get && epoch.is_some();
        if is_counted_read && (partition.is_behind() || self.is_yet_to_own(store, partition, epoch)) {
            return Err(self.behind(store, id));
        }
        Ok(store.place_at(partition, position, key))
    }

    /// The error for a read of a partition that has lost data here.
    pub(crate) fn behind(&self, store: &HeldStore, id: PartitionId) -> ReplicaError {
        let name = &store.name;
        let text = match self.has_others(store, id) {
            true => format!(
                "this node has lost its data of partition {id} of store {name:?}, and restores it from the other \
                 replicas: ask another replica"
            ),
            false => format!(
                "this node has lost data of partition {id} of store {name:?}, and no other node has a copy: restore the \
                 store, or accept the loss: fondaco repair losses"
            ),
        };
        ReplicaError::new(ReplicaErrorCode::Behind, text)
    }

    /// Whether the coordinator may take this node for an owner of a partition, by a newer table, although this node
    /// lacks what owners have: it was about to become an owner, and has lost data since.
    fn is_yet_to_own(&self, store: &HeldStore, partition: &Partition, epoch: Option<NonZeroU64>) -> bool {
        let known = self.cluster.as_ref().map_or(0, |cluster| cluster.table.epoch());
        epoch.is_some_and(|epoch| epoch.get() > known) && !self.is_synchronised(store, partition)
    }

    /// Admits a command for a partition, of a coordinator that uses the table of an epoch.
    ///
    /// # Errors
    /// `OLDTABLE`; `OVERLOADED` if a comparison would miss writes that were admitted under an earlier table and are not
    /// committed yet.
    pub(crate) fn admit(
        &self,
        partition: PartitionId,
        command: ReplicaCommand,
        epoch: Option<NonZeroU64>,
    ) -> Result<(), ReplicaError> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        admitted(&cluster.table, partition, command, epoch)?;
        let is_compared = matches!(command, ReplicaCommand::Tree | ReplicaCommand::Sync);
        match is_compared && epoch.is_some() && cluster.unsettled.load(Acquire) > 0 {
            true => Err(ReplicaError::new(
                ReplicaErrorCode::Overloaded,
                "writes admitted under the previous routing table are not committed yet: ask again in a moment",
            )),
            false => Ok(()),
        }
    }

    /// Admits a command for a partition of this many.
    ///
    /// # Errors
    /// `OLDTABLE` if there are more or fewer: one of the two nodes has yet to hear of a split.
    pub(crate) fn admit_count(&self, asked: PartitionCount) -> Result<(), ReplicaError> {
        let known = self.count();
        match known == asked {
            true => Ok(()),
            false => Err(ReplicaError::new(
                ReplicaErrorCode::OldTable,
                format!("this node knows of {known} partitions, and the comparison of {asked}: ask again in a moment"),
            )),
        }
    }

    /// Whether a write that was admitted for a position under the store's former table may be committed under the
    /// present one.
    ///
    /// # Errors
    /// `OLDTABLE`.
    pub(crate) fn admit_late(&self, store: &HeldStore, position: u64) -> Result<(), ReplicaError> {
        match &self.cluster {
            Some(cluster) if cluster.table.epoch() != store.epoch => admitted(
                &cluster.table,
                self.partition_at(position),
                ReplicaCommand::Put,
                NonZeroU64::new(store.epoch),
            ),
            _ => Ok(()),
        }
    }

    /// Whether this node may answer as a replica of a partition: it owns the partition, and lost no data of it that is
    /// not restored.
    pub(crate) fn may_tell(&self, store: &HeldStore, partition: PartitionId) -> bool {
        let is_whole = || store.partition(partition).is_ok_and(|held| !held.is_behind());
        self.is_owner(store, partition) && is_whole()
    }

    /// Whether this node owns a partition of a store.
    pub(crate) fn is_owner(&self, store: &HeldStore, partition: PartitionId) -> bool {
        let own = self.cluster.as_ref().map(|cluster| cluster.node);
        own.is_some_and(|own| self.owners(store, partition).contains(&own))
    }

    /// The location that a key of a store has or would have if it were held here.
    ///
    /// # Errors
    /// `BADKEY`.
    pub(crate) fn place_anywhere(&self, store: &HeldStore, key: &Bytes) -> Result<Place, ReplicaError> {
        check_key(key)?;
        let position = store.position(key);
        let partition = Partition::new(self.count(), self.partition_at(position));
        Ok(store.place_at(&Arc::new(partition), position, key))
    }

    /// The other current and next owners of a partition of a store, which take its writes until the plan is finished.
    pub(crate) fn others(&self, store: &HeldStore, partition: PartitionId) -> Vec<NodeId> {
        let mut others: Vec<NodeId> = self.all_others(store, partition).collect();
        others.sort_unstable();
        others.dedup();
        others
    }

    /// Whether a partition of a store has other current or next owners.
    pub(crate) fn has_others(&self, store: &HeldStore, partition: PartitionId) -> bool {
        self.all_others(store, partition).next().is_some()
    }

    /// The same node may be returned twice.
    fn all_others(&self, store: &HeldStore, partition: PartitionId) -> impl Iterator<Item = NodeId> {
        let copies = store.copies;
        self.cluster.iter().flat_map(move |cluster| {
            let owners = cluster.table.owners(partition).iter().take(copies.owners);
            let joint = cluster.table.joint(partition).into_iter();
            let all = owners.chain(joint.flat_map(move |joint| joint.iter().take(copies.joint)));
            all.copied().filter(|&node| node != cluster.node)
        })
    }

    /// The current owners of a partition of a store.
    pub(crate) fn owners(&self, store: &HeldStore, partition: PartitionId) -> &[NodeId] {
        let Some(cluster) = &self.cluster else { return &[] };
        let owners = cluster.table.owners(partition);
        &owners[..owners.len().min(store.copies.owners)]
    }

    /// Whether a partition has everything that the owners had when it was assigned to this node: this node is an owner,
    /// or has compared it with enough of them.
    pub(crate) fn is_synchronised(&self, store: &HeldStore, partition: &Partition) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        self.is_owner(store, partition.id()) || !store.is_compared() || self.has_enough(cluster, store, partition)
    }

    /// Whether a partition that had lost data has enough of it again, as far as this node knows for certain. A loss is
    /// recorded (`is_lost`) until the data is restored or given up.
    pub(crate) fn has_caught_up(&self, store: &HeldStore, partition: &Partition, is_lost: bool) -> bool {
        let cluster = self.cluster.as_ref().filter(|cluster| !cluster.is_remembered);
        // If no other node has the partition, an operator has to accept the loss.
        let is_given_up = || self.has_others(store, partition.id()) || !is_lost;
        cluster.is_some_and(|cluster| self.has_enough(cluster, store, partition)) && is_given_up()
    }

    /// Whether a plan under way may switch, as far as a partition on this node is concerned: it has everything that the owners had. While
    /// the number of replicas becomes lower that is asked of owners, too: those that remain must not lack what the others have.
    pub(crate) fn may_switch(&self, store: &HeldStore, partition: &Partition) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        let becomes_lower = store.copies.joint < store.copies.owners && cluster.table.next(partition.id()).is_some();
        if !becomes_lower || !store.is_compared() {
            return self.is_synchronised(store, partition);
        }
        let owners = self.owners(store, partition.id());
        !partition.is_behind() && has_all(&store.settings, owners, cluster.node, self.other(cluster, partition))
    }

    fn has_enough(&self, cluster: &Cluster, store: &HeldStore, partition: &Partition) -> bool {
        let owners = self.owners(store, partition.id());
        has_enough(&store.settings, owners, cluster.node, self.other(cluster, partition))
    }

    fn other(&self, cluster: &Cluster, partition: &Partition) -> impl Fn(NodeId) -> Other {
        move |node| Other {
            is_live: self.is_live(node),
            is_given_up: cluster.given_up.contains(&node),
            compared: partition.compared_with(node),
        }
    }

    /// Whether a partition is to be compared before all others: a plan waits for it.
    pub(crate) fn is_waited_for(&self, store: &HeldStore, partition: &Partition) -> bool {
        partition.is_behind() || !self.may_switch(store, partition)
    }

    /// Whether a node gets a partition by a move that has not switched yet.
    pub(crate) fn is_receiver(&self, store: &HeldStore, partition: PartitionId, node: NodeId) -> bool {
        let moves = self
            .cluster
            .iter()
            .any(|cluster| cluster.table.next(partition).is_some());
        moves && !self.owners(store, partition).contains(&node)
    }

    /// Whether this node gets a partition by a move that has not switched yet.
    pub(crate) fn receives(&self, store: &HeldStore, partition: PartitionId) -> bool {
        let own = self.cluster.as_ref().map(|cluster| cluster.node);
        own.is_some_and(|own| self.is_receiver(store, partition, own))
    }

    /// Whether a node is in the zone of this one.
    pub(crate) fn is_near(&self, node: NodeId) -> bool {
        self.cluster
            .as_ref()
            .is_some_and(|cluster| cluster.near.contains(&node))
    }

    /// This store, with the same creation time, if it is held.
    pub(crate) fn store_of(&self, identity: StoreIdentity) -> Option<&Arc<HeldStore>> {
        let store = self.stores.get(&identity.id);
        store.filter(|store| store.identity() == identity)
    }

    /// Whether a node is live.
    pub(crate) fn is_live(&self, node: NodeId) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.nodes.get(&node).copied().unwrap_or(false))
    }
}

impl Place {
    /// Goes on to what its partition was split into, if it was.
    pub(crate) fn follow(&mut self) {
        if self.partition.is_split() {
            self.partition = Arc::clone(self.partition.now(self.position));
        }
    }
}

impl HeldStore {
    /// The identity of the store.
    pub(crate) fn identity(&self) -> StoreIdentity {
        StoreIdentity {
            id: self.id,
            created_unix_ms: self.created_unix_ms,
        }
    }

    /// A partition that is held.
    ///
    /// # Errors
    /// `NOTHERE`.
    pub(crate) fn partition(&self, id: PartitionId) -> Result<&Arc<Partition>, ReplicaError> {
        self.partitions.get(&id.get()).ok_or_else(|| not_here(&self.name, id))
    }

    /// Whether its partitions are compared with those of other replicas. A store that evicts is not compared: hash
    /// trees would not know of evictions, and comparing would bring the records back.
    pub(crate) fn is_compared(&self) -> bool {
        self.settings.engine != EngineKind::Cache
    }

    /// All partitions that have records in its table.
    pub(crate) fn all_partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.values().chain(&*self.surplus)
    }

    /// The slot of a key.
    pub(crate) fn slot(&self, key: &[u8]) -> Slot {
        slot_of_key(&self.name, key)
    }

    /// The position of a key.
    pub(crate) fn position(&self, key: &[u8]) -> u64 {
        self.position_in(self.slot(key), key)
    }

    /// The position of a key, given its slot.
    #[inline]
    pub(crate) fn position_in(&self, slot: Slot, key: &[u8]) -> u64 {
        position(slot, member::key_hash(self.value_type, key))
    }

    /// The key in its table.
    pub(crate) fn record_key(&self, key: &[u8]) -> Bytes {
        record_key(self.position(key), key)
    }

    /// The location of a key of a partition.
    pub(crate) fn place_in(&self, partition: &Arc<Partition>, key: &Bytes) -> Place {
        self.place_at(partition, self.position(key), key)
    }

    fn place_at(&self, partition: &Arc<Partition>, position: u64, key: &Bytes) -> Place {
        Place {
            table_key: record_key(position, key),
            partition: Arc::clone(partition),
            position,
            key: key.clone(),
        }
    }

    /// Refuses an update that is no deletion while the store is over its space quota.
    ///
    /// # Errors
    /// `QUOTA`.
    pub(crate) fn check_quota(&self, update: &Update) -> Result<(), ReplicaError> {
        let is_deletion = matches!(
            update.change,
            UpdateChange::Delete | UpdateChange::SetCounter { value: None, .. }
        );
        let Some(quota) = self.exceeded_quota_bytes.filter(|_| !is_deletion) else {
            return Ok(());
        };
        let name = &self.name;
        Err(ReplicaError::new(
            ReplicaErrorCode::Quota,
            format!(
                "store {name:?} is larger than its space quota of {quota} bytes, and takes only deletions: delete records, or \
                 raise the quota: fondaco store alter {name} --space-quota BYTES"
            ),
        ))
    }

    /// Whether its data outlives the process.
    pub(crate) fn lasting(&self) -> Lasting {
        match self.engine.is_durable() {
            true => Lasting::Durable,
            false => Lasting::Volatile,
        }
    }

    /// Whether the store was dropped.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }
}

fn check_key(key: &[u8]) -> Result<(), ReplicaError> {
    if (1..=REPLICA_KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(ReplicaError::new(
        ReplicaErrorCode::BadKey,
        format!(
            "the key has {} bytes: keys of versioned stores have 1 to {REPLICA_KEY_BYTES_MAX}",
            key.len()
        ),
    ))
}

/// The error for a partition that this node does not hold.
pub(crate) fn not_here(store: &StoreName, id: PartitionId) -> ReplicaError {
    ReplicaError::new(
        ReplicaErrorCode::NotHere,
        format!("this node does not hold partition {id} of store {store:?}: ask for a newer topology"),
    )
}

/// The error for a store that was dropped.
pub(crate) fn gone(store: &StoreName) -> ReplicaError {
    ReplicaError::new(
        ReplicaErrorCode::NoStore,
        format!("store {store:?} was dropped: ask for a newer topology"),
    )
}

impl fmt::Debug for HeldStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldStore")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({:?} in partition {})", self.key, self.partition.id())
    }
}
