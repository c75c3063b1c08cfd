//! What the HTTP port speaks of: the JSON objects of requests and answers, and their schemas.

use fondaco_model::{PushState, StoreDefinition, StoreKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::stores::{DryRun, PushStatus, StoreStatus, VersionStatus};

/// A store to be created.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewStore {
    /// Its name: 1 to 64 characters from `a-z A-Z 0-9 _ - .`
    #[schema(example = "pymk", min_length = 1, max_length = 64)]
    pub name: String,
    /// Its kind.
    #[serde(default = "batch")]
    #[schema(value_type = StoreKindName)]
    pub kind: StoreKind,
    /// How many versions besides the current one are kept for rollback.
    #[serde(default = "backups")]
    #[schema(minimum = 0, maximum = 100, default = 1)]
    pub backups: u32,
}

fn batch() -> StoreKind {
    StoreKind::Batch
}

fn backups() -> u32 {
    StoreDefinition::BACKUPS_DEFAULT
}

/// The kinds of store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreKindName {
    /// Immutable versions, pushed whole.
    Batch,
}

/// What is to be changed of a store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreChange {
    /// How many versions besides the current one are kept for rollback.
    #[schema(minimum = 0, maximum = 100)]
    pub backups: u32,
}

/// All stores.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StoreList {
    /// In the order of their names.
    pub stores: Vec<StoreResource>,
}

/// A store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StoreResource {
    /// Its name.
    pub name: String,
    /// Its kind.
    #[schema(value_type = StoreKindName)]
    pub kind: StoreKind,
    /// How many versions besides the current one are kept for rollback.
    pub backups: u32,
    /// When it was created, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// The version that it serves, or should.
    pub current_version: Option<u64>,
    /// Its versions, the current one first, then those most recently current.
    pub versions: Vec<VersionResource>,
    /// The push under way, or the last one.
    pub push: Option<PushResource>,
}

/// The versions of a store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VersionList {
    /// The current one first, then those most recently current.
    pub versions: Vec<VersionResource>,
}

/// What a version is to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VersionState {
    /// It is current.
    Serving,
    /// It is open, and can be swapped in at once.
    Ready,
    /// It cannot be opened.
    Failed,
}

/// A version of a store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VersionResource {
    /// Its number.
    pub version: u64,
    /// What it is to this node.
    pub state: VersionState,
    /// Whether it is the current one.
    pub current: bool,
    /// How many records it has; null if it cannot be opened, as what follows.
    pub records: Option<u64>,
    /// How many bytes its files have.
    pub bytes: Option<u64>,
    /// How many of them are indexes, which should be in memory.
    pub index_bytes: Option<u64>,
    /// How many chunks it has.
    pub chunks: Option<u64>,
    /// When it was built, in milliseconds since 1970.
    pub built_unix_ms: Option<u64>,
    /// How its values are compressed.
    pub compression: Option<String>,
    /// Its directory.
    pub directory: String,
    /// Why it cannot be opened.
    pub error: Option<String>,
}

/// A push to be started.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPush {
    /// Where the version was built: a path on the node, or a URL that it can read.
    #[schema(example = "file:///data/builds/pymk-2026-11-21")]
    pub source: String,
    /// Check everything and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// How far a push is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PushStateName {
    /// The files of the version are being pulled and verified.
    Fetching,
    /// The version is complete and open, but not current.
    Ready,
    /// The version became current. An end.
    Swapped,
    /// The push was given up. An end.
    Failed,
    /// The push was cancelled. An end.
    Cancelled,
}

/// A push.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PushResource {
    /// The number that the version has, or would have had.
    pub version: u64,
    /// Where it comes from.
    pub source: String,
    /// How far it is.
    pub state: PushStateName,
    /// Why it failed.
    pub error: Option<String>,
    /// How many records the version has.
    pub records: u64,
    /// The bytes of all files.
    pub bytes_total: u64,
    /// The bytes that are here and verified.
    pub bytes_done: u64,
    /// The number of files; 0 before it is known.
    pub files_total: u64,
    /// The number of files that are here and verified.
    pub files_done: u64,
    /// How fast it goes, in bytes a second; 0 when it ended.
    pub rate_bytes_per_second: u64,
    /// How fast it may go, in bytes a second; 0 is as fast as it can.
    pub rate_limit_bytes_per_second: u64,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended_unix_ms: Option<u64>,
}

/// What a push would do.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DryRunResource {
    /// The number that the version would get.
    pub version: u64,
    /// Where it would come from.
    pub source: String,
    /// How many records it has.
    pub records: u64,
    /// The bytes of all files.
    pub bytes_total: u64,
    /// How many bytes it would take on the disk.
    pub needed_bytes: u64,
    /// Whether files would be linked and not copied.
    pub links: bool,
}

/// A version to make current.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SwapRequest {
    /// Its number.
    #[schema(minimum = 1)]
    pub version: u64,
}

/// A version to go back to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// Its number; the one before the current one unless given.
    #[schema(minimum = 1)]
    pub to: Option<u64>,
}

