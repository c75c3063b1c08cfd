//! Relieving a node that struggles: which of its partitions goes where.

use std::collections::BTreeMap;

use fondaco_model::{NodeId, PartitionId};

use super::advice;
use super::decision::{Advice, BalanceMove};
use super::input::{BalanceInput, NodeLoad, Resource};
use super::rules::Draft;

/// How far below the level at which a node struggles a move must leave the node that gets the partition.
const MARGIN: f64 = 0.05;

/// The rate of copying by which the cost of a move is judged, in bytes a second.
const COPY_RATE: f64 = (64 << 20) as f64;

/// The time over which a move has to pay, in seconds.
const PAYS_WITHIN_S: f64 = 3600.0;

/// The levels of nodes, as moves change them.
pub(super) struct Levels {
    levels: BTreeMap<NodeId, [f64; Resource::ALL.len()]>,
}

impl Levels {
    pub(super) fn of(input: &BalanceInput) -> Self {
        let known = input.nodes.iter().filter(|node| node.known);
        let each = known.map(|node| {
            (
                node.node,
                Resource::ALL.map(|resource| node.level(resource, &input.settings)),
            )
        });
        Self { levels: each.collect() }
    }

    pub(super) fn get(&self, node: NodeId, resource: Resource) -> f64 {
        self.all(node)[resource as usize]
    }

    /// Those of a node, in the order of [`Resource::ALL`].
    fn all(&self, node: NodeId) -> [f64; Resource::ALL.len()] {
        self.levels.get(&node).copied().unwrap_or_default()
    }

    fn moved(&mut self, input: &BalanceInput, part: &Part, from: &NodeLoad, to: &NodeLoad) {
        for resource in Resource::ALL {
            let by = |node: &NodeLoad| part.level(resource, node, input);
            self.levels.entry(from.node).or_default()[resource as usize] -= by(from);
            self.levels.entry(to.node).or_default()[resource as usize] += by(to);
        }
    }
}

/// The use of a node by a partition, in the units of each resource.
struct Part {
    partition: PartitionId,
    cores: f64,
    requests: f64,
    bytes: u64,
    memory: f64,
}

impl Part {
    /// The level by which it raises a node's.
    fn level(&self, resource: Resource, node: &NodeLoad, input: &BalanceInput) -> f64 {
        let share = |used: f64, all: f64| if all > 0.0 { used / all } else { 0.0 };
        match resource {
            Resource::Cpu => share(self.cores, node.cpu.1),
            Resource::Memory => share(self.memory, node.memory.1 as f64),
            Resource::Disk => share(self.bytes as f64, node.disk.1 as f64),
            Resource::Requests => share(self.requests, input.settings.requests_max),
        }
    }
}

/// The use of a node, divided among its partitions: of processors by their costs, of memory by their sizes.
fn parts(draft: &Draft<'_>, node: &NodeLoad) -> Vec<Part> {
    let held = || {
        draft.input.partitions.iter().enumerate().filter_map(|(at, state)| {
            let place = state.owners.iter().position(|&owner| owner == node.node)?;
            // One that was moved away a moment ago, by the same decision, is not there any more.
            draft.owners[at].contains(&node.node).then_some((at, state, place))
        })
    };
    let all = || {
        let states = draft.input.partitions.iter();
        states.filter_map(|state| Some((state, state.owners.iter().position(|&owner| owner == node.node)?)))
    };
    let cost: f64 = all()
        .map(|(state, place)| state.costs.get(place).copied().unwrap_or(0.0))
        .sum();
    let bytes: u64 = all().map(|(state, _)| state.bytes).sum();
    let part = |(at, state, place): (usize, &super::input::PartitionState, usize)| Part {
        partition: PartitionId::new(at as u32),
        cores: node.cpu.0 * state.costs.get(place).copied().unwrap_or(0.0) / cost.max(1e-9),
        requests: state.requests.get(place).copied().unwrap_or(0.0),
        bytes: state.bytes,
        memory: node.memory.0 as f64 * state.bytes as f64 / (bytes.max(1) as f64),
    };
    held().map(part).collect()
}

/// The levels of nodes after partitions have got other owners, as far as they can be predicted.
pub(super) fn spread(input: &BalanceInput, next: &BTreeMap<PartitionId, Vec<NodeId>>) -> Levels {
    let draft = Draft::new(input);
    let mut levels = Levels::of(input);
    let mut parts_of = BTreeMap::new();
    for (&partition, after) in next {
        let before = &input.partitions[partition.get() as usize].owners;
        let gone = before.iter().filter(|node| !after.contains(node));
        let came = after.iter().filter(|node| !before.contains(node));
        for (&from, &to) in gone.zip(came) {
            let (Some(from), Some(to)) = (draft.node(from), draft.node(to)) else {
                continue;
            };
            let held = parts_of.entry(from.node).or_insert_with(|| parts(&draft, from));
            if let Some(part) = held.iter().find(|part| part.partition == partition) {
                levels.moved(input, part, from, to);
            }
        }
    }
    levels
}

