//! The metrics of the streams of hybrid stores, as this node has read them.

use std::collections::BTreeMap;
use std::fmt;

use fondaco_agent::OverlayStatus;
use fondaco_model::StoreName;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::Observed;

/// A metric of a version's stream: its name, its meaning, and how it is read.
type OfVersion = (&'static str, &'static str, fn(&OverlayStatus) -> u64);

impl Observed {
    pub(super) fn streams(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(agent) = &self.agent else { return Ok(()) };
        let view = self.mirror.view();
        let hybrid = view.stores.values().map(|store| &store.record.definition);
        let hybrid = hybrid.filter(|store| store.stream.is_some());
        let all: Vec<(&StoreName, Vec<OverlayStatus>)> = hybrid
            .map(|store| (&store.name, agent.streams().status(&store.name)))
            .collect();
        lags(encoder, &all)?;
        let help = "bytes a second that streams are slowed down to, since they slow reads down; 0 if they are not";
        let name = "fondaco_stream_rate_limit_bytes_per_second";
        let limit = agent.streams().rate_limit_bytes_per_second();
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&limit)?;
        let facts: [OfVersion; 11] = [
            (
                "held_back",
                "whether the store's quota of writes keeps the node from reading on",
                |status| u64::from(status.feed.is_held_back),
            ),
            ("keys", "keys that have events", |status| status.keys),
            ("events_applied", "events that have changed a key", |status| {
                status.applied.applied
            }),
            (
                "events_superseded",
                "events that were earlier than the value or deletion of their key",
                |status| status.applied.superseded,
            ),
            ("events_elsewhere", "events that belong to other nodes", |status| {
                status.applied.elsewhere
            }),
            ("events_late", "events that were logged too late to count", |status| {
                status.applied.late
            }),
            ("events_poison", "records that were no events", |status| {
                status.applied.poison
            }),
            (
                "events_repeated",
                "updates that had an identifier that was known",
                |status| status.applied.repeated,
            ),
            (
                "events_unfit",
                "updates that did not fit the value that they should change",
                |status| status.applied.unfit,
            ),
            ("failed", "1 while a stream cannot be read", |status| {
                status.feed.error.is_some().into()
            }),
            (
                "lost_ranges",
                "ranges of records that were gone before they were read",
                |status| status.feed.lost.len() as u64,
            ),
        ];
        for (name, help, fact) in facts {
            let name = format!("fondaco_stream_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (store, versions) in &all {
                for status in versions {
                    let version = status.version.to_string();
                    let labels = [("store", store.as_str()), ("version", version.as_str())];
                    family.encode_family(&labels)?.encode_gauge(&fact(status))?;
                }
            }
        }
        Ok(())
    }
}

/// The lag of the version that is furthest behind, for each partition of each topic.
fn lags(encoder: &mut DescriptorEncoder<'_>, all: &[(&StoreName, Vec<OverlayStatus>)]) -> fmt::Result {
    let mut lags = BTreeMap::<(&str, u32, u32), (u64, u64)>::new();
    for (store, versions) in all {
        for partition in versions.iter().flat_map(|status| &status.feed.partitions) {
            // Until the partition was read, it is not known.
            let Some(records) = partition.lag_records else {
                continue;
            };
            let lag = lags
                .entry((store.as_str(), partition.topic, partition.partition))
                .or_default();
            lag.0 = lag.0.max(records);
            lag.1 = lag.1.max(partition.lag_ms);
        }
    }
    let mut each = |name: &str, help: &str, fact: fn(u64, u64) -> f64| {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for ((store, topic, partition), (records, ms)) in &lags {
            let (topic, partition) = (topic.to_string(), partition.to_string());
            let labels = [
                ("store", *store),
                ("topic", topic.as_str()),
                ("partition", partition.as_str()),
            ];
            family.encode_family(&labels)?.encode_gauge(&fact(*records, *ms))?;
        }
        Ok(())
    };
    let help = "records of a topic's partition that are yet to be read";
    each("fondaco_stream_lag_records", help, |records, _| records as f64)?;
    let help = "age of the last record that was read, while there are more";
    each("fondaco_stream_lag_seconds", help, |_, ms| ms as f64 / 1000.0)
}
