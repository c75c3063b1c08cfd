//! The input of a decision.

use std::collections::BTreeSet;
use std::fmt;

use fondaco_model::{Member, NodeId, PartitionId, Placement};
use serde::{Deserialize, Serialize};

use super::machines::MachineInput;
use super::report::HotKey;

/// All that a decision depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalanceInput {
    /// The number of the decision.
    pub number: u64,
    /// When it is made, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The settings.
    pub settings: BalanceSettings,
    /// How partitions are assigned to nodes.
    pub placement: Placement,
    /// How many replicas a partition has.
    pub replicas: u32,
    /// The plan that is under way, if there is one.
    pub plan: Option<u64>,
    /// The nodes, in the order of their numbers.
    pub nodes: Vec<NodeLoad>,
    /// The partitions, in order.
    pub partitions: Vec<PartitionState>,
    /// The nodes that struggled at the last decision.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub struggled: BTreeSet<NodeId>,
    /// Replicas that have left nodes lately.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departures: Vec<Departure>,
    /// When the last plan ended, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_unix_ms: Option<u64>,
    /// The keys that are asked for most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot_keys: Vec<HotKey>,
    /// The facts about machines on demand, if there is a hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<MachineInput>,
}

/// A node, with the mean of its load over the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeLoad {
    /// Its number.
    pub node: NodeId,
    /// Its zone.
    pub zone: String,
    /// Its group, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The machine that it runs on, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its capacity, relative to other nodes.
    pub weight: u32,
    /// Whether it is live.
    pub live: bool,
    /// For how long it has been absent, in milliseconds; 0 if it is live.
    #[serde(default)]
    pub absent_ms: u64,
    /// Whether it waits to replace a node that dies.
    #[serde(default)]
    pub backup: bool,
    /// Whether it leaves for good.
    #[serde(default)]
    pub leaving: bool,
    /// Whether it is taken out of service for a while.
    #[serde(default)]
    pub maintenance: bool,
    /// Whether it has reported often enough to be judged. If not, the next fields mean nothing.
    pub known: bool,
    /// Cores that it uses, and may use.
    pub cpu: (f64, f64),
    /// Bytes of memory that it uses, and may use.
    pub memory: (u64, u64),
    /// Bytes that are used on its disk, and that there are.
    pub disk: (u64, u64),
    /// Requests a second.
    pub requests: f64,
}

/// A partition, with the mean of its load over the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionState {
    /// Its nodes, in the order of preference.
    pub owners: Vec<NodeId>,
    /// On each of them: requests a second.
    pub requests: Vec<f64>,
    /// On each of them: its cost, in requests for short values a second.
    pub costs: Vec<f64>,
    /// Its bytes on a node.
    pub bytes: u64,
}

/// A replica that has left a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Departure {
    /// The partition.
    pub partition: PartitionId,
    /// The node.
    pub node: NodeId,
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// The actions that a cluster takes without an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum BalanceMode {
    /// Nothing.
    Off,
    /// It proposes plans, for an operator to run.
    #[default]
    Propose,
    /// It runs plans.
    Act,
}

/// From which of the struggling nodes partitions are taken at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BalancePolicy {
    /// One partition of one of them, at random: slow and steady.
    One,
    /// One partition of each.
    Each,
    /// Of each as many as it takes.
    #[default]
    Enough,
}

/// The settings of decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalanceSettings {
    /// The actions that the cluster takes without an operator.
    pub mode: BalanceMode,
    /// From which struggling nodes partitions are taken.
    pub policy: BalancePolicy,
    /// A node struggles above this share of a resource, and is calm below that: processors.
    pub cpu: (f64, f64),
    /// The same for memory.
    pub memory: (f64, f64),
    /// The same for disk space.
    pub disk: (f64, f64),
    /// How many requests a second a node is to get at most; 0 is no limit.
    pub requests_max: f64,
    /// How long after a plan nothing moves, in milliseconds: its effects have to show in reports first.
    pub cool_down_ms: u64,
    /// By how much of its capacity a move must relieve a node at least.
    pub gain_min: f64,
    /// How many partitions of a node are moved by one plan at most.
    pub moves_max: u32,
    /// How long a replica does not go back to a node that it left, in milliseconds.
    pub stay_ms: u64,
    /// How long a node must have been absent before a backup node replaces it, in milliseconds; 0 is never.
    pub replace_after_ms: u64,
    /// When plans are run, in minutes since midnight UTC: from the first to the second. At other times they are
    /// proposed. If both are equal, plans are run at any time.
    pub hours: (u16, u16),
}

