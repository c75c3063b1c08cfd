//! The entries of the coordination service, in their stored form.
//!
//! Writers: `cluster`: the first process, once; `nodes/ID`, `routing`, `plans/N`, `stores/NAME`: the leading controller,
//! and the process that carries out an operator's request; `dropped/ID`: the process that carries
//! out an operator's request to drop or restore a store; `schemas/STORE-ID`: the process that carries out its registration; `numbers`: the process that gives one out;
//! `announcements/IDENTITY` and `reports/ID`: the node itself, as ephemeral entries; `routers/IDENTITY`: the router
//! itself, as an ephemeral entry.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::joint::JointSwap;
use crate::canary::{CanaryCounts, CanaryRecord, CanaryState};
use crate::definition::StoreDefinition;
use crate::gate::{GateReport, Gates};
use crate::name::StoreName;
use crate::node::{Identity, NodeId};
use crate::partition::PartitionCount;
use crate::partition_set::PartitionSet;
use crate::placement::{Member, Placement};
use crate::protocol;
use crate::push::{ConfirmationState, PushEvent, PushState};
use crate::retention::VersionSet;
use crate::value_type::ValueType;
use crate::version::VersionNumber;

/// The constant properties of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterRecord {
    /// The identity of the cluster: data directories remember it.
    pub identity: Identity,
    /// How many partitions there are at first: the routing table says how many there are since they were split.
    pub partitions: PartitionCount,
    /// How partitions are assigned to nodes.
    pub placement: Placement,
    /// The number of replicas of a partition.
    pub replicas: u32,
    /// How many nodes must have announced themselves before the first routing table is made.
    pub nodes_initial: u32,
    /// How often an operator has declared the entries to be the true ones, after the coordination service lost them or
    /// went back to older ones. Revisions are comparable only if this number is the same.
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub adoptions: u32,
}

/// A node that has its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRecord {
    /// Its number.
    pub id: NodeId,
    /// Its identity.
    pub identity: Identity,
    /// Its zone: replicas are spread over zones.
    pub zone: String,
    /// Its group, under the placement *grouped*.
    pub group: Option<String>,
    /// Its capacity, relative to other nodes; 1 or more.
    pub weight: u32,
    /// Its RESP address: host and port.
    pub resp: String,
    /// Its HTTP address: host and port.
    pub http: String,
    /// The machine that it runs on, if that is known: replicas of a partition are on different machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether it waits to replace a node that dies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backup: bool,
    /// The highest [protocol](crate::PROTOCOL) that it understands.
    #[serde(default = "protocol::first", skip_serializing_if = "protocol::is_first")]
    pub protocol: u32,
    /// An operator's decision about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<NodeMark>,
    /// Whether it is gone for good, and not listed any more, unless it comes back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgotten: bool,
}

impl NodeRecord {
    /// The node as a member of placements.
    pub fn member(&self) -> Member {
        Member {
            id: self.id,
            zone: self.zone.clone(),
            group: self.group.clone(),
            host: self.host.clone(),
            weight: self.weight,
        }
    }
}

/// An operator's decision about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum NodeMark {
    /// It leaves for good: it gets no partitions, and loses those that it has. If it is absent, it will not come back
    /// with what it had.
    Leaving,
    /// It is to be taken out of service for a while: requests go to other nodes where those have the data.
    Maintenance,
}

/// A live node that wants to take part. Ephemeral: it disappears with its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Announcement {
    /// Its identity.
    pub identity: Identity,
    /// The number that it remembers from before, or was configured with.
    pub id: Option<NodeId>,
    /// Its zone.
    pub zone: String,
    /// Its group, if it has one.
    pub group: Option<String>,
    /// Its capacity, relative to other nodes; 1 or more.
    pub weight: u32,
    /// Its RESP address: host and port, as others reach it.
    pub resp: String,
    /// Its HTTP address: host and port, as others reach it.
    pub http: String,
    /// The machine that it runs on, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether it waits to replace a node that dies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backup: bool,
    /// Whether it has a MySQL database for stores of the engine `mysql`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mysql: bool,
    /// The highest [protocol](crate::PROTOCOL) that it understands.
    #[serde(default = "protocol::first", skip_serializing_if = "protocol::is_first")]
    pub protocol: u32,
}

