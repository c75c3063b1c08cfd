//! Encodes single metrics.

use std::fmt;

use fondaco_model::HistogramSnapshot;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Durations shorter than this share one bucket, in seconds.
const BUCKET_SECONDS_MIN: f64 = 1e-6;

/// Durations longer than this share one bucket, in seconds.
const BUCKET_SECONDS_MAX: f64 = 20.0;

/// Encodes the latencies of a histogram.
pub(super) fn histogram(mut metric: MetricEncoder<'_>, latency: &HistogramSnapshot) -> fmt::Result {
    let (mut before, mut buckets) = (0, Vec::new());
    for (end, below) in latency.cumulative() {
        let end = end.as_secs_f64();
        if (BUCKET_SECONDS_MIN..=BUCKET_SECONDS_MAX).contains(&end) {
            buckets.push((end, below - before));
            before = below;
        }
    }
    let count = latency.count();
    // The counters change while they are read: later events go into the last bucket.
    buckets.push((f64::INFINITY, count.saturating_sub(before)));
    metric.encode_histogram::<NoLabelSet>(latency.sum().as_secs_f64(), count, &buckets, None)
}

/// Encodes a counter.
pub(super) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl EncodeCounterValue,
) -> fmt::Result {
    let name = format!("fondaco_{name}");
    let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
    metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

/// Encodes a gauge.
pub(super) fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let name = format!("fondaco_{name}");
    let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
    metric.encode_gauge(&value)
}
