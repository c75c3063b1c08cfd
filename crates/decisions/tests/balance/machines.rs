//! When nodes are requested, enlarged and returned, and when they are not: single decisions.

use fondaco_decisions::balance::{
    BalanceInput, BalanceMode, Decision, HookAnswer, MachineAction, MachineInput, MachineRequest, Outcome, Resource,
    decide,
};
use fondaco_model::Placement;

use crate::fixture::{after, cluster, load, node, says};

fn machines(input: &mut BalanceInput) -> &mut MachineInput {
    input.machines.as_mut().unwrap()
}

fn pending(decision: &Decision) -> Option<&MachineRequest> {
    decision.machines.as_ref()?.state.pending.as_ref()
}

fn is_called(decision: &Decision) -> bool {
    decision.machines.as_ref().is_some_and(|machines| machines.call)
}

fn drained(decision: &Decision) -> Option<u32> {
    match &decision.outcome {
        Outcome::Move { leaving, .. } => leaving.first().map(|node| node.get()),
        Outcome::Nothing => None,
    }
}

#[test]
fn a_cluster_at_its_limit_requests_one_node() {
    let full = cluster(&[0.95, 0.9]);
    let decision = decide(&full);
    assert_eq!(decision.request(), Some(1), "{decision:#?}");
    assert!(is_called(&decision) && says(&decision, "the whole cluster is at its limit"));
    let action = &pending(&decision).unwrap().action;
    assert!(
        matches!(action, MachineAction::Request { resource: Resource::Cpu, zone, .. } if zone == "z"),
        "{action:?}"
    );
    // While it is under way there is no other.
    let mut next = after(&full, &decision, 30_000);
    machines(&mut next).calling = true;
    let waiting = decide(&next);
    assert_eq!((waiting.request(), is_called(&waiting)), (None, false));
    assert!(says(&waiting, "request 1 is under way"), "{waiting:#?}");
}

#[test]
fn nothing_is_requested_where_moving_helps_or_is_off() {
    let nothing = |change: fn(&mut BalanceInput), reason: &str| {
        let mut input = cluster(&[0.95, 0.9]);
        change(&mut input);
        let decision = decide(&input);
        assert_eq!(decision.request(), None, "{reason}: {decision:#?}");
        assert!(says(&decision, reason), "{reason}: {decision:#?}");
    };
    nothing(|input| input.nodes[1].cpu.0 = 0.2, "partition");
    nothing(|input| input.settings.mode = BalanceMode::Propose, "only proposes");
    nothing(|input| input.settings.mode = BalanceMode::Off, "is off");
    nothing(|input| machines(input).settings.nodes_max = 2, "nodes-max is 2");
    nothing(
        |input| machines(input).state.ended_unix_ms = Some(input.at_unix_ms - 1),
        "a short time ago",
    );
    nothing(|input| input.plan = Some(3), "plan 3 is under way");
    nothing(
        |input| {
            let mut third = load(3, 0.0);
            third.known = false;
            input.nodes.push(third);
            // It has something, so that it is not new.
            input.partitions[0].owners = vec![node(3)];
        },
        "node 3 has not reported",
    );
}

#[test]
fn a_new_leader_calls_again_with_the_same_number() {
    let full = cluster(&[0.95, 0.9]);
    let first = decide(&full);
    // The former leader was killed; whether the hook was called is not known.
    let mut next = after(&full, &first, 30_000);
    next.struggled.clear();
    let second = decide(&next);
    assert!(is_called(&second) && second.request().is_none(), "{second:#?}");
    assert_eq!(pending(&second), pending(&first));
    assert_eq!(decide(&next), second, "a decision can be made again");
}

