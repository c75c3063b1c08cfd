//! The cost and evenness of placement, compared with hashing: the table of `docs/decisions/0004-placement.md`.
//!
//! ```sh
//! cargo run --release -p fondaco-model --example placement_figures
//! ```

use std::collections::BTreeSet;
use std::time::Instant;

use fondaco_model::{Member, NodeId, PartitionCount, Placement, PlacementError, RoutingTable, Shares, place, replan};

type Lists = Vec<Vec<NodeId>>;

const PARTITIONS: u32 = 1024;
const REPLICAS: u32 = 3;
const ZONES: u32 = 5;
/// Points on the circle for each node.
const POINTS: u32 = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "| | nodes | most / mean held | most / mean led | moved for one more (share) | moved for one less | one takes over |"
    );
    println!("|---|---|---|---|---|---|---|");
    for nodes in [10, 100] {
        let before = members(nodes);
        let more = members(nodes + 1);
        let less = &before[1..];
        row("modulo", &before, |members, _| Ok(modulo(members)), &more, less)?;
        row(
            "128 points on a circle",
            &before,
            |members, _| Ok(circle(members)),
            &more,
            less,
        )?;
        for policy in [Placement::Ring, Placement::Zoned] {
            row(
                &policy.to_string(),
                &before,
                |members, now| lists(policy, members, now),
                &more,
                less,
            )?;
        }
    }
    time()?;
    Ok(())
}

/// Prints how long the largest clusters take.
fn time() -> Result<(), Box<dyn std::error::Error>> {
    let partitions = PartitionCount::try_from(16384)?;
    let (before, more) = (members(1000), members(1001));
    for policy in [Placement::Ring, Placement::Zoned] {
        let start = Instant::now();
        let lists = place(policy, partitions, REPLICAS, &before)?;
        let placed = start.elapsed();
        let table = RoutingTable::first(partitions, lists)?;
        let start = Instant::now();
        let plan = replan(policy, &table, REPLICAS, &more, Shares::ByWeight)?;
        println!(
            "\n{policy}, 16384 partitions, 1000 nodes: placed in {placed:.1?}; one more in {:.1?}, {} moves",
            start.elapsed(),
            plan.moves.iter().filter(|one| one.to.is_some()).count()
        );
    }
    Ok(())
}

fn members(nodes: u32) -> Vec<Member> {
    let ids = (1..=nodes).filter_map(NodeId::new);
    let member = |id: NodeId| Member {
        id,
        zone: format!("zone-{}", id.get() % ZONES),
        group: None,
        host: None,
        weight: 1,
    };
    ids.map(member).collect()
}

/// One row: the results of a way of placing with some nodes, then with others.
fn row(
    name: &str,
    members: &[Member],
    way: impl Fn(&[Member], Option<&Lists>) -> Result<Lists, PlacementError>,
    more: &[Member],
    less: &[Member],
) -> Result<(), PlacementError> {
    let before = way(members, None)?;
    let to_more = fetches(&before, &way(more, Some(&before))?);
    let to_less = fetches(&before, &way(less, Some(&before))?);
    let gone: usize = before.iter().flatten().filter(|&&node| node == members[0].id).count();
    println!(
        "| {name} | {} | {:.2} | {:.2} | {to_more} ({:.0}) | {to_less} ({gone}) | {:.0} % |",
        members.len(),
        most(&before, members, REPLICAS as usize) / (f64::from(PARTITIONS * REPLICAS) / members.len() as f64),
        most(&before, members, 1) / (f64::from(PARTITIONS) / members.len() as f64),
        f64::from(PARTITIONS * REPLICAS) / more.len() as f64,
        100.0 * takes_over(&before, members),
    );
    Ok(())
}

/// As in the program: placed once, then changed by plans.
fn lists(policy: Placement, members: &[Member], now: Option<&Lists>) -> Result<Lists, PlacementError> {
    // Both hold: the number is a power of two, and the lists come from a placement.
    let partitions = PartitionCount::try_from(PARTITIONS).expect("a power of two");
    match now {
        None => place(policy, partitions, REPLICAS, members),
        Some(now) => {
            let table = RoutingTable::first(partitions, now.clone()).expect("placed lists");
            Ok(replan(policy, &table, REPLICAS, members, Shares::ByWeight)?.owners)
        }
    }
}

/// The partition's number modulo the nodes, and the nodes after that: an even ring, hashed again for each set of nodes.
fn modulo(members: &[Member]) -> Lists {
    let node = |at: u32| members[at as usize % members.len()].id;
    (0..PARTITIONS)
        .map(|partition| (0..REPLICAS).map(|rank| node(partition + rank)).collect())
        .collect()
}

/// Consistent hashing: each partition to the next distinct nodes clockwise on a circle of points.
fn circle(members: &[Member]) -> Lists {
    let point = |id: NodeId, n: u32| (scatter(u64::from(id.get()) << 32 | u64::from(n)), id);
    let mut points: Vec<_> = members
        .iter()
        .flat_map(|m| (0..POINTS).map(move |n| point(m.id, n)))
        .collect();
    points.sort();
    let list = |partition: u32| {
        let from = points.partition_point(|&(place, _)| place < scatter(u64::from(partition)));
        let mut list = Vec::new();
        for (_, id) in points.iter().cycle().skip(from).take(points.len()) {
            if list.len() < REPLICAS as usize && !list.contains(id) {
                list.push(*id);
            }
        }
        list
    };
    (0..PARTITIONS).map(list).collect()
}

/// The mixing of splitmix64.
fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// How many replicas nodes have to fetch.
fn fetches(before: &Lists, after: &Lists) -> usize {
    let come = |(before, after): (&Vec<NodeId>, &Vec<NodeId>)| after.iter().filter(|n| !before.contains(n)).count();
    before.iter().zip(after).map(come).sum()
}

/// The largest number of places in the first `ranks` that one node has.
fn most(lists: &Lists, members: &[Member], ranks: usize) -> f64 {
    let held = |id: NodeId| lists.iter().filter(|list| list[..ranks].contains(&id)).count();
    members.iter().map(|member| held(member.id)).max().unwrap_or(0) as f64
}

/// When a node is gone, the largest share of the partitions that it led which one other node then leads.
fn takes_over(lists: &Lists, members: &[Member]) -> f64 {
    let worst = |gone: NodeId| {
        let led: Vec<_> = lists.iter().filter(|list| list[0] == gone).collect();
        let seconds: BTreeSet<NodeId> = led.iter().map(|list| list[1]).collect();
        let of = |second: NodeId| led.iter().filter(|list| list[1] == second).count();
        let most = seconds.into_iter().map(of).max().unwrap_or(0);
        most as f64 / led.len().max(1) as f64
    };
    members.iter().map(|member| worst(member.id)).fold(0.0, f64::max)
}
