//! How partitions are assigned to nodes.
//!
//! [`place`] makes the lists of a new cluster, [`replan`] changes those of a cluster whose nodes have changed. Both do
//! the same: give each node its share, and move no replica that may stay. Neither hashes: the lists are kept in the
//! routing table, and change only by a [`Plan`].
//!
//! Invariants: a list never names a node twice; nodes of equal weight hold the same number of partitions, and are the
//! first of the same number, within one (under *zoned* and *grouped*, as far as the sizes of zones and groups allow);
//! nodes of other weights hold in proportion; the same input gives the same lists.

mod deal;
mod hosts;
mod plan;
mod rank;
mod share;
mod spread;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use self::plan::moves_of;
pub use self::plan::{Move, Plan};
use self::spread::Spread;
use crate::node::NodeId;
use crate::partition::{PartitionCount, PartitionId};
use crate::routing::RoutingTable;

/// How many nodes a placement accepts at most: its time and memory grow with their square.
pub const MEMBERS_MAX: usize = 2048;

/// How many entries all lists may have in total. A table of this size, with a plan that changes every list, takes less
/// than the 1 MiB that ZooKeeper allows for an entry, up to node 99999.
pub const PLACED_MAX: usize = 65_536;

/// How partitions are assigned to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// A list of distinct nodes for each partition, like the preference lists of Dynamo's ring. Unlike there, the nodes
    /// that follow a node differ from one of its partitions to the next, so that all others share its load when it is
    /// gone.
    Ring,
    /// As a ring, spread over zones as evenly as possible.
    Zoned,
    /// Nodes form groups, each group has a complete copy, and partitions are dealt differently in each group.
    Grouped,
    /// Every node holds all partitions.
    All,
}

impl Placement {
    /// How many nodes of a list hold a store without a number of replicas of its own: the cluster's number, or the
    /// whole list if the nodes determine it (*grouped*: one in each group; *all*).
    pub fn replicas(self, of_cluster: u32) -> u32 {
        if self.is_whole() { u32::MAX } else { of_cluster }
    }

    /// Whether the nodes determine how long lists are.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Grouped | Self::All)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::Zoned => "zoned",
            Self::Grouped => "grouped",
            Self::All => "all",
        })
    }
}

/// The properties of a node that placement uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: NodeId,
    /// Its zone: *zoned* spreads over zones.
    pub zone: String,
    /// Its group: *grouped* needs one.
    pub group: Option<String>,
    /// The machine that it runs on, if that is known: replicas of a partition are on different machines.
    pub host: Option<String>,
    /// Its capacity, relative to other nodes; 1 or more.
    pub weight: u32,
}

/// Why there is no placement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// There are no nodes.
    #[error("there is no node to place partitions on: start at least one")]
    NoMembers,
    /// There are too many nodes.
    #[error("{found} nodes are more than the {MEMBERS_MAX} of one cluster: divide the stores over several clusters")]
    TooManyMembers {
        /// How many there are.
        found: usize,
    },
    /// A node is named twice.
    #[error("node {node} is named twice among the members: name each once")]
    Twice {
        /// The node.
        node: NodeId,
    },
    /// A node has no weight.
    #[error("node {node} has the weight 0: give it 1 or more, or remove it")]
    NoWeight {
        /// The node.
        node: NodeId,
    },
    /// Zero replicas are requested.
    #[error("0 replicas hold no data: ask for 1 or more")]
    NoReplicas,
    /// A node has no group.
    #[error("node {node} has no group, and the placement is \"grouped\": set its group")]
    NoGroup {
        /// The node.
        node: NodeId,
    },
    /// There are fewer groups than replicas.
    #[error(
        "{groups} groups cannot hold {replicas} replicas, one in each: start nodes of another group, or use fewer replicas"
    )]
    TooFewGroups {
        /// How many groups there are.
        groups: usize,
        /// The requested number of replicas.
        replicas: u32,
    },
    /// Two replicas of a partition would be on one machine.
    #[error(
        "the {replicas} replicas of partition {partition} cannot be on different machines: start nodes on another \
         machine, or, if nodes with the same host are on different machines, set host in their configurations"
    )]
    TooFewHosts {
        /// The partition.
        partition: PartitionId,
        /// How many replicas it has.
        replicas: usize,
    },
    /// The routing table would be too large to be stored.
    #[error(
        "{partitions} partitions on {replicas} nodes each are more than the {PLACED_MAX} entries of a routing table: use fewer partitions or replicas"
    )]
    TooLarge {
        /// How many partitions there are.
        partitions: usize,
        /// How many nodes each would have.
        replicas: usize,
    },
}

/// The lists of a new cluster: for each partition its nodes, in the order of preference.
///
/// A list has `replicas` nodes, or all if there are fewer; under *grouped* one node of each group, under *all* every
/// node.
///
/// # Errors
/// Nodes, groups or replicas that cannot be placed.
pub fn place(
    policy: Placement,
    partitions: PartitionCount,
    replicas: u32,
    members: &[Member],
) -> Result<Vec<Vec<NodeId>>, PlacementError> {
    arrange(
        policy,
        partitions.get() as usize,
        &[],
        replicas,
        members,
        Shares::ByWeight,
    )
}

/// How much each node is to hold after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shares {
    /// In proportion to its weight.
    ByWeight,
    /// In proportion to what it holds now; a new node by its weight, like an average node. So deliberate moves
    /// stay, and so does the order of nodes where none is replaced.
    Kept,
}

