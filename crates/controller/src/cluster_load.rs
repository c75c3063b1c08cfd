//! The load of all nodes, as the leading controller knows it: the last window for decisions, and a coarser past for people.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use fondaco_decisions::balance::{HotKey, LoadReport, LoadWindow, MeanLoad, ResourceUse};
use fondaco_model::{NodeId, PartitionId, StoreName};
use fondaco_protocol::now_unix_ms;
use parking_lot::Mutex;

/// How many reports of each node are remembered for people: an hour of them at the default window.
const SAMPLES_MAX: usize = 720;

/// How many hot keys of a store are shown.
const HOT_KEYS_MAX: usize = 20;

/// The reports of nodes.
pub struct ClusterLoad {
    begun: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    window: LoadWindow,
    past: BTreeMap<NodeId, VecDeque<Sample>>,
}

/// A report, in short.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When it arrived, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The resources that the node used.
    pub resources: ResourceUse,
    /// By store: requests a second, and the latency that 99 of 100 do not exceed, in microseconds.
    pub stores: Vec<(StoreName, f64, u64)>,
}

/// The load of a node.
#[derive(Debug, Clone)]
pub struct NodeSummary {
    /// The last report.
    pub last: LoadReport,
    /// The mean over the window.
    pub mean: Option<MeanLoad>,
    /// Whether there are enough reports for decisions.
    pub known: bool,
}

impl Default for ClusterLoad {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            inner: Mutex::default(),
        }
    }
}

impl ClusterLoad {
    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// Takes a report, unless it is late or was sent twice; returns whether it was taken.
    pub fn take(&self, report: LoadReport) -> bool {
        let now_ms = self.now_ms();
        let mut inner = self.inner.lock();
        let (node, sample) = (report.node, Sample::of(&report));
        let taken = inner.window.take(report, now_ms);
        if taken {
            let past = inner.past.entry(node).or_default();
            past.push_back(sample);
            if past.len() > SAMPLES_MAX {
                past.pop_front();
            }
        }
        taken
    }

    /// The means of a node over a window.
    pub fn mean(&self, node: NodeId, window_ms: u64) -> Option<MeanLoad> {
        self.inner.lock().window.mean(node, self.now_ms(), window_ms)
    }

    /// The nodes that have reported within a window.
    pub fn summaries(&self, window_ms: u64) -> BTreeMap<NodeId, NodeSummary> {
        let now_ms = self.now_ms();
        let inner = self.inner.lock();
        let window = &inner.window;
        let each = window.nodes().filter_map(|node| {
            let summary = NodeSummary {
                last: window.last(node, now_ms, window_ms)?.clone(),
                mean: window.mean_shown(node, now_ms, window_ms),
                known: window.mean(node, now_ms, window_ms).is_some(),
            };
            Some((node, summary))
        });
        each.collect()
    }

    /// The bytes of partitions on a node.
    pub fn sizes(&self) -> BTreeMap<PartitionId, u64> {
        self.inner.lock().window.sizes()
    }

    /// The number of the store that costs most in each partition.
    pub fn busiest_stores(&self) -> BTreeMap<PartitionId, u16> {
        self.inner.lock().window.busiest_stores()
    }

    /// The keys that are asked for most.
    pub fn hot_keys(&self) -> Vec<HotKey> {
        self.inner.lock().window.hot_keys(HOT_KEYS_MAX)
    }

    /// The reports since a time.
    pub fn past(&self, since_unix_ms: u64) -> BTreeMap<NodeId, Vec<Sample>> {
        let inner = self.inner.lock();
        let since = |samples: &VecDeque<Sample>| {
            let samples = samples.iter().filter(|sample| sample.at_unix_ms > since_unix_ms);
            samples.cloned().collect()
        };
        inner
            .past
            .iter()
            .map(|(&node, samples)| (node, since(samples)))
            .collect()
    }

    /// Partitions have moved: earlier reports say little about the present load.
    pub fn settle(&self) {
        let now_ms = self.now_ms();
        self.inner.lock().window.settle(now_ms);
    }
}

impl Sample {
    fn of(report: &LoadReport) -> Self {
        let stores = report.stores.iter();
        Self {
            at_unix_ms: now_unix_ms(),
            resources: report.resources,
            stores: stores
                .map(|store| (store.store.clone(), store.requests, store.p99_us))
                .collect(),
        }
    }
}
