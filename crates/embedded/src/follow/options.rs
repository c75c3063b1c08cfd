//! The options of a reader that follows a store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fondaco_admin::Endpoint;
use fondaco_model::{PartitionCount, PartitionSet, StoreName, VersionNumber};

/// Called after each swap, by the thread that follows the store: it should return soon.
pub type OnSwap = Arc<dyn Fn(&Swap) + Send + Sync>;

/// A change of the version that a reader reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap {
    /// The version before; `None` at the first one.
    pub from: Option<VersionNumber>,
    /// The version now.
    pub to: VersionNumber,
}

/// The store that a reader follows, and how.
#[derive(Clone)]
pub struct FollowOptions {
    /// The control ports that are asked, in turn: of any processes of one cluster, with the credentials.
    pub endpoints: Vec<Endpoint>,
    /// The store, of kind batch or hybrid.
    pub store: StoreName,
    /// A directory of its own, which is created if needed. One process at a time uses it.
    pub directory: PathBuf,
    /// How many former versions stay on the disk, for rollbacks.
    pub keep: usize,
    /// The partitions to hold, and the count of partitions by which they are numbered; `None` for all partitions.
    pub partitions: Option<(PartitionCount, PartitionSet)>,
    /// The limit of fetches in bytes a second; `None` for none.
    pub rate_limit_bytes_per_second: Option<u64>,
    /// How much of the disk stays free, in bytes.
    pub reserve_bytes: u64,
    /// How often the cluster is asked for the current version.
    pub poll_interval: Duration,
    /// The longest time until a failed fetch is retried. The first retry is after a second.
    pub retry_max: Duration,
    /// Called after each swap.
    pub on_swap: Option<OnSwap>,
    /// Whether the nodes of the cluster are asked for what is not here: before the first version is, for partitions that are not held,
    /// and while a stream has yet to be read.
    pub fallback: bool,
    /// Properties of librdkafka, such as `security.protocol`, for the topic of a hybrid store.
    pub kafka: BTreeMap<String, String>,
    /// The limit of memory for the events of a hybrid store, in bytes: half of it for keys, and half for values.
    pub events_memory_bytes: u64,
}

impl FollowOptions {
    /// All partitions of a store, as the process at this endpoint knows it, with the defaults of everything else.
    pub fn new(endpoint: Endpoint, store: StoreName, directory: impl Into<PathBuf>) -> Self {
        Self {
            endpoints: vec![endpoint],
            store,
            directory: directory.into(),
            keep: 1,
            partitions: None,
            rate_limit_bytes_per_second: None,
            reserve_bytes: 256 << 20,
            poll_interval: Duration::from_secs(1),
            retry_max: Duration::from_secs(30),
            on_swap: None,
            fallback: true,
            kafka: BTreeMap::new(),
            events_memory_bytes: 256 << 20,
        }
    }

    /// The partitions to hold of a version with this many; `None` for all.
    pub(super) fn wanted(&self, count: PartitionCount) -> Option<PartitionSet> {
        let (of, set) = self.partitions.as_ref()?;
        Some(set.among(*of, count))
    }
}