/// The plan that moves the owners of a table to these members with the fewest moves: a new node takes its share, and
/// the partitions of a removed node go to the others. Replicas that may stay do so, at the same rank if the first
/// choices remain even.
///
/// # Errors
/// Nodes, groups or replicas that cannot be placed.
pub fn replan(
    policy: Placement,
    table: &RoutingTable,
    replicas: u32,
    members: &[Member],
    shares: Shares,
) -> Result<Plan, PlacementError> {
    let before = table.all_owners();
    let after = rearrange(policy, before, replicas, members, shares)?;
    Ok(Plan::between(before, after))
}

/// The lists that [`replan`] leads to.
pub fn rearrange(
    policy: Placement,
    before: &[Vec<NodeId>],
    replicas: u32,
    members: &[Member],
    shares: Shares,
) -> Result<Vec<Vec<NodeId>>, PlacementError> {
    arrange(policy, before.len(), before, replicas, members, shares)
}

/// The lists for these members, as close as possible to the present ones (empty for a new cluster).
fn arrange(
    policy: Placement,
    count: usize,
    present: &[Vec<NodeId>],
    replicas: u32,
    members: &[Member],
    shares: Shares,
) -> Result<Vec<Vec<NodeId>>, PlacementError> {
    let mut members: Vec<&Member> = members.iter().collect();
    members.sort_by_key(|member| member.id);
    check(policy, replicas, &members)?;
    let zone_of = |member: &Member| match policy {
        Placement::Ring | Placement::All => String::new(),
        Placement::Zoned => member.zone.clone(),
        Placement::Grouped => member.group.clone().unwrap_or_default(),
    };
    let zones: Vec<String> = members.iter().map(|member| zone_of(member)).collect();
    let length = match policy {
        Placement::Ring | Placement::Zoned => members.len().min(replicas as usize),
        Placement::Grouped => zones.iter().collect::<BTreeSet<_>>().len(),
        Placement::All => members.len(),
    };
    if count * length > PLACED_MAX {
        return Err(PlacementError::TooLarge {
            partitions: count,
            replicas: length,
        });
    }

    // From here on, members are their indices.
    let ids: Vec<NodeId> = members.iter().map(|member| member.id).collect();
    let index_of = |node: &NodeId| ids.binary_search(node).ok();
    let mut present: Vec<Vec<usize>> = present
        .iter()
        .map(|nodes| nodes.iter().filter_map(index_of).collect())
        .collect();
    let new = present.is_empty();
    present.resize(count, Vec::new());
    let mut weights: Vec<u64> = members.iter().map(|member| u64::from(member.weight)).collect();
    if shares == Shares::Kept {
        keep_shares(&mut weights, &present);
    }
    let mut sets = Spread::new(&zones, &weights, length).sets(&present);
    let hosts: Vec<Option<&str>> = members.iter().map(|member| member.host.as_deref()).collect();
    if let Some(list) = hosts::part(&mut sets, &hosts, &zones) {
        return Err(PlacementError::TooFewHosts {
            partition: PartitionId::new(list as u32),
            replicas: length,
        });
    }
    let mut lists: Vec<Vec<usize>> = match new {
        // Each begins with another node, so that few need to change for first choices to be even.
        true => (0..).zip(sets).map(|(at, set)| rank::turned(set, at)).collect(),
        false => present
            .iter()
            .zip(sets)
            .map(|(was, set)| rank::kept(was, set))
            .collect(),
    };
    rank::even(&mut lists, members.len());
    if shares == Shares::Kept {
        // Lists without another node keep their order, too.
        for (list, was) in lists.iter_mut().zip(&present) {
            if list.len() == was.len() && was.iter().all(|node| list.contains(node)) {
                list.clone_from(was);
            }
        }
    }
    let named = |list: Vec<usize>| list.into_iter().map(|index| ids[index]).collect();
    Ok(lists.into_iter().map(named).collect())
}

/// Replaces the weights of nodes that hold something by how much they hold, and scales those of others to the average.
fn keep_shares(weights: &mut [u64], present: &[Vec<usize>]) {
    let mut held = vec![0_u64; weights.len()];
    present.iter().flatten().for_each(|&node| held[node] += 1);
    let all_held: u64 = held.iter().sum();
    let weight_of_holders: u64 = weights
        .iter()
        .zip(&held)
        .filter(|(_, held)| **held > 0)
        .map(|(weight, _)| weight)
        .sum();
    for (weight, held) in weights.iter_mut().zip(held) {
        *weight = match held {
            0 => *weight * all_held.max(1),
            _ => held * weight_of_holders,
        };
    }
}

/// Refuses inputs that cannot be placed. The members are in the order of their numbers.
fn check(policy: Placement, replicas: u32, members: &[&Member]) -> Result<(), PlacementError> {
    if members.is_empty() {
        return Err(PlacementError::NoMembers);
    }
    if members.len() > MEMBERS_MAX {
        return Err(PlacementError::TooManyMembers { found: members.len() });
    }
    if let Some(pair) = members.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(PlacementError::Twice { node: pair[0].id });
    }
    if let Some(member) = members.iter().find(|member| member.weight == 0) {
        return Err(PlacementError::NoWeight { node: member.id });
    }
    if replicas == 0 {
        return Err(PlacementError::NoReplicas);
    }
    if policy == Placement::Grouped {
        if let Some(member) = members.iter().find(|member| member.group.is_none()) {
            return Err(PlacementError::NoGroup { node: member.id });
        }
        let groups = members
            .iter()
            .map(|member| &member.group)
            .collect::<BTreeSet<_>>()
            .len();
        if groups < replicas as usize {
            return Err(PlacementError::TooFewGroups { groups, replicas });
        }
    }
    Ok(())
}