/// Keys to look up.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupRequest {
    /// Wire keys, `store:key`.
    #[schema(example = json!(["pymk:42"]), max_items = 1000)]
    pub keys: Vec<String>,
}

/// Values looked up.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LookupResponse {
    /// In the order of the keys; null for a key that is not there. All are of the same versions.
    pub values: Vec<Option<LookupValue>>,
}

/// A value, as text if it is any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LookupValue {
    /// The value, which is UTF-8 text.
    Utf8(String),
    /// The value, which is not, in base 64.
    Base64(String),
}

/// A node.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// The version of the program.
    pub program_version: String,
    /// Its process.
    pub pid: u32,
    /// How long it has been running.
    pub uptime_ms: u64,
    /// Where it serves RESP.
    pub resp_addr: String,
    /// Where it serves HTTP.
    pub http_addr: String,
    /// Its data directory.
    pub data_directory: String,
    /// How many bytes the disk has left; null if it does not say.
    pub disk_available_bytes: Option<u64>,
    /// How many partitions the cluster has.
    pub partitions: u32,
    /// How much memory is resident, mapped files included; null where that cannot be told.
    pub resident_bytes: Option<u64>,
    /// How many clients are connected over RESP.
    pub clients: u64,
    /// How many stores there are.
    pub stores: u64,
    /// Why the node is not ready to serve all that it should; empty if it is.
    pub not_ready: Vec<String>,
}

/// Whether the node serves all that it should.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether it does.
    pub ready: bool,
    /// Why it does not.
    pub reasons: Vec<String>,
}

/// A sign of life.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always true: what cannot answer does not.
    pub alive: bool,
}

/// All settings that can be changed while the node runs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SettingList {
    /// In the order in which the manual has them.
    pub settings: Vec<SettingResource>,
}

/// A setting.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SettingResource {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: u64,
    /// Its value unless set.
    pub default: u64,
    /// Its least value.
    pub min: u64,
    /// Its greatest value.
    pub max: u64,
    /// What it means.
    pub summary: String,
}

impl From<StoreStatus> for StoreResource {
    fn from(status: StoreStatus) -> Self {
        let versions: Vec<VersionResource> = status.versions.into_iter().map(Into::into).collect();
        Self {
            name: status.definition.name.to_string(),
            kind: status.definition.kind,
            backups: status.definition.backups,
            created_unix_ms: status.created_unix_ms,
            current_version: versions
                .iter()
                .find(|version| version.current)
                .map(|version| version.version),
            versions,
            push: status.push.map(Into::into),
        }
    }
}

impl From<VersionStatus> for VersionResource {
    fn from(status: VersionStatus) -> Self {
        let (facts, error) = match status.facts {
            Ok(facts) => (Some(facts), None),
            Err(reason) => (None, Some(reason)),
        };
        Self {
            version: status.version.get(),
            state: match (&facts, status.current) {
                (None, _) => VersionState::Failed,
                (Some(_), true) => VersionState::Serving,
                (Some(_), false) => VersionState::Ready,
            },
            current: status.current,
            records: facts.as_ref().map(|facts| facts.records),
            bytes: facts.as_ref().map(|facts| facts.bytes),
            index_bytes: facts.as_ref().map(|facts| facts.index_bytes),
            chunks: facts.as_ref().map(|facts| facts.chunks),
            built_unix_ms: facts.as_ref().map(|facts| facts.built_unix_ms),
            compression: facts.map(|facts| facts.compression),
            directory: status.dir.display().to_string(),
            error,
        }
    }
}

impl From<PushStatus> for PushResource {
    fn from(status: PushStatus) -> Self {
        let PushStatus { record, progress } = status;
        let swapped = record.state == PushState::Swapped;
        let running = progress.unwrap_or_default();
        Self {
            version: record.version.get(),
            source: record.source,
            state: match record.state {
                PushState::Fetching => PushStateName::Fetching,
                PushState::Ready => PushStateName::Ready,
                PushState::Swapped => PushStateName::Swapped,
                PushState::Failed => PushStateName::Failed,
                PushState::Cancelled => PushStateName::Cancelled,
            },
            error: record.error,
            records: record.records,
            bytes_total: record.bytes_total,
            bytes_done: if swapped {
                record.bytes_total
            } else {
                running.bytes_done
            },
            files_total: running.files_total,
            files_done: running.files_done,
            rate_bytes_per_second: running.rate_bytes_per_second,
            rate_limit_bytes_per_second: running.rate_limit_bytes_per_second,
            started_unix_ms: record.started_unix_ms,
            ended_unix_ms: record.ended_unix_ms,
        }
    }
}

impl From<DryRun> for DryRunResource {
    fn from(run: DryRun) -> Self {
        Self {
            version: run.version.get(),
            source: run.source,
            records: run.records,
            bytes_total: run.bytes_total,
            needed_bytes: run.needed_bytes,
            links: run.links,
        }
    }
}
