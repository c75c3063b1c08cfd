//! Advice about a cluster: each problem is named, and a healthy cluster gets no advice.

use std::collections::BTreeMap;

use fondaco_decisions::balance::{BalanceInput, BalanceSettings, HotKey, NodeLoad, advise};
use fondaco_model::{PartitionId, Placement};

use crate::fixture::{input, node, partition};

/// A node in a zone, on a machine of its own.
fn load(number: u32, zone: &str) -> NodeLoad {
    NodeLoad {
        zone: zone.to_owned(),
        host: Some(format!("machine-{number}")),
        memory: (1 << 30, 8 << 30),
        disk: (1 << 30, 100 << 30),
        requests: 1000.0,
        ..NodeLoad::of(node(number), (1.0, 4.0))
    }
}

/// Nodes in three zones, and partitions with two replicas of 100 MiB each.
fn cluster(nodes: u32, partitions: u32) -> BalanceInput {
    let state = |number: u32| {
        let mut owners = vec![number % nodes + 1, (number + 1) % nodes + 1];
        owners.dedup();
        partition(&owners, 100.0, 100 << 20)
    };
    let zone = |number: u32| ["a", "b", "c"][number as usize % 3];
    let loads = (1..=nodes).map(|number| load(number, zone(number)));
    BalanceInput {
        settings: BalanceSettings::default(),
        placement: Placement::Zoned,
        replicas: 2,
        ..input(loads.collect(), (0..partitions).map(state).collect())
    }
}

/// The only problem, with its help.
fn only(input: &BalanceInput) -> String {
    let stores = BTreeMap::from([(PartitionId::new(7), "carts".parse().unwrap())]);
    let advice = advise(input, &stores);
    assert_eq!(advice.len(), 1, "{advice:?}");
    format!("{}: {}", advice[0].problem, advice[0].help)
}

fn assert_all(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{text}"));
}

#[test]
fn a_good_cluster_gets_no_advice() {
    assert_eq!(advise(&cluster(6, 64), &BTreeMap::new()), []);
    assert_eq!(
        advise(&cluster(1, 1), &BTreeMap::new()),
        [],
        "one node has nothing to divide"
    );
}

#[test]
fn too_few_partitions_are_to_be_split() {
    assert_all(
        &only(&cluster(6, 8)),
        &["8 partitions are few for 6 nodes", "fondaco rebalance split"],
    );
}

#[test]
fn too_many_partitions_are_named_only_with_small_data() {
    let mut many = cluster(3, 2048);
    assert_eq!(advise(&many, &BTreeMap::new()), []);
    many.partitions.iter_mut().for_each(|state| state.bytes = 1 << 20);
    assert_all(
        &only(&many),
        &[
            "2048 partitions are many for 3 nodes",
            "1365 replicas",
            "cannot be merged",
        ],
    );
}

#[test]
fn a_large_partition_is_named_with_its_store() {
    let mut input = cluster(6, 64);
    input.partitions[7].bytes = 450 << 20;
    assert_all(
        &only(&input),
        &["partition 7 has 471 MB", "store \"carts\"", "huge value"],
    );
    input.partitions.iter_mut().for_each(|state| state.bytes /= 10);
    assert_eq!(advise(&input, &BTreeMap::new()), [], "nothing is large");
}

#[test]
fn a_busy_partition_is_named_with_its_hot_key() {
    let mut input = cluster(6, 64);
    input.partitions[7].costs = vec![1_000.0, 0.0];
    assert_all(
        &only(&input),
        &["partition 7 has 5 times the load", "store \"carts\"", "a hot key, or"],
    );
    let hot = |key: &str, partition: u32, requests: f64| HotKey {
        store: "carts".parse().unwrap(),
        key: key.to_owned(),
        partition: PartitionId::new(partition),
        requests,
    };
    input.hot_keys = vec![hot("elsewhere", 3, 950.0), hot("42", 7, 900.0), hot("43", 7, 10.0)];
    assert_all(
        &only(&input),
        &["key \"42\" of store", "900 times a second", "several keys"],
    );
}

#[test]
fn a_small_node_is_named_unless_its_weight_says_so() {
    let mut input = cluster(6, 64);
    input.nodes[2].cpu.1 = 1.0;
    input.nodes[2].memory.1 = 2 << 30;
    assert_all(
        &only(&input),
        &["node 3 has 25 % of the processors and 25 % of the memory", "weight"],
    );
    input
        .nodes
        .iter_mut()
        .filter(|one| one.node != node(3))
        .for_each(|one| one.weight = 4);
    input.placement = Placement::Ring;
    assert_eq!(advise(&input, &BTreeMap::new()), []);
}

#[test]
fn a_zone_with_few_nodes_is_named() {
    let mut input = cluster(7, 64);
    input.nodes.truncate(6);
    input.nodes[5].zone = "a".to_owned();
    input.nodes[2].zone = "b".to_owned();
    input.nodes[0].zone = "c".to_owned();
    let zones: Vec<&str> = input.nodes.iter().map(|node| node.zone.as_str()).collect();
    let text = advise(&input, &BTreeMap::new());
    assert!(
        text.iter().any(|advice| advice.problem.contains("of the largest zone")),
        "{zones:?}: {text:?}"
    );
    input.placement = Placement::Ring;
    let text = advise(&input, &BTreeMap::new());
    assert!(!text.iter().any(|advice| advice.problem.contains("zone")), "{text:?}");
}

#[test]
fn a_machine_with_most_replicas_is_named() {
    let mut input = cluster(6, 64);
    input.nodes[1].host = Some("machine-1".to_owned());
    assert_all(&only(&input), &["machine \"machine-1\"", "11 partitions"]);
    for state in &mut input.partitions {
        let third = (1..=6).map(node).find(|node| !state.owners.contains(node)).unwrap();
        state.owners.push(third);
    }
    let advice = advise(&input, &BTreeMap::new());
    assert!(
        advice.iter().all(|advice| advice.problem.contains("machine-1")),
        "{advice:?}"
    );
}
