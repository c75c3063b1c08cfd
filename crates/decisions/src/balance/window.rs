//! The reports of the last window, and their means.

use std::collections::{BTreeMap, VecDeque};

use fondaco_model::{NodeId, PartitionId};

use super::report::{HotKey, LoadReport, PartitionLoad, ResourceUse};

/// How many reports of a node a window has.
pub const REPORTS_IN_WINDOW: usize = 10;

/// How many of them are needed to judge a node.
const REPORTS_NEEDED: usize = REPORTS_IN_WINDOW / 2;

/// A node that has sent nothing for this time, in milliseconds, may start anew with an earlier time.
const SILENT_MS: u64 = 60_000;

/// The last reports of all nodes.
#[derive(Debug, Clone, Default)]
pub struct LoadWindow {
    nodes: BTreeMap<NodeId, Reports>,
    /// Decisions are made of reports that arrived later, by the receiver's clock.
    settled_ms: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Reports {
    started_unix_ms: u64,
    number: u64,
    /// The reports, each with its time of arrival by the receiver's clock.
    last: VecDeque<(u64, LoadReport)>,
}

/// The means of a node's reports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeanLoad {
    /// Its resources.
    pub resources: ResourceUse,
    /// The loads of partitions, all stores together.
    pub partitions: BTreeMap<PartitionId, PartitionLoad>,
}

impl LoadWindow {
    /// Takes a report that arrived now, by a clock that never goes back. A report that is late or was sent twice is
    /// ignored; returns whether it was taken. One of another process counts as of a later one if the known one has been silent for
    /// [`SILENT_MS`]: its clock may have been set back since.
    pub fn take(&mut self, report: LoadReport, now_ms: u64) -> bool {
        let known = self.nodes.entry(report.node).or_default();
        let is_other = report.started_unix_ms != known.started_unix_ms;
        let is_silent = || {
            let last = known.last.back();
            last.is_none_or(|(at_ms, _)| now_ms.saturating_sub(*at_ms) >= SILENT_MS)
        };
        let is_new = (report.started_unix_ms, report.number) > (known.started_unix_ms, known.number);
        if !(is_new || is_other && is_silent()) || !report.resources.is_possible() {
            return false;
        }
        if is_other {
            known.last.clear();
        }
        (known.started_unix_ms, known.number) = (report.started_unix_ms, report.number);
        known.last.push_back((now_ms, report));
        if known.last.len() > REPORTS_IN_WINDOW {
            known.last.pop_front();
        }
        true
    }

    /// Partitions have moved: no decision is made of reports from before, since they no longer hold.
    pub fn settle(&mut self, now_ms: u64) {
        self.settled_ms = Some(now_ms);
    }

    /// The last report of a node, unless it is older than `age_max_ms`.
    pub fn last(&self, node: NodeId, now_ms: u64, age_max_ms: u64) -> Option<&LoadReport> {
        let (at_ms, report) = self.nodes.get(&node)?.last.back()?;
        (now_ms.saturating_sub(*at_ms) <= age_max_ms).then_some(report)
    }

