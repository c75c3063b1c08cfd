//! The decision.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_model::{NodeId, PartitionId, Shares, rearrange};

use super::decision::{Advice, BalanceMove, Decision, Outcome};
use super::input::{BalanceInput, BalanceMode, BalancePolicy, NodeLoad, Resource};
use super::machines::requests::{advance, drained};
use super::machines::{MachineAction, MachineDecision, MachineInput, MachineState, capacity};
use super::relief::{Levels, relieve};
use super::rules::Draft;

/// A node's report of its use is doubted if other nodes use this many times more for a request.
const DOUBTED: f64 = 20.0;

/// How many requests a second a node must get before its claim is doubted.
const DOUBTED_FROM_REQUESTS: f64 = 100.0;

/// Decides whether partitions should move, and whether machines are requested or returned.
pub fn decide(input: &BalanceInput) -> Decision {
    let mut decision = Decision {
        number: input.number,
        at_unix_ms: input.at_unix_ms,
        mode: input.settings.mode_at(input.at_unix_ms),
        outcome: Outcome::Nothing,
        reasons: Vec::new(),
        advice: Vec::new(),
        struggling: struggling(input).into_keys().collect(),
        machines: None,
    };
    let machines = input.machines.as_ref().filter(|_| decision.mode != BalanceMode::Off);
    let mut state = machines.map(|machines| remembered(input, machines, &mut decision));
    if let Some(reason) = waits(input) {
        decision.explain(reason);
        conclude(input, machines, state, &mut decision);
        return decision;
    }
    let goals: [fn(&BalanceInput, &mut Decision) -> Option<Outcome>; 3] = [members, newcomers, overload];
    if let Some(outcome) = goals.into_iter().find_map(|goal| goal(input, &mut decision)) {
        decision.outcome = outcome;
    } else if let (Some(machines), Some(state)) = (machines, &mut state)
        && let Some(outcome) = capacity::decide(input, machines, &mut decision, state)
    {
        decision.outcome = outcome;
    }
    if decision.mode == BalanceMode::Propose && input.settings.mode == BalanceMode::Act && decision.moves() {
        decision.explain("it is not the time for plans to be run: the plan is proposed");
    }
    conclude(input, machines, state, &mut decision);
    decision
}

/// The state of machines after the events since the last decision.
fn remembered(input: &BalanceInput, machines: &MachineInput, decision: &mut Decision) -> MachineState {
    let is_known = input.nodes.iter().filter(|node| node.may_get()).all(|node| node.known);
    let is_calm = is_known && decision.struggling.is_empty();
    decision.machines = Some(MachineDecision::default());
    advance(input, machines, is_calm, &mut decision.reasons)
}

/// Has a drained node returned, and the hook called if it is time to.
fn conclude(
    input: &BalanceInput,
    machines: Option<&MachineInput>,
    state: Option<MachineState>,
    decision: &mut Decision,
) {
    let (Some(machines), Some(mut state), Some(mut decided)) = (machines, state, decision.machines.take()) else {
        return;
    };
    let acts = decision.mode == BalanceMode::Act;
    if acts
        && state.pending.is_none()
        && let Some(node) = drained(input, machines, &state)
    {
        let action = MachineAction::Return {
            node,
            machine: state.nodes.get(&node).copied(),
        };
        let reason = format!("node {node} has no partitions any more");
        decision.explain(format!("{reason}: it is returned, through the hook"));
        state.begin(action, reason, input.at_unix_ms);
    }
    decided.begun = (state.last > machines.state.last).then_some(state.last);
    decided.call = acts
        && !machines.calling
        && state
            .pending
            .as_ref()
            .is_some_and(|request| request.http.is_none() && request.due_unix_ms <= input.at_unix_ms);
    decided.state = state;
    decision.machines = Some(decided);
}

/// Why nothing is decided now.
fn waits(input: &BalanceInput) -> Option<String> {
    if input.settings.mode == BalanceMode::Off {
        return Some("the cluster does nothing by itself: balance-mode is off".to_owned());
    }
    if let Some(plan) = input.plan {
        return Some(format!("plan {plan} is under way"));
    }
    let cools_until = input.moved_unix_ms.map(|at| at + input.settings.cool_down_ms);
    if let Some(until) = cools_until.filter(|&until| until > input.at_unix_ms) {
        let seconds = (until - input.at_unix_ms).div_ceil(1000);
        return Some(format!(
            "partitions moved a short time ago: what that changed shows in reports in {seconds} s"
        ));
    }
    None
}