#[test]
fn the_node_that_joins_ends_the_request() {
    let full = cluster(&[0.95, 0.9]);
    let mut next = after(&full, &decide(&full), 30_000);
    let http = Some("m:1".to_owned());
    machines(&mut next).answer = Some((1, HookAnswer::Done { http }));
    let started = decide(&next);
    assert!(!is_called(&started) && pending(&started).is_some(), "{started:#?}");
    let mut next = after(&next, &started, 30_000);
    let mut third = load(3, 0.0);
    third.known = false;
    next.nodes.push(third);
    machines(&mut next).joined = Some(node(3));
    let joined = decide(&next);
    let state = &joined.machines.as_ref().unwrap().state;
    assert!(state.pending.is_none() && state.nodes[&node(3)] == 1, "{joined:#?}");
    assert!(says(&joined, "node 3 has joined"));
    assert!(
        matches!(joined.outcome, Outcome::Move { .. }),
        "it is filled: {joined:#?}"
    );
}

/// The next decision, after the hook has answered.
fn answered(input: &mut BalanceInput, decision: &Decision, answer: HookAnswer) -> Decision {
    let number = pending(decision).unwrap().number;
    *input = after(input, decision, 0);
    machines(input).answer = Some((number, answer));
    decide(input)
}

fn failed() -> HookAnswer {
    let reason = "no quota".to_owned();
    HookAnswer::Failed { reason }
}

fn lost() -> HookAnswer {
    let reason = "no answer".to_owned();
    HookAnswer::Lost { reason }
}

#[test]
fn failures_back_off_until_the_request_is_given_up() {
    let mut input = cluster(&[0.95, 0.9]);
    let mut decision = decide(&input);
    let mut pauses = Vec::new();
    for failure in 1..5 {
        decision = answered(&mut input, &decision, failed());
        assert!(says(&decision, "no quota") && !is_called(&decision), "{decision:#?}");
        let request = pending(&decision).unwrap();
        assert_eq!(request.failures, failure);
        let pause = request.due_unix_ms - input.at_unix_ms;
        pauses.push(pause);
        input = after(&input, &decision, pause);
        decision = decide(&input);
        assert!(is_called(&decision), "{decision:#?}");
    }
    assert_eq!(pauses, [2_000, 4_000, 8_000, 16_000]);
    decision = answered(&mut input, &decision, failed());
    assert!(
        pending(&decision).is_none() && says(&decision, "given up"),
        "{decision:#?}"
    );
}

#[test]
fn a_failed_request_that_nothing_needs_is_given_up() {
    let mut input = cluster(&[0.95, 0.9]);
    let decision = decide(&input);
    input.nodes.iter_mut().for_each(|node| node.cpu.0 = 0.3);
    let decision = answered(&mut input, &decision, failed());
    assert!(
        pending(&decision).is_none() && says(&decision, "no node struggles any more"),
        "{decision:#?}"
    );
}

/// It may have started a node, which may have joined and been filled.
#[test]
fn a_request_without_an_answer_is_never_given_up() {
    let mut input = cluster(&[0.95, 0.9]);
    let mut decision = decide(&input);
    input.nodes.iter_mut().for_each(|node| node.cpu.0 = 0.3);
    for _ in 0..20 {
        decision = answered(&mut input, &decision, lost());
        let request = pending(&decision).expect("it is still under way");
        assert_eq!(request.number, 1);
        assert!(request.due_unix_ms - input.at_unix_ms <= 600_000);
    }
}

#[test]
fn a_node_that_leaves_no_longer_is_not_returned() {
    let mut input = idle();
    input.nodes[2].leaving = true;
    input.partitions.truncate(16);
    let decision = decide(&input);
    assert_eq!(decision.request(), Some(2), "{decision:#?}");
    input.nodes[2].leaving = false;
    let decision = answered(&mut input, &decision, lost());
    assert!(
        says(&decision, "node 3 leaves no longer") && !is_called(&decision),
        "{decision:#?}"
    );
}

#[test]
fn a_node_is_enlarged_where_another_one_is_not_allowed() {
    let mut full = cluster(&[0.95, 0.9]);
    machines(&mut full).settings.nodes_max = 2;
    machines(&mut full).settings.enlarges = true;
    let decision = decide(&full);
    let resource = Resource::Cpu;
    let action = MachineAction::Enlarge {
        node: node(1),
        resource,
    };
    assert_eq!(pending(&decision).unwrap().action, action, "{decision:#?}");
    let mut next = after(&full, &decision, 30_000);
    machines(&mut next).answer = Some((1, HookAnswer::Done { http: None }));
    let done = decide(&next);
    assert!(
        pending(&done).is_none() && says(&done, "has enlarged node 1"),
        "{done:#?}"
    );
    assert!(
        says(&done, "a short time ago"),
        "its reports have yet to show it: {done:#?}"
    );
}

