//! Metrics, as Prometheus reads them. Nothing is counted here: what others count is put into words
//! when somebody asks.

use std::fmt;
use std::sync::Arc;

use fondaco_model::PushState;
use fondaco_node::{COUNTERS, FetchProgress, NodeMetrics};
use fondaco_resp::command;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::http::Traffic;
use crate::process;
use crate::stores::{StoreStatus, Stores, VersionStatus};

/// Durations shorter than this share one bucket, in seconds.
const BUCKET_SECONDS_MIN: f64 = 1e-6;

/// Durations longer than this share one bucket, in seconds.
const BUCKET_SECONDS_MAX: f64 = 20.0;

/// A metric of a version: its name, its meaning, and how it is read.
type OfVersion = (&'static str, &'static str, fn(&VersionStatus) -> Option<u64>);

/// A metric of a fetch, likewise.
type OfFetch = (&'static str, &'static str, fn(&FetchProgress) -> u64);

/// The metrics of a node.
pub(crate) struct Exposition(Registry);

struct NodeCollector {
    stores: Stores,
    metrics: Arc<NodeMetrics>,
    traffic: Arc<Traffic>,
}

impl Exposition {
    pub(crate) fn new(stores: Stores, metrics: Arc<NodeMetrics>, traffic: Arc<Traffic>) -> Self {
        let mut registry = Registry::with_prefix("fondaco");
        registry.register_collector(Box::new(NodeCollector {
            stores,
            metrics,
            traffic,
        }));
        Self(registry)
    }

    /// The text.
    pub(crate) fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0)?;
        Ok(text)
    }
}

impl fmt::Debug for NodeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeCollector")
    }
}

impl Collector for NodeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.commands(&mut encoder)?;
        for (which, name, help) in COUNTERS {
            counter(&mut encoder, name, help, self.metrics.counter(which))?;
        }
        gauge(
            &mut encoder,
            "clients",
            "clients connected over RESP",
            self.metrics.clients(),
        )?;
        gauge(
            &mut encoder,
            "cold_reads",
            "cold reads under way",
            self.metrics.cold_reads(),
        )?;
        self.http(&mut encoder)?;
        self.stores(&mut encoder)?;
        process_metrics(&mut encoder)
    }
}

impl NodeCollector {
    fn commands(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "time from reading a command until its reply was ready";
        let mut family = encoder.encode_descriptor("command_duration_seconds", help, None, MetricType::Histogram)?;
        for spec in command::all() {
            let latency = self.metrics.latency(spec.id);
            let count = latency.count();
            if count == 0 {
                continue;
            }
            let (mut before, mut buckets) = (0, Vec::new());
            for (end, below) in latency.cumulative() {
                let end = end.as_secs_f64();
                if (BUCKET_SECONDS_MIN..=BUCKET_SECONDS_MAX).contains(&end) {
                    buckets.push((end, below - before));
                    before = below;
                }
            }
            // The counters are read while they move: what came in between belongs to the last bucket.
            buckets.push((f64::INFINITY, count.saturating_sub(before)));
            let labels = [("command", spec.name)];
            let sum = latency.sum().as_secs_f64();
            family
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        let help = "commands answered by an error";
        let mut family = encoder.encode_descriptor("command_errors", help, None, MetricType::Counter)?;
        for spec in command::all() {
            let errors = self.metrics.errors(spec.id);
            if errors > 0 {
                let labels = [("command", spec.name)];
                family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&errors, None)?;
            }
        }
        Ok(())
    }

