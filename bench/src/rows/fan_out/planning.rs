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
use crate::report::Series;

/// The contenders of figure 7a.
const CONTENDERS: [Contender; 7] = [
    Contender::RoundRobin,
    Contender::SetCover,
    Contender::Groups(1),
    Contender::Groups(3),
    Contender::Groups(5),
    Contender::Groups(7),
    Contender::Groups(10),
];
/// The keys of a query in figure 7b.
pub const KEYS_BY_GROUPS: usize = 500;
/// The clients of figure 9d, and the queries a second of each.
pub const CLIENTS: usize = 100;
pub const QUERIES_PER_SECOND: f64 = 30.0;

/// The points of a line.
pub type Points = Vec<(f64, f64)>;

/// The effort of a union that is answered at once.
fn effort(client: &Client, options: &ReadOptions, keys: &Arc<Vec<WireKey>>) -> Result<Effort> {
    let moment = client.moment(1_000_000);
    let mut read = Read::compute(Arc::clone(keys), Computation::Union, options.clone(), &moment)?;
    while let Some(sent) = read.next_send(&moment) {
        let elements = sent.request.places.iter().map(|_| Element::Value(None)).collect();
        read.on_reply(sent.id, Answer::Elements(elements), &moment);
    }
    Ok(read.finish()?.effort)
}

/// The means of some figures of several requests for so many random keys.
fn means<const N: usize>(
    cluster: &Cluster,
    contender: Contender,
    (keys, queries): (usize, usize),
    of: impl Fn(&Effort) -> [f64; N],
) -> Result<[f64; N]> {
    let (client, options, mut random) = (
        cluster.client(1),
        contender.options(Work::Background),
        Rng::with_seed(1),
    );
    let mut sums = [0.0; N];
    for _ in 0..queries {
        let effort = effort(&client, &options, &cluster.keys(keys, &mut random))?;
        for (sum, figure) in sums.iter_mut().zip(of(&effort)) {
            *sum += figure / queries as f64;
        }
    }
    Ok(sums)
}

/// Figure 7a: requests by keys.
pub fn requests_by_keys(cluster: &Cluster, queries: usize) -> Result<Vec<Series>> {
    const KEYS: [usize; 14] = [1, 10, 25, 50, 75, 100, 150, 200, 300, 400, 500, 600, 800, 1000];
    let line = |contender: Contender| {
        let point = |keys: usize| {
            let [nodes] = means(cluster, contender, (keys, queries), |effort| [f64::from(effort.nodes)])?;
            Ok((keys as f64, nodes))
        };
        Ok((contender.name(), KEYS.into_iter().map(point).collect::<Result<_>>()?))
    };
    CONTENDERS.into_iter().map(line).collect()
}

/// Figure 7b: requests by groups of the cluster.
pub fn requests_by_groups(queries: usize) -> Result<Vec<Series>> {
    let contenders = [Contender::RoundRobin, Contender::SetCover, Contender::Groups(1)];
    let mut series: Vec<Series> = contenders.map(|contender| (contender.name(), Vec::new())).to_vec();
    for groups in 2..=GROUPS {
        let cluster = Cluster::new(groups)?;
        for (contender, (_, points)) in contenders.into_iter().zip(&mut series) {
            let shape = (KEYS_BY_GROUPS, queries);
            let [nodes] = means(&cluster, contender, shape, |effort| [f64::from(effort.nodes)])?;
            points.push((f64::from(groups), nodes));
        }
    }
    Ok(series)
}

/// Figure 9a: the penalty of equation 5, and requests, of unions in the background, by keys.
pub fn penalties_by_keys(cluster: &Cluster, queries: usize) -> Result<[Vec<Series>; 2]> {
    const KEYS: [usize; 11] = [50, 200, 400, 700, 1000, 1500, 2000, 2500, 3000, 4000, 5000];
    let AsynchronousUnion { client, server } = AsynchronousUnion::default();
    let (mut penalties, mut requests) = (Vec::new(), Vec::new());
    for contender in [Contender::RoundRobin, Contender::SetCover, Contender::Controlled] {
        let (mut of_penalties, mut of_requests) = (Vec::new(), Vec::new());
        for keys in KEYS {
            let [penalty, nodes] = means(cluster, contender, (keys, queries), |effort| {
                let (nodes, share) = (f64::from(effort.nodes), f64::from(effort.largest_share));
                [client.of(nodes) + server.of(share), nodes]
            })?;
            of_penalties.push((keys as f64, penalty));
            of_requests.push((keys as f64, nodes));
        }
        penalties.push((contender.name(), of_penalties));
        requests.push((contender.name(), of_requests));
    }
    Ok([penalties, requests])
}

/// Figure 9d: requests for each query by the desired rate of a node, with clients that all have the controller of
/// equation 10, and nodes that report their rates every second.
pub fn requests_by_node_rate(seconds: usize) -> Points {
    const RATES: [f64; 9] = [400.0, 700.0, 1000.0, 1500.0, 2000.0, 2500.0, 3000.0, 4000.0, 5000.0];
    RATES.map(|rate| (rate, requests_at_node_rate(rate, seconds))).to_vec()
}

fn requests_at_node_rate(rate: f64, seconds: usize) -> f64 {
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
        Read::compute(
            Arc::clone(&keys),
            Computation::Union,
            options.clone(),
            &client.moment(0),
        )?;
    }
    Ok(begun.elapsed() / REQUESTS)
}