/// A live router. Ephemeral.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterRecord {
    /// Its RESP address: host and port.
    pub resp: String,
    /// Its HTTP address: host and port.
    pub http: String,
    /// The highest [protocol](crate::PROTOCOL) that it understands.
    #[serde(default = "protocol::first", skip_serializing_if = "protocol::is_first")]
    pub protocol: u32,
}

/// A store, its versions, and its last push. Always written as a whole, so that a swap is one write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreRecord {
    /// The operator's definition.
    pub definition: StoreDefinition,
    /// The number of the store itself, from 1: scan cursors hold it.
    pub id: u16,
    /// When it was created, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// Its versions, and which one is current.
    pub versions: VersionSet,
    /// Details of each kept version, and of the one being pushed.
    pub details: BTreeMap<VersionNumber, VersionDetail>,
    /// The push under way, or the last one.
    pub push: Option<PushRecord>,
    /// Nodes that do not have the current version yet: they get no requests for this store.
    #[serde(default)]
    pub late: BTreeSet<NodeId>,
    /// Whether a versioned store is larger than its space quota: it takes no writes but deletions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over_quota: bool,
    /// Earlier pushes that belong to a run, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<PushRecord>,
    /// The stores whose version changed in one write with this one's, and this store itself: their states after the last such
    /// write. A view with this record is complete only if each of them is at least as new.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joint: BTreeMap<StoreName, JointSwap>,
}

impl StoreRecord {
    /// How many earlier pushes that belong to a run are remembered.
    pub const RUNS_MAX: usize = 16;

    /// The name of the store's topic in the log of a process that is a whole cluster.
    pub fn log_topic(&self) -> String {
        format!("{}-{}", self.id, self.created_unix_ms)
    }

    /// A store without versions.
    pub fn new(definition: StoreDefinition, id: u16, created_unix_ms: u64) -> Self {
        Self {
            definition,
            id,
            created_unix_ms,
            versions: VersionSet::default(),
            details: BTreeMap::new(),
            push: None,
            late: BTreeSet::new(),
            over_quota: false,
            runs: Vec::new(),
            joint: BTreeMap::new(),
        }
    }

    /// The push that belongs to a run.
    pub fn push_of_run(&self, run: &str) -> Option<&PushRecord> {
        let mut pushes = self.push.iter().chain(&self.runs);
        pushes.find(|push| push.run.as_deref() == Some(run))
    }

    /// Remembers a push that has ended, if it belongs to a run.
    pub fn remember_run(&mut self, push: PushRecord) {
        if push.run.is_some() {
            self.runs.insert(0, push);
            self.runs.truncate(Self::RUNS_MAX);
        }
    }

    /// The version that is being pushed, if a push is under way.
    pub fn pushing(&self) -> Option<VersionNumber> {
        let is_held = |push: &PushRecord| push.state == PushState::Held;
        self.pushed().filter(|_| !self.push.as_ref().is_some_and(is_held))
    }

    /// The version that is being pushed or held: nodes have it, or fetch it.
    pub fn pushed(&self) -> Option<VersionNumber> {
        let push = self.push.as_ref().filter(|push| !push.state.is_end());
        push.map(|push| push.version)
    }

    /// The canary of the push under way, if its version answers reads.
    pub fn canary(&self) -> Option<&CanaryRecord> {
        let push = self.push.as_ref().filter(|push| !push.state.is_end())?;
        push.canary.as_ref().filter(|canary| canary.takes_reads())
    }

    /// Whether this version never became current, since its push failed or was cancelled.
    pub fn gave_up(&self, version: VersionNumber) -> bool {
        let push = self.push.as_ref().filter(|push| push.version == version);
        push.is_some_and(|push| matches!(push.state, PushState::Failed | PushState::Cancelled))
    }

    /// Deletes the details of versions that are neither kept nor being pushed or held.
    pub fn forget_details(&mut self) {
        let pushing = self.pushed();
        let versions = &self.versions;
        self.details
            .retain(|&version, _| versions.contains(version) || pushing == Some(version));
    }
}

/// A dropped store. Nodes delete data only if a record says that it is no longer needed, never because a record is
/// missing: this is that record for a whole store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DroppedStore {
    /// The store's record when it was dropped.
    pub record: StoreRecord,
    /// When it was dropped, in milliseconds since 1970.
    pub dropped_unix_ms: u64,
    /// Until when nodes keep its data, in milliseconds since 1970: until then it can be restored.
    pub kept_until_unix_ms: u64,
}

