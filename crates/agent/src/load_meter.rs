//! Measures the load of a node, and the resources that it uses and may use: those of its control group, or of the machine.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use fondaco_catalog::StoreId;
use fondaco_cluster::Mirror;
use fondaco_decisions::balance::{HotKey, LoadReport, PartitionLoad, ResourceUse, StoreLoad};
use fondaco_metrics::{Counter, Loads, NodeMetrics};
use fondaco_model::{HistogramSnapshot, NodeId, PartitionCount, PartitionId, PartitionSet, StoreName};
use fondaco_os::process;
use fondaco_protocol::now_unix_ms;
use parking_lot::Mutex;

use crate::agent::AgentWork;

/// How many hot keys of a store are reported.
const HOT_KEYS_MAX: usize = 20;

/// How many stores a report names.
const STORES_MAX: usize = 100;

/// How many loads of partitions of stores a report has at most: those that are asked for most.
const PLACES_MAX: usize = 50_000;

/// The rates of the members that share this process, by the places of their meters: its processors are divided by them.
static MEMBERS: Mutex<BTreeMap<usize, f64>> = Mutex::new(BTreeMap::new());

/// Measures one node.
pub(crate) struct Meter {
    agent: Arc<AgentWork>,
    metrics: Arc<NodeMetrics>,
    mirror: Mirror,
    started_unix_ms: u64,
    number: u64,
    last: Counts,
}

/// Counters, which only grow.
struct Counts {
    at: Instant,
    cpu_seconds: f64,
    disk_read: u64,
    disk_written: u64,
    bytes_in: u64,
    bytes_out: u64,
    latencies: HistogramSnapshot,
    stores: HashMap<StoreId, HistogramSnapshot>,
}

impl Counts {
    fn now(metrics: &NodeMetrics, stores: impl Iterator<Item = StoreId>) -> Self {
        let (disk_read, disk_written) = process::disk_bytes().unwrap_or_default();
        Self {
            at: Instant::now(),
            cpu_seconds: process::cpu_seconds().unwrap_or(0.0),
            disk_read,
            disk_written,
            bytes_in: metrics.counter(Counter::BytesIn),
            bytes_out: metrics.counter(Counter::BytesOut),
            latencies: metrics.latency_of_all(),
            stores: stores
                .filter_map(|id| Some((id, metrics.latency_of_store(id)?)))
                .collect(),
        }
    }
}

impl Meter {
    pub(crate) fn new(agent: Arc<AgentWork>, metrics: Arc<NodeMetrics>, mirror: Mirror) -> Self {
        let last = Counts::now(&metrics, std::iter::empty());
        let meter = Self {
            agent,
            metrics,
            mirror,
            started_unix_ms: now_unix_ms(),
            number: 0,
            last,
        };
        MEMBERS.lock().insert(meter.place(), 0.0);
        meter
    }

    /// The place of this member among those of the process.
    fn place(&self) -> usize {
        Arc::as_ptr(&self.metrics) as usize
    }

    /// The load of the node since the last report.
    pub(crate) fn report(&mut self, node: NodeId) -> LoadReport {
        let view = self.mirror.view();
        let ids = view
            .stores
            .iter()
            .filter_map(|(name, store)| Some((StoreId::new(store.record.id)?, name)));
        let names: BTreeMap<StoreId, &StoreName> = ids.collect();
        let now = Counts::now(&self.metrics, names.keys().copied());
        let elapsed = now.at - self.last.at;
        let per_second =
            |after: u64, before: u64| after.saturating_sub(before) as f64 / elapsed.as_secs_f64().max(1e-3);
        let answered = now.latencies.since(&self.last.latencies);
        let requests = per_second(answered.count(), 0);
        let share = self.share(requests);
        let cpu = (now.cpu_seconds - self.last.cpu_seconds).max(0.0) / elapsed.as_secs_f64().max(1e-3);
        let members = MEMBERS.lock().len().max(1) as f64;
        let disk = self.agent.data_dir().space();
        let resources = ResourceUse {
            cpu: cpu * share,
            cpu_max: process::cores() / members,
            memory: (process::anonymous_bytes().unwrap_or(0) as f64 / members) as u64,
            memory_max: (process::memory_bytes().unwrap_or(0) as f64 / members) as u64,
            disk: disk.map_or(0, |(used, _)| used),
            disk_max: disk.map_or(0, |(_, all)| all),
            disk_read: per_second(now.disk_read, self.last.disk_read) * share,
            disk_written: per_second(now.disk_written, self.last.disk_written) * share,
            network_in: per_second(now.bytes_in, self.last.bytes_in),
            network_out: per_second(now.bytes_out, self.last.bytes_out),
            requests,
            p99_us: quantile_us(&answered, 0.99),
        };
        let loads = self.metrics.take_loads(now.at);
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let count = view.partitions();
        let partitions_of = |store: &StoreName, key: &[u8]| {
            count.map_or(PartitionId::new(0), |count| {
                count.partition_of(fondaco_model::SlotPrefix::of(store).slot(key))
            })
        };
        let held = |partition: PartitionId| {
            let table = view.routing.as_ref().map(|table| &table.record);
            table.is_none_or(|table| table.owners(partition).contains(&node))
        };
        self.number += 1;
        let report = LoadReport {
            node,
            started_unix_ms: self.started_unix_ms,
            number: self.number,
            divided: count.unwrap_or(PartitionCount::ONE),
            interval_ms: elapsed.as_millis() as u64,
            resources,
            hot_keys: hot_keys(&loads, &names, seconds, partitions_of),
            partitions: places(&loads, seconds, held),
            sizes: self.sizes(count.unwrap_or(PartitionCount::ONE)),
            stores: stores(&now, &self.last, &names, requests_of_stores(&loads, seconds, held)),
        };
        self.last = now;
        report
    }

