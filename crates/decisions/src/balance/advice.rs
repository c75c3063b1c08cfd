//! Advice: the properties of a cluster that make balancing hard or unsafe, whatever is moved. Computed from the same input as
//! decisions.

use std::collections::BTreeMap;

use fondaco_model::{PartitionId, Placement, StoreName};

use super::decision::Advice;
use super::input::{BalanceInput, NodeLoad, PartitionState, Resource};

/// Fewer replicas for a node than this cannot be divided evenly.
const REPLICAS_PER_NODE_MIN: f64 = 4.0;

/// More replicas for a node than this cost it memory, files and comparisons.
const REPLICAS_PER_NODE_MAX: f64 = 300.0;

/// Partitions that are smaller than this are small data.
const SMALL_BYTES: u64 = 16 << 20;

/// A partition is uneven if it has more than this many times the median.
const UNEVEN: f64 = 4.0;

/// Partitions below this size are not called uneven.
const UNEVEN_BYTES_MIN: u64 = 64 << 20;

/// Partitions below this cost are not called uneven, in requests for short values a second.
const UNEVEN_COST_MIN: f64 = 200.0;

/// How many uneven partitions are named.
const NAMED_MAX: usize = 3;

/// A zone is small if it has less than this part of the weight of the largest.
const ZONE_MIN: f64 = 0.67;

/// A node is small if it has less than this part of the median capacity, by its weight.
const CAPACITY_MIN: f64 = 0.5;

/// How much of a resource a node has.
type Capacity = fn(&NodeLoad) -> f64;

/// The problems of a cluster that moves do not solve. `busiest` names, for partitions, the store that costs most there.
pub fn advise(input: &BalanceInput, busiest: &BTreeMap<PartitionId, StoreName>) -> Vec<Advice> {
    let members: Vec<&NodeLoad> = input.nodes.iter().filter(|node| node.may_get()).collect();
    let mut advice = Vec::new();
    advice.extend(
        Resource::ALL
            .into_iter()
            .filter_map(|resource| all_full(input, resource)),
    );
    advice.extend(number_of_partitions(input, members.len()));
    advice.extend(uneven_bytes(input, busiest));
    advice.extend(uneven_load(input, busiest));
    advice.extend(small_nodes(&members));
    advice.extend(zones(input, &members));
    advice.extend(machines(input));
    advice
}

/// Nodes are missing: one has reached its limit, and no node is calm. Then partitions have nowhere to go, whatever their
/// share of the load is.
pub(super) fn all_full(input: &BalanceInput, resource: Resource) -> Option<Advice> {
    let (high, calm) = input.settings.limits(resource);
    let levels = levels(input, resource);
    let full = levels.iter().filter(|level| **level > high).count();
    let are_all = full > 0 && levels.iter().all(|level| *level > calm);
    are_all.then(|| nodes_missing(&levels, resource, (high, calm)))
}

/// The advice to add nodes, with these levels of those that there are.
pub(super) fn nodes_missing(levels: &[f64], resource: Resource, (high, calm): (f64, f64)) -> Advice {
    let count = levels.len();
    let full = levels.iter().filter(|level| **level > high).count();
    let mean = levels.iter().sum::<f64>() / count.max(1) as f64;
    let missing = (count as f64 * (mean / calm - 1.0)).ceil().max(1.0);
    Advice {
        problem: format!(
            "the whole cluster is at its limit: {:.0} % of its {resource} are used, and {full} of {count} nodes use more than \
             {:.0} %",
            mean * 100.0,
            high * 100.0
        ),
        help: format!("add nodes: {missing:.0} more like those that there are"),
    }
}

/// The levels of the nodes that may get partitions and have reported.
pub(super) fn levels(input: &BalanceInput, resource: Resource) -> Vec<f64> {
    let members = input.nodes.iter().filter(|node| node.known && node.may_get());
    members.map(|node| node.level(resource, &input.settings)).collect()
}

