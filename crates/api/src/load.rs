//! The load of the cluster, and the decisions about it.

use fondaco_decisions::balance::{Advice, BalanceMode, BalanceMove, HotKey, PartitionLoad, ResourceUse, StoreLoad};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The load of the cluster, as nodes reported it to the leading controller.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct LoadResource {
    /// Over how many milliseconds means are taken.
    pub window_ms: u64,
    /// The nodes that have reported within the window, in the order of their numbers.
    pub nodes: Vec<NodeLoadResource>,
    /// The stores that clients asked for something, all nodes together.
    pub stores: Vec<StoreLoadResource>,
    /// The partitions, in order: all stores and nodes together.
    pub partitions: Vec<PartitionLoadResource>,
    /// The keys that are asked for most, by store.
    pub hot_keys: Vec<HotKeyResource>,
    /// Problems that make the load hard to balance, or partitions unsafe, each with its remedy.
    #[serde(default)]
    pub advice: Vec<AdviceResource>,
}

/// The load of a node.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeLoadResource {
    /// The node.
    pub node: u32,
    /// The mean over the window; the last report, if there are too few.
    pub load: ResourceUseResource,
    /// Whether there are enough reports for decisions.
    pub known: bool,
    /// The bytes of all partitions that it holds.
    #[serde(default)]
    pub held_bytes: u64,
}

/// The resources that a node uses, and those that it may use.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub struct ResourceUseResource {
    /// Cores that it uses.
    pub cpu: f64,
    /// Cores that it may use.
    pub cpu_max: f64,
    /// The first as a share of the second, in percent.
    pub cpu_percent: f64,
    /// Bytes of memory that it uses, without what the system can take back.
    pub memory_bytes: u64,
    /// Bytes of memory that it may use; 0 if unknown.
    pub memory_max_bytes: u64,
    /// Bytes that are used on its disk, by whatever.
    pub disk_bytes: u64,
    /// Bytes that its disk has; 0 if unknown.
    pub disk_max_bytes: u64,
    /// Bytes a second that it reads from its disk.
    pub disk_read_bytes_per_second: f64,
    /// Bytes a second that it writes to its disk.
    pub disk_written_bytes_per_second: f64,
    /// Bytes a second that clients and other nodes send to it.
    pub network_in_bytes_per_second: f64,
    /// Bytes a second that it sends to them.
    pub network_out_bytes_per_second: f64,
    /// Requests a second, of clients and of other nodes.
    pub requests_per_second: f64,
    /// The latency of requests that 99 of 100 do not exceed, in microseconds.
    pub p99_microseconds: u64,
}

/// The load of a store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StoreLoadResource {
    /// The store.
    pub store: String,
    /// Keys read and written on all nodes, a second: a write counts on each replica.
    pub requests_per_second: f64,
    /// The latency that half of the requests of nodes' own clients do not exceed, in microseconds, on the slowest node; 0
    /// if all come through routers.
    pub p50_microseconds: u64,
    /// The same for 99 of 100.
    pub p99_microseconds: u64,
}

/// The load of a partition.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PartitionLoadResource {
    /// The partition.
    pub partition: u32,
    /// Keys read and written, a second.
    pub requests_per_second: f64,
    /// Keys written, a second.
    pub writes_per_second: f64,
    /// Bytes of values, a second.
    pub bytes_per_second: f64,
    /// Its bytes on one node.
    pub bytes: u64,
}

/// A key that is asked for often.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HotKeyResource {
    /// The store.
    pub store: String,
    /// The key. Bytes that are no text are replaced.
    pub key: String,
    /// Its partition.
    pub partition: u32,
    /// About how often a second it is asked for.
    pub requests_per_second: f64,
}

/// The reports of nodes in the past.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct LoadHistory {
    /// The reports, by node.
    pub nodes: Vec<NodeHistory>,
}

/// The reports of a node in the past.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeHistory {
    /// The node.
    pub node: u32,
    /// Its reports, the oldest first.
    pub samples: Vec<LoadSample>,
}

/// A report, in short.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LoadSample {
    /// When it arrived, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The resources that the node used.
    pub load: ResourceUseResource,
    /// The stores that clients asked for something.
    pub stores: Vec<StoreSample>,
}

/// A store in a report.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StoreSample {
    /// The store.
    pub store: String,
    /// Requests of clients, a second.
    pub requests_per_second: f64,
    /// The latency that 99 of 100 do not exceed, in microseconds.
    pub p99_microseconds: u64,
}

