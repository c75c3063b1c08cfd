//! Hinted handoff (DeCandia et al. 2007): the nodes that store a write as a hint for an absent replica.

use smallvec::SmallVec;

use super::settings::Handoff;
use crate::cluster::{Topology, TopologyStore};
use crate::node::NodeId;
use crate::partition::PartitionId;
use crate::routing::first_replicas;

/// How many nodes are named at most to store one hint.
pub const KEEPERS_MAX: usize = 8;

/// The nodes that may store a hint of a key with this hash for a replica, in the order in which they are to be asked;
/// only live ones.
///
/// - *consistent*: the nodes that follow the replica by number: its hints are on few nodes;
/// - *any*: the nodes that follow a different number for each key: all nodes share the hints;
/// - *proximity*: like *any*, but nodes of the coordinator's zone come first, and those of the replica's zone last. An
///   absent replica may be absent with its whole zone, unless the coordinator is in the same zone.
///
/// If a hint must count as a copy in one more zone, `zones_covered` are the zones in which it would not: nodes of other
/// zones then come first, whatever the strategy, and under *proximity* those of the replica's zone after them.
///
/// Nodes that own the partition come after all others: a hint beside their own copy makes the write no safer, it only
/// lets the replica get it sooner. Empty if the store has no handoff.
pub fn hint_keepers(
    topology: &Topology,
    store: &TopologyStore,
    partition: PartitionId,
    replica: NodeId,
    home_zone: Option<&str>,
    key_hash: u64,
    zones_covered: Option<&[&str]>,
) -> SmallVec<[NodeId; KEEPERS_MAX]> {
    let strategy = store.versioned.map_or(Handoff::None, |settings| settings.handoff);
    let start = match strategy {
        Handoff::None => return SmallVec::new(),
        Handoff::Consistent => replica,
        Handoff::Any | Handoff::Proximity => {
            let numbers = topology.nodes.keys().last().map_or(1, |last| u64::from(last.get()));
            NodeId::new((key_hash % numbers) as u32 + 1).unwrap_or(replica)
        }
    };
    let owners = topology
        .owners
        .get(partition.get() as usize)
        .map_or(&[][..], Vec::as_slice);
    let owners = first_replicas(owners, store.replicas as usize);
    let zone_of_replica = topology.nodes.get(&replica).map(|node| node.zone.as_str());
    let rank = |node: &NodeId, zone: &str| {
        let is_lost = strategy == Handoff::Proximity && Some(zone) == zone_of_replica;
        let distance = match (zones_covered, strategy) {
            (Some(covered), _) if covered.contains(&zone) => 2,
            (Some(_), _) => usize::from(is_lost),
            (None, Handoff::Proximity) if Some(zone) == home_zone => 0,
            (None, _) => 1 + usize::from(is_lost),
        };
        (owners.contains(node), distance)
    };
    // The nodes in a ring. Each rank takes the first nodes that it finds.
    let ring = topology.nodes.range(start..).chain(topology.nodes.range(..start));
    let candidates = ring.filter(|(node, member)| member.live && **node != replica);
    let mut ranks: [SmallVec<[NodeId; KEEPERS_MAX]>; 6] = Default::default();
    for (node, member) in candidates {
        let (is_owner, distance) = rank(node, &member.zone);
        let of_rank = &mut ranks[usize::from(is_owner) * 3 + distance];
        if of_rank.len() < KEEPERS_MAX {
            of_rank.push(*node);
        }
        let all_are_best = strategy != Handoff::Proximity && zones_covered.is_none();
        let is_best = !is_owner && (all_are_best || distance == 0);
        if is_best && of_rank.len() == KEEPERS_MAX {
            break;
        }
    }
    ranks.into_iter().flatten().take(KEEPERS_MAX).collect()
}
