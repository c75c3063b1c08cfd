//! Properties of strategies.

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;
use fondaco_client::read::{ClusterAware, FanOut, FanOutController, Fixed, Query, RoundRobin, SetCover, named};
use fondaco_client::{ReadOptions, WireKey};
use fondaco_model::StrategyName;
use fondaco_model::{NodeId, Placement};
use proptest::prelude::*;

use super::cluster::{ANSWER_US, Cluster, Shape, options};

const WITHOUT_BORROWING: ClusterAware = ClusterAware { borrow: false };

fn grouped(groups: u32, nodes_per_group: u32) -> Shape {
    Shape {
        placement: Placement::Grouped,
        groups,
        nodes_per_group,
        partitions: 1024,
        dead: 0.0,
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    (2u32..6, 2u32..7, 0.0..0.8, 0..3).prop_map(|(groups, nodes_per_group, dead, placement)| Shape {
        placement: [Placement::Ring, Placement::Zoned, Placement::Grouped][placement as usize],
        groups,
        nodes_per_group,
        partitions: 128,
        dead,
    })
}

fn ask(cluster: &mut Cluster, keys: &[WireKey], options: &ReadOptions) -> super::cluster::Outcome {
    cluster.ask(keys, options, &BTreeSet::new())
}

/// Keys of few partitions, so that some partitions have many.
fn skewed(cluster: &Cluster, count: usize, random: &mut Rng) -> Vec<WireKey> {
    let partition = |random: &mut Rng| (random.f64().powi(3) * cluster.keys.len() as f64) as usize;
    (0..count).map(|_| cluster.keys[partition(random)].clone()).collect()
}

/// Equation 2 of the paper: the expected number of nodes that `keys` keys of distinct partitions ask, of `nodes`.
fn expected(nodes: f64, keys: usize) -> f64 {
    nodes * (1.0 - ((nodes - 1.0) / nodes).powi(keys as i32))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn as_many_nodes_are_asked_as_the_equation_says(
        seed: u64,
        groups in 3u32..6,
        nodes_per_group in 3u32..7,
        fan_out in 1u32..6,
        keys in 8usize..60,
    ) {
        let fan_out = fan_out.min(groups);
        let mut random = Rng::with_seed(seed);
        let [mut in_turn, mut cluster_aware] = [0.0, 0.0];
        const PLACEMENTS: u32 = 8;
        const REQUESTS: u32 = 120;
        for placement in 0..PLACEMENTS {
            let mut cluster = Cluster::new(grouped(groups, nodes_per_group), seed ^ u64::from(placement));
            for _ in 0..REQUESTS {
                let keys = cluster.distinct(keys, &mut random);
                in_turn += f64::from(ask(&mut cluster, &keys, &options(RoundRobin, 1)).effort.nodes);
                let options = options(WITHOUT_BORROWING, fan_out as usize);
                cluster_aware += f64::from(ask(&mut cluster, &keys, &options).effort.nodes);
            }
        }
        for (sum, groups) in [(in_turn, groups), (cluster_aware, fan_out)] {
            let mean = sum / f64::from(PLACEMENTS * REQUESTS);
            let expected = expected(f64::from(groups * nodes_per_group), keys);
            prop_assert!((mean / expected - 1.0).abs() < 0.03, "{} and not {}, of {} groups", mean, expected, groups);
        }
    }

    #[test]
    fn a_set_cover_asks_no_more_nodes_than_round_robin(seed: u64, shape in shapes(), keys in 2usize..100) {
        let (mut cluster, mut random) = (Cluster::new(shape, seed), Rng::with_seed(seed));
        let (mut covering, mut in_turn) = (0, 0);
        for _ in 0..20 {
            let keys = skewed(&cluster, keys, &mut random);
            covering += ask(&mut cluster, &keys, &options(SetCover, 1)).effort.nodes;
            in_turn += ask(&mut cluster, &keys, &options(RoundRobin, 1)).effort.nodes;
        }
        prop_assert!(covering <= in_turn, "{} and {}", covering, in_turn);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_key_gets_a_live_holder_if_it_has_one(
        seed: u64,
        shape in shapes(),
        keys in 1usize..100,
        fan_out in 1usize..5,
    ) {
        let (mut cluster, mut random) = (Cluster::new(shape, seed), Rng::with_seed(seed));
        for &name in StrategyName::ALL {
            let keys = skewed(&cluster, keys, &mut random);
            let options = ReadOptions {
                strategy: Some(named(name)),
                fan_out: FanOut::Controlled(Arc::new(Fixed(fan_out))),
                ..ReadOptions::default()
            };
            let outcome = ask(&mut cluster, &keys, &options);
            let is_live = |node: &NodeId| cluster.caller.directory.member(*node).unwrap().live;
            for (node, places) in &outcome.asked {
                let any_live = |&place: &u32| cluster.holders(&keys[place as usize]).iter().any(is_live);
                prop_assert!(is_live(node) || !places.iter().any(any_live), "{} asked a dead node", name);
            }
        }
    }

    #[test]
    fn one_group_answers_everything_while_all_its_nodes_are_live(
        seed: u64,
        groups in 2u32..6,
        nodes_per_group in 2u32..7,
        keys in 2usize..200,
    ) {
        let (mut cluster, mut random) = (Cluster::new(grouped(groups, nodes_per_group), seed), Rng::with_seed(seed));
        let keys = skewed(&cluster, keys, &mut random);
        let outcome = ask(&mut cluster, &keys, &options(WITHOUT_BORROWING, 1));
        let of: BTreeSet<u32> = outcome.asked.keys().map(|&node| cluster.group_of(node)).collect();
        prop_assert_eq!(of.len(), 1);
        prop_assert!(outcome.effort.nodes <= nodes_per_group);
    }

    #[test]
    fn keys_that_leave_a_group_go_to_one_other(
        seed: u64,
        groups in 3u32..6,
        nodes_per_group in 2u32..7,
        keys in 20usize..200,
    ) {
        let shape = grouped(groups, nodes_per_group);
        let (mut cluster, mut random) = (Cluster::new(shape, seed), Rng::with_seed(seed));
        let keys = cluster.distinct(keys, &mut random);
        let options = options(WITHOUT_BORROWING, 1);
        // The client learns only from them that they are full. Each key has a holder that is not.
        let members = cluster.caller.directory.members().iter().filter(|member| member.group != 0);
        let refusing: BTreeSet<NodeId> = members.filter(|_| random.u8(..8) == 0).map(|member| member.id).collect();
        let outcome = cluster.ask(&keys, &options, &refusing);
        let mut counts = vec![0; groups as usize];
        for (&node, places) in &outcome.asked {
            counts[cluster.group_of(node) as usize] += places.len();
        }
        let lost_of = |group| refusing.iter().filter(|&&node| cluster.group_of(node) == group).count();
        let used = counts.iter().filter(|&&count| count > 0).count();
        let lossy = (0..groups).filter(|&group| lost_of(group) > 0).count();
        prop_assert!(used <= lossy + 1, "{:?} keys a group, {} groups lost nodes", counts, lossy);
    }

    #[test]
    fn borrowing_lowers_the_largest_shares_and_raises_none(
        seed: u64,
        groups in 2u32..6,
        nodes_per_group in 2u32..7,
        keys in 20usize..200,
        fan_out in 1usize..3,
    ) {
        let shape = grouped(groups, nodes_per_group);
        let [mut with, mut without] = [Cluster::new(shape, seed), Cluster::new(shape, seed)];
        let mut random = Rng::with_seed(seed);
        let (mut lower, mut higher, mut any_heavy) = (0, 0, false);
        for _ in 0..10 {
            let keys = skewed(&with, keys, &mut random);
            let relieved = ask(&mut with, &keys, &options(ClusterAware::default(), fan_out)).effort;
            let plain = ask(&mut without, &keys, &options(WITHOUT_BORROWING, fan_out)).effort;
            prop_assert!(relieved.largest_share <= plain.largest_share);
            (lower, higher) = (lower + relieved.largest_share, higher + plain.largest_share);
            let mean = keys.len() as f64 / f64::from(plain.nodes);
            any_heavy |= f64::from(plain.largest_share) > (mean * 1.25).ceil();
        }
        prop_assert!(lower < higher || !any_heavy, "{} and {}", lower, higher);
    }
}

#[test]
fn the_effort_of_a_request_is_counted() {
    let mut cluster = Cluster::new(grouped(2, 3), 1);
    let keys = cluster.distinct(60, &mut Rng::with_seed(1));
    let outcome = ask(&mut cluster, &keys, &options(WITHOUT_BORROWING, 1));
    let effort = outcome.effort;
    assert_eq!(effort.nodes as usize, outcome.asked.len());
    let largest = outcome.asked.values().map(Vec::len).max().unwrap();
    assert_eq!(effort.largest_share as usize, largest);
    assert_eq!((effort.server_us, effort.client_us), (ANSWER_US, 0));
    let counts = cluster.caller.steering.counts();
    assert_eq!(
        (counts.nodes, counts.largest_shares),
        (effort.nodes.into(), largest as u64)
    );
    assert_eq!((counts.server_us, counts.client_us), (ANSWER_US, 0));
}

/// Remembers the query, and asks for more groups than there are.
#[derive(Debug, Default)]
struct Greedy(std::sync::Mutex<Vec<Query>>);

impl FanOutController for Greedy {
    fn fan_out(&self, query: &Query) -> usize {
        self.0.lock().unwrap().push(*query);
        usize::MAX
    }
}

#[test]
fn a_controller_is_asked_once_for_requests_of_several_keys_whose_strategy_heeds_it() {
    let mut cluster = Cluster::new(grouped(3, 4), 1);
    for (member, rate) in cluster.caller.directory.members().iter().zip([100, 200]) {
        member.health.report_rate(rate);
    }
    let greedy = Arc::new(Greedy::default());
    let keys = cluster.keys.clone();
    for (name, count) in [
        (StrategyName::Cluster, 40),
        (StrategyName::Cluster, 1),
        (StrategyName::RoundRobin, 40),
    ] {
        let options = ReadOptions {
            strategy: Some(named(name)),
            fan_out: FanOut::Controlled(Arc::clone(&greedy) as Arc<dyn FanOutController>),
            ..ReadOptions::default()
        };
        ask(&mut cluster, &keys[..count], &options);
    }
    let queries = greedy.0.lock().unwrap();
    let [query] = queries[..] else {
        panic!("{queries:?}");
    };
    assert_eq!((query.keys, query.groups, query.partitions), (40, 3, 1024));
    assert_eq!(query.nodes_per_group, 4.0);
    assert_eq!(query.rates.per_node(), Some(150.0));
}
