//! Versions that are served while they are copied.

use fondaco_decisions::operator::{self, PushTerms};
use fondaco_decisions::{AgentAction, LocalVersion, not_serving};
use fondaco_model::cluster::{ReplicaReport, ReplicaState};
use fondaco_model::{PROTOCOL_OF_SERVING_WHILE_COPYING, PartitionSet, PushState};

use crate::data_node::Node;
use crate::fixture::{Cluster, detail, name, node, version};

fn at_once() -> PushTerms {
    PushTerms {
        serve_while_copying: true,
        ..PushTerms::default()
    }
}

/// Begins the fetches, and opens those that should be open at once; returns how many are.
fn open_on_demand(node: &mut Node, cluster: &Cluster, now_ms: u64) -> usize {
    let mut opened = 0;
    for action in node.look(cluster, now_ms) {
        let AgentAction::Fetch {
            store,
            version,
            partitions,
            detail,
            on_demand,
            ..
        } = action
        else {
            continue;
        };
        node.fetching(store.as_str(), version, &detail.manifest_checksum);
        node.local
            .fetches
            .get_mut(&(store.clone(), version))
            .unwrap()
            .partitions = partitions.clone();
        if on_demand {
            opened += 1;
            let local = LocalVersion {
                manifest_checksum: Some(detail.manifest_checksum.clone()),
                on_demand: partitions,
                ..LocalVersion::default()
            };
            node.local.versions.insert((store, version), local);
        }
    }
    node.look(cluster, now_ms);
    opened
}

#[test]
fn a_push_goes_live_when_all_nodes_answer_and_only_if_it_was_told_so() {
    for told in [true, false] {
        let mut cluster = Cluster::with_store(2, 8, 1, "s");
        let pushed = cluster.push_on("s", "a", if told { at_once() } else { PushTerms::default() });
        let mut nodes = [Node::new(1), Node::new(2)];
        for (number, node) in (1..).zip(&mut nodes) {
            assert_eq!(open_on_demand(node, &cluster, 0), usize::from(told));
            assert_eq!(node.state("s", 1), ReplicaState::Fetching);
            let replica = node.reported("s", 1).clone();
            assert_eq!(replica.on_demand, told);
            cluster.report(number, "s", pushed, replica);
        }
        cluster.settle();
        let state = cluster.store("s").push.as_ref().unwrap().state;
        assert_eq!(state, if told { PushState::Swapped } else { PushState::Fetching });
        if !told {
            continue;
        }
        for (number, node) in (1..).zip(&mut nodes) {
            node.look(&cluster, 1_000);
            assert_eq!(node.serves("s"), [1]);
            assert!(node.local.fetches.len() == 1, "the copy goes on");
            cluster.report(number, "s", pushed, node.reported("s", 1).clone());
        }
        cluster.settle();
        assert!(not_serving(&cluster.view, &name("s"), pushed).is_empty());
        assert!(cluster.store("s").late.is_empty());
    }
}

#[test]
fn a_node_on_an_empty_disk_answers_unless_others_do() {
    for replicas in [1, 2] {
        let mut cluster = Cluster::with_store(2, 8, replicas, "s");
        let current = cluster.pushed(2, "s", "a");
        let mut two = Node::new(2);
        assert_eq!(open_on_demand(&mut two, &cluster, 0), 1);
        assert_eq!(two.serves("s"), [1], "nothing is known of others yet");
        cluster.report(1, "s", current, ReplicaReport::of(ReplicaState::Serving));
        cluster.report(2, "s", current, two.reported("s", 1).clone());
        cluster.settle();
        two.look(&cluster, 1_000);
        let others_answer = replicas == 2;
        assert_eq!(cluster.store("s").late.contains(&node(2)), others_answer);
        assert_eq!(two.serves("s").is_empty(), others_answer);
        // The other node goes, too.
        cluster.leave(1);
        two.look(&cluster, 2_000);
        assert_eq!(two.serves("s"), [1]);
    }
}

#[test]
fn backups_and_moves_are_not_served_while_they_are_copied() {
    let mut cluster = Cluster::with_store(2, 8, 1, "s");
    cluster.pushed(2, "s", "a");
    cluster.pushed(2, "s", "b");
    let actions = Node::new(2).look(&cluster, 0);
    let mut fetches = actions.iter().filter_map(|action| match action {
        AgentAction::Fetch { version, on_demand, .. } => Some((version.get(), *on_demand)),
        _ => None,
    });
    assert_eq!(fetches.next(), Some((2, true)));
    assert_eq!(fetches.next(), Some((1, false)));
}

#[test]
fn it_is_refused_with_gates_and_until_all_members_know_it() {
    let mut cluster = Cluster::with_store(2, 8, 1, "s");
    let refused = |cluster: &Cluster, terms| {
        let refused = operator::push(&cluster.view, &name("s"), detail("a"), terms, 8);
        refused.unwrap_err().to_string()
    };
    let gated = PushTerms {
        gates: "gone <= 5%".parse().unwrap(),
        ..at_once()
    };
    assert!(refused(&cluster, gated).contains("gates"));
    let nodes = cluster.view.nodes.values_mut();
    nodes.for_each(|node| node.record.protocol = PROTOCOL_OF_SERVING_WHILE_COPYING - 1);
    assert!(refused(&cluster, at_once()).contains("--serve-while-copying"));
    // Nor do nodes report it.
    let mut cluster = Cluster::with_store(2, 8, 1, "s");
    cluster.pushed(2, "s", "a");
    let nodes = cluster.view.nodes.values_mut();
    nodes.for_each(|node| node.record.protocol = PROTOCOL_OF_SERVING_WHILE_COPYING - 1);
    let mut two = Node::new(2);
    open_on_demand(&mut two, &cluster, 0);
    assert!(!two.reported("s", 1).on_demand);
    assert_eq!(two.on_disk("s", 1).open, PartitionSet::EMPTY);
    assert_eq!(two.serves("s"), [version(1).get()], "it serves all the same");
}