/// Finds the move that relieves a node most, and makes it in the draft.
///
/// # Errors
/// No move helps: the problem, with its remedy.
pub(super) fn relieve(
    draft: &mut Draft<'_>,
    levels: &mut Levels,
    node: NodeId,
    resource: Resource,
    suspect: impl Fn(&NodeLoad) -> bool,
) -> Result<BalanceMove, Advice> {
    let input = draft.input;
    let Some(from) = draft.node(node) else {
        return Err(unexplained(node, resource));
    };
    let parts = parts(draft, from);
    let before = levels.get(node, resource);
    let limits = Resource::ALL.map(|one| input.settings.limits(one).0);
    let mut best: Option<(f64, f64, usize, &NodeLoad)> = None;
    let others = input.nodes.iter().filter(|to| to.node != node && to.known);
    for to in others.filter(|to| to.may_get() && !suspect(to)) {
        let now = levels.all(to.node);
        for (at, part) in parts.iter().enumerate() {
            let relief = part.level(resource, from, input);
            let to_after = now[resource as usize] + part.level(resource, to, input);
            let cost = part.bytes as f64 / COPY_RATE / PAYS_WITHIN_S;
            let gain = before - (before - relief).max(to_after) - cost;
            // Of moves that are as good, the one to the emptiest node.
            let is_better = best
                .is_none_or(|(most, least, ..)| gain > most + 1e-9 || gain > most - 1e-9 && to_after < least - 1e-9);
            if relief <= 0.0 || gain < input.settings.gain_min || !is_better {
                continue;
            }
            let room = |one: Resource| now[one as usize] + part.level(one, to, input) <= limits[one as usize] - MARGIN;
            // The rules are asked last, for they take longest.
            if Resource::ALL.into_iter().all(room) && draft.forbids(part.partition, node, to).is_none() {
                best = Some((gain, to_after, at, to));
            }
        }
    }
    let Some((_, _, at, to)) = best else {
        return Err(why_none(draft, levels, from, resource, &parts));
    };
    // A node without partitions would count as new, and be filled again.
    if parts.len() < 2 {
        return Err(Advice {
            problem: format!(
                "node {node} is at {:.0} % of its {resource} with one partition, which it keeps",
                before * 100.0
            ),
            help: format!("replace it by a larger machine, or take it out: fondaco drain {node}"),
        });
    }
    let part = &parts[at];
    let to_before = levels.get(to.node, resource);
    levels.moved(input, part, from, to);
    draft.replace(part.partition, node, to.node);
    Ok(BalanceMove {
        partition: part.partition,
        from: node,
        to: to.node,
        resource,
        from_level: (before, levels.get(node, resource)),
        to_level: (to_before, levels.get(to.node, resource)),
        bytes: part.bytes,
    })
}

/// Why no move relieves a node, with the remedy.
fn why_none(draft: &Draft<'_>, levels: &Levels, node: &NodeLoad, resource: Resource, parts: &[Part]) -> Advice {
    let input = draft.input;
    let (high, calm) = input.settings.limits(resource);
    let percent = |level: f64| format!("{:.0} %", level * 100.0);
    let number = node.node;
    if let Some(full) = advice::all_full(input, resource) {
        return full;
    }
    let largest = parts.iter().max_by(|a, b| {
        a.level(resource, node, input)
            .total_cmp(&b.level(resource, node, input))
    });
    let largest = largest.map(|part| (part.partition, part.level(resource, node, input)));
    if let Some((partition, level)) = largest.filter(|(_, level)| *level > high / 3.0) {
        let hot = input.hot_keys.iter().filter(|hot| hot.partition == partition);
        let hot = hot.max_by(|a, b| a.requests.total_cmp(&b.requests));
        let of_partition: f64 = input.partitions[partition.get() as usize].requests.iter().sum();
        if let Some(hot) = hot.filter(|hot| hot.requests > of_partition / 2.0) {
            return Advice {
                problem: format!(
                    "one key makes up most of the load of node {number}: {}:{}, {:.0} requests a second",
                    hot.store, hot.key, hot.requests
                ),
                help: "ask for it through routers, which cache hot keys; or give the store more replicas".to_owned(),
            };
        }
        return Advice {
            problem: format!(
                "partition {partition} alone makes up {} of what node {number} uses of its {resource}: moved as a whole, it \
                 would overload any other node, too",
                percent(level / levels.get(number, resource).max(1e-9))
            ),
            help: "split the partitions of the cluster in two, or add a larger node".to_owned(),
        };
    }
    let members = advice::levels(input, resource);
    if members.iter().sum::<f64>() > calm * members.len() as f64 {
        return advice::nodes_missing(&members, resource, (high, calm));
    }
    Advice {
        problem: format!(
            "node {number} is at {} of its {resource}, and no node may take a partition of it: the others have no room, or \
             the rules of placement forbid it (zones, groups, machines, partitions that moved within a day)",
            percent(levels.get(number, resource))
        ),
        help: "add a node in its zone and group, or move partitions by hand: fondaco rebalance plan --move".to_owned(),
    }
}

fn unexplained(node: NodeId, resource: Resource) -> Advice {
    Advice {
        problem: format!("node {node} struggles with its {resource}, and is not known"),
        help: "see the log of the leading controller".to_owned(),
    }
}
