//! Reasons why an operator's request is refused.

use crate::name::StoreName;
use crate::node::NodeId;
use crate::partition::PartitionId;
use crate::placement::PlacementError;
use crate::version::VersionNumber;
use crate::versioned::SettingsError;

/// Why a change cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The cluster has not been made.
    #[error("there is no cluster yet: start a controller or a server first")]
    NoCluster,
    /// No store has this name.
    #[error("no store {store:?}: create it: fondaco store create {store}; fondaco store list shows those that exist")]
    StoreNotFound {
        /// The name.
        store: StoreName,
    },
    /// A store has this name already.
    #[error("store {store:?} exists: choose another name, or drop it first: fondaco store drop {store}")]
    StoreExists {
        /// The name.
        store: StoreName,
    },
    /// No store of this name was dropped, or only so long ago that it is forgotten.
    #[error("no store {store:?} was dropped lately: only a dropped store can be restored; see fondaco store list")]
    NotDropped {
        /// The name.
        store: StoreName,
    },
    /// The store was dropped, and its data is not kept any more.
    #[error("store {store:?} cannot be restored: {reason}; create it anew: fondaco store create {store}")]
    NotKept {
        /// The name.
        store: StoreName,
        /// Why not.
        reason: &'static str,
    },
    /// The entries that are there are another cluster's.
    #[error(
        "the coordination service has the entries of another cluster than this process knows: correct the address and \
         root, or write back what this node remembers: fondaco cluster adopt"
    )]
    OtherCluster,
    /// The cluster has as many stores as it can.
    #[error("there are {max} stores, and no more are possible: drop one first: fondaco store drop NAME")]
    TooManyStores {
        /// The limit.
        max: usize,
    },
    /// The definition of a store has a value that is not possible.
    #[error("invalid store {store:?}: {reason}")]
    InvalidDefinition {
        /// The name.
        store: StoreName,
        /// The reason.
        reason: String,
    },
    /// The settings of a versioned store are not possible.
    #[error("invalid versioned store {store:?}: {error}")]
    InvalidSettings {
        /// The name.
        store: StoreName,
        /// The error.
        error: SettingsError,
    },
    /// The engine of a new store is MySQL, and nodes have no database for it.
    #[error(
        "cannot create store {store:?} with engine mysql: node {nodes} has no MySQL database; set mysql = \
         \"mysql://…\" under [versioned] in its configuration and start it again, or choose another engine"
    )]
    NoMysql {
        /// The store.
        store: StoreName,
        /// The nodes, for people.
        nodes: String,
    },
    /// Something of a versioned store is to be changed that cannot be: its data would have to move.
    #[error("the {what} of versioned store {store:?} cannot be changed: create another store, and copy the data")]
    Unchangeable {
        /// The store.
        store: StoreName,
        /// The entry that was to be changed.
        what: &'static str,
    },
    /// A versioned store has no versions that could be pushed or swapped.
    #[error(
        "store {store:?} is versioned, and has no versions to push, to swap or to roll back to: write to it with any Redis client: SET {store}:KEY VALUE"
    )]
    Versioned {
        /// The store.
        store: StoreName,
    },
    /// Something that only versioned stores have is to be changed of another one.
    #[error("store {store:?} is not versioned: it has no settings of reads, writes and replicas that answer")]
    NotVersioned {
        /// The store.
        store: StoreName,
    },
    /// The store does not keep this version.
    #[error("store {store:?} has no version {version}: it keeps {kept}")]
    VersionNotFound {
        /// The store.
        store: StoreName,
        /// The version.
        version: VersionNumber,
        /// Those that it keeps, for people.
        kept: String,
    },
    /// The version is kept, and a part of it is nowhere.
    #[error(
        "version {version} of store {store:?} cannot be served: no node has its partition {partition} ready; \
         fondaco versions {store} shows why"
    )]
    VersionNotReady {
        /// The store.
        store: StoreName,
        /// The version.
        version: VersionNumber,
        /// The first partition that is missed.
        partition: PartitionId,
    },
    /// There is no version to go back to.
    #[error(
        "store {store:?} keeps no version before the current one, it keeps {kept}: list them with \
         fondaco versions {store}, choose one with fondaco rollback {store} --to N, or keep more of the next ones: \
         fondaco store alter {store} --backups 2"
    )]
    NoRollback {
        /// The store.
        store: StoreName,
        /// The versions that it keeps, for people.
        kept: String,
    },
    /// One push of a store at a time.
    #[error(
        "push of version {version} of store {store:?} is in progress: wait for it, or cancel it: fondaco cancel {store}"
    )]
    PushInProgress {
        /// The store.
        store: StoreName,
        /// The version being pushed.
        version: VersionNumber,
    },
    /// The store was never pushed to.
    #[error("store {store:?} has no push: start one: fondaco push {store} INPUT… --key COLUMN")]
    PushNotFound {
        /// The store.
        store: StoreName,
    },
    /// The push ended before it could be cancelled.
    #[error("the last push of store {store:?} has ended: there is nothing to cancel")]
    PushEnded {
        /// The store.
        store: StoreName,
    },
    /// Too many stores are being pushed to.
    #[error("{max} pushes are in progress, and no more are possible: wait for one of them, fondaco status shows them")]
    TooManyPushes {
        /// The limit.
        max: usize,
    },
    /// There is no routing table to be changed.
    #[error("there is no routing table yet: it is made when {nodes_initial} nodes are there")]
    NoRoutingTable {
        /// How many nodes the first table waits for.
        nodes_initial: u32,
    },
    /// One plan at a time.
    #[error("a plan for the routing table is under way: wait for it, or cancel it: fondaco rebalance cancel")]
    PlanInProgress,
    /// There is no plan that can be cancelled.
    #[error(
        "no plan for the routing table is under way that can be cancelled: there is none, or its partitions have moved"
    )]
    NoPlan,
    /// The plan would change nothing.
    #[error("the routing table is as it should be for these nodes: name nodes to add or to remove")]
    NothingToMove,
    /// No node has this number.
    #[error("no node has the number {node}: fondaco nodes lists those that exist")]
    NodeNotFound {
        /// The number.
        node: NodeId,
    },
    /// A node that has no data yet cannot become an owner while it is away.
    #[error("node {node} is absent: start it before partitions are given to it")]
    NodeAbsent {
        /// The node.
        node: NodeId,
    },
    /// The nodes cannot be given partitions as the cluster wants it.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}
