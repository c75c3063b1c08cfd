//! The router's cache: hot keys from the cache compared with the same keys from the nodes; and whether each key has its
//! own replica, so that the replicas' page caches divide the keys.

use anyhow::{Result, ensure};

use super::super::runner::Running;
use super::super::spec::Step;
use crate::dataset::{Dataset, Random, key};
use crate::report::markdown::number;
use crate::servers::fondaco::{Fondaco, Member, STORE};
use crate::servers::{ask, wait_until};

const STICKY_KEYS: u64 = 100;
const ASKED_TIMES: u64 = 10;
/// The hits and the look-ups of the router's cache.
pub type Counts = (u64, u64);

/// The share of look-ups that the router's cache answered since the last call.
pub fn hits(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let after = looked_for(running.fondaco()?)?;
    if let Some(before) = running.kept.router_cache.replace(after)
        && !step.name.is_empty()
    {
        let share = (after.0 - before.0) as f64 / (after.1 - before.1) as f64;
        running.add(&step.name, "%", share * 100.0);
    }
    Ok(())
}

/// The replicas from which keys are read.
pub fn stickiness(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let sticky = Stickiness::measure(running.fondaco()?, running.dataset, running.round)?;
    running.add("own share", "%", sticky.own_share * 100.0);
    let all_seen: u64 = sticky.keys_of.iter().sum();
    for (node, seen) in sticky.keys_of.into_iter().enumerate() {
        running.add(&format!("seen by {node}"), "%", seen as f64 / all_seen as f64 * 100.0);
    }
    let shares =
        (0..running.fondaco()?.nodes().len()).map(|node| number(running.figures.median(&format!("seen by {node}"))));
    let shares: Vec<String> = shares.collect();
    running.figures.set("seen", shares.join(" %, "));
    Ok(())
}

fn looked_for(cluster: &Fondaco) -> Result<Counts> {
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
    fn measure(cluster: &Fondaco, dataset: Dataset, seed: u64) -> Result<Self> {
        let mut random = Random::new(seed);
        let (mut own, mut keys_of) = (0, vec![0; cluster.nodes().len()]);
        let mut before = looked_up(cluster)?;
        for _ in 0..STICKY_KEYS {
            let record = random.below(dataset.records);
            let key = String::from_utf8_lossy(&key(record)).into_owned();
            let request = format!("GET {STORE}:{key}\r\n");
            let reply = format!("${}\r\n{key}", dataset.value_bytes);
            for _ in 0..ASKED_TIMES {
                let answer = ask(cluster.front().resp(), request.as_bytes(), reply.len())?;
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
fn looked_up(cluster: &Fondaco) -> Result<Vec<u64>> {
    cluster.nodes().iter().map(Member::looked_up).collect()
}
