//! The metrics of each store.

use std::fmt;

use fondaco_catalog::StoreId;
use fondaco_decisions::used_bytes;
use fondaco_fetch::FetchProgress;
use fondaco_model::cluster::{ClusterView, StoreRecord, Topology, VersionDetail};
use fondaco_model::{CanaryCounts, PartitionSet};
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::Observed;
use super::encoding::histogram;

/// A metric of a version: its name, its meaning, and how it is read.
type OfVersion = (&'static str, &'static str, fn(&VersionDetail) -> u64);

/// A metric of a canary, in the same form.
type OfCanary = (&'static str, &'static str, fn(&CanaryCounts) -> u64);

/// A metric of a fetch, in the same form.
type OfFetch = (&'static str, &'static str, fn(&FetchProgress) -> u64);

impl Observed {
    /// How long clients' requests on each store took.
    fn store_latencies(&self, encoder: &mut DescriptorEncoder<'_>, view: &ClusterView) -> fmt::Result {
        let help = "time from reading a client's request on a store until its reply was ready; ':others' are the stores \
                    beyond the first hundred that were asked for";
        let kind = MetricType::Histogram;
        let mut family = encoder.encode_descriptor("fondaco_store_request_duration_seconds", help, None, kind)?;
        for (name, store) in &view.stores {
            let id = StoreId::new(store.record.id);
            if let Some(latency) = id.and_then(|id| self.metrics.latency_of_store(id)) {
                let labels = [("store", name.as_str())];
                histogram(family.encode_family(&labels)?, &latency)?;
            }
        }
        match self.metrics.latency_of_other_stores() {
            Some(latency) => histogram(family.encode_family(&[("store", ":others")])?, &latency),
            None => Ok(()),
        }
    }

