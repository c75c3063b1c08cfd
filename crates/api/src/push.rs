//! Pushes.

use std::collections::BTreeMap;

use fondaco_model::{CanaryAction, CanaryCounts, CanaryState, CanaryTerms, Gates, PushState, StoreName, VersionNumber};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ReplicaResource, VersionDiff};

/// A push to start.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPush {
    /// The location of the built version: a path that all nodes have, a URL that they can read, or the source of an
    /// upload.
    #[schema(example = "file:///data/builds/pymk-2026-11-21")]
    pub source: String,
    /// Whether to check everything and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Of a hybrid store: the version contains all events up to this time, in milliseconds since 1970, and those after it count on top
    /// of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of_unix_ms: Option<u64>,
    /// Of a hybrid store: when the same version was first pushed to another cluster, in milliseconds since 1970. The stream is
    /// read from there, less the store's rewind, so that the same events count in both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_unix_ms: Option<u64>,
    /// Whether a version that was built from a difference may be pushed though its base is not the current version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_base: bool,
    /// The version that must be the current one, or else the push is refused: for what was made of that one and the events on top
    /// of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub if_current: Option<VersionNumber>,
    /// An id that the caller chose for this run: a second request of the same run begins no other push, but is answered with the
    /// first one, whatever became of it. The header `Idempotency-Key` says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "daily-2026-11-28", min_length = 1, max_length = 200)]
    pub run: Option<String>,
    /// Whether to push the version although its content is that of the current one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// Other stores, each with the location of a version of it: all these versions become current with this one, by one write, or none
    /// does.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub with: BTreeMap<StoreName, String>,
    /// The version answers a share of the reads before it becomes current, and is compared with the current one. The first version
    /// of a store has no canary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryTerms>,
    /// Gates that the version must pass before it goes live, beside those of the store, joined by semicolons: the allowed change of
    /// `records` or `bytes`, or the most keys that are `gone`, `new` or `changed`, or lack a field, `nulls(FIELD)`; `confirm` holds it until it is confirmed. The first
    /// version of a store passes all but `confirm`.
    #[serde(default, skip_serializing_if = "Gates::is_empty")]
    #[schema(value_type = String, example = "records -10%..+50%; gone <= 5%")]
    pub gates: Gates,
    /// Whether the version goes live as soon as nodes can read it from its source on demand, and while they copy it. Only of batch
    /// stores, and without gates.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub serve_while_copying: bool,
}

impl NewPush {
    /// The most bytes of the id of a run.
    pub const RUN_BYTES_MAX: usize = 200;
}

/// A push.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PushResource {
    /// The version's number, also if the push failed.
    pub version: u64,
    /// The source of the version.
    pub source: String,
    /// Its state.
    pub state: PushState,
    /// Why it failed or is held; of a version that was held and swapped in all the same, why it was held.
    pub error: Option<String>,
    /// The gates that the version must pass; empty without any.
    #[serde(default, skip_serializing_if = "Gates::is_empty")]
    #[schema(value_type = String)]
    pub gates: Gates,
    /// Whether its version is held only because it has to be confirmed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_confirmation: bool,
    /// The comparison with the current version, once its gates have needed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<VersionDiff>,
    /// The number of records of the version.
    pub records: u64,
    /// The bytes that all nodes fetch together; the size of all files before the nodes report, and after the push.
    pub bytes_total: u64,
    /// How many of these bytes are fetched and verified.
    pub bytes_done: u64,
    /// The number of files that the answering node fetches; 0 while unknown, and for other processes.
    pub files_total: u64,
    /// The number of files that are fetched and verified.
    pub files_done: u64,
    /// The rate of all nodes together that fetch, in bytes a second; 0 after the push.
    pub rate_bytes_per_second: u64,
    /// The limit of the answering node's rate, in bytes a second; 0 is no limit, and for other processes.
    pub rate_limit_bytes_per_second: u64,
    /// In how many seconds the last node will be done, at the present rates; null if unknown.
    pub seconds_left: Option<u64>,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended_unix_ms: Option<u64>,
    /// The state of each node, while the push is under way.
    pub nodes: Vec<ReplicaResource>,
    /// The absent nodes that should have the version, while the push is under way: it waits for them for a while.
    pub absent: Vec<AbsentNode>,
    /// The run that it belongs to, if its caller named one.
    #[serde(default)]
    pub run: Option<String>,
    /// Whether no push was begun for the request: this one, of the same run or with the same content, is the answer.
    #[serde(default)]
    pub repeated: bool,
    /// The other stores whose versions become current with this one, by one write, and those versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, u64>)]
    pub with: BTreeMap<StoreName, VersionNumber>,
    /// Its canary, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryResource>,
}

impl PushResource {
    /// Whether it changed nothing, because the current version had the same content: such a push ends when it begins.
    pub fn changed_nothing(&self) -> bool {
        self.state == PushState::Swapped && self.ended_unix_ms == Some(self.started_unix_ms)
    }
}

/// The canary of a push.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CanaryResource {
    /// Its terms.
    pub terms: CanaryTerms,
    /// Its state.
    pub state: CanaryState,
    /// The version that it is compared with; null before it has begun.
    #[schema(value_type = Option<u64>)]
    pub against: Option<VersionNumber>,
    /// How long its clock has run, in milliseconds.
    pub elapsed_ms: u64,
    /// Why it ended; null before.
    pub reason: Option<String>,
    /// The counts of all nodes.
    pub counts: CanaryCounts,
    /// The counts of each node; empty once it has ended.
    pub nodes: Vec<CanaryNode>,
}

/// The counts of a canary on a node.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct CanaryNode {
    /// Its number.
    pub node: u32,
    /// Its counts.
    pub counts: CanaryCounts,
}

/// A request that steers a canary.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CanaryRequest {
    /// The request.
    pub action: CanaryAction,
}

/// An absent node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AbsentNode {
    /// Its number.
    pub node: u32,
    /// When the answering process saw it leave, in milliseconds since 1970; null if it never saw the node.
    pub since_unix_ms: Option<u64>,
}

/// The end of the checks of a version that awaits its confirmation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// The version.
    #[schema(value_type = u64, minimum = 1)]
    pub version: VersionNumber,
    /// Why it must not go live; null if it may. Only the first 2000 characters are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Confirmation {
    /// The most characters of a reason that are kept.
    pub const REASON_CHARS_MAX: usize = 2_000;
}

/// The effects that a push would have.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DryRunResource {
    /// The number that the version would get.
    pub version: u64,
    /// The source of the version.
    pub source: String,
    /// The number of records of the version.
    pub records: u64,
    /// The size of all files, in bytes.
    pub bytes_total: u64,
    /// How many bytes it would use on the disk of the answering node.
    pub needed_bytes: u64,
    /// Whether the node would link files instead of copying them.
    pub links: bool,
}