/// A schema of the values of a store. It is never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaRecord {
    /// The number of its store.
    pub store: u16,
    /// Its own number in the store, from 1, which values begin with.
    pub id: u16,
    /// The language: Avro or Protobuf.
    pub value_type: ValueType,
    /// Avro's JSON; or a serialized `FileDescriptorSet` in base64.
    pub text: String,
    /// The full name of Protobuf's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it was registered, in milliseconds since 1970.
    pub registered_unix_ms: u64,
}

impl SchemaRecord {
    /// Its place among all.
    pub fn key(&self) -> SchemaKey {
        SchemaKey {
            store: self.store,
            id: self.id,
        }
    }
}

/// The place of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SchemaKey {
    /// The number of the store.
    pub store: u16,
    /// The number of the schema in its store, from 1.
    pub id: u16,
}

impl fmt::Display for SchemaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.store, self.id)
    }
}

/// The facts about a version that are known without its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionDetail {
    /// The location where it was built.
    pub source: String,
    /// The checksum of its manifest: another checksum under the same number is another version.
    pub manifest_checksum: String,
    /// How many partitions it was built for: as many as there were, or fewer if they have been split since.
    pub partitions: PartitionCount,
    /// The size of all its files in bytes.
    pub bytes: u64,
    /// How many of these bytes are indexes, which should be in memory.
    pub index_bytes: u64,
    /// The number of its records.
    pub records: u64,
    /// The number of its chunks.
    pub chunks: u64,
    /// When it was built, in milliseconds since 1970.
    pub built_unix_ms: u64,
    /// The compression of its values.
    pub compression: String,
    /// Of a hybrid store: the events that count on top of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<VersionEvents>,
}

/// The events of a stream that count on top of a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionEvents {
    /// The stream is read from here on, in milliseconds since 1970.
    pub from_unix_ms: u64,
    /// The version contains all events up to this time, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of_unix_ms: Option<u64>,
    /// How long an event lives from its event time on, and a record of the version from its time on, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The time of the version's records that have none of their own, in milliseconds since 1970, if it matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undated_unix_ms: Option<u64>,
}

/// A push, under way or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushRecord {
    /// The version's number, also if the push failed.
    pub version: VersionNumber,
    /// The source of the version.
    pub source: String,
    /// The version that it was built from, of a difference: the push fails if another one becomes current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<VersionNumber>,
    /// Its state.
    pub state: PushState,
    /// Why it failed, or is held.
    pub error: Option<String>,
    /// The size of all files in bytes.
    pub bytes_total: u64,
    /// The number of records of the version.
    pub records: u64,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended_unix_ms: Option<u64>,
    /// The run that it belongs to, as its caller names it: another request of the same run is answered with this push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The other stores whose versions become current with this one, by one write, and those versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub with: BTreeMap<StoreName, VersionNumber>,
    /// Its canary: the version answers a share of the reads before it becomes current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryRecord>,
    /// The gates that the version must pass: those of the store when the push began, and those of the push.
    #[serde(default, skip_serializing_if = "Gates::is_empty")]
    pub gates: Gates,
    /// The comparison with the current version, once the nodes have made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Box<GateReport>>,
    /// Of a version that has to be confirmed, once it has passed its other gates: whether it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<ConfirmationState>,
    /// Whether the version goes live as soon as nodes can read it from its source on demand, while they copy it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub serve_while_copying: bool,
}

impl PushRecord {
    /// Whether the version passes all its gates but has to be confirmed.
    pub fn awaits_confirmation(&self) -> bool {
        self.state == PushState::Held && self.confirmation == Some(ConfirmationState::Awaited)
    }

    /// Applies an event. An event that is impossible in this state is ignored: the push has ended already.
    pub fn advance(&mut self, event: PushEvent, now_unix_ms: u64) {
        if let Ok(state) = self.state.after(event) {
            self.state = state;
            self.ended_unix_ms = state.is_end().then_some(now_unix_ms);
            let ended = match state {
                PushState::Fetching | PushState::Ready | PushState::Held => None,
                PushState::Swapped => Some(CanaryState::Promoted),
                PushState::Failed => Some(CanaryState::RolledBack),
                PushState::Cancelled => Some(CanaryState::Aborted),
            };
            if let (Some(canary), Some(ended)) = (&mut self.canary, ended) {
                canary.stop(ended, now_unix_ms);
            }
        }
    }
}