/// Nodes that leave give up their partitions, dead nodes are replaced, and partitions with too few replicas get more.
fn members(input: &BalanceInput, decision: &mut Decision) -> Option<Outcome> {
    let mut members = input.owners();
    let mut leaving = BTreeSet::new();
    for node in input.nodes.iter().filter(|node| node.leaving && input.holds(node.node)) {
        decision.explain(format!("node {} leaves, and has partitions", node.node));
        members.remove(&node.node);
        leaving.insert(node.node);
    }
    let after = input.settings.replace_after_ms;
    let dead =
        |node: &&NodeLoad| !node.live && !node.maintenance && !node.leaving && after > 0 && node.absent_ms >= after;
    let mut backups: Vec<&NodeLoad> = input
        .nodes
        .iter()
        .filter(|node| node.backup && node.live && !node.leaving)
        .collect();
    for node in input.nodes.iter().filter(dead).filter(|node| input.holds(node.node)) {
        let fits = |backup: &&NodeLoad| backup.group == node.group;
        // One of its own zone, if there is one.
        let found = backups
            .iter()
            .position(|backup| fits(backup) && backup.zone == node.zone);
        let Some(at) = found.or_else(|| backups.iter().position(fits)) else {
            decision.advice.push(Advice {
                problem: format!("node {} has been absent for {} s", node.node, node.absent_ms / 1000),
                help: "start it again, start a node with --backup to replace it, or give it up: fondaco rebalance run \
                       --remove"
                    .to_owned(),
            });
            continue;
        };
        let backup = backups.remove(at);
        decision.explain(format!(
            "node {} has been absent for {} s: backup node {} replaces it",
            node.node,
            node.absent_ms / 1000,
            backup.node
        ));
        members.remove(&node.node);
        leaving.insert(node.node);
        members.insert(backup.node);
    }
    let wanted = input.replicas.min(members.len() as u32) as usize;
    let short = input
        .partitions
        .iter()
        .filter(|state| state.owners.len() < wanted)
        .count();
    if leaving.is_empty() && short == 0 {
        return None;
    }
    if short > 0 {
        decision.explain(format!("{short} partitions have fewer than {wanted} replicas"));
    }
    found(decision, rearranged(input, &members, leaving))
}

/// New nodes get their share.
fn newcomers(input: &BalanceInput, decision: &mut Decision) -> Option<Outcome> {
    let owners = input.owners();
    let new = input
        .nodes
        .iter()
        .filter(|node| node.may_get() && !owners.contains(&node.node));
    let new: Vec<NodeId> = new.map(|node| node.node).collect();
    if new.is_empty() {
        return None;
    }
    for node in &new {
        decision.explain(format!("node {node} is new, and has no partitions"));
    }
    let members = owners.into_iter().chain(new).collect();
    found(decision, rearranged(input, &members, BTreeSet::new()))
}

fn found(decision: &mut Decision, rearranged: Result<Option<Outcome>, String>) -> Option<Outcome> {
    rearranged.unwrap_or_else(|error| {
        decision.explain(format!("it cannot be done: {error}"));
        None
    })
}

/// The moves to the given members; `None` if nothing moves.
///
/// # Errors
/// The rules of placement cannot be kept with these members.
pub(super) fn rearranged(
    input: &BalanceInput,
    members: &BTreeSet<NodeId>,
    leaving: BTreeSet<NodeId>,
) -> Result<Option<Outcome>, String> {
    let before = input.lists();
    let known = input.nodes.iter().filter(|node| members.contains(&node.node));
    let known: Vec<_> = known.map(NodeLoad::member).collect();
    let after = rearrange(input.placement, &before, input.replicas, &known, Shares::Kept);
    let after = after.map_err(|error| error.to_string())?;
    Ok(moves(&before, after, Vec::new(), leaving))
}

fn moves(
    before: &[Vec<NodeId>],
    after: Vec<Vec<NodeId>>,
    moves: Vec<BalanceMove>,
    leaving: BTreeSet<NodeId>,
) -> Option<Outcome> {
    let lists = (0..).map(PartitionId::new).zip(before.iter().zip(after));
    let changed = lists.filter(|(_, (before, after))| *before != after);
    let next: BTreeMap<_, _> = changed.map(|(partition, (_, after))| (partition, after)).collect();
    (!next.is_empty()).then_some(Outcome::Move { next, moves, leaving })
}

/// The nodes that struggle, each with the resource that it has least of. A node that struggled does so until it is
/// halfway to calm, so that it is not relieved a little again and again.
pub(super) fn struggling(input: &BalanceInput) -> BTreeMap<NodeId, Resource> {
    let known = input.nodes.iter().filter(|node| node.known && node.live);
    let found = known.filter_map(|node| {
        let over = |resource: Resource| {
            let (high, calm) = input.settings.limits(resource);
            let limit = if input.struggled.contains(&node.node) {
                f64::midpoint(high, calm)
            } else {
                high
            };
            node.level(resource, &input.settings) - limit
        };
        let most = Resource::ALL.into_iter().max_by(|&a, &b| over(a).total_cmp(&over(b)))?;
        (over(most) > 0.0).then_some((node.node, most))
    });
    found.collect()
}

