//! Requests that are planned and answered at once: how many nodes they ask, and for how many keys (figures 7 and 9).

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use fondaco_client::operation::Operation;
use fondaco_client::read::{
    Answer, AsynchronousUnion, Effort, Element, FanOutController, GlobalRate, Pd, Query, Rates, Read,
};
use fondaco_client::{ReadOptions, WireKey};
use fondaco_ids::Computation;

use super::cluster::{Client, Cluster, GROUPS, NODES_PER_GROUP};
use super::contender::{Contender, Work};
use super::model::{CLIENT_RATE, pause_us};

/// The clients of figure 9d, and the queries a second of each.
const CLIENTS: usize = 100;
const QUERIES_PER_SECOND: f64 = 30.0;

/// The effort of a union that is answered at once.
fn effort(client: &Client, options: &ReadOptions, keys: &Arc<Vec<WireKey>>) -> Result<Effort> {
    let env = client.env(1_000_000);
    let mut read = Read::compute(Arc::clone(keys), Computation::Union, options.clone(), &env)?;
    while let Some(sent) = read.next_send(&env) {
        let elements = sent.request.places.iter().map(|_| Element::Value(None)).collect();
        read.on_reply(sent.id, Answer::Elements(elements), &env);
    }
    Ok(read.finish()?.effort)
}

/// The mean numbers of nodes that several requests for so many random keys ask, and the means of the penalty of equation 5.
pub fn means(cluster: &Cluster, contender: Contender, keys: usize, queries: usize) -> Result<[f64; 2]> {
    let (penalty, client) = (AsynchronousUnion::default(), cluster.client(1));
    let (options, mut random) = (contender.options(Work::Background), Rng::with_seed(1));
    let mut sums = [0.0; 2];
    for _ in 0..queries {
        let effort = effort(&client, &options, &cluster.keys(keys, &mut random))?;
        let (nodes, share) = (f64::from(effort.nodes), f64::from(effort.largest_share));
        sums[0] += nodes / queries as f64;
        sums[1] += (penalty.client.of(nodes) + penalty.server.of(share)) / queries as f64;
    }
    Ok(sums)
}

/// Figure 9d: requests for each query by the desired rate of a node, with clients that all have the controller of
/// equation 10, and nodes that report their rates every second.
pub fn requests_at_node_rate(rate: f64, seconds: usize) -> f64 {
    let controller = |_| Pd::around(Arc::new(GlobalRate::new(CLIENT_RATE, rate)));
    let mut clients: Vec<(Pd, u64)> = (0..CLIENTS).map(|at| (controller(at), 0)).collect();
    let mut random = Rng::with_seed(1);
    let (mut groups_of, mut asked, mut queries) = (Vec::new(), 0, 0);
    for second in 1..=seconds {
        let last = &groups_of[groups_of.len().saturating_sub(3)..];
        // A group of a query is a request to each of its nodes, whose number cancels out.
        let per_node = last.iter().sum::<usize>() as f64 / last.len().max(1) as f64 / f64::from(GROUPS);
        let nodes = (GROUPS * NODES_PER_GROUP) as usize;
        let rates = Rates {
            reported_sum: (per_node * nodes as f64) as u64,
            reporting_nodes: if per_node > 0.0 { nodes } else { 0 },
        };
        let mut groups = 0;
        for (controller, next_us) in &mut clients {
            while *next_us < second as u64 * 1_000_000 {
                let asked_for = controller.fan_out(&Query {
                    keys: 4096,
                    partitions: 4096,
                    groups: GROUPS as usize,
                    nodes_per_group: f64::from(NODES_PER_GROUP),
                    now_us: *next_us,
                    rates,
                });
                groups += asked_for;
                if second > seconds / 2 {
                    (asked, queries) = (asked + asked_for, queries + 1);
                }
                *next_us += pause_us(QUERIES_PER_SECOND, &mut random);
            }
        }
        groups_of.push(groups);
    }
    asked as f64 * f64::from(NODES_PER_GROUP) / f64::from(queries)
}

/// How long planning a request for so many keys takes, on this machine.
pub fn planning_time(cluster: &Cluster, contender: Contender, keys: usize) -> Result<Duration> {
    const REQUESTS: u32 = 20;
    let (client, options) = (cluster.client(1), contender.options(Work::Background));
    let keys = cluster.keys(keys, &mut Rng::with_seed(1));
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        Read::compute(Arc::clone(&keys), Computation::Union, options.clone(), &client.env(0))?;
    }
    Ok(begun.elapsed() / REQUESTS)
}
