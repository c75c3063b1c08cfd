//! Reasons why an operator's request is refused.

use super::schema::{SCHEMAS_BYTES_MAX, SCHEMAS_MAX};
use fondaco_model::cluster::UserName;
use fondaco_model::versioned::SettingsError;
use fondaco_model::{
    Compatibility, Move, NodeId, PartitionCount, PartitionId, PlacementError, StoreName, ValueType, VersionNumber,
};

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
    /// No store of this name was dropped, or it was dropped so long ago that it is forgotten.
    #[error("no store {store:?} was dropped lately: only a dropped store can be restored; see fondaco store list")]
    NotDropped {
        /// The name.
        store: StoreName,
    },
    /// The store was dropped, and its data is no longer kept.
    #[error("store {store:?} cannot be restored: {reason}; create it again: fondaco store create {store}")]
    NotKept {
        /// The name.
        store: StoreName,
        /// Why not.
        reason: &'static str,
    },
    /// The present entries belong to another cluster.
    #[error(
        "the coordination service has the entries of another cluster than this process knows: correct the address and \
         root, or write back the entries that this node remembers: fondaco cluster adopt"
    )]
    OtherCluster,
    /// The cluster has the maximum number of stores.
    #[error("there are {max} stores, which is the limit: drop one first: fondaco store drop NAME")]
    TooManyStores {
        /// The limit.
        max: usize,
    },
    /// The definition of a store has an invalid value.
    #[error("invalid store {store:?}: {reason}")]
    InvalidDefinition {
        /// The name.
        store: StoreName,
        /// The reason.
        reason: String,
    },
    /// Only versions of hybrid stores go up to a time.
    #[error("store {store:?} has no stream: leave out the time that the version goes up to")]
    NotHybrid {
        /// The store.
        store: StoreName,
    },
    /// A version contains events of the future.
    #[error(
        "the version of store {store:?} would contain all events up to {as_of_unix_ms}, in milliseconds since 1970, which is yet to come"
    )]
    AsOfLater {
        /// The store.
        store: StoreName,
        /// The time.
        as_of_unix_ms: u64,
    },
    /// The settings of a versioned store are invalid.
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
    /// The values of the store have schemas of another language, or none.
    #[error(
        "the values of store {store:?} are of type {expected}, and the schema is of {found}: values of avro and protobuf have schemas; create \
         a store for them: fondaco store create NAME --value-type {found}"
    )]
    WrongSchemaType {
        /// The name.
        store: StoreName,
        /// The type of the store's values.
        expected: ValueType,
        /// The language of the schema.
        found: ValueType,
    },
    /// A new schema is not compatible with those that the store has.
    #[error(
        "the schema does not fit store {store:?}, whose compatibility is {mode}: {}; change the schema, or demand less: fondaco \
         store alter {store} --compatibility none", clashes.join("; ")
    )]
    SchemaClash {
        /// The name.
        store: StoreName,
        /// The store's compatibility.
        mode: Compatibility,
        /// Each clash: the former schema, the field, and the rule.
        clashes: Vec<String>,
    },
    /// A store has as many schemas as it may.
    #[error(
        "store {store:?} has too many schemas: {SCHEMAS_MAX} are the limit, or {SCHEMAS_BYTES_MAX} bytes of text; create another store"
    )]
    TooManySchemas {
        /// The name.
        store: StoreName,
    },
    /// The entry of a schema was changed from outside.
    #[error("the entry of schema {id} of store {store:?} is damaged, {reason}: write it back: fondaco cluster adopt")]
    DamagedSchema {
        /// The name.
        store: StoreName,
        /// The number of the schema.
        id: u16,
        /// The damage.
        reason: String,
    },
    /// A member of the cluster does not know an option of a new store.
    #[error(
        "store {store:?} cannot have {what} yet: some nodes or routers are of an earlier release, protocol {in_force}: upgrade them \
         first; fondaco node list shows the protocols"
    )]
    NotYetSpoken {
        /// The name.
        store: StoreName,
        /// The option with its value.
        what: String,
        /// The protocol in force.
        in_force: u32,
    },
    /// A change of a store that would require its data to move.
    #[error("the {what} of store {store:?} cannot be changed: create another store, and copy the data")]
    Unchangeable {
        /// The store.
        store: StoreName,
        /// The property that cannot be changed.
        what: &'static str,
    },
    /// Options that stores of this kind do not have.
    #[error("store {store:?} is {kind}, and does not have {foreign}: leave out what it does not have")]
    OtherKind {
        /// The store.
        store: StoreName,
        /// Its kind.
        kind: &'static str,
        /// The options, each with the kinds that have it.
        foreign: String,
    },
    /// A versioned store has no versions that could be pushed or swapped.
    #[error(
        "store {store:?} is versioned, and has no versions to push, to swap or to roll back to: write to it with any Redis client: SET {store}:KEY VALUE"
    )]
    Versioned {
        /// The store.
        store: StoreName,
    },
    /// A change of a setting that only versioned stores have, for another store.
    #[error("store {store:?} is not versioned: it has no quorum settings")]
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
        /// The versions that it keeps, for people.
        kept: String,
    },
    /// The version is kept, but one of its partitions is ready on no node.
    #[error(
        "version {version} of store {store:?} cannot be served: no node has its partition {partition} ready; \
         fondaco versions {store} shows why"
    )]
    VersionNotReady {
        /// The store.
        store: StoreName,
        /// The version.
        version: VersionNumber,
        /// The first missing partition.
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
    /// The current version was swapped in together with those of other stores.
    #[error(
        "store {store:?} was swapped together with {}: roll all of them back, each to the version before, with \
         fondaco rollback {store} --set, or this one alone: fondaco rollback {store} --alone",
        names(others)
    )]
    SwappedTogether {
        /// The store.
        store: StoreName,
        /// The others.
        others: Vec<StoreName>,
    },
    /// No canary of the store is under way.
    #[error("store {store:?} has no canary under way: begin one with a push: fondaco push {store} … --canary 5%")]
    NoCanary {
        /// The store.
        store: StoreName,
    },
    /// The version of the canary is still being fetched.
    #[error(
        "the canary of store {store:?} has not begun: nodes still fetch version {version}; wait for them, or cancel the push: \
         fondaco cancel {store}"
    )]
    CanaryNotBegun {
        /// The store.
        store: StoreName,
        /// The version being pushed.
        version: VersionNumber,
    },
    /// The canary would take no reads.
    #[error("the canary of store {store:?} would take no reads: there is no {what}: see fondaco nodes")]
    CanaryNowhere {
        /// The store.
        store: StoreName,
        /// The missing node or zone, for people.
        what: String,
    },
    /// Another push of the store is in progress.
    #[error(
        "push of version {version} of store {store:?} is in progress: wait for it, or cancel it: fondaco cancel {store}"
    )]
    PushInProgress {
        /// The store.
        store: StoreName,
        /// The version being pushed.
        version: VersionNumber,
    },
    /// The version was built from another one than the current one: what came between would be lost.
    #[error(
        "the version was built from a difference to the version with checksum {base}, and the current one of store \
         {store:?} is {current}: build it again from the difference and the current version, with fondaco push {store} \
         … --incremental, or replace what the store has all the same: fondaco deploy {store} LOCATION --any-base"
    )]
    BaseChanged {
        /// The store.
        store: StoreName,
        /// The checksum of the version that it was built from.
        base: String,
        /// The checksum of the current version.
        current: String,
    },
    /// The push was meant for a version that is not current.
    #[error("version {version} of store {store:?} is not the current one any more: try again")]
    CurrentChanged {
        /// The store.
        store: StoreName,
        /// The version.
        version: VersionNumber,
    },
    /// The store was never pushed to.
    #[error("store {store:?} has no push: start one: fondaco push {store} INPUT… --key COLUMN")]
    PushNotFound {
        /// The store.
        store: StoreName,
    },
    /// The push ended before it could be cancelled, or its version does not await the confirmation.
    #[error(
        "the last push of store {store:?} has ended, or is of another version: there is nothing to cancel or to confirm"
    )]
    PushEnded {
        /// The store.
        store: StoreName,
    },
    /// Too many stores are being pushed to.
    #[error("{max} pushes are in progress, which is the limit: wait for one of them, fondaco status shows them")]
    TooManyPushes {
        /// The limit.
        max: usize,
    },
    /// With the version, one copy of the store would have more bytes than its space quota.
    #[error(
        "store {store:?} has a space quota of {quota_bytes} bytes: this version has {bytes}, and the versions that would be \
         kept beside it have {kept_bytes}; raise the quota: fondaco store alter {store} --space-quota BYTES, or keep fewer \
         versions: fondaco store alter {store} --backups 0"
    )]
    OverSpaceQuota {
        /// The store.
        store: StoreName,
        /// The bytes of the version.
        bytes: u64,
        /// The bytes of the versions that would be kept for rollback.
        kept_bytes: u64,
        /// The quota.
        quota_bytes: u64,
    },
    /// There is no routing table to change.
    #[error("there is no routing table yet: it is made when {nodes_initial} nodes are live")]
    NoRoutingTable {
        /// How many nodes the first table waits for.
        nodes_initial: u32,
    },
    /// Lists of nodes are shorter than a versioned store needs, so that longer ones would give it owners without its data.
    #[error(
        "store {store:?} has fewer replicas than it should, since not all nodes have their share of the partitions: give it to \
         them first: fondaco rebalance run --even"
    )]
    ShortLists {
        /// The store.
        store: StoreName,
    },
    /// Another plan is under way.
    #[error("plan {number} is under way: wait for it, or cancel it: fondaco rebalance cancel")]
    PlanInProgress {
        /// Its number.
        number: u64,
    },
    /// No plan is under way.
    #[error("no plan is under way: fondaco rebalance list shows those that were made")]
    NoPlan,
    /// No plan has this number.
    #[error("there is no plan {number}, or it ended long ago: fondaco rebalance list shows those that there are")]
    PlanNotFound {
        /// The number.
        number: u64,
    },
    /// The state of the plan does not allow this.
    #[error("plan {number} is {state}: make another one: fondaco rebalance plan")]
    PlanState {
        /// The number.
        number: u64,
        /// Its state.
        state: &'static str,
    },
    /// Partitions of the plan have moved since it was made.
    #[error("partitions of plan {number} have moved since it was made: make it again: fondaco rebalance plan")]
    OutdatedPlan {
        /// The number.
        number: u64,
    },
    /// The plan would change nothing.
    #[error("the routing table already fits these nodes: name nodes to add or to remove, or partitions to move")]
    NothingToMove,
    /// Partitions cannot be split any more.
    #[error("there are {partitions} partitions, one for each slot: they cannot be split")]
    TooManyPartitions {
        /// How many there are.
        partitions: PartitionCount,
    },
    /// No partition has this number.
    #[error("there is no partition {partition}: partitions are numbers from 0, and there are {partitions}")]
    NoPartition {
        /// The number.
        partition: PartitionId,
        /// How many there are.
        partitions: PartitionCount,
    },
    /// A replica cannot be moved like this.
    #[error(
        "partition {} cannot be moved like this: the first node must have it, and the second must not; \
         fondaco rebalance status --json shows the nodes of each partition", one.partition
    )]
    ImpossibleMove {
        /// The move.
        one: Move,
    },
    /// No node has this number.
    #[error("no node has the number {node}: fondaco nodes lists those that exist")]
    NodeNotFound {
        /// The number.
        node: NodeId,
    },
    /// A node that has no data yet cannot become an owner while it is absent.
    #[error("node {node} is absent: start it before partitions are given to it")]
    NodeAbsent {
        /// The node.
        node: NodeId,
    },
    /// A node that may still be needed cannot be forgotten.
    #[error("node {node} {why}")]
    NodeInUse {
        /// The node.
        node: NodeId,
        /// Why, and what to do.
        why: &'static str,
    },
    /// The cluster has the maximum number of users.
    #[error("there are {max} users, which is the limit: delete one first: fondaco user drop NAME")]
    TooManyUsers {
        /// The limit.
        max: usize,
    },
    /// No user has this name.
    #[error("no user {user} of the cluster: fondaco user list shows those that exist")]
    UserNotFound {
        /// The name.
        user: UserName,
    },
    /// The nodes cannot be given partitions as the cluster's placement requires.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

fn names(stores: &[StoreName]) -> String {
    let names: Vec<&str> = stores.iter().map(StoreName::as_str).collect();
    names.join(", ")
}
