//! The figures of a simulation.

use super::model::Kind;

/// The outcome of the measured queries.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    pub samples: Vec<Sample>,
    /// For each kind, queries and requests, those in the background included.
    pub counts: [(u64, u64); 3],
    /// The largest shares of keys on one node, of requests for several keys, in percent.
    pub shares: Vec<f64>,
    /// How long measured queries arrived.
    pub span_us: u64,
}

/// A query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub kind: Kind,
    pub latency_us: u64,
    /// The longest time of a request from leaving the client until its answer arrived there.
    pub slowest_us: u64,
}

impl Outcome {
    /// The latencies of a kind of queries, or of all, in microseconds and in order.
    pub fn latencies_us(&self, kind: Option<Kind>) -> Vec<u64> {
        let of_kind = |sample: &&Sample| kind.is_none_or(|kind| sample.kind == kind);
        let mut latencies: Vec<u64> = self
            .samples
            .iter()
            .filter(of_kind)
            .map(|sample| sample.latency_us)
            .collect();
        latencies.sort_unstable();
        latencies
    }

    /// Requests for each query of a kind, or of all.
    pub fn requests_per_query(&self, kind: Option<Kind>) -> f64 {
        let (mut queries, mut requests) = (0, 0);
        for (at, of_kind) in self.counts.iter().enumerate() {
            if kind.is_none_or(|kind| kind as usize == at) {
                (queries, requests) = (queries + of_kind.0, requests + of_kind.1);
            }
        }
        requests as f64 / queries.max(1) as f64
    }

    /// Requests for each second of queries.
    pub fn requests_per_second(&self) -> f64 {
        let requests: u64 = self.counts.iter().map(|of_kind| of_kind.1).sum();
        requests as f64 / (self.span_us.max(1) as f64 / 1e6)
    }
}

/// The value below which this share of sorted latencies is, in milliseconds.
pub fn quantile_ms(sorted_us: &[u64], share: f64) -> f64 {
    let place = (sorted_us.len() as f64 * share) as usize;
    sorted_us.get(place).map_or(f64::NAN, |&us| us as f64 / 1e3)
}