    /// The share of this member in the process: a development cluster has several in one process, which are told
    /// apart by their requests.
    fn share(&self, requests: f64) -> f64 {
        let mut members = MEMBERS.lock();
        members.insert(self.place(), requests);
        let all: f64 = members.values().sum();
        match all > 0.0 {
            true => requests / all,
            false => 1.0 / members.len() as f64,
        }
    }

    /// The bytes of each partition on this node, all stores together. Those of versioned stores and overlays are divided evenly.
    fn sizes(&self, count: PartitionCount) -> Vec<(PartitionId, u64)> {
        let mut sizes = BTreeMap::<PartitionId, u64>::new();
        for version in self.agent.open_versions() {
            for chunk in version
                .manifest()
                .chunks
                .iter()
                .filter(|chunk| version.holds(chunk.partition))
            {
                let bytes: u64 = chunk.files().map(|file| file.bytes).sum();
                // If partitions were split since, the halves have half of it each.
                let halves = PartitionSet::from_iter([chunk.partition]).among(version.manifest().partitions, count);
                let each = bytes / halves.len() as u64;
                halves.iter().for_each(|half| *sizes.entry(half).or_default() += each);
            }
        }
        let replicas = self.agent.replicas();
        let view = self.mirror.view();
        let versioned = view
            .stores
            .values()
            .filter_map(|store| replicas.status(store.record.id))
            .filter(|status| status.partitions == count);
        let held: Vec<PartitionId> = versioned
            .flat_map(|status| status.held.iter().collect::<Vec<_>>())
            .chain(self.agent.streams().held(count))
            .collect();
        if !held.is_empty() {
            let each = replicas.live_bytes() / held.len() as u64;
            held.into_iter()
                .for_each(|partition| *sizes.entry(partition).or_default() += each);
        }
        sizes.into_iter().collect()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        MEMBERS.lock().remove(&self.place());
    }
}

fn quantile_us(latencies: &HistogramSnapshot, share: f64) -> u64 {
    latencies
        .quantile(share)
        .map_or(0, |latency| latency.as_micros() as u64)
}

/// The loads of partitions that the node holds. Requests on other partitions are forwarded, and count there.
fn places(loads: &Loads, seconds: f64, held: impl Fn(PartitionId) -> bool) -> Vec<PartitionLoad> {
    let places = loads.places.iter().filter(|((_, partition), _)| held(*partition));
    let mut places: Vec<PartitionLoad> = places
        .map(|(&(store, partition), load)| PartitionLoad {
            store: store.get(),
            partition,
            requests: load.requests / seconds,
            writes: load.writes / seconds,
            bytes: load.bytes / seconds,
        })
        .collect();
    places.sort_by(|a, b| b.cost().total_cmp(&a.cost()));
    places.truncate(PLACES_MAX);
    places
}

fn hot_keys(
    loads: &Loads,
    names: &BTreeMap<StoreId, &StoreName>,
    seconds: f64,
    partition_of: impl Fn(&StoreName, &[u8]) -> PartitionId,
) -> Vec<HotKey> {
    let mut by_store = BTreeMap::<StoreId, Vec<(&[u8], f64)>>::new();
    for ((store, key), count) in &loads.keys {
        by_store.entry(*store).or_default().push((key, *count));
    }
    let mut hot = Vec::new();
    for (store, mut keys) in by_store {
        let Some(name) = names.get(&store) else { continue };
        // A key that was met once may be any.
        keys.retain(|(_, count)| *count > 1.0);
        keys.sort_by(|a, b| b.1.total_cmp(&a.1));
        hot.extend(keys.into_iter().take(HOT_KEYS_MAX).map(|(key, count)| HotKey {
            store: (*name).clone(),
            key: String::from_utf8_lossy(key).into_owned(),
            partition: partition_of(name, key),
            requests: count / seconds,
        }));
    }
    hot
}

/// The requests a second for each store, in the partitions that the node holds.
fn requests_of_stores(loads: &Loads, seconds: f64, held: impl Fn(PartitionId) -> bool) -> BTreeMap<StoreId, f64> {
    let mut requests = BTreeMap::new();
    for ((store, _), load) in loads.places.iter().filter(|((_, partition), _)| held(*partition)) {
        *requests.entry(*store).or_insert(0.0) += load.requests / seconds;
    }
    requests
}

fn stores(
    now: &Counts,
    last: &Counts,
    names: &BTreeMap<StoreId, &StoreName>,
    requests: BTreeMap<StoreId, f64>,
) -> Vec<StoreLoad> {
    let loads = requests.into_iter().filter_map(|(id, requests)| {
        let latencies = now.stores.get(&id).map(|latencies| match last.stores.get(&id) {
            Some(before) => latencies.since(before),
            None => latencies.clone(),
        });
        let latency = |share| latencies.as_ref().map_or(0, |latencies| quantile_us(latencies, share));
        Some(StoreLoad {
            store: StoreName::clone(names.get(&id)?),
            requests,
            p50_us: latency(0.5),
            p99_us: latency(0.99),
        })
    });
    let mut loads: Vec<StoreLoad> = loads.collect();
    loads.sort_by(|a, b| b.requests.total_cmp(&a.requests));
    loads.truncate(STORES_MAX);
    loads
}
