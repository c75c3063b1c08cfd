//! What a node holds of the versioned stores: their tables, and the partitions that are its own.
//!
//! A [`Holding`] is immutable, and replaced whole when the cluster changes; the partitions in it go on from one
//! to the next. What requests name is looked up here: the store by its number and its name, the partition by the
//! key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed};

use bytes::Bytes;
use fondaco_engine::{Engine, Table};
use fondaco_model::versioned::{EngineKind, VersionedSettings};
use fondaco_model::{NodeId, PartitionCount, PartitionId, RoutingTable, StoreName, slot_of_key};
use fondaco_protocol::replica::{ReplicaCommand, ReplicaError, ReplicaErrorCode, ReplicaRequest};

use crate::membership::admitted::admitted;
use crate::membership::catching_up::{Other, has_enough};
use crate::membership::incarnation::Lasting;
use crate::partition::Partition;
use crate::table_key::{REPLICA_KEY_BYTES_MAX, StoreIdentity, key_hash, record_key};

/// All that a node holds, at one moment.
#[derive(Default)]
pub(crate) struct Holding {
    pub(crate) cluster: Option<Cluster>,
    pub(crate) stores: BTreeMap<u16, Arc<HeldStore>>,
}

/// The cluster around the node.
pub(crate) struct Cluster {
    pub(crate) node: NodeId,
    pub(crate) table: Arc<RoutingTable>,
    pub(crate) nodes: BTreeMap<NodeId, bool>,
    /// All versioned stores that there are, those that cannot be opened here included.
    pub(crate) stores: BTreeSet<StoreIdentity>,
    /// Versioned stores that were dropped and may be restored: hints of them wait.
    pub(crate) kept: BTreeSet<StoreIdentity>,
    /// Whether it is what the process remembers: then nothing is given up by it.
    pub(crate) is_remembered: bool,
    /// Those that are neither there nor hold anything when the plan under way is over: what only they have is given up.
    pub(crate) given_up: BTreeSet<NodeId>,
    /// How many shards may still commit what was let in by an earlier table.
    pub(crate) unsettled: Arc<AtomicUsize>,
}

/// Partitions by their numbers.
pub(crate) type Held = Arc<BTreeMap<u32, Arc<Partition>>>;

/// A versioned store on a node.
pub(crate) struct HeldStore {
    pub(crate) id: u16,
    pub(crate) created_unix_ms: u64,
    pub(crate) name: StoreName,
    pub(crate) replicas: usize,
    /// The epoch of the routing table that its partitions follow from.
    pub(crate) epoch: u64,
    pub(crate) settings: VersionedSettings,
    pub(crate) engine: Arc<dyn Engine>,
    /// The place of the engine among all of the node.
    pub(crate) engine_at: usize,
    pub(crate) table: Arc<dyn Table>,
    /// Those that requests may ask for.
    pub(crate) partitions: Held,
    /// Those that it had, and that are deleted once their owners have all that is in them.
    pub(crate) surplus: Arc<[Arc<Partition>]>,
    /// Set when the store was dropped, before its table is.
    pub(crate) is_gone: Arc<AtomicBool>,
}

/// Where a key is.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) partition: Arc<Partition>,
    pub(crate) hash: u64,
    pub(crate) key: Bytes,
    /// The key in the store's table.
    pub(crate) table_key: Bytes,
}

impl Holding {
    /// The store that a request is about.
    ///
    /// # Errors
    /// `NOSTORE`.
    pub(crate) fn store(&self, request: &ReplicaRequest) -> Result<&Arc<HeldStore>, ReplicaError> {
        let store = self.stores.get(&request.store_id);
        store.filter(|store| store.name == request.store).ok_or_else(|| {
            let ReplicaRequest { store, store_id, .. } = request;
            ReplicaError::new(
                ReplicaErrorCode::NoStore,
                format!("this node knows no versioned store {store:?} with number {store_id}: ask again in a moment"),
            )
        })
    }

    /// The partition of a key.
    pub(crate) fn partition_of(&self, store: &StoreName, key: &[u8]) -> PartitionId {
        let count = self.cluster.as_ref().map(|cluster| cluster.table.partitions());
        count.map_or(PartitionId::new(0), |count| partition_of(count, store, key))
    }