/// The decisions that the leading controller has made.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct DecisionList {
    /// The decisions, the latest first.
    pub decisions: Vec<DecisionResource>,
}

/// A decision.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DecisionResource {
    /// Its number.
    pub number: u64,
    /// When it was made, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The balance mode of the cluster at that time.
    pub mode: BalanceMode,
    /// Whether partitions were to move.
    pub moves: bool,
    /// The plan that followed; null if none did.
    pub plan: Option<u64>,
    /// The request to the hook for machines that it begins; null if it begins none.
    #[serde(default)]
    pub request: Option<u64>,
    /// Why: a sentence for each step of the reasoning.
    pub reasons: Vec<String>,
    /// Problems that moves cannot solve, each with its remedy.
    pub advice: Vec<AdviceResource>,
    /// The nodes that struggled.
    pub struggling: Vec<u32>,
    /// The moves that relieve nodes, with what was expected of them.
    pub relief: Vec<BalanceMoveResource>,
    /// The input of the decision, for `fondaco why --replay`; null in lists, and if it was too long ago.
    #[serde(default)]
    pub input: Option<serde_json::Value>,
}

/// A problem that moves cannot solve.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AdviceResource {
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub help: String,
}

/// A move that relieves a node.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BalanceMoveResource {
    /// The partition.
    pub partition: u32,
    /// The node that gives it up.
    pub from: u32,
    /// The node that gets it.
    pub to: u32,
    /// The resource that the first node has too little of.
    pub resource: String,
    /// The level of the first node before, in percent.
    pub from_percent_before: f64,
    /// The level of the first node after, in percent.
    pub from_percent_after: f64,
    /// The level of the second node before, in percent.
    pub to_percent_before: f64,
    /// The level of the second node after, in percent.
    pub to_percent_after: f64,
    /// The bytes that have to be fetched.
    pub bytes: u64,
}

fn percent(share: f64) -> f64 {
    (share * 1000.0).round() / 10.0
}

impl From<ResourceUse> for ResourceUseResource {
    fn from(used: ResourceUse) -> Self {
        Self {
            cpu: used.cpu,
            cpu_max: used.cpu_max,
            cpu_percent: percent(used.cpu / used.cpu_max.max(1e-9)),
            memory_bytes: used.memory,
            memory_max_bytes: used.memory_max,
            disk_bytes: used.disk,
            disk_max_bytes: used.disk_max,
            disk_read_bytes_per_second: used.disk_read,
            disk_written_bytes_per_second: used.disk_written,
            network_in_bytes_per_second: used.network_in,
            network_out_bytes_per_second: used.network_out,
            requests_per_second: used.requests,
            p99_microseconds: used.p99_us,
        }
    }
}

impl PartitionLoadResource {
    /// A partition with this load, and these bytes on one node.
    pub fn of(load: &PartitionLoad, bytes: u64) -> Self {
        Self {
            partition: load.partition.get(),
            requests_per_second: load.requests,
            writes_per_second: load.writes,
            bytes_per_second: load.bytes,
            bytes,
        }
    }
}

impl From<&StoreLoad> for StoreLoadResource {
    fn from(load: &StoreLoad) -> Self {
        Self {
            store: load.store.to_string(),
            requests_per_second: load.requests,
            p50_microseconds: load.p50_us,
            p99_microseconds: load.p99_us,
        }
    }
}

impl From<&HotKey> for HotKeyResource {
    fn from(hot: &HotKey) -> Self {
        Self {
            store: hot.store.to_string(),
            key: hot.key.clone(),
            partition: hot.partition.get(),
            requests_per_second: hot.requests,
        }
    }
}

impl From<&Advice> for AdviceResource {
    fn from(advice: &Advice) -> Self {
        Self {
            problem: advice.problem.clone(),
            help: advice.help.clone(),
        }
    }
}

impl From<&BalanceMove> for BalanceMoveResource {
    fn from(one: &BalanceMove) -> Self {
        Self {
            partition: one.partition.get(),
            from: one.from.get(),
            to: one.to.get(),
            resource: one.resource.to_string(),
            from_percent_before: percent(one.from_level.0),
            from_percent_after: percent(one.from_level.1),
            to_percent_before: percent(one.to_level.0),
            to_percent_after: percent(one.to_level.1),
            bytes: one.bytes,
        }
    }
}