impl Default for BalanceSettings {
    fn default() -> Self {
        Self {
            mode: BalanceMode::default(),
            policy: BalancePolicy::default(),
            cpu: (0.84, 0.70),
            memory: (0.84, 0.70),
            disk: (0.84, 0.70),
            requests_max: 0.0,
            cool_down_ms: 60_000,
            gain_min: 0.02,
            moves_max: 8,
            stay_ms: 24 * 3_600_000,
            replace_after_ms: 600_000,
            hours: (0, 0),
        }
    }
}

impl BalanceInput {
    /// Whether a node has partitions.
    pub(super) fn holds(&self, node: NodeId) -> bool {
        self.partitions.iter().any(|state| state.owners.contains(&node))
    }

    /// The nodes that have partitions.
    pub(super) fn owners(&self) -> BTreeSet<NodeId> {
        let lists = self.partitions.iter().map(|state| &state.owners);
        lists.flatten().copied().collect()
    }

    /// The owners of each partition.
    pub(super) fn lists(&self) -> Vec<Vec<NodeId>> {
        self.partitions.iter().map(|state| state.owners.clone()).collect()
    }
}

impl BalanceSettings {
    /// The mode at a time: outside its hours, a cluster that acts only proposes.
    pub fn mode_at(&self, unix_ms: u64) -> BalanceMode {
        let minute = (unix_ms / 60_000 % (24 * 60)) as u16;
        let (from, to) = self.hours;
        let is_time = match from.cmp(&to) {
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Less => (from..to).contains(&minute),
            std::cmp::Ordering::Greater => minute >= from || minute < to,
        };
        match self.mode {
            BalanceMode::Act if !is_time => BalanceMode::Propose,
            mode => mode,
        }
    }

    /// Above which level a node struggles with a resource, and below which it is calm.
    pub fn limits(&self, resource: Resource) -> (f64, f64) {
        match resource {
            Resource::Cpu => self.cpu,
            Resource::Memory => self.memory,
            Resource::Disk => self.disk,
            Resource::Requests => self.cpu,
        }
    }
}

/// A resource that a node may have too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Processors.
    Cpu,
    /// Memory.
    Memory,
    /// Disk space.
    Disk,
    /// The requests that it is to get at most.
    Requests,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Disk, Self::Requests];
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Requests => "requests",
        })
    }
}

impl NodeLoad {
    /// A live node in zone `z`, with the cores that it uses and may use, and no other load.
    pub fn of(node: NodeId, cpu: (f64, f64)) -> Self {
        Self {
            node,
            zone: "z".to_owned(),
            group: None,
            host: None,
            weight: 1,
            live: true,
            absent_ms: 0,
            backup: false,
            leaving: false,
            maintenance: false,
            known: true,
            cpu,
            memory: (0, 0),
            disk: (0, 0),
            requests: 0.0,
        }
    }

    /// How much of a resource it uses, from 0 to 1 or more; 0 if that is unknown.
    pub fn level(&self, resource: Resource, settings: &BalanceSettings) -> f64 {
        let share = |used: f64, all: f64| if all > 0.0 { used / all } else { 0.0 };
        match resource {
            Resource::Cpu => share(self.cpu.0, self.cpu.1),
            Resource::Memory => share(self.memory.0 as f64, self.memory.1 as f64),
            Resource::Disk => share(self.disk.0 as f64, self.disk.1 as f64),
            Resource::Requests => share(self.requests, settings.requests_max),
        }
    }

    /// Whether it may get partitions.
    pub fn may_get(&self) -> bool {
        self.live && !self.backup && !self.leaving && !self.maintenance
    }

    /// The node as a member of placements.
    pub fn member(&self) -> Member {
        Member {
            id: self.node,
            zone: self.zone.clone(),
            group: self.group.clone(),
            host: self.host.clone(),
            weight: self.weight,
        }
    }
}
