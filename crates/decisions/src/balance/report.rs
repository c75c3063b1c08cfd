//! The reports of nodes about their load.

use fondaco_model::{NodeId, PartitionCount, PartitionId, StoreName};
use serde::{Deserialize, Serialize};

/// The load of a node since its last report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadReport {
    /// The node.
    pub node: NodeId,
    /// When its process started, in milliseconds since 1970, by its own clock: a later process begins its numbers anew.
    pub started_unix_ms: u64,
    /// The number of the report in its process, from 1: one that is late or was sent twice does not count.
    pub number: u64,
    /// The number of partitions that it divides keys into: the partitions in the report are numbered among these.
    pub divided: PartitionCount,
    /// How long it is about, in milliseconds.
    pub interval_ms: u64,
    /// The node's use of its resources.
    pub resources: ResourceUse,
    /// The loads of partitions of stores that were asked for something.
    pub partitions: Vec<PartitionLoad>,
    /// The bytes on disk of each partition that it has, all stores together.
    pub sizes: Vec<(PartitionId, u64)>,
    /// The loads of stores, as clients that are connected to it see them.
    pub stores: Vec<StoreLoad>,
    /// The keys that were asked for most, at most 20 of each store.
    pub hot_keys: Vec<HotKey>,
}

/// The resources that a node uses, and those that it may use: of its control group, or of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceUse {
    /// Cores that it used.
    pub cpu: f64,
    /// Cores that it may use.
    pub cpu_max: f64,
    /// Bytes of memory that it uses, without those that the system can take back.
    pub memory: u64,
    /// Bytes of memory that it may use; 0 if that is unknown.
    pub memory_max: u64,
    /// Bytes that are used on its disk, by any program.
    pub disk: u64,
    /// Bytes that its disk has; 0 if that is unknown.
    pub disk_max: u64,
    /// Bytes a second that it read from its disk.
    pub disk_read: f64,
    /// Bytes a second that it wrote to its disk.
    pub disk_written: f64,
    /// Bytes a second that clients sent.
    pub network_in: f64,
    /// Bytes a second that were sent to clients.
    pub network_out: f64,
    /// Requests a second, of clients and of other nodes.
    pub requests: f64,
    /// The latency of requests that 99 of 100 do not exceed, in microseconds.
    pub p99_us: u64,
}

/// The load of a partition of a store, for each second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionLoad {
    /// The number of the store.
    pub store: u16,
    /// The partition.
    pub partition: PartitionId,
    /// Keys read and written.
    pub requests: f64,
    /// How many of them were written.
    pub writes: f64,
    /// Bytes of their values.
    pub bytes: f64,
}

impl PartitionLoad {
    /// Its cost for a node, in requests for short values: a write costs as much as four of them, and so do 16 KiB.
    pub fn cost(&self) -> f64 {
        self.requests + 3.0 * self.writes + self.bytes / 4096.0
    }
}

/// The load of a store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreLoad {
    /// The store.
    pub store: StoreName,
    /// Keys asked for a second, by clients and other processes, in partitions that the node holds; estimated from a sample.
    pub requests: f64,
    /// The latency that half of the requests of the node's own clients do not exceed, in microseconds; 0 without any.
    pub p50_us: u64,
    /// The same for 99 of 100.
    pub p99_us: u64,
}

/// A key that is asked for often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotKey {
    /// The store.
    pub store: StoreName,
    /// The key, without the store. Bytes that are no text are replaced.
    pub key: String,
    /// Its partition.
    pub partition: PartitionId,
    /// About how often a second it is asked for.
    pub requests: f64,
}
