//! Whether the cluster as a whole has too few machines, or more than it needs.

use std::collections::BTreeSet;

use fondaco_model::{NodeId, Placement};

use super::requests::FAILURES_MAX;
use super::{MachineAction, MachineInput, MachineRequest, MachineState};
use crate::balance::decide::{rearranged, struggling};
use crate::balance::decision::{Advice, Decision, Outcome};
use crate::balance::input::{BalanceInput, BalanceMode, NodeLoad, Resource};
use crate::balance::relief::{Levels, spread};

/// How far below calm all nodes must stay without the node that is returned.
const SPARE: f64 = 0.05;

/// How many nodes are tried at most, to find one that can be spared.
const TRIED_MAX: usize = 3;

/// A resource that the cluster has too little of.
struct Shortage<'a> {
    node: &'a NodeLoad,
    resource: Resource,
    /// The mean level of all nodes, if it is the whole cluster that has too little.
    mean: Option<f64>,
}

/// Requests a machine, or drains one, if no partition moves. Returns the moves of a node that is drained.
pub(in crate::balance) fn decide(
    input: &BalanceInput,
    machines: &MachineInput,
    decision: &mut Decision,
    state: &mut MachineState,
) -> Option<Outcome> {
    match shortage(input) {
        Some(short) => {
            want(input, machines, decision, state, &short);
            None
        }
        None if decision.struggling.is_empty() => spare(input, machines, decision, state),
        None => None,
    }
}

/// The worst of the nodes that struggle; first of all one that cannot be helped because all are like it.
fn shortage(input: &BalanceInput) -> Option<Shortage<'_>> {
    let members: Vec<&NodeLoad> = members(input).filter(|node| node.known).collect();
    let level = |node: &NodeLoad, resource: Resource| node.level(resource, &input.settings);
    let short = struggling(input).into_iter().filter_map(|(node, resource)| {
        let mean = members.iter().map(|member| level(member, resource)).sum::<f64>() / members.len().max(1) as f64;
        let (_, calm) = input.settings.limits(resource);
        Some(Shortage {
            node: input.nodes.iter().find(|load| load.node == node)?,
            resource,
            mean: (mean > calm).then_some(mean),
        })
    });
    short.max_by(|a, b| {
        let of = |short: &Shortage<'_>| level(short.node, short.resource);
        a.mean.is_some().cmp(&b.mean.is_some()).then(of(a).total_cmp(&of(b)))
    })
}

/// The nodes that hold partitions, or may.
fn members(input: &BalanceInput) -> impl Iterator<Item = &NodeLoad> {
    input.nodes.iter().filter(|node| node.may_get())
}

/// Requests a machine, or says why not.
fn want(
    input: &BalanceInput,
    machines: &MachineInput,
    decision: &mut Decision,
    state: &mut MachineState,
    short: &Shortage<'_>,
) {
    let (node, resource) = (short.node.node, short.resource);
    let settings = &machines.settings;
    let count = count(input);
    let problem = match short.mean {
        Some(mean) => format!(
            "the whole cluster is at its limit: {:.0} % of its {resource} on average, on {count} nodes",
            mean * 100.0
        ),
        None => format!("node {node} has too little {resource}, which no move changes"),
    };
    let is_whole = short.mean.is_some();
    let may_enlarge = settings.enlarges && resource != Resource::Requests;
    let action = match (is_whole && count < settings.nodes_max as usize, may_enlarge) {
        (true, _) => MachineAction::Request {
            zone: short.node.zone.clone(),
            group: short.node.group.clone(),
            resource,
        },
        (false, true) => MachineAction::Enlarge { node, resource },
        (false, false) => {
            if is_whole {
                decision.advice.push(Advice {
                    problem: format!("{problem}, and nodes-max is {}", settings.nodes_max),
                    help: "raise nodes-max of [machines], or add nodes by hand".to_owned(),
                });
            }
            return;
        }
    };
    let wanted = match action {
        MachineAction::Enlarge { .. } => format!("node {node} is to be enlarged"),
        _ => "a node is requested".to_owned(),
    };
    let now = input.at_unix_ms;
    // A node that cannot be returned does not keep a full cluster from getting one: it is tried again later.
    let is_vain = |request: &MachineRequest| {
        matches!(request.action, MachineAction::Return { .. }) && request.failures >= FAILURES_MAX
    };
    if state.pending.as_ref().is_some_and(is_vain) {
        state.pending = None;
    }
    if let Some(why) = waits(input, machines, decision.mode, state) {
        decision.explain(format!("{problem}: {wanted}, but {why}"));
        return;
    }
    decision.explain(format!("{problem}: {wanted}, through the hook"));
    state.begin(action, problem, now);
}

/// Why no request is begun now.
fn waits(input: &BalanceInput, machines: &MachineInput, mode: BalanceMode, state: &MachineState) -> Option<String> {
    if let Some(request) = &state.pending {
        return Some(format!("request {} is under way", request.number));
    }
    let until = state.ended_unix_ms.map(|at| at + machines.settings.cool_down_ms);
    if let Some(until) = until.filter(|&until| until > input.at_unix_ms) {
        let seconds = (until - input.at_unix_ms).div_ceil(1000);
        return Some(format!("the last request ended a short time ago: not for {seconds} s"));
    }
    if let Some(unknown) = members(input).find(|node| !node.known) {
        return Some(format!("node {} has not reported for long enough", unknown.node));
    }
    (mode != BalanceMode::Act).then(|| "the cluster only proposes now".to_owned())
}