    /// All nodes that have ever reported.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.keys().copied()
    }

    /// The means of a node's reports of the last `window_ms`, for a decision; `None` if there are too few to judge it.
    pub fn mean(&self, node: NodeId, now_ms: u64, window_ms: u64) -> Option<MeanLoad> {
        let since_ms = self.settled_ms.map_or(0, |at_ms| at_ms + 1);
        self.mean_since(node, since_ms.max(window_start(now_ms, window_ms)), REPORTS_NEEDED)
    }

    /// The same for people, whatever moved meanwhile, and of a single report if there is no other.
    pub fn mean_shown(&self, node: NodeId, now_ms: u64, window_ms: u64) -> Option<MeanLoad> {
        self.mean_since(node, window_start(now_ms, window_ms), 1)
    }

    fn mean_since(&self, node: NodeId, since_ms: u64, needed: usize) -> Option<MeanLoad> {
        let last = &self.nodes.get(&node)?.last;
        // After a split numbers of partitions mean others.
        let divided = last.back()?.1.divided;
        let reports: Vec<&LoadReport> = last
            .iter()
            .filter(|(at_ms, report)| *at_ms >= since_ms && report.divided == divided)
            .map(|(_, report)| report)
            .collect();
        if reports.len() < needed {
            return None;
        }
        let count = reports.len() as f64;
        let newest = reports.last()?.resources;
        let mean =
            |of: fn(&ResourceUse) -> f64| reports.iter().map(|report| of(&report.resources)).sum::<f64>() / count;
        let resources = ResourceUse {
            cpu: mean(|one| one.cpu),
            disk_read: mean(|one| one.disk_read),
            disk_written: mean(|one| one.disk_written),
            network_in: mean(|one| one.network_in),
            network_out: mean(|one| one.network_out),
            requests: mean(|one| one.requests),
            ..newest
        };
        let mut partitions = BTreeMap::new();
        for load in reports.iter().flat_map(|report| &report.partitions) {
            let sum = partitions.entry(load.partition).or_insert(PartitionLoad {
                store: 0,
                partition: load.partition,
                requests: 0.0,
                writes: 0.0,
                bytes: 0.0,
            });
            sum.requests += load.requests / count;
            sum.writes += load.writes / count;
            sum.bytes += load.bytes / count;
        }
        Some(MeanLoad { resources, partitions })
    }

    /// The bytes of each partition, on the node that has the most of it.
    pub fn sizes(&self) -> BTreeMap<PartitionId, u64> {
        let mut sizes = BTreeMap::new();
        let newest = || self.nodes.values().filter_map(|reports| reports.last.back());
        // After a split numbers of partitions mean others.
        let divided = newest().map(|(_, report)| report.divided).max();
        let newest = newest().filter(|(_, report)| Some(report.divided) == divided);
        for &(partition, bytes) in newest.flat_map(|(_, report)| &report.sizes) {
            let size = sizes.entry(partition).or_insert(0);
            *size = bytes.max(*size);
        }
        sizes
    }

    /// The number of the store that costs most in each partition, by the last reports.
    pub fn busiest_stores(&self) -> BTreeMap<PartitionId, u16> {
        let mut costs = BTreeMap::<(PartitionId, u16), f64>::new();
        let newest = self.nodes.values().filter_map(|reports| reports.last.back());
        for load in newest.flat_map(|(_, report)| &report.partitions) {
            *costs.entry((load.partition, load.store)).or_default() += load.cost();
        }
        let mut costs: Vec<_> = costs.into_iter().collect();
        costs.sort_by(|a, b| a.1.total_cmp(&b.1));
        costs
            .into_iter()
            .map(|((partition, store), _)| (partition, store))
            .collect()
    }

    /// The keys that are asked for most, over all nodes, by the last reports: at most `limit` of each store.
    pub fn hot_keys(&self, limit: usize) -> Vec<HotKey> {
        let mut sums = BTreeMap::<(&str, &str), HotKey>::new();
        let newest = self.nodes.values().filter_map(|reports| reports.last.back());
        for hot in newest.flat_map(|(_, report)| &report.hot_keys) {
            let sum = sums.entry((hot.store.as_str(), &hot.key));
            sum.and_modify(|sum| sum.requests += hot.requests)
                .or_insert_with(|| hot.clone());
        }
        let mut all: Vec<HotKey> = sums.into_values().collect();
        all.sort_by(|a, b| a.store.cmp(&b.store).then(b.requests.total_cmp(&a.requests)));
        let mut shown = 0;
        let mut store = None;
        all.retain(|hot| {
            if store.as_ref() != Some(&hot.store) {
                (store, shown) = (Some(hot.store.clone()), 0);
            }
            shown += 1;
            shown <= limit
        });
        all
    }
}

/// When the reports of a window began to arrive: each is about an interval before that, and some are a little late.
fn window_start(now_ms: u64, window_ms: u64) -> u64 {
    now_ms.saturating_sub(window_ms + window_ms / 4)
}

impl ResourceUse {
    /// Whether the numbers can be: finite, and not less than nothing.
    fn is_possible(&self) -> bool {
        let Self {
            cpu,
            cpu_max,
            disk_read,
            disk_written,
            network_in,
            network_out,
            requests,
            ..
        } = *self;
        let all = [cpu, cpu_max, disk_read, disk_written, network_in, network_out, requests];
        all.iter().all(|number| number.is_finite() && *number >= 0.0) && cpu_max > 0.0
    }
}