    /// Where a key of a store is, for a command of a coordinator that goes by the table of an epoch.
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
        let id = self.partition_of(&store.name, key);
        let partition = store.partition(id)?;
        self.admit(id, command, epoch)?;
        let is_counted_read = command == ReplicaCommand::Get && epoch.is_some();
        if is_counted_read && (partition.is_behind() || self.is_yet_to_own(store, partition, epoch)) {
            return Err(self.behind(store, id));
        }
        Ok(place_in(partition, key))
    }

    /// The error of a read of a partition of which something is lost here.
    pub(crate) fn behind(&self, store: &HeldStore, id: PartitionId) -> ReplicaError {
        let name = &store.name;
        let text = match self.has_others(store, id) {
            true => format!(
                "this node has lost what it held of partition {id} of store {name:?}, and is being compared with the others: \
                 ask another one"
            ),
            false => format!(
                "this node has lost something of partition {id} of store {name:?}, and no other node has it: restore the \
                 store, or give up what is lost: fondaco repair losses"
            ),
        };
        ReplicaError::new(ReplicaErrorCode::Behind, text)
    }

    /// Whether the coordinator may take this node for an owner of a partition, by a table that it has not heard of, and it has
    /// not got what owners have: it was about to be one, and has lost it since.
    fn is_yet_to_own(&self, store: &HeldStore, partition: &Partition, epoch: Option<NonZeroU64>) -> bool {
        let known = self.cluster.as_ref().map_or(0, |cluster| cluster.table.epoch());
        epoch.is_some_and(|epoch| epoch.get() > known) && !self.is_synchronised(store, partition)
    }

    /// Admits a command for a partition, of a coordinator that goes by the table of an epoch.
    ///
    /// # Errors
    /// `OLDTABLE`; `OVERLOADED` where a comparison would miss writes that were let in by an earlier table, and are
    /// still to be committed.
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
                "writes of before this routing table are still to be committed: ask again in a moment",
            )),
            false => Ok(()),
        }
    }

    /// Whether what was let in for a partition by the table that a store had then may be written by the present one.
    ///
    /// # Errors
    /// `OLDTABLE`.
    pub(crate) fn admit_late(&self, store: &HeldStore, partition: PartitionId) -> Result<(), ReplicaError> {
        match &self.cluster {
            Some(cluster) if cluster.table.epoch() != store.epoch => admitted(
                &cluster.table,
                partition,
                ReplicaCommand::Put,
                NonZeroU64::new(store.epoch),
            ),
            _ => Ok(()),
        }
    }

    /// Whether what this node holds of a partition may be told for what a replica of it has: it owns it, and has lost
    /// nothing of it that it has not had again.
    pub(crate) fn may_tell(&self, store: &HeldStore, partition: PartitionId) -> bool {
        let is_whole = || store.partition(partition).is_ok_and(|held| !held.is_behind());
        self.is_owner(store, partition) && is_whole()
    }

    /// Whether this node owns a partition of a store.
    pub(crate) fn is_owner(&self, store: &HeldStore, partition: PartitionId) -> bool {
        let own = self.cluster.as_ref().map(|cluster| cluster.node);
        own.is_some_and(|own| self.owners(store, partition).contains(&own))
    }

    /// Where a key of a store is, or would be if it were held here.
    ///
    /// # Errors
    /// `BADKEY`.
    pub(crate) fn place_anywhere(&self, store: &HeldStore, key: &Bytes) -> Result<Place, ReplicaError> {
        check_key(key)?;
        let id = self.partition_of(&store.name, key);
        Ok(place_in(&Arc::new(Partition::new(id)), key))
    }

    /// The other nodes that hold a partition of a store, or are to, or take its writes until a plan is finished.
    pub(crate) fn others(&self, store: &HeldStore, partition: PartitionId) -> Vec<NodeId> {
        let mut others: Vec<NodeId> = self.all_others(store, partition).collect();
        others.sort_unstable();
        others.dedup();
        others
    }

    /// Whether another node holds a partition of a store, or is to.
    pub(crate) fn has_others(&self, store: &HeldStore, partition: PartitionId) -> bool {
        self.all_others(store, partition).next().is_some()
    }

    /// The same nodes may be named twice.
    fn all_others(&self, store: &HeldStore, partition: PartitionId) -> impl Iterator<Item = NodeId> {
        let replicas = store.replicas;
        self.cluster.iter().flat_map(move |cluster| {
            let owners = cluster.table.owners(partition).iter().take(replicas);
            let joint = cluster.table.joint(partition).into_iter();
            let all = owners.chain(joint.flat_map(move |joint| joint.iter().take(replicas)));
            all.copied().filter(|&node| node != cluster.node)
        })
    }

    /// The nodes that own a partition of a store now.
    pub(crate) fn owners(&self, store: &HeldStore, partition: PartitionId) -> &[NodeId] {
        let Some(cluster) = &self.cluster else { return &[] };
        let owners = cluster.table.owners(partition);
        &owners[..owners.len().min(store.replicas)]
    }

    /// Whether a partition has what the owners had when it came to this node: it is an owner, or was compared
    /// with enough of them.
    pub(crate) fn is_synchronised(&self, store: &HeldStore, partition: &Partition) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        self.is_owner(store, partition.id()) || !store.is_compared() || self.has_enough(cluster, store, partition)
    }

    /// Whether a partition that had lost what it held has enough of it again, as this node knows for certain. A loss
    /// is known (`is_lost`) until it was had again or given up.
    pub(crate) fn has_caught_up(&self, store: &HeldStore, partition: &Partition, is_lost: bool) -> bool {
        let cluster = self.cluster.as_ref().filter(|cluster| !cluster.is_remembered);
        // Where no other node has the partition, an operator has to accept the loss.
        let is_given_up = || self.has_others(store, partition.id()) || !is_lost;
        cluster.is_some_and(|cluster| self.has_enough(cluster, store, partition)) && is_given_up()
    }

    fn has_enough(&self, cluster: &Cluster, store: &HeldStore, partition: &Partition) -> bool {
        let owners = self.owners(store, partition.id());
        has_enough(&store.settings, owners, cluster.node, |node| Other {
            is_live: self.is_live(node),
            is_given_up: cluster.given_up.contains(&node),
            compared: partition.compared_with(node),
        })
    }

    /// Whether a partition is to be compared before anything else: a plan waits for it.
    pub(crate) fn is_waited_for(&self, store: &HeldStore, partition: &Partition) -> bool {
        partition.is_behind() || !self.is_synchronised(store, partition)
    }

    /// This very store, if it is held.
    pub(crate) fn store_of(&self, identity: StoreIdentity) -> Option<&Arc<HeldStore>> {
        let store = self.stores.get(&identity.id);
        store.filter(|store| store.identity() == identity)
    }

    /// Whether a node is there.
    pub(crate) fn is_live(&self, node: NodeId) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.nodes.get(&node).copied().unwrap_or(false))
    }
}