    pub(super) fn stores(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let view = self.mirror.view();
        self.store_latencies(encoder, &view)?;
        by_store(
            encoder,
            "store_current_version",
            "the number of the current version",
            each(&view, |store| store.versions.current().map(|version| version.get())),
        )?;
        let facts: [OfVersion; 3] = [
            ("store_records", "records of the current version", |detail| {
                detail.records
            }),
            ("store_bytes", "bytes of the current version's files", |detail| {
                detail.bytes
            }),
            (
                "store_index_bytes",
                "bytes of the current version's indexes",
                |detail| detail.index_bytes,
            ),
        ];
        for (name, help, fact) in facts {
            let current = |store: &StoreRecord| Some(fact(store.details.get(&store.versions.current()?)?));
            by_store(encoder, name, help, each(&view, current))?;
        }
        let versions = |store: &StoreRecord| Some(store.versions.kept().count() as u64);
        by_store(encoder, "store_versions", "versions kept", each(&view, versions))?;
        let quota = |store: &StoreRecord| store.definition.space_quota_bytes;
        let help = "bytes that one copy of the store may have";
        by_store(encoder, "store_space_quota_bytes", help, each(&view, quota))?;
        let used = |store: &StoreRecord| used_bytes(&view, store);
        let help =
            "bytes of one copy of the store: kept versions, or records of a store with a quota, as this process knows";
        by_store(encoder, "store_space_used_bytes", help, each(&view, used))?;
        let over = |store: &StoreRecord| store.definition.versioned.map(|_| u64::from(store.over_quota));
        let help = "1 while the store takes only deletions, because it is larger than its space quota";
        by_store(encoder, "store_over_space_quota", help, each(&view, over))?;
        let failed = |store: &StoreRecord| Some(self.agent.as_ref()?.failed_versions(&store.definition.name));
        let help = "versions that this node cannot serve";
        by_store(encoder, "store_failed_versions", help, each(&view, failed))?;
        let late = |store: &StoreRecord| Some(store.late.len() as u64);
        let help = "nodes that do not have the current version yet";
        by_store(encoder, "store_late_nodes", help, each(&view, late))?;
        without_quorum(encoder, &view)?;
        let pushing = |store: &StoreRecord| Some(u64::from(store.pushing().is_some()));
        by_store(
            encoder,
            "push_in_progress",
            "1 while the store is being pushed to",
            each(&view, pushing),
        )?;
        let canary: [OfCanary; 9] = [
            (
                "canary_reads",
                "keys that the new version of a canary under way answered",
                |counts| counts.reads,
            ),
            (
                "canary_current_reads",
                "keys that the current version answered",
                |counts| counts.current_reads,
            ),
            ("canary_compared", "keys looked up in both versions", |counts| {
                counts.compared
            }),
            (
                "canary_missing",
                "of these, keys that only the current version has",
                |counts| counts.missing,
            ),
            (
                "canary_added",
                "of these, keys that only the new version has",
                |counts| counts.added,
            ),
            ("canary_changed", "of these, keys with another value", |counts| {
                counts.changed
            }),
            (
                "canary_errors",
                "of these, keys that only the new version cannot read",
                |counts| counts.errors,
            ),
            (
                "canary_latency_microseconds",
                "mean latency of the new version",
                |counts| counts.mean_latencies_us().0,
            ),
            (
                "canary_current_latency_microseconds",
                "mean latency of the current version during a canary",
                |counts| counts.mean_latencies_us().1,
            ),
        ];
        for (name, help, of) in canary {
            let counts = |store: &StoreRecord| {
                let counts = self.agent.as_ref()?.canary_counts(&store.definition.name)?;
                Some(of(&counts))
            };
            by_store(encoder, name, help, each(&view, counts))?;
        }
        let fetch: [OfFetch; 4] = [
            (
                "fetch_done_bytes",
                "bytes of the push under way that are verified on this node",
                |progress| progress.bytes_done,
            ),
            (
                "fetch_total_bytes",
                "bytes of the push under way for this node",
                |progress| progress.bytes_total,
            ),
            (
                "fetch_rate_bytes_per_second",
                "bytes a second that the push under way fetches on this node",
                |progress| progress.rate_bytes_per_second,
            ),
            (
                "fetch_rate_limit_bytes_per_second",
                "limit of that rate, in bytes a second; 0 is no limit",
                |progress| progress.rate_limit_bytes_per_second,
            ),
        ];
        for (name, help, of) in fetch {
            let running = |store: &StoreRecord| {
                let agent = self.agent.as_ref()?;
                Some(of(&agent.progress(&store.definition.name, store.pushing()?)?))
            };
            by_store(encoder, name, help, each(&view, running))?;
        }
        Ok(())
    }
}

/// One number for each store.
fn each(view: &ClusterView, number: impl Fn(&StoreRecord) -> Option<u64>) -> Vec<(&str, Option<u64>)> {
    let stores = view.stores.iter();
    stores
        .map(|(name, store)| (name.as_str(), number(&store.record)))
        .collect()
}

/// How many partitions of each store have too few live replicas.
fn without_quorum(encoder: &mut DescriptorEncoder<'_>, view: &ClusterView) -> fmt::Result {
    let Some(topology) = Topology::of(view) else {
        return Ok(());
    };
    let lost = topology.lost_quorums();
    let name = "fondaco_store_partitions_without_quorum";
    let help = "partitions with too few live replicas for a read, or for a write";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (store, record) in &topology.stores {
        let lost = lost.iter().find(|(name, _)| *name == store).map(|(_, lost)| lost);
        let mut one = |operation, lost: Option<&PartitionSet>| {
            let labels = [("store", store.as_str()), ("operation", operation)];
            let count = lost.map_or(0, PartitionSet::len) as u64;
            family.encode_family(&labels)?.encode_gauge(&count)
        };
        one("read", lost.map(|lost| &lost.reads))?;
        if record.versioned.is_some() {
            one("write", lost.map(|lost| &lost.writes))?;
        }
    }
    Ok(())
}

fn by_store(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: Vec<(&str, Option<u64>)>,
) -> fmt::Result {
    let name = format!("fondaco_{name}");
    let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
    for (store, value) in values {
        if let Some(value) = value {
            let labels = [("store", store)];
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}