/// How many nodes the cluster has: those that are there, or that have partitions.
fn count(input: &BalanceInput) -> usize {
    let nodes = input.nodes.iter().filter(|node| !node.backup && !node.leaving);
    nodes.filter(|node| node.live || input.holds(node.node)).count()
}

/// Drains a node that the cluster can spare, if it could for long enough.
fn spare(
    input: &BalanceInput,
    machines: &MachineInput,
    decision: &mut Decision,
    state: &MachineState,
) -> Option<Outcome> {
    let settings = &machines.settings;
    let may_go = |node: &&NodeLoad| node.known && (settings.returns_all || state.nodes.contains_key(&node.node));
    let mut candidates: Vec<&NodeLoad> = members(input).filter(may_go).collect();
    let is_whole = input
        .nodes
        .iter()
        .all(|node| node.leaving || node.backup || node.known && node.may_get());
    if candidates.is_empty() || !is_whole || state.pending.is_some() {
        return None;
    }
    // The newest first: it came last, and has least to give back.
    candidates.sort_by_key(|node| std::cmp::Reverse(node.node));
    let mut why_not = None;
    for node in candidates.into_iter().take(TRIED_MAX) {
        match without(input, settings.nodes_min, node) {
            Ok(moves) => return drain(input, machines, decision, state, node.node, moves),
            Err(why) => why_not = why_not.or(Some(why)),
        }
    }
    decision
        .reasons
        .extend(why_not.map(|why| format!("no node can be spared: {why}")));
    None
}

/// The moves that drain a node.
///
/// # Errors
/// Why the cluster cannot spare it.
fn without(input: &BalanceInput, nodes_min: u32, node: &NodeLoad) -> Result<Outcome, String> {
    let rest: Vec<&NodeLoad> = members(input).filter(|other| other.node != node.node).collect();
    if rest.len() < nodes_min.max(1) as usize {
        return Err(format!("nodes-min is {nodes_min}"));
    }
    let distinct = |of: fn(&NodeLoad) -> Option<&str>, nodes: &[&NodeLoad]| {
        nodes.iter().filter_map(|node| of(node)).collect::<BTreeSet<_>>().len()
    };
    let all: Vec<&NodeLoad> = members(input).collect();
    let replicas = input.replicas as usize;
    let machines = |nodes: &[&NodeLoad]| {
        nodes.iter().filter(|node| node.host.is_none()).count() + distinct(|node| node.host.as_deref(), nodes)
    };
    let zones = |nodes: &[&NodeLoad]| distinct(|node| Some(node.zone.as_str()), nodes);
    let groups = |nodes: &[&NodeLoad]| distinct(|node| node.group.as_deref(), nodes);
    if machines(&rest) < replicas.min(machines(&all)) {
        return Err(format!("{replicas} replicas need as many machines"));
    }
    match input.placement {
        Placement::Zoned if zones(&rest) < zones(&all) => {
            return Err(format!("node {} is the only one of zone {:?}", node.node, node.zone));
        }
        Placement::Grouped if groups(&rest) < groups(&all) => {
            return Err(format!("node {} is the only one of its group", node.node));
        }
        _ => {}
    }
    let ids: BTreeSet<NodeId> = rest.iter().map(|node| node.node).collect();
    let outcome = rearranged(input, &ids, BTreeSet::from([node.node]))?.unwrap_or(Outcome::Nothing);
    let Outcome::Move { next, .. } = &outcome else {
        return Err(format!("node {} has nothing", node.node));
    };
    stay_calm(input, &rest, node.node, &spread(input, next))?;
    Ok(outcome)
}

/// # Errors
/// A node would not stay calm.
fn stay_calm(input: &BalanceInput, rest: &[&NodeLoad], without: NodeId, levels: &Levels) -> Result<(), String> {
    for other in rest {
        for resource in Resource::ALL {
            let (_, calm) = input.settings.limits(resource);
            let level = levels.get(other.node, resource);
            if level > calm - SPARE {
                return Err(format!(
                    "without node {without}, node {} would be at {:.0} % of its {resource}",
                    other.node,
                    level * 100.0
                ));
            }
        }
    }
    Ok(())
}

/// Drains a node, if it could be spared for long enough.
fn drain(
    input: &BalanceInput,
    machines: &MachineInput,
    decision: &mut Decision,
    state: &MachineState,
    node: NodeId,
    moves: Outcome,
) -> Option<Outcome> {
    let now = input.at_unix_ms;
    let since = machines.idle_since_unix_ms.unwrap_or(now).min(now);
    let settings = &machines.settings;
    let calm_s = (now - since) / 1000;
    if let Some(decided) = &mut decision.machines {
        decided.idle_since_unix_ms = Some(since);
    }
    let left_ms = settings.calm_ms.saturating_sub(now - since);
    let spared = format!("the cluster has been calm enough to spare node {node} for {calm_s} s");
    if left_ms > 0 {
        let seconds = left_ms.div_ceil(1000);
        decision.explain(format!("{spared}: if it stays so, the node is returned in {seconds} s"));
        return None;
    }
    // In the mode propose the plan is proposed.
    if let Some(why) = waits(input, machines, BalanceMode::Act, state) {
        decision.explain(format!("{spared}, but {why}"));
        return None;
    }
    let what = match decision.mode {
        BalanceMode::Act => "it is drained, and returned",
        _ => "it could be drained, and returned",
    };
    decision.explain(format!("{spared}: {what}"));
    Some(moves)
}