/// The last numbers given out, so that none is reused soon: scan cursors contain the numbers of stores, and data
/// directories those of nodes. Giving one out rewrites this entry, so that no two processes do it at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// The number of the store that was created last; 0 before the first.
    pub last_store: u16,
    /// How many stores were ever created: a lower number than before means that the entries went back to older ones.
    #[serde(default)]
    pub stores_created: u64,
    /// The highest number of a node; `None` before the first.
    pub last_node: Option<NodeId>,
    /// How many nodes have a number: a process that sees fewer nodes does not see all yet, and gives out no number.
    #[serde(default)]
    pub nodes: u32,
}

/// A node's report about its replicas. Ephemeral; rewritten when states change, and from time to time while a fetch
/// makes progress.
///
/// It names no partitions but those that move, so that it stays small: *ready* means all partitions that the node owns
/// in the routing table of this epoch, with this number of replicas of the store. It is not rewritten for a later table
/// whose steps do not concern the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportRecord {
    /// The epoch of the routing table that it is based on; 0 before the node has seen one.
    pub epoch: u64,
    /// Each store that the node should have.
    pub stores: BTreeMap<StoreName, StoreReport>,
}

/// A store on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreReport {
    /// The number of the store: another one under the same name is another store.
    pub id: u16,
    /// How many replicas the store has, as the node saw it.
    pub replicas: u32,
    /// How often another version had become current, as the node saw it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub swaps: u64,
    /// Each version that is kept or being pushed; empty for a versioned store.
    pub versions: BTreeMap<VersionNumber, ReplicaReport>,
    /// For a versioned store: the partitions that moves under way give to the node, or leave with it, and that do not
    /// have everything yet that their owners had.
    #[serde(default, skip_serializing_if = "PartitionSet::is_empty")]
    pub lacking: PartitionSet,
    /// For a versioned store: how many partitions the node has.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held: u64,
    /// For a versioned store: about how many keys these partitions have, to three digits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub keys: u64,
    /// For a versioned store with a space quota: about how many bytes the records of these partitions have, to three digits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
}

/// A version of a store on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaReport {
    /// Its state, for the partitions that the node owns.
    pub state: ReplicaState,
    /// The partitions that moves under way give to the node, or leave with it, and that are not complete and open yet; of a
    /// store that is everywhere, all that are not.
    #[serde(default, skip_serializing_if = "PartitionSet::is_empty")]
    pub lacking: PartitionSet,
    /// Whether all attempts to fetch what it lacks have failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gave_up: bool,
    /// The bytes that this fetch has fetched so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_done: u64,
    /// The bytes that this fetch has to fetch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_total: u64,
    /// The estimated time left for this fetch, in seconds, if it can be estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// Whether its files are there, and only the stream on top of it has yet to be read: that takes as long as it
    /// takes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads_stream: bool,
    /// Whether the node answers for all its partitions although some are not complete: it reads on demand what it lacks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_demand: bool,
    /// Why it failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The counts of a canary of this version on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryCounts>,
}

impl ReplicaReport {
    /// A replica in this state, without further facts.
    pub fn of(state: ReplicaState) -> Self {
        Self {
            state,
            lacking: PartitionSet::EMPTY,
            gave_up: false,
            bytes_done: 0,
            bytes_total: 0,
            seconds_left: None,
            reads_stream: false,
            on_demand: false,
            error: None,
            canary: None,
        }
    }
}

fn is_zero_u32(number: &u32) -> bool {
    *number == 0
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The state of a version on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReplicaState {
    /// Its files are being pulled and verified, or wait to be.
    Fetching,
    /// All its partitions that the node owns are complete and open, and it is not the current version.
    Ready,
    /// All its partitions that the node owns are complete and open, and it is current.
    Serving,
    /// It could not be fetched in all attempts. If the version is kept, the node tries again from time to time.
    Failed,
}

impl ReplicaState {
    /// Whether all its partitions are complete and open.
    pub fn is_ready(self) -> bool {
        matches!(self, Self::Ready | Self::Serving)
    }
}