/// Too few partitions for the nodes, or too many for the data.
fn number_of_partitions(input: &BalanceInput, members: usize) -> Option<Advice> {
    let count = input.partitions.len();
    if members < 2 || count == 0 || input.placement == Placement::All {
        return None;
    }
    let replicas: usize = input.partitions.iter().map(|state| state.owners.len()).sum();
    let each = replicas as f64 / members as f64;
    if each < REPLICAS_PER_NODE_MIN {
        return Some(Advice {
            problem: format!(
                "{count} partitions are few for {members} nodes: a node has {each:.1} replicas of partitions, so that one \
                 more or less is {:.0} % of its load",
                100.0 / each
            ),
            help: "split them, until there are some ten for each node: fondaco rebalance split".to_owned(),
        });
    }
    let bytes: u64 = input.partitions.iter().map(|state| state.bytes).sum();
    let mean = bytes / count as u64;
    (each > REPLICAS_PER_NODE_MAX && mean < SMALL_BYTES).then(|| Advice {
        problem: format!(
            "{count} partitions are many for {members} nodes and {} of data: a node has {each:.0} replicas of partitions, \
             of {} each, and pays for each with memory, open files and comparisons",
            size(bytes),
            size(mean)
        ),
        help: "do not split them further; partitions cannot be merged: more nodes, or a new cluster with fewer, would help"
            .to_owned(),
    })
}

fn uneven_bytes(input: &BalanceInput, busiest: &BTreeMap<PartitionId, StoreName>) -> Vec<Advice> {
    let bytes = |state: &PartitionState| state.bytes as f64;
    let uneven = beyond_median(input, bytes, UNEVEN_BYTES_MIN as f64);
    let advice = uneven.map(|(partition, bytes, median)| Advice {
        problem: format!(
            "partition {partition} has {}, {:.0} times the median{}: a huge value, or many records with one hash tag or one set",
            size(bytes as u64),
            bytes / median.max(1.0),
            in_store(partition, busiest)
        ),
        help: "look at its longest values, and divide them over several keys; splitting partitions divides keys, and not \
               one key: fondaco rebalance split"
            .to_owned(),
    });
    advice.collect()
}

fn uneven_load(input: &BalanceInput, busiest: &BTreeMap<PartitionId, StoreName>) -> Vec<Advice> {
    let cost = |state: &PartitionState| state.costs.iter().sum::<f64>();
    let uneven = beyond_median(input, cost, UNEVEN_COST_MIN);
    let advice = uneven.map(|(partition, cost, median)| {
        let own = input.hot_keys.iter().filter(|hot| hot.partition == partition);
        let hottest = own.max_by(|a, b| a.requests.total_cmp(&b.requests));
        let cause = match hottest {
            Some(hot) => format!(
                ": key {:?} of store {:?} is asked for {:.0} times a second",
                hot.key, hot.store, hot.requests
            ),
            None => in_store(partition, busiest) + ": a hot key, or keys with one hash tag",
        };
        Advice {
            problem: format!(
                "partition {partition} has {:.0} times the load of the median{cause}",
                cost / median.max(1.0)
            ),
            help: match hottest {
                Some(_) => "cache it in applications or by routers (router-cache-bytes), or store copies of it under \
                            several keys"
                    .to_owned(),
                None => "find what is asked for: fondaco nodes, hot keys in the console; splitting helps if it is many keys: \
                         fondaco rebalance split"
                    .to_owned(),
            },
        }
    });
    advice.collect()
}

/// The partitions that have far more of something than the median has, the worst first, with the median.
fn beyond_median(
    input: &BalanceInput,
    of: impl Fn(&PartitionState) -> f64,
    least: f64,
) -> impl Iterator<Item = (PartitionId, f64, f64)> {
    let each = (0..).map(PartitionId::new).zip(input.partitions.iter().map(of));
    let mut each: Vec<(PartitionId, f64)> = each.collect();
    each.sort_by(|a, b| b.1.total_cmp(&a.1));
    let median = each.get(each.len() / 2).map_or(0.0, |(_, median)| *median);
    // One of two or three partitions has no median to be compared with.
    let enough = each.len() >= 4;
    let uneven = each
        .into_iter()
        .filter(move |(_, value)| enough && *value >= least && *value > UNEVEN * median);
    uneven
        .map(move |(partition, value)| (partition, value, median))
        .take(NAMED_MAX)
}