/// Three calm nodes; the third came through the hook.
fn idle() -> BalanceInput {
    let mut input = cluster(&[0.2, 0.2, 0.2]);
    machines(&mut input).state.nodes.insert(node(3), 1);
    machines(&mut input).state.last = 1;
    input
}

#[test]
fn an_idle_cluster_drains_a_node_and_returns_it() {
    let input = idle();
    let decision = decide(&input);
    assert!(
        drained(&decision).is_none() && says(&decision, "calm enough"),
        "{decision:#?}"
    );
    let early = after(&input, &decision, 1_799_000);
    assert_eq!(drained(&decide(&early)), None);
    let late = after(&input, &decision, 1_800_000);
    let decision = decide(&late);
    assert_eq!(drained(&decision), Some(3), "{decision:#?}");
    // The plan has run.
    let mut empty = after(&late, &decision, 120_000);
    let Outcome::Move { next, .. } = &decision.outcome else {
        unreachable!()
    };
    for (partition, owners) in next {
        empty.partitions[partition.get() as usize].owners.clone_from(owners);
    }
    empty.nodes[2].leaving = true;
    let decision = decide(&empty);
    let action = MachineAction::Return {
        node: node(3),
        machine: Some(1),
    };
    assert_eq!(pending(&decision).unwrap().action, action, "{decision:#?}");
    assert!(is_called(&decision));
    let mut done = after(&empty, &decision, 30_000);
    machines(&mut done).answer = Some((2, HookAnswer::Done { http: None }));
    let decision = decide(&done);
    assert!(decision.machines.unwrap().state.nodes.is_empty());
}

#[test]
fn a_node_that_is_needed_stays() {
    let stays = |change: fn(&mut BalanceInput), reason: &str| {
        let mut input = idle();
        machines(&mut input).idle_since_unix_ms = Some(0);
        assert_eq!(drained(&decide(&input)), Some(3));
        change(&mut input);
        let decision = decide(&input);
        assert_eq!(drained(&decision), None, "{reason}: {decision:#?}");
        assert!(reason.is_empty() || says(&decision, reason), "{reason}: {decision:#?}");
    };
    stays(
        |input| input.nodes.iter_mut().for_each(|node| node.cpu.0 = 0.5),
        "would be at 75 % of its CPU",
    );
    stays(
        |input| input.nodes.iter_mut().for_each(|node| node.memory = (50, 100)),
        "% of its memory",
    );
    stays(
        |input| {
            input
                .nodes
                .iter_mut()
                .for_each(|node| node.disk = (70_000_000, 100_000_000))
        },
        "% of its disk",
    );
    stays(|input| machines(input).settings.nodes_min = 3, "nodes-min is 3");
    stays(|input| machines(input).state.nodes.clear(), "");
    stays(|input| input.nodes[0].live = false, "");
    stays(|input| input.nodes[0].known = false, "");
    stays(|input| input.replicas = 3, "");
    stays(
        |input| {
            input.placement = Placement::Zoned;
            input.nodes[2].zone = "other".to_owned();
        },
        "the only one of zone",
    );
    stays(
        |input| {
            input.placement = Placement::Grouped;
            for (node, group) in input.nodes.iter_mut().zip(["a", "a", "b"]) {
                node.group = Some(group.to_owned());
            }
        },
        "the only one of its group",
    );
    stays(
        |input| machines(input).state.ended_unix_ms = Some(input.at_unix_ms - 1000),
        "a short time ago",
    );
}

#[test]
fn any_node_may_be_returned_if_configured() {
    let mut input = idle();
    machines(&mut input).state.nodes.clear();
    machines(&mut input).settings.returns_all = true;
    machines(&mut input).idle_since_unix_ms = Some(0);
    assert_eq!(drained(&decide(&input)), Some(3));
}
