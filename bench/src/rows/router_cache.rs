//! The router's cache: hot keys from the cache compared with the same keys from the nodes; and whether each key has its
//! own replica, so that the replicas' page caches divide the keys.

use anyhow::{Result, ensure};

use super::Measured;
use crate::bench::Bench;
use crate::dataset::{Dataset, Random, key};
use crate::load::{Group, KeyChoice, Span};
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Line, Rounds};
use crate::servers::ask;
use crate::servers::cluster::{Cluster, NODES, Server, wait_until};

const REPLICAS: u32 = 3;
const RATE: f64 = 4_000.0;
const HOT_KEYS: u64 = 1000;
const SETTING: &str = "router-cache-bytes";
/// The default.
const CACHE_BYTES: u64 = 64 << 20;
/// The remaining share of the latency, if 40 % are saved.
const RATIO_MAX: f64 = 0.6;
const STICKY_KEYS: u64 = 100;
const ASKED_TIMES: u64 = 10;
/// The names of the latencies.
const FROM_NODES: &str = "from the nodes";
const FROM_CACHE: &str = "from the router's cache";

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let cluster = Cluster::serving(bench, "router-cache", REPLICAS, dataset)?;
    let keys = KeyChoice::Hot {
        records: dataset.records,
        count: HOT_KEYS,
    };
    let many = Group::gets(cluster.router().resp(), STORE, keys);
    let paced = Group {
        rate: Some(RATE),
        ..many.clone()
    };
    let span = Span::of(bench.round_time());
    let mut rounds = Rounds::default();
    for round in 0..bench.rounds() {
        cluster.control().set(SETTING, 0)?;
        rounds.add_latency(FROM_NODES, &paced.run(span, round)?);
        cluster.control().set(SETTING, CACHE_BYTES)?;
        // Fills the cache.
        many.run(span, round)?;
        let before = looked_for(&cluster)?;
        rounds.add_latency(FROM_CACHE, &paced.run(span, round)?);
        let after = looked_for(&cluster)?;
        let share = (after.0 - before.0) as f64 / (after.1 - before.1) as f64;
        rounds.add("hits", "%", share * 100.0);
    }
    cluster.control().set(SETTING, 0)?;
    let mut keys_seen = [0.0; NODES];
    for round in 0..bench.rounds() {
        let sticky = Stickiness::measure(&cluster, dataset, round)?;
        rounds.add("own share", "%", sticky.own_share * 100.0);
        let of_nodes = keys_seen.iter_mut().zip(sticky.keys_of);
        of_nodes.for_each(|(all, of)| *all += of as f64);
    }
    cluster.end()?;

    let line = |quantile: &str, suffix: &str| {
        let [ours, peer] = [FROM_CACHE, FROM_NODES].map(|name| rounds.figure(&format!("{name}{suffix}")));
        let work = format!("{quantile} of hot keys at {RATE:.0}/s, from the router's cache");
        Line::new(work, ours).peer(FROM_NODES, peer).over_peer(FROM_NODES)
    };
    let p50 = line("p50", ", median");
    let is_reached = p50.ratio_value() <= RATIO_MAX;
    let own_share = "requests for a key, cache off, that reached the same one of three replicas";
    let all_seen: f64 = keys_seen.iter().sum();
    let shares = keys_seen.map(|seen| number(seen / all_seen * 100.0));
    Ok(Measured {
        lines: vec![
            p50.target("≥ 40 % lower", is_reached),
            line("p99", ""),
            rounds.line(own_share, "own share"),
        ],
        notes: vec![
            format!(
                "{HOT_KEYS} hot keys of {} at a fixed rate; three nodes with {REPLICAS} replicas. With `{SETTING}` at its default of {} MiB, {} % of the keys came from the cache; with 0 all come from the nodes, where they are in memory. Router, nodes and load generator share two cores.",
                number(dataset.records as f64),
                CACHE_BYTES >> 20,
                rounds.shown("hits")
            ),
            format!(
                "Sticky routing: {STICKY_KEYS} keys per round are requested {ASKED_TIMES} times each, one key after the other, and the nodes' counters show which replicas were asked. Of the distinct keys the replicas saw {} %: their page caches divide the keys between them, instead of each caching all of them. Deviations are hedges.",
                shares.join(" %, ")
            ),
        ],
        charts: vec![rounds.latencies(
            "router-cache",
            "latency of hot keys through the router",
            &[FROM_NODES, FROM_CACHE],
        )],
    })
}

/// The hits and the look-ups of the router's cache.
fn looked_for(cluster: &Cluster) -> Result<(u64, u64)> {
    let control = cluster.control();
    let hits = control.counter("cache_hits")?;
    let others = control.counter("cache_misses")? + control.counter("shared_lookups")?;
    Ok((hits, hits + others))
}

/// The replicas that some keys were read from.
struct Stickiness {
    /// The share of requests that went to the most frequent replica of their key.
    own_share: f64,
    /// The number of keys that each node saw.
    keys_of: Vec<u64>,
}

impl Stickiness {
    fn measure(cluster: &Cluster, dataset: Dataset, seed: u64) -> Result<Self> {
        let mut random = Random::new(seed);
        let (mut own, mut keys_of) = (0, vec![0; NODES]);
        let mut before = looked_up(cluster)?;
        for _ in 0..STICKY_KEYS {
            let record = random.below(dataset.records);
            let key = String::from_utf8_lossy(&key(record)).into_owned();
            let request = format!("GET {STORE}:{key}\r\n");
            let reply = format!("${}\r\n{key}", dataset.value_bytes);
            for _ in 0..ASKED_TIMES {
                let answer = ask(cluster.router().resp(), request.as_bytes(), reply.len())?;
                ensure!(answer == reply.as_bytes(), "the value of {key} is wrong");
            }
            let mut asked = Vec::new();
            // Nodes count a look-up after they have answered.
            wait_until("the nodes have counted their look-ups", || {
                let after = looked_up(cluster)?;
                asked = after
                    .iter()
                    .zip(&before)
                    .map(|(after, before)| after - before)
                    .collect();
                let all = asked.iter().sum::<u64>() >= ASKED_TIMES;
                if all {
                    before = after;
                }
                Ok(all)
            })?;
            own += asked.iter().max().copied().unwrap_or(0);
            keys_of
                .iter_mut()
                .zip(&asked)
                .for_each(|(keys, &asked)| *keys += u64::from(asked > 0));
        }
        Ok(Self {
            own_share: own as f64 / (STICKY_KEYS * ASKED_TIMES) as f64,
            keys_of,
        })
    }
}

/// The number of keys that each node has looked up so far.
fn looked_up(cluster: &Cluster) -> Result<Vec<u64>> {
    cluster.nodes().iter().map(Server::looked_up).collect()
}