fn in_store(partition: PartitionId, busiest: &BTreeMap<PartitionId, StoreName>) -> String {
    let store = busiest.get(&partition);
    store.map_or_else(String::new, |store| format!(", most of it in store {store:?}"))
}

/// Nodes that have far less than others with the same weight.
fn small_nodes(members: &[&NodeLoad]) -> Vec<Advice> {
    let resources: [(&str, Capacity); 3] = [
        ("processors", |node| node.cpu.1),
        ("memory", |node| node.memory.1 as f64),
        ("disk", |node| node.disk.1 as f64),
    ];
    let mut advice = Vec::new();
    for node in members.iter().filter(|node| node.known) {
        let lacking = resources.iter().filter_map(|(name, capacity)| {
            let by_weight = |node: &NodeLoad| capacity(node) / f64::from(node.weight.max(1));
            let others = members.iter().filter(|other| other.known && other.node != node.node);
            let mut others: Vec<f64> = others
                .map(|other| by_weight(other))
                .filter(|have| *have > 0.0)
                .collect();
            others.sort_by(f64::total_cmp);
            let median = *others.get(others.len() / 2)?;
            let share = by_weight(node) / median;
            (share > 0.0 && share < CAPACITY_MIN).then(|| format!("{:.0} % of the {name}", share * 100.0))
        });
        let lacking: Vec<String> = lacking.collect();
        if !lacking.is_empty() {
            advice.push(Advice {
                problem: format!(
                    "node {} has {} that other nodes have for the same weight",
                    node.node,
                    lacking.join(" and ")
                ),
                help:
                    "give it a smaller weight in its configuration, or the others a larger one, and even out: fondaco \
                       rebalance plan --even; or replace it by a larger machine"
                        .to_owned(),
            });
        }
    }
    advice
}

/// Zones that hold as much as others, with fewer nodes.
fn zones(input: &BalanceInput, members: &[&NodeLoad]) -> Option<Advice> {
    let mut zones = BTreeMap::<&str, f64>::new();
    for node in members {
        *zones.entry(&node.zone).or_default() += f64::from(node.weight.max(1));
    }
    let most = zones.values().copied().fold(0.0, f64::max);
    let (smallest, least) = zones.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
    (input.placement == Placement::Zoned && input.replicas > 1 && *least < ZONE_MIN * most).then(|| Advice {
        problem: format!(
            "zone {smallest:?} has {:.0} % of the weight of the largest zone: replicas are spread over zones, so each of its \
             nodes holds more than nodes elsewhere",
            least / most * 100.0
        ),
        help: format!("add nodes to zone {smallest:?}"),
    })
}

/// Machines whose loss takes partitions below a majority of their replicas.
fn machines(input: &BalanceInput) -> Vec<Advice> {
    let mut lost = BTreeMap::<&str, usize>::new();
    let host = |node| {
        let found = input.nodes.iter().find(|other| other.node == node);
        found.and_then(|node| node.host.as_deref())
    };
    for state in input.partitions.iter().filter(|state| state.owners.len() > 1) {
        let mut on = BTreeMap::<&str, usize>::new();
        for host in state.owners.iter().filter_map(|&owner| host(owner)) {
            *on.entry(host).or_default() += 1;
        }
        let replicas = state.owners.len();
        // Of two replicas, one is never a majority: it is enough that one is left.
        let needed = if replicas > 2 { replicas / 2 + 1 } else { 1 };
        for (host, _) in on.into_iter().filter(|(_, there)| replicas - there < needed) {
            *lost.entry(host).or_default() += 1;
        }
    }
    let advice = lost.into_iter().map(|(host, partitions)| Advice {
        problem: format!(
            "the loss of machine {host:?} would stop {partitions} partitions: most of their replicas, or all, are on it"
        ),
        help:
            "add nodes on other machines, and even out: fondaco rebalance plan --even; or set host where nodes are on \
               machines of their own"
                .to_owned(),
    });
    advice.collect()
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes / 1000),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
