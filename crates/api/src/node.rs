//! One process: its status, its settings, liveness and readiness.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Role, SettingText};

/// The description of a control port, and the paths to continue from.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Front {
    /// The name of the program.
    pub name: String,
    /// Its version.
    pub program_version: String,
    /// The role of the process.
    pub role: Role,
    /// The path of its status.
    pub status: String,
    /// The path of its readiness.
    pub ready: String,
    /// The path of its metrics.
    pub metrics: String,
    /// The path of the OpenAPI document.
    pub document: String,
}

/// A process.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// The version of the program.
    pub program_version: String,
    /// Its process id.
    pub pid: u32,
    /// How long it has been running.
    pub uptime_ms: u64,
    /// Its role.
    pub role: Role,
    /// Its number; null before one is assigned, and for processes that hold no data.
    pub node: Option<u32>,
    /// The identity of its cluster; null before it has seen the cluster.
    pub cluster: Option<String>,
    /// Its RESP address; null if it does not serve RESP.
    pub resp_addr: Option<String>,
    /// Its HTTP address.
    pub http_addr: String,
    /// Its data directory; null if it has none.
    pub data_directory: Option<String>,
    /// The free bytes on the disk; null if unknown.
    pub disk_available_bytes: Option<u64>,
    /// How many versions that were given up are kept for now; null if it has no data directory.
    pub versions_in_trash: Option<u64>,
    /// How many partitions the cluster has.
    pub partitions: u32,
    /// Resident memory, mapped files included; null if unknown.
    pub resident_bytes: Option<u64>,
    /// The memory used by stores that keep all their keys in memory; null if it has no such store.
    #[serde(default)]
    pub keys_in_memory: Option<KeyMemoryResource>,
    /// How many clients are connected over RESP.
    pub clients: u64,
    /// How many stores there are.
    pub stores: u64,
    /// How long the coordination service has not answered; null while it answers.
    pub coordination_silent_ms: Option<u64>,
    /// Why the process is not ready to serve everything that it should; empty if it is ready.
    pub not_ready: Vec<String>,
    /// Problems that keep the cluster from working fully, though this process does its part.
    pub warnings: Vec<String>,
}

/// The keys of versioned stores with the engine `log`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct KeyMemoryResource {
    /// The number of keys on this node.
    pub keys: u64,
    /// Approximately how much memory they use.
    pub bytes: u64,
    /// How much memory they may use before new keys are refused.
    pub bytes_max: u64,
}

/// Whether the process serves everything that it should. If it does its own part, it is ready: absent processes are
/// only a warning, since taking this node out too would help no client.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether it is ready.
    pub ready: bool,
    /// Why it is not ready.
    pub reasons: Vec<String>,
    /// Problems that keep the cluster from working fully, though this process does its part: stores without a quorum.
    pub warnings: Vec<String>,
}

/// A sign of life.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always true: a dead process does not answer.
    pub alive: bool,
}

/// All settings that can be changed while the cluster runs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SettingList {
    /// In the order of the manual.
    pub settings: Vec<SettingResource>,
}

/// A setting.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SettingResource {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: SettingText,
    /// Its default value.
    pub default: SettingText,
    /// Its minimum; absent for a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<SettingText>,
    /// Its maximum; absent for a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<SettingText>,
    /// The values for processes of templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub templates: BTreeMap<String, SettingText>,
    /// Its meaning.
    pub summary: String,
}
