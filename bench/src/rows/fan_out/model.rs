//! The costs of requests, and the kinds of queries. All numbers that are not of the paper are named here, and in the notes of the
//! row.

use fastrand::Rng;

use super::contender::Work;

/// Figure 5: the latency of a request for one key, in microseconds.
const MEDIAN_US: f64 = 2_000.0;
const P99_US: f64 = 21_000.0;
const WORST_US: f64 = 323_000.0;
/// The 99th percentile of the standard normal distribution.
const NORMAL_P99: f64 = 2.326_348;

/// The costs of requests, and the number of keys of queries, which the paper does not give.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// The cost of a request to its client on each way, in microseconds.
    pub client_request_us: u64,
    /// The cost of a key of a request to its client on each way.
    pub client_key_us: u64,
    /// The cost of a request to its node.
    pub node_request_us: u64,
    /// The cost of a key to its node: to find its ids, and to merge them.
    pub node_key_us: u64,
    /// The cost of a partition to its node in a search for common entities: two short lists are intersected.
    pub node_partition_us: u64,
    /// The number of members whose distance a query asks for; `None` if it follows the power law of degrees.
    pub badges: Option<usize>,
}

impl Default for Costs {
    /// A client that is busy for half of the time makes 5000 requests a second, and a node gets 10 000: the rates that the
    /// paper desires (V.C).
    fn default() -> Self {
        Self {
            client_request_us: 50,
            client_key_us: 1,
            node_request_us: 50,
            node_key_us: 10,
            node_partition_us: 2,
            badges: None,
        }
    }
}

impl Costs {
    /// The number of members whose distance a query asks for.
    pub fn badges(&self, random: &mut Rng) -> usize {
        self.badges.unwrap_or_else(|| degree(random))
    }

    /// The cost of a request to its client on each way. A search names two members, and no keys.
    pub fn client_us(&self, work: Work, keys: usize) -> u64 {
        match work {
            Work::Search => self.client_request_us,
            _ => self.client_request_us + self.client_key_us * keys as u64,
        }
    }

    /// The cost of a request to its node. A search has a key of each partition.
    pub fn node_us(&self, work: Work, keys: usize) -> u64 {
        let key_us = match work {
            Work::Search => self.node_partition_us,
            _ => self.node_key_us,
        };
        self.node_request_us + key_us * keys as u64
    }
}

/// The rates that the paper desires, in requests a second: of a client, and of a node.
pub const CLIENT_RATE: f64 = 5_000.0;
pub const NODE_RATE: f64 = 10_000.0;

/// The share of queries for one key, and for several; the rest search for common entities (II.C).
const SINGLE_SHARE: f64 = 0.4;
const MULTI_SHARE: f64 = 0.4;
/// The share of queries that find the network of their source in the cache (IV.B), and of those whose network is stale.
const HIT_SHARE: f64 = 0.95;
const STALE_SHARE: f64 = 0.05;
/// The share of pairs that have entities in common, and in how many partitions they have them at most.
const COMMON_SHARE: f64 = 0.8;
const COMMON_PARTITIONS_MAX: usize = 10;
/// A page of results, whose distances are asked for.
pub const PAGE: usize = 25;
/// Degrees follow a power law with the exponent 2 between these.
const DEGREE_MIN: f64 = 10.0;
const DEGREE_MAX: f64 = 30_000.0;

/// The kind of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One key.
    Single,
    /// The distances of several members: several keys, after the network of their source if it is not in the cache.
    Multi,
    /// Whether two members have an entity in common: all partitions, until one has.
    Common,
}

impl Kind {
    /// The kind of the next query.
    pub fn random(random: &mut Rng) -> Self {
        match random.f64() {
            share if share < SINGLE_SHARE => Self::Single,
            share if share < SINGLE_SHARE + MULTI_SHARE => Self::Multi,
            _ => Self::Common,
        }
    }
}

/// The state of the network of a source in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// In the cache.
    Cached,
    /// In the cache, but to be fetched again in the background.
    Stale,
    /// To be fetched before the query continues.
    Missing,
}

impl Network {
    /// Where the network of the next query is.
    pub fn random(random: &mut Rng) -> Self {
        match (random.f64() < HIT_SHARE, random.f64() < STALE_SHARE) {
            (true, false) => Self::Cached,
            (true, true) => Self::Stale,
            (false, _) => Self::Missing,
        }
    }
}

/// The latency of a request besides its work and the queue of its node: log-normal, by the median and the 99th percentile
/// of figure 5. One request in four million would take longer than the worst of the figure: it is cut off there.
pub fn latency_us(random: &mut Rng) -> u64 {
    let sigma = (P99_US / MEDIAN_US).ln() / NORMAL_P99;
    (MEDIAN_US * (sigma * normal(random)).exp()).min(WORST_US) as u64
}

/// A number of the standard normal distribution, by Box and Muller.
fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// The number of connections of a member.
pub fn degree(random: &mut Rng) -> usize {
    let (most, least) = (1.0 / DEGREE_MIN, 1.0 / DEGREE_MAX);
    (1.0 / (most - random.f64() * (most - least))) as usize
}

/// In how many partitions two members have entities in common.
pub fn common_partitions(random: &mut Rng) -> usize {
    match random.f64() < COMMON_SHARE {
        true => random.usize(1..=COMMON_PARTITIONS_MAX),
        false => 0,
    }
}

/// The time until the next query at this rate, in microseconds.
pub fn pause_us(queries_per_second: f64, random: &mut Rng) -> u64 {
    (-(1.0 - random.f64()).ln() / queries_per_second * 1e6) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value below which this share of numbers is.
    fn quantile(mut of: impl FnMut() -> u64, share: f64) -> f64 {
        let mut all: Vec<u64> = (0..200_000).map(|_| of()).collect();
        all.sort_unstable();
        all[(all.len() as f64 * share) as usize] as f64
    }

    #[test]
    fn latencies_have_the_percentiles_of_the_paper() {
        let mut random = Rng::with_seed(1);
        let median = quantile(|| latency_us(&mut random), 0.5);
        let p99 = quantile(|| latency_us(&mut random), 0.99);
        assert!((median / MEDIAN_US - 1.0).abs() < 0.02, "{median}");
        assert!((p99 / P99_US - 1.0).abs() < 0.05, "{p99}");
    }

    #[test]
    fn degrees_follow_the_power_law() {
        let mut random = Rng::with_seed(1);
        // Nine of ten members have less than ten times the least degree, and 99 of 100 less than a hundred times.
        for (share, times) in [(0.9, 10.0), (0.99, 100.0)] {
            let found = quantile(|| degree(&mut random) as u64, share);
            assert!((found / (times * DEGREE_MIN) - 1.0).abs() < 0.08, "{found} at {share}");
        }
    }
}
