//! Pushes.

use fondaco_model::PushState;
use fondaco_model::cluster::ReplicaState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ReplicaResource;
use crate::status::{DryRun, PushStatus};

/// A push to be started.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPush {
    /// Where the version was built: a path that all nodes have, a URL that they can read, or the source of an upload.
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
    /// The version is complete and open, but not current everywhere.
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
    /// The bytes that the nodes fetch together; before they say so, and once it ended, those of all files.
    pub bytes_total: u64,
    /// How many of them are there and verified.
    pub bytes_done: u64,
    /// The number of files that the node which answers fetches; 0 before it is known, and of others.
    pub files_total: u64,
    /// The number of files that are there and verified.
    pub files_done: u64,
    /// How fast it goes on the node which answers, in bytes a second; 0 when it ended, and of others.
    pub rate_bytes_per_second: u64,
    /// How fast it may go there, in bytes a second; 0 is as fast as it can.
    pub rate_limit_bytes_per_second: u64,
    /// In how many seconds the last node will have it, if all go on as fast as they did lately; null if that is not
    /// known.
    pub seconds_left: Option<u64>,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended_unix_ms: Option<u64>,
    /// How far each node is, while the push is under way.
    pub nodes: Vec<ReplicaResource>,
    /// The nodes that should have it and are not there, while the push is under way: it waits for them a little.
    pub absent: Vec<AbsentNode>,
}

/// A node that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AbsentNode {
    /// Its number.
    pub node: u32,
    /// When the process that answers saw it leave, in milliseconds since 1970; null if it never saw the node.
    pub since_unix_ms: Option<u64>,
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
    /// How many bytes it would take on the disk of the node that answers.
    pub needed_bytes: u64,
    /// Whether files would be linked there and not copied.
    pub links: bool,
}

impl From<PushStatus> for PushResource {
    fn from(status: PushStatus) -> Self {
        let PushStatus {
            record,
            progress,
            mut nodes,
            absent,
        } = status;
        let own = progress.unwrap_or_default();
        if let (1, Some(only)) = (nodes.len(), nodes.values_mut().next())
            && progress.is_some()
        {
            // The only node is this one, which knows better than its last report.
            only.bytes_done = own.bytes_done;
            only.bytes_total = own.bytes_total;
            only.seconds_left = own.seconds_left;
        }
        let sum = |of: fn(&fondaco_model::cluster::ReplicaReport) -> u64| nodes.values().map(of).sum::<u64>();
        let (done, total) = (sum(|node| node.bytes_done), sum(|node| node.bytes_total));
        let fetching = nodes.values().filter(|node| node.state == ReplicaState::Fetching);
        let left: Option<Vec<u64>> = fetching.map(|node| node.seconds_left).collect();
        let swapped = record.state == PushState::Swapped;
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
            bytes_total: if total > 0 { total } else { record.bytes_total },
            bytes_done: if swapped { record.bytes_total } else { done },
            files_total: own.files_total,
            files_done: own.files_done,
            rate_bytes_per_second: own.rate_bytes_per_second,
            rate_limit_bytes_per_second: own.rate_limit_bytes_per_second,
            seconds_left: left.and_then(|left| left.into_iter().max()),
            started_unix_ms: record.started_unix_ms,
            ended_unix_ms: record.ended_unix_ms,
            nodes: ReplicaResource::list(nodes),
            absent: absent
                .into_iter()
                .map(|(node, since_unix_ms)| AbsentNode {
                    node: node.get(),
                    since_unix_ms,
                })
                .collect(),
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