    fn http(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "requests to the control port, by class of status";
        let mut family = encoder.encode_descriptor("http_requests", help, None, MetricType::Counter)?;
        for (class, count) in self.traffic.answers() {
            let labels = [("status", class)];
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }

    fn stores(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        counter(
            encoder,
            "swaps",
            "changes of a store's current version",
            self.stores.swaps(),
        )?;
        let not_ready = self.stores.not_ready().len() as u64;
        gauge(
            encoder,
            "not_ready_reasons",
            "reasons why the node is not ready",
            not_ready,
        )?;
        let available = self.stores.data_dir().available_bytes().unwrap_or(0);
        gauge(
            encoder,
            "disk_available_bytes",
            "bytes that the disk has left",
            available,
        )?;

        let stores = self.stores.list();
        let current = |facts: fn(&VersionStatus) -> Option<u64>| {
            let current = stores.iter().map(move |store| {
                let version = store.versions.iter().find(|version| version.current);
                (store.definition.name.as_str(), version.and_then(facts))
            });
            current.collect::<Vec<_>>()
        };
        let facts: [OfVersion; 4] = [
            (
                "store_current_version",
                "the number of the current version",
                |version| Some(version.version.get()),
            ),
            ("store_records", "records of the current version", |version| {
                version.facts.as_ref().ok().map(|facts| facts.records)
            }),
            ("store_bytes", "bytes of the current version's files", |version| {
                version.facts.as_ref().ok().map(|facts| facts.bytes)
            }),
            (
                "store_index_bytes",
                "bytes of the current version's indexes",
                |version| version.facts.as_ref().ok().map(|facts| facts.index_bytes),
            ),
        ];
        for (name, help, fact) in facts {
            by_store(encoder, name, help, current(fact))?;
        }
        let all = |of: fn(&StoreStatus) -> u64| {
            let all = stores
                .iter()
                .map(move |store| (store.definition.name.as_str(), Some(of(store))));
            all.collect::<Vec<_>>()
        };
        let versions = all(|store| store.versions.len() as u64);
        by_store(encoder, "store_versions", "versions kept", versions)?;
        let failed = all(|store| store.versions.iter().filter(|version| version.facts.is_err()).count() as u64);
        by_store(
            encoder,
            "store_failed_versions",
            "versions that cannot be opened",
            failed,
        )?;
        let pushing = all(|store| {
            let under_way = |state: PushState| !state.is_end();
            u64::from(store.push.as_ref().is_some_and(|push| under_way(push.record.state)))
        });
        by_store(
            encoder,
            "push_in_progress",
            "1 while the store is being pushed to",
            pushing,
        )?;

        let fetch: [OfFetch; 4] = [
            (
                "fetch_done_bytes",
                "bytes of the push under way that are verified",
                |progress| progress.bytes_done,
            ),
            ("fetch_total_bytes", "bytes of the push under way", |progress| {
                progress.bytes_total
            }),
            (
                "fetch_rate_bytes_per_second",
                "how fast the push under way goes",
                |progress| progress.rate_bytes_per_second,
            ),
            (
                "fetch_rate_limit_bytes_per_second",
                "how fast the push under way may go; 0 is as fast as it can",
                |progress| progress.rate_limit_bytes_per_second,
            ),
        ];
        for (name, help, of) in fetch {
            let running = stores.iter().filter_map(|store| {
                let progress = store.push.as_ref()?.progress?;
                Some((store.definition.name.as_str(), Some(of(&progress))))
            });
            by_store(encoder, name, help, running.collect())?;
        }
        Ok(())
    }
}

fn process_metrics(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if let Some((minor, major)) = process::page_faults() {
        counter(encoder, "minor_page_faults", "page faults answered from memory", minor)?;
        counter(encoder, "major_page_faults", "page faults that read the disk", major)?;
    }
    if let Some(bytes) = process::resident_bytes() {
        let help = "resident memory, mapped files included";
        gauge(encoder, "resident_memory_bytes", help, bytes)?;
    }
    if let Some(files) = process::open_files() {
        gauge(encoder, "open_files", "files that the process has open", files)?;
    }
    if let Some(seconds) = process::cpu_seconds() {
        let help = "processor time used";
        let mut metric = encoder.encode_descriptor("cpu_seconds", help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
    }
    Ok(())
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    metric.encode_gauge(&value)
}

fn by_store(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: Vec<(&str, Option<u64>)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (store, value) in values {
        if let Some(value) = value {
            let labels = [("store", store)];
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}
