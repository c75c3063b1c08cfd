//! The request under way: the meaning of its answer, when the hook is called again, and when a request is given up.

use fondaco_model::NodeId;

use super::{HookAnswer, MachineAction, MachineInput, MachineRequest, MachineState};
use crate::balance::input::BalanceInput;

/// How long a node that the hook has started may take to join, in milliseconds.
const JOINS_WITHIN_MS: u64 = 600_000;

/// After how long a hook that has not finished is called again, in milliseconds.
const ASKED_AGAIN_MS: u64 = 5_000;

/// After how many failures a request may be given up.
pub(super) const FAILURES_MAX: u32 = 5;

/// The longest pause after a failure, in milliseconds.
const PAUSE_MS_MAX: u64 = 600_000;

/// The next state, after the events since the last decision. If no node struggles any more, a request that
/// has failed is given up.
pub(in crate::balance) fn advance(
    input: &BalanceInput,
    machines: &MachineInput,
    is_calm: bool,
    reasons: &mut Vec<String>,
) -> MachineState {
    let now = input.at_unix_ms;
    let mut state = machines.state.clone();
    let Some(mut request) = state.pending.take() else {
        return state;
    };
    let number = request.number;
    let answer = machines.answer.as_ref().filter(|(number, _)| *number == request.number);
    let answer = answer.map(|(_, answer)| answer);
    let is_done = answer.is_some_and(|answer| take(&mut request, answer, now, reasons));
    let ended = match &request.action {
        MachineAction::Return { node, .. } if is_done => {
            state.nodes.remove(node);
            Some(format!("the hook has taken node {node} back"))
        }
        MachineAction::Return { node, .. } if !machines.calling && stays(input, *node) => {
            Some(format!("node {node} leaves no longer: it is not returned"))
        }
        MachineAction::Enlarge { node, .. } if is_done => Some(format!("the hook has enlarged node {node}")),
        MachineAction::Request { .. } => machines.joined.zip(request.http.as_ref()).map(|(node, http)| {
            state.nodes.insert(node, number);
            format!("node {node} has joined, at {http}")
        }),
        _ => None,
    };
    let ended = ended.or_else(|| given_up(&request, answer, is_calm));
    if let Some(ended) = ended {
        reasons.push(format!("request {number}: {ended}"));
        state.ended_unix_ms = Some(now);
        return state;
    }
    if request.due_unix_ms <= now
        && let Some(http) = request.http.take()
    {
        let minutes = JOINS_WITHIN_MS / 60_000;
        let reason = format!("the node at {http} has not joined within {minutes} minutes");
        fail(&mut request, reason, now, reasons);
    }
    state.pending = Some(request);
    state
}

/// Takes an answer; returns whether it says that the request is done.
fn take(request: &mut MachineRequest, answer: &HookAnswer, now: u64, reasons: &mut Vec<String>) -> bool {
    let number = request.number;
    match (answer, &request.action) {
        (HookAnswer::Done { http: Some(http) }, MachineAction::Request { .. }) => {
            reasons.push(format!(
                "request {number}: the hook has started a node at {http}, which has yet to join"
            ));
            request.http = Some(http.clone());
            request.due_unix_ms = now + JOINS_WITHIN_MS;
        }
        (HookAnswer::Done { http: None }, MachineAction::Request { .. }) => {
            let reason = "it does not say at which HTTP address the node is".to_owned();
            fail(request, reason, now, reasons);
        }
        (HookAnswer::Done { .. }, _) => return true,
        (HookAnswer::Pending, _) => {
            reasons.push(format!("request {number}: the hook is at work"));
            request.due_unix_ms = now + ASKED_AGAIN_MS;
        }
        (HookAnswer::Failed { reason } | HookAnswer::Lost { reason }, _) => {
            fail(request, reason.clone(), now, reasons);
        }
    }
    false
}

fn fail(request: &mut MachineRequest, reason: String, now: u64, reasons: &mut Vec<String>) {
    request.failures += 1;
    let pause_ms = (1000_u64 << request.failures.min(20)).min(PAUSE_MS_MAX);
    request.due_unix_ms = now + pause_ms;
    let (number, count, seconds) = (request.number, request.failures, pause_ms / 1000);
    reasons.push(format!(
        "request {number}: the hook failed, {count} times so far: {reason}; it is called again in {seconds} s"
    ));
    request.error = Some(reason);
}

/// Why a request that has failed is given up. A request to start a node is not, as long as it is not certain that the hook
/// has started none: such a node might have partitions.
fn given_up(request: &MachineRequest, answer: Option<&HookAnswer>, is_calm: bool) -> Option<String> {
    let may_end = match request.action {
        MachineAction::Request { .. } => matches!(answer, Some(HookAnswer::Failed { .. })),
        MachineAction::Enlarge { .. } => request.failures > 0,
        MachineAction::Return { .. } => false,
    };
    match may_end {
        true if request.failures >= FAILURES_MAX => {
            Some(format!("it has failed {} times, and is given up", request.failures))
        }
        true if is_calm => Some("it has failed, no node struggles any more, and it is given up".to_owned()),
        _ => None,
    }
}

/// Whether a node that is to be returned leaves no longer.
fn stays(input: &BalanceInput, node: NodeId) -> bool {
    let known = input.nodes.iter().find(|load| load.node == node);
    known.is_some_and(|load| !load.leaving) || input.holds(node)
}

/// A node that leaves, has no partitions any more, and is to be returned.
pub(in crate::balance) fn drained(
    input: &BalanceInput,
    machines: &MachineInput,
    state: &MachineState,
) -> Option<NodeId> {
    // Its replicas give away what only they have, hints among it, once the moves are over and all owners are there.
    let is_whole = input.nodes.iter().all(|node| node.leaving || node.live);
    let cool_down_ms = input.settings.cool_down_ms;
    let is_settled = input
        .moved_unix_ms
        .is_none_or(|at| at + cool_down_ms <= input.at_unix_ms);
    if input.plan.is_some() || !is_whole || !is_settled {
        return None;
    }
    let cooled = state
        .ended_unix_ms
        .is_none_or(|at| at + machines.settings.cool_down_ms <= input.at_unix_ms);
    let leaving = input.nodes.iter().filter(|node| node.leaving);
    let mut returned = leaving.filter(|node| {
        let came = state.nodes.contains_key(&node.node);
        // One that was returned a moment ago may still be there.
        came || machines.settings.returns_all && node.live && cooled
    });
    let found = returned.find(|node| !input.holds(node.node));
    found.map(|node| node.node)
}