impl HeldStore {
    /// Which store it is.
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

    /// Whether its partitions are compared with those of other replicas. What forgets by itself is not: hash trees would
    /// not know of it, and comparing would bring it back.
    pub(crate) fn is_compared(&self) -> bool {
        self.settings.engine != EngineKind::Cache
    }

    /// All of which there is something in its table.
    pub(crate) fn all_partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.values().chain(&*self.surplus)
    }

    /// Whether what it holds outlives the process.
    pub(crate) fn lasting(&self) -> Lasting {
        match self.engine.is_durable() {
            true => Lasting::Durable,
            false => Lasting::Volatile,
        }
    }

    /// Whether the store is no more.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }
}

/// The key in its store's table.
pub(crate) fn record_key_of(partition: PartitionId, key: &[u8]) -> Bytes {
    record_key(partition, key_hash(key), key)
}

/// Where a key of a partition is.
pub(crate) fn place_in(partition: &Arc<Partition>, key: &Bytes) -> Place {
    let hash = key_hash(key);
    Place {
        table_key: record_key(partition.id(), hash, key),
        partition: Arc::clone(partition),
        hash,
        key: key.clone(),
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

/// The partition that a key of a store lies in.
pub(crate) fn partition_of(count: PartitionCount, store: &StoreName, key: &[u8]) -> PartitionId {
    count.partition_of(slot_of_key(store, key))
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