/// Nodes that struggle are relieved of partitions.
fn overload(input: &BalanceInput, decision: &mut Decision) -> Option<Outcome> {
    let judged = input.nodes.iter().filter(|node| node.known).count();
    let live = input.nodes.iter().filter(|node| node.live).count();
    let struggling = struggling(input);
    if struggling.is_empty() {
        decision.explain(match judged {
            0 => "no node has reported for long enough to be judged".to_owned(),
            _ => match live.saturating_sub(judged) {
                0 => format!("none of {judged} nodes struggles"),
                silent => format!("none of {judged} nodes struggles; {silent} have not reported for long enough"),
            },
        });
        return None;
    }
    let (skipped, count) = match input.settings.policy {
        BalancePolicy::One => (random(input.number) as usize % struggling.len(), 1),
        BalancePolicy::Each | BalancePolicy::Enough => (0, struggling.len()),
    };
    let chosen = struggling.into_iter().skip(skipped).take(count);
    let per_node = match input.settings.policy {
        BalancePolicy::One | BalancePolicy::Each => 1,
        BalancePolicy::Enough => input.settings.moves_max,
    };
    let doubted = doubted(input);
    for node in &doubted {
        decision.explain(format!(
            "node {node} claims to use a small part of what others use for a request: it gets nothing"
        ));
    }
    let mut draft = Draft::new(input);
    let mut levels = Levels::of(input);
    let mut made = Vec::new();
    for (node, resource) in chosen {
        let level = levels.get(node, resource);
        let (high, calm) = input.settings.limits(resource);
        let limit = match level > high {
            true => format!("more than {:.0} %", high * 100.0),
            false => format!("not halfway to calm at {:.0} %", calm * 100.0),
        };
        decision.explain(format!(
            "node {node} struggles: {:.0} % of its {resource}, {limit}",
            level * 100.0
        ));
        for _ in 0..per_node {
            if levels.get(node, resource) <= f64::midpoint(high, calm) {
                break;
            }
            match relieve(&mut draft, &mut levels, node, resource, |to| doubted.contains(&to.node)) {
                Ok(one) => {
                    decision.explain(format!(
                        "partition {} goes from node {} to node {}: the first falls from {:.0} to {:.0} %, the second rises \
                         from {:.0} to {:.0} %",
                        one.partition,
                        one.from,
                        one.to,
                        one.from_level.0 * 100.0,
                        one.from_level.1 * 100.0,
                        one.to_level.0 * 100.0,
                        one.to_level.1 * 100.0,
                    ));
                    made.push(one);
                }
                Err(advice) => {
                    // Several nodes may struggle for one reason.
                    if !made.iter().any(|one| one.from == node) && !decision.advice.contains(&advice) {
                        decision.advice.push(advice);
                    }
                    break;
                }
            }
        }
    }
    if made.is_empty() {
        decision.explain("no move would help");
    }
    moves(&input.lists(), draft.owners, made, BTreeSet::new())
}

/// Nodes whose reports cannot be true: they use a small part of the processor time that others use for a request.
fn doubted(input: &BalanceInput) -> BTreeSet<NodeId> {
    // A node that claims few requests may be given away by the load of its partitions.
    let mut of_partitions = BTreeMap::<NodeId, f64>::new();
    for state in &input.partitions {
        for (&owner, requests) in state.owners.iter().zip(&state.requests) {
            *of_partitions.entry(owner).or_default() += requests;
        }
    }
    let requests: BTreeMap<NodeId, f64> = input
        .nodes
        .iter()
        .map(|node| {
            let of_partitions = of_partitions.get(&node.node).copied().unwrap_or(0.0);
            (node.node, node.requests.max(of_partitions))
        })
        .collect();
    let busy = input
        .nodes
        .iter()
        .filter(|node| node.known && requests[&node.node] >= DOUBTED_FROM_REQUESTS);
    let per_request = |node: &NodeLoad| node.cpu.0 / requests[&node.node];
    let mut costs: Vec<f64> = busy.clone().map(per_request).collect();
    costs.sort_by(f64::total_cmp);
    let Some(&median) = costs.get(costs.len() / 2) else {
        return BTreeSet::new();
    };
    busy.filter(|node| per_request(node) * DOUBTED < median)
        .map(|node| node.node)
        .collect()
}

/// A number that depends on another one, and looks random: a step of SplitMix64.
fn random(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
