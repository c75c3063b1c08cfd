//! One process: its status, its settings, whether it is alive and ready.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Role;

/// What a process does in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoleName {
    /// A cluster of one.
    Single,
    /// It holds partitions and serves them.
    Node,
    /// It serves everything by asking the nodes.
    Router,
    /// It decides for the cluster, while it is the leader.
    Controller,
}

impl From<Role> for RoleName {
    fn from(role: Role) -> Self {
        match role {
            Role::Single => Self::Single,
            Role::Node => Self::Node,
            Role::Router => Self::Router,
            Role::Controller => Self::Controller,
        }
    }
}

/// What a control port is, and the paths to go on from.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Front {
    /// The name of the program.
    pub name: String,
    /// Its version.
    pub program_version: String,
    /// What the process does.
    pub role: RoleName,
    /// Where its status is.
    pub status: String,
    /// Where it says whether it is ready.
    pub ready: String,
    /// Where its metrics are.
    pub metrics: String,
    /// Where the document of the port is, in OpenAPI.
    pub document: String,
}

/// A process.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// The version of the program.
    pub program_version: String,
    /// Its process.
    pub pid: u32,
    /// How long it has been running.
    pub uptime_ms: u64,
    /// What it does.
    pub role: RoleName,
    /// Its number; null before it was given one, and of processes that hold nothing.
    pub node: Option<u32>,
    /// The identity of its cluster; null before it has seen one.
    pub cluster: Option<String>,
    /// Where it serves RESP; null if it does not.
    pub resp_addr: Option<String>,
    /// Where it serves HTTP.
    pub http_addr: String,
    /// Its data directory; null if it has none.
    pub data_directory: Option<String>,
    /// How many bytes the disk has left; null if it does not say.
    pub disk_available_bytes: Option<u64>,
    /// How many versions that were given up are kept for now; null if it has no data directory.
    pub versions_in_trash: Option<u64>,
    /// How many partitions the cluster has.
    pub partitions: u32,
    /// How much memory is resident, mapped files included; null where that cannot be told.
    pub resident_bytes: Option<u64>,
    /// What the keys of stores take that keep them all in memory; null if it holds none.
    #[serde(default)]
    pub keys_in_memory: Option<KeyMemoryResource>,
    /// How many clients are connected over RESP.
    pub clients: u64,
    /// How many stores there are.
    pub stores: u64,
    /// For how long the coordination service has not answered; null if it does.
    pub coordination_silent_ms: Option<u64>,
    /// Why the process is not ready to serve all that it should; empty if it is.
    pub not_ready: Vec<String>,
    /// What keeps the cluster from doing all that it should, though this process does its part.
    pub warnings: Vec<String>,
}

/// The keys of versioned stores with the engine `log`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct KeyMemoryResource {
    /// How many there are, on this node.
    pub keys: u64,
    /// How much memory they take, about.
    pub bytes: u64,
    /// How much they may take before new keys are refused.
    pub bytes_max: u64,
}

/// Whether the process serves all that it should: it does if it does its own part. That other processes are absent is
/// a warning: to take this node out too would help no client.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether it does.
    pub ready: bool,
    /// Why it does not.
    pub reasons: Vec<String>,
    /// What keeps the cluster from doing all that it should, though this process does its part: stores without a quorum.
    pub warnings: Vec<String>,
}

/// A sign of life.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always true: what cannot answer does not.
    pub alive: bool,
}

/// All settings that can be changed while the cluster runs.
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
