//! The laws of placement, for any nodes, and the cost of changes.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_model::{
    Member, NodeId, PartitionCount, Placement, PlacementError, Plan, RoutingTable, Shares, place, replan,
};
use proptest::prelude::*;

type Lists = Vec<Vec<NodeId>>;

fn node(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

fn member(number: u32, zone: &str, weight: u32) -> Member {
    Member {
        id: node(number),
        zone: zone.to_owned(),
        group: Some(zone.to_owned()),
        host: None,
        weight,
    }
}

/// Nodes 1 to `count` of one weight, in one zone.
fn equal(count: u32) -> Vec<Member> {
    (1..=count).map(|number| member(number, "a", 1)).collect()
}

/// Nodes of one weight in zones of these sizes.
fn in_zones(sizes: &[u32]) -> Vec<Member> {
    let zones = (b'a'..).map(|zone| char::from(zone).to_string());
    let zones = zones.zip(sizes).flat_map(|(zone, &size)| vec![zone; size as usize]);
    (1..)
        .zip(zones)
        .map(|(number, zone)| member(number, &zone, 1))
        .collect()
}

fn partitions(count: u32) -> PartitionCount {
    PartitionCount::try_from(count).unwrap()
}

/// How often each node is among the first `ranks` of all lists.
fn loads(lists: &Lists, members: &[Member], ranks: usize) -> BTreeMap<NodeId, usize> {
    let mut loads: BTreeMap<NodeId, usize> = members.iter().map(|member| (member.id, 0)).collect();
    for node in lists.iter().flat_map(|list| list.iter().take(ranks)) {
        *loads.get_mut(node).expect("only members are placed") += 1;
    }
    loads
}

/// The difference between the highest and the lowest load.
fn spread(loads: &BTreeMap<NodeId, usize>) -> usize {
    loads.values().max().unwrap() - loads.values().min().unwrap()
}

fn no_list_names_a_node_twice(lists: &Lists) -> bool {
    lists
        .iter()
        .all(|list| list.iter().collect::<BTreeSet<_>>().len() == list.len())
}

fn plan(policy: Placement, before: &Lists, replicas: u32, members: &[Member]) -> Plan {
    let table = RoutingTable::first(partitions(before.len() as u32), before.clone()).unwrap();
    replan(policy, &table, replicas, members, Shares::ByWeight).unwrap()
}

/// How many replicas of a plan must be fetched.
fn fetches(plan: &Plan) -> usize {
    plan.moves.iter().filter(|one| one.to.is_some()).count()
}

fn powers_of_two() -> impl Strategy<Value = u32> {
    (0..9u32).prop_map(|bits| 1 << bits)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn equal_ring_nodes_hold_and_lead_the_same_within_one(
        count in powers_of_two(), replicas in 1..6u32, nodes in 1..20u32,
    ) {
        let members = equal(nodes);
        let lists = place(Placement::Ring, partitions(count), replicas, &members).unwrap();
        prop_assert!(no_list_names_a_node_twice(&lists));
        let length = replicas.min(nodes) as usize;
        prop_assert!(lists.iter().all(|list| list.len() == length));
        prop_assert!(spread(&loads(&lists, &members, length)) <= 1);
        prop_assert!(spread(&loads(&lists, &members, 1)) <= 1);
        // A store with fewer replicas uses only the first ranks. Each rank is rounded by itself.
        for ranks in 2..length {
            prop_assert!(spread(&loads(&lists, &members, ranks)) <= ranks, "{ranks} ranks");
        }
        prop_assert_eq!(place(Placement::Ring, partitions(count), replicas, &members).unwrap(), lists);
    }

    #[test]
    fn weighted_nodes_hold_in_proportion_up_to_everything(
        count in powers_of_two(), replicas in 1..4u32, weights in prop::collection::vec(1..8u32, 1..12),
    ) {
        let members: Vec<Member> = (1..).zip(&weights).map(|(number, &weight)| member(number, "a", weight)).collect();
        let lists = place(Placement::Ring, partitions(count), replicas, &members).unwrap();
        prop_assert!(no_list_names_a_node_twice(&lists));
        let length = (replicas as usize).min(members.len());
        let held = loads(&lists, &members, length);
        let led = loads(&lists, &members, 1);
        for (a, b) in members.iter().flat_map(|a| members.iter().map(move |b| (a, b))) {
            let (of_a, of_b) = (held[&a.id], held[&b.id]);
            if of_b < count as usize && of_a > 0 {
                let (less, more) = ((of_a - 1) as u64 * u64::from(b.weight), (of_b + 1) as u64 * u64::from(a.weight));
                prop_assert!(less <= more, "{a:?} holds {of_a}, {b:?} holds {of_b}");
            }
        }
        for (node, &held) in &held {
            let (low, high) = (held / length, held.div_ceil(length));
            prop_assert!((low..=high).contains(&led[node]), "node {node} leads {} of {held}", led[node]);
        }
    }

    #[test]
    fn zoned_replicas_are_spread_over_all_zones_evenly(
        count in powers_of_two(), replicas in 1..7u32, sizes in prop::collection::vec(1..6u32, 1..5),
    ) {
        let members = in_zones(&sizes);
        let lists = place(Placement::Zoned, partitions(count), replicas, &members).unwrap();
        prop_assert!(no_list_names_a_node_twice(&lists));
        let zone_of: BTreeMap<NodeId, &str> = members.iter().map(|m| (m.id, m.zone.as_str())).collect();
        let size_of = |zone: &str| members.iter().filter(|m| m.zone == zone).count();
        for list in &lists {
            prop_assert_eq!(list.len(), members.len().min(replicas as usize));
            let zones = zone_of.values().copied().collect::<BTreeSet<_>>();
            let in_zone = |zone: &str| list.iter().filter(|node| zone_of[node] == zone).count();
            let most = zones.iter().map(|zone| in_zone(zone)).max().unwrap();
            for zone in zones {
                prop_assert!(in_zone(zone) + 1 >= most || in_zone(zone) == size_of(zone), "{list:?}");
            }
        }
        let held = loads(&lists, &members, replicas as usize);
        for zone in zone_of.values() {
            let held = held.iter().filter(|(node, _)| zone_of[node] == *zone).map(|(&n, &l)| (n, l)).collect();
            prop_assert!(spread(&held) <= 1, "zone {zone}: {held:?}");
        }
    }

    #[test]
    fn zones_with_enough_room_leave_all_nodes_even(
        count in powers_of_two(), zones in 1..5u32, size in 1..5u32, replicas in 1..5u32,
    ) {
        let members = in_zones(&vec![size; zones as usize]);
        let lists = place(Placement::Zoned, partitions(count), replicas, &members).unwrap();
        prop_assert!(spread(&loads(&lists, &members, replicas as usize)) <= 1);
        prop_assert!(spread(&loads(&lists, &members, 1)) <= 1);
    }

    #[test]
    fn each_group_holds_every_partition_and_leads_its_part(
        count in powers_of_two(), sizes in prop::collection::vec(1..6u32, 1..5),
    ) {
        let members = in_zones(&sizes);
        let lists = place(Placement::Grouped, partitions(count), 1, &members).unwrap();
        let group_of: BTreeMap<NodeId, &str> = members.iter().map(|m| (m.id, m.zone.as_str())).collect();
        for list in &lists {
            let groups: BTreeSet<&str> = list.iter().map(|node| group_of[node]).collect();
            prop_assert_eq!(groups.len(), sizes.len());
            prop_assert_eq!(list.len(), sizes.len());
        }
        let held = loads(&lists, &members, sizes.len());
        let led = loads(&lists, &members, 1);
        for group in group_of.values() {
            let held = held.iter().filter(|(node, _)| group_of[node] == *group).map(|(&n, &l)| (n, l)).collect();
            prop_assert!(spread(&held) <= 1, "group {group}: {held:?}");
        }
        for (node, held) in held {
            let (low, high) = (held / sizes.len(), held.div_ceil(sizes.len()));
            prop_assert!((low..=high).contains(&led[&node]), "node {node} leads {} of {held}", led[&node]);
        }
    }

    #[test]
    fn under_all_every_node_holds_everything_and_leads_its_part(count in powers_of_two(), nodes in 1..20u32) {
        let members = equal(nodes);
        let lists = place(Placement::All, partitions(count), 1, &members).unwrap();
        prop_assert!(no_list_names_a_node_twice(&lists));
        prop_assert!(lists.iter().all(|list| list.len() == nodes as usize));
        prop_assert!(spread(&loads(&lists, &members, 1)) <= 1);
    }

    #[test]
    fn the_same_members_move_nothing(
        count in powers_of_two(), replicas in 1..4u32, members in any_members(),
        policy in prop::sample::select(vec![Placement::Ring, Placement::Zoned, Placement::Grouped, Placement::All]),
    ) {
        let replicas = if policy == Placement::Grouped { 1 } else { replicas };
        let before = place(policy, partitions(count), replicas, &members).unwrap();
        let plan = plan(policy, &before, replicas, &members);
        prop_assert_eq!(&plan.moves, &[]);
        prop_assert!(!plan.changes);
    }

    #[test]
    fn only_the_share_of_a_new_ring_node_moves(
        count in powers_of_two(), replicas in 1..4u32, nodes in 4..20u32,
    ) {
        let before = place(Placement::Ring, partitions(count), replicas, &equal(nodes)).unwrap();
        let members = equal(nodes + 1);
        let plan = plan(Placement::Ring, &before, replicas, &members);
        let held = loads(&plan.owners, &members, replicas as usize);
        prop_assert!(spread(&held) <= 1);
        prop_assert!(spread(&loads(&plan.owners, &members, 1)) <= 1);
        prop_assert!(plan.moves.iter().all(|m| m.to == Some(node(nodes + 1))));
        prop_assert_eq!(plan.moves.len(), held[&node(nodes + 1)]);
        prop_assert!(plan.moves.len() <= (count * replicas).div_ceil(nodes + 1) as usize);
    }

    #[test]
    fn only_the_replicas_of_a_removed_ring_node_move(
        count in powers_of_two(), replicas in 1..4u32, nodes in 5..20u32, gone in 1..5u32,
    ) {
        let before = place(Placement::Ring, partitions(count), replicas, &equal(nodes)).unwrap();
        let mut members = equal(nodes);
        let gone = members.remove(gone as usize - 1).id;
        let plan = plan(Placement::Ring, &before, replicas, &members);
        prop_assert!(spread(&loads(&plan.owners, &members, replicas as usize)) <= 1);
        prop_assert!(spread(&loads(&plan.owners, &members, 1)) <= 1);
        let held = before.iter().flatten().filter(|&&n| n == gone).count();
        let beyond = plan.moves.len() - held;
        prop_assert!(beyond <= 1, "{} moves for {held}", plan.moves.len());
    }

    /// Whatever the history: after many changes, the laws hold as after none. Under *zoned*, shares are rounded twice:
    /// for the zone, then for the node.
    #[test]
    fn any_change_of_members_leads_to_even_lists(
        count in powers_of_two(), replicas in 1..4u32,
        rounds in prop::collection::vec(any_members(), 1..5),
        policy in prop::sample::select(vec![Placement::Ring, Placement::Zoned, Placement::Grouped, Placement::All]),
    ) {
        let replicas = if policy == Placement::Grouped { 1 } else { replicas };
        let mut lists = place(policy, partitions(count), replicas, &rounds[0]).unwrap();
        for members in &rounds[1..] {
            let plan = plan(policy, &lists, replicas, members);
            let fresh = place(policy, partitions(count), replicas, members).unwrap();
            let sorted = |loads: BTreeMap<NodeId, usize>| loads.into_values().collect::<Vec<_>>();
            let held = sorted(loads(&plan.owners, members, usize::MAX));
            for (held, fresh) in held.iter().zip(sorted(loads(&fresh, members, usize::MAX))) {
                let rounded = if policy == Placement::Zoned { 2 } else { 1 };
                prop_assert!(held.abs_diff(fresh) <= rounded, "{held} against {fresh}");
            }
            prop_assert!(no_list_names_a_node_twice(&plan.owners));
            for (partition, (before, after)) in lists.iter().zip(&plan.owners).enumerate() {
                let moves = plan.moves.iter().filter(|m| m.partition.get() as usize == partition);
                let mut moved: BTreeSet<NodeId> = before.iter().copied().collect();
                for m in moves {
                    prop_assert!(m.from.is_none_or(|from| moved.remove(&from)));
                    prop_assert!(m.to.is_none_or(|to| moved.insert(to)));
                }
                prop_assert_eq!(moved, after.iter().copied().collect::<BTreeSet<_>>());
            }
            lists = plan.owners;
        }
    }
}

/// Up to 12 nodes of weights from 1 to 3, in up to 3 zones.
fn any_members() -> impl Strategy<Value = Vec<Member>> {
    let nodes = prop::collection::btree_map(1..16u32, (0..3usize, 1..4u32), 1..12);
    nodes.prop_map(|nodes| {
        let zones = ["a", "b", "c"];
        nodes
            .into_iter()
            .map(|(number, (zone, weight))| member(number, zones[zone], weight))
            .collect()
    })
}

/// Zones restrict moves, so that a few replicas may move besides the share.
#[test]
fn a_node_added_or_removed_moves_little_beyond_its_share() {
    for nodes in [10, 100] {
        let zone = |number: u32| ["a", "b", "c", "d", "e"][number as usize % 5];
        let members =
            |numbers: std::ops::RangeInclusive<u32>| numbers.map(|n| member(n, zone(n), 1)).collect::<Vec<_>>();
        let before = place(Placement::Zoned, partitions(1024), 3, &members(1..=nodes)).unwrap();
        let more = fetches(&plan(Placement::Zoned, &before, 3, &members(1..=nodes + 1)));
        let less = fetches(&plan(Placement::Zoned, &before, 3, &members(2..=nodes)));
        let share = (3 * 1024usize).div_ceil(nodes as usize + 1);
        let held = before.iter().flatten().filter(|&&n| n == node(1)).count();
        assert!(
            (share - 1..=share + share / 10).contains(&more),
            "{more} moves for a share of {share}"
        );
        assert!(
            (held..=held + held / 10).contains(&less),
            "{less} moves for {held} partitions"
        );
    }
}

#[test]
fn staying_replicas_keep_their_rank_unless_they_lead_too_often() {
    let before = place(Placement::Ring, partitions(256), 3, &equal(7)).unwrap();
    let after = plan(Placement::Ring, &before, 3, &equal(8)).owners;
    let kept = before
        .iter()
        .zip(&after)
        .flat_map(|(before, after)| before.iter().zip(after));
    let kept = kept.filter(|(before, after)| before == after).count();
    // 96 of the 768 replicas move to the new node.
    assert!(kept > 600, "{kept} of 768 stand where they stood");
}

/// The other nodes share the requests of a node that is gone: it leads 64 of 1024 partitions, and 15 others follow it.
#[test]
fn all_others_follow_a_node() {
    let members = equal(16);
    let lists = place(Placement::Ring, partitions(1024), 3, &members).unwrap();
    for member in &members {
        let led: Lists = lists
            .iter()
            .filter(|list| list[0] == member.id)
            .map(|list| list[1..].to_vec())
            .collect();
        assert_eq!(led.len(), 64);
        let most = loads(&led, &members, 1).into_values().max().unwrap();
        assert!(
            most <= 12,
            "one node takes over {most} of the 64 partitions of node {}",
            member.id
        );
    }
}

/// 2 groups of 5 nodes: a node of one group and a node of the other share 64 / 25 partitions on average.
#[test]
fn nodes_of_two_groups_share_few_partitions() {
    let members = in_zones(&[5, 5]);
    let lists = place(Placement::Grouped, partitions(64), 2, &members).unwrap();
    for (a, b) in (1..=5).flat_map(|a| (6..=10).map(move |b| (node(a), node(b)))) {
        let shared = lists
            .iter()
            .filter(|list| list.contains(&a) && list.contains(&b))
            .count();
        assert!((2..=4).contains(&shared), "nodes {a} and {b} share {shared} partitions");
    }
}

#[test]
fn impossible_placements_are_refused_with_a_remedy() {
    let of = |policy, replicas, members: &[Member]| place(policy, partitions(16), replicas, members).unwrap_err();
    assert_eq!(of(Placement::Ring, 1, &[]), PlacementError::NoMembers);
    assert_eq!(of(Placement::Ring, 0, &equal(1)), PlacementError::NoReplicas);
    assert_eq!(
        of(Placement::Ring, 1, &[member(4, "a", 0)]),
        PlacementError::NoWeight { node: node(4) }
    );
    let twice = [member(4, "a", 1), member(4, "b", 1)];
    assert_eq!(of(Placement::Ring, 1, &twice), PlacementError::Twice { node: node(4) });
    let mut no_group = equal(2);
    no_group[1].group = None;
    assert_eq!(
        of(Placement::Grouped, 1, &no_group),
        PlacementError::NoGroup { node: node(2) }
    );
    let few = PlacementError::TooFewGroups { groups: 2, replicas: 3 };
    assert_eq!(of(Placement::Grouped, 3, &in_zones(&[2, 2])), few);
    assert!(matches!(
        of(Placement::All, 1, &equal(2049)),
        PlacementError::TooManyMembers { found: 2049 }
    ));
    let large = place(Placement::All, partitions(16384), 1, &equal(5)).unwrap_err();
    assert!(matches!(large, PlacementError::TooLarge { replicas: 5, .. }));
}

/// Nodes on machines that some of them share.
fn on_hosts(hosts: &[u32]) -> Vec<Member> {
    let mut members = equal(hosts.len() as u32);
    for (member, host) in members.iter_mut().zip(hosts) {
        member.host = Some(format!("host-{host}"));
    }
    members
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn replicas_of_a_partition_are_on_different_hosts(
        count in 3..8u32, hosts in 3..7usize, each in 1..4u32, replicas in 1..4u32,
    ) {
        let names: Vec<u32> = (0..each).flat_map(|_| 0..hosts as u32).collect();
        let members = on_hosts(&names);
        let lists = place(Placement::Ring, partitions(1 << count), replicas, &members).unwrap();
        let host_of: BTreeMap<NodeId, &str> = members.iter().map(|m| (m.id, m.host.as_deref().unwrap())).collect();
        for list in &lists {
            let found: BTreeSet<&str> = list.iter().map(|node| host_of[node]).collect();
            prop_assert_eq!(found.len(), list.len());
        }
        prop_assert!(spread(&loads(&lists, &members, replicas as usize)) <= 1);
    }

    #[test]
    fn deliberate_moves_stay_when_a_node_comes_or_goes(
        moves in prop::collection::vec((0..64usize, 1..7u32), 1..40), gone in 1..7u32,
    ) {
        let mut lists = place(Placement::Ring, partitions(64), 2, &equal(6)).unwrap();
        for (partition, to) in moves {
            if !lists[partition].contains(&node(to)) {
                lists[partition][0] = node(to);
            }
        }
        let table = RoutingTable::first(partitions(64), lists.clone()).unwrap();
        let kept = |members: &[Member]| replan(Placement::Ring, &table, 2, members, Shares::Kept).unwrap();
        prop_assert_eq!(&kept(&equal(6)).moves, &[]);
        let more = kept(&equal(7));
        prop_assert!(more.moves.iter().all(|m| m.to == Some(node(7))), "{:?}", more);
        prop_assert!((17..=19).contains(&more.moves.len()), "{:?}", more);
        let mut fewer = equal(6);
        fewer.remove(gone as usize - 1);
        let less = kept(&fewer);
        let held = lists.iter().flatten().filter(|&&one| one == node(gone)).count();
        prop_assert!(less.moves.len() <= held + 3, "{:?} for {}", less, held);
    }
}

#[test]
fn too_few_hosts_are_refused() {
    let refused = place(Placement::Ring, partitions(16), 3, &on_hosts(&[1, 1, 2, 2])).unwrap_err();
    assert!(
        matches!(refused, PlacementError::TooFewHosts { replicas: 3, .. }),
        "{refused}"
    );
}

#[test]
fn hosts_with_fewer_nodes_hold_more_where_replicas_need_it() {
    let members = on_hosts(&[1, 1, 2]);
    let lists = place(Placement::Ring, partitions(16), 2, &members).unwrap();
    let held = loads(&lists, &members, 2);
    assert_eq!(held[&node(3)], 16, "the only one on its host");
    assert_eq!(held[&node(1)] + held[&node(2)], 16);
}
