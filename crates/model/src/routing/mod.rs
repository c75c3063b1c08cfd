//! The routing table: which nodes hold which partition.
//!
//! Every placement yields one, and nothing after the placement depends on which. It changes only by an explicit plan,
//! which raises its epoch in each of three steps:
//!
//! 1. it *begins*: the table also names the next owners of each partition. They fetch it, requests still go to the
//!    owners, and writes of versioned stores go to both;
//! 2. the next owners have all the data, and there is the *switch*: they become the owners, and the table names the
//!    former owners. Writes still go to both, since some readers that do not know of the switch read the former owners;
//! 3. no former owner accepts reads any more, and the plan is *finished*.
//!
//! So of two consecutive tables, a read at a quorum of one never misses a write at a quorum of the other. Tables that
//! are further apart may: for each partition, a table says which earlier ones may still be used, for reads and for
//! writes ([`reads_since`](RoutingTable::reads_since), [`writes_since`](RoutingTable::writes_since)).

mod stored;

use serde::{Deserialize, Serialize};

use crate::node::NodeId;
use crate::partition::{PartitionCount, PartitionId};
use crate::partition_set::PartitionSet;
use stored::RoutingTableText;

/// Partition → nodes, in the order of preference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RoutingTableText", into = "RoutingTableText")]
pub struct RoutingTable {
    epoch: u64,
    partitions: PartitionCount,
    owners: Vec<Vec<NodeId>>,
    stage: Stage,
    /// The epoch of the switch before the last one: since then, only the last one changed owners.
    since: u64,
    moved: Option<Moved>,
}

/// The stage of the plan under way.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// No plan.
    Idle,
    /// These nodes are the next owners.
    Begun { next: Vec<Vec<NodeId>> },
    /// These nodes were the owners.
    Switched { former: Vec<Vec<NodeId>> },
}

/// The last switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Moved {
    /// The epoch that it began.
    at: u64,
    /// The partitions whose owners it changed.
    partitions: PartitionSet,
}

/// Why lists of nodes are not a routing table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoutingTableError {
    /// The number of lists is not that of partitions.
    #[error("the routing table has {found} lists of nodes for {partitions} partitions")]
    WrongLength {
        /// How many lists there are.
        found: usize,
        /// How many there must be.
        partitions: PartitionCount,
    },
    /// A partition has no nodes.
    #[error("partition {partition} has no nodes in the routing table")]
    Empty {
        /// The partition.
        partition: PartitionId,
    },
    /// A plan names a partition that does not exist.
    #[error("the plan of the routing table names partition {partition}, but there are only {partitions}")]
    NoPartition {
        /// The partition.
        partition: u32,
        /// How many there are.
        partitions: PartitionCount,
    },
    /// A partition names a node twice.
    #[error("partition {partition} names node {node} twice in the routing table")]
    Twice {
        /// The partition.
        partition: PartitionId,
        /// The node.
        node: NodeId,
    },
    /// It names both next and former owners.
    #[error("the routing table names both next and former owners of a plan")]
    TwoStages,
    /// Its epochs are not in an order that steps of plans produce.
    #[error("the routing table of epoch {epoch} says that owners changed at {last}, and before that at {since}")]
    Epochs {
        /// Its own epoch.
        epoch: u64,
        /// The epoch of the switch before the last one.
        since: u64,
        /// The epoch of the last one.
        last: u64,
    },
}

impl RoutingTable {
    /// The first table of a cluster.
    ///
    /// # Errors
    /// Lists that are not a routing table.
    pub fn first(partitions: PartitionCount, owners: Vec<Vec<NodeId>>) -> Result<Self, RoutingTableError> {
        check(partitions, &owners)?;
        Ok(Self {
            epoch: 1,
            partitions,
            owners,
            stage: Stage::Idle,
            since: 1,
            moved: None,
        })
    }

    /// This table with a plan begun: these nodes fetch what they do not hold yet.
    ///
    /// # Errors
    /// Lists that are not a routing table.
    pub fn with_plan(&self, next: Vec<Vec<NodeId>>) -> Result<Self, RoutingTableError> {
        check(self.partitions, &next)?;
        let mut table = self.cancelled().finished();
        table.epoch += 1;
        table.stage = Stage::Begun { next };
        Ok(table)
    }

    /// The routing table after the next owners have taken over; the plan waits until all former owners know. The same
    /// table if no plan has begun, or the switch was made.
    pub fn switched(&self) -> Self {
        let Stage::Begun { next } = &self.stage else {
            return self.clone();
        };
        let mut table = self.clone();
        table.epoch += 1;
        table.since = self.moved.as_ref().map_or(self.since, |moved| moved.at);
        table.moved = Some(Moved {
            at: table.epoch,
            partitions: self.changes().map(|(partition, _)| partition).collect(),
        });
        table.owners.clone_from(next);
        table.stage = Stage::Switched {
            former: self.owners.clone(),
        };
        table
    }

    /// The table after its plan is finished: the next owners are the owners, and no other node takes writes. The same
    /// table if there is no plan.
    pub fn finished(&self) -> Self {
        let mut table = self.switched();
        if matches!(table.stage, Stage::Switched { .. }) {
            table.stage = Stage::Idle;
            table.epoch += 1;
        }
        table
    }

    /// The table with its plan cancelled. The same table if there is no plan, or the switch was made.
    pub fn cancelled(&self) -> Self {
        let mut table = self.clone();
        if matches!(table.stage, Stage::Begun { .. }) {
            table.stage = Stage::Idle;
            table.epoch += 1;
        }
        table
    }

    /// How often the table was changed, from 1.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of partitions.
    pub fn partitions(&self) -> PartitionCount {
        self.partitions
    }

    /// The nodes to ask for a partition, in the order of preference.
    pub fn owners(&self, partition: PartitionId) -> &[NodeId] {
        &self.owners[partition.get() as usize]
    }

    /// All owners: one list for each partition.
    pub fn all_owners(&self) -> &[Vec<NodeId>] {
        &self.owners
    }

    /// The owners after the plan under way, if one has begun and the switch was not made.
    pub fn next(&self) -> Option<&[Vec<NodeId>]> {
        match &self.stage {
            Stage::Begun { next } => Some(next),
            Stage::Idle | Stage::Switched { .. } => None,
        }
    }

    /// The owners before the switch, until the plan is finished.
    pub fn former(&self) -> Option<&[Vec<NodeId>]> {
        match &self.stage {
            Stage::Switched { former } => Some(former),
            Stage::Idle | Stage::Begun { .. } => None,
        }
    }

    /// Whether a plan is under way.
    pub fn is_in_plan(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// The owners when the plan under way is finished, if there is one.
    pub fn planned(&self) -> Option<&[Vec<NodeId>]> {
        match &self.stage {
            Stage::Idle => None,
            Stage::Begun { next } => Some(next),
            Stage::Switched { .. } => Some(&self.owners),
        }
    }

    /// The lists that the plan under way changes: the next owners, or after the switch the former ones.
    pub fn changes(&self) -> impl Iterator<Item = (PartitionId, &[NodeId])> {
        let joint = self.joint_lists().into_iter().flatten().zip(&self.owners);
        let lists = self.partitions.partitions().zip(joint);
        let changed = lists.filter(|(_, (joint, owners))| joint != owners);
        changed.map(|(partition, (joint, _))| (partition, joint.as_slice()))
    }

    /// The nodes besides the owners that take the writes of a partition: the next owners, or the former ones after the
    /// switch, some of which may be owners, too. `None` if no plan under way changes the partition.
    pub fn joint(&self, partition: PartitionId) -> Option<&[NodeId]> {
        let at = partition.get() as usize;
        let joint = &self.joint_lists()?[at];
        (*joint != self.owners[at]).then_some(joint)
    }

    fn joint_lists(&self) -> Option<&[Vec<NodeId>]> {
        match &self.stage {
            Stage::Idle => None,
            Stage::Begun { next: joint } | Stage::Switched { former: joint } => Some(joint),
        }
    }

    /// The first epoch whose table names the same owners of a partition as this one, as far as this one knows: a read
    /// at a quorum of an earlier table may miss writes by this one.
    pub fn reads_since(&self, partition: PartitionId) -> u64 {
        match &self.moved {
            Some(moved) if moved.partitions.contains(partition) => moved.at,
            _ => self.since,
        }
    }

    /// The first epoch whose table sends a partition's writes to all nodes that this one names, as far as this one
    /// knows: reads by this table, or the next, may miss a write at a quorum of an earlier table.
    pub fn writes_since(&self, partition: PartitionId) -> u64 {
        match &self.stage {
            Stage::Begun { .. } if self.joint(partition).is_some() => self.epoch,
            // From the beginning of a plan on, writes also go to the owners after the switch, which is the next step.
            _ => (self.reads_since(partition) - 1).max(1),
        }
    }

    /// Whether a node must have a partition of a store with so many replicas: as one of its first owners, or as one of
    /// the first owners under the plan under way, next or former.
    pub fn holds(&self, node: NodeId, partition: PartitionId, replicas: usize) -> bool {
        let among = |lists: &[Vec<NodeId>]| {
            lists[partition.get() as usize]
                .iter()
                .take(replicas)
                .any(|&n| n == node)
        };
        among(&self.owners) || self.joint_lists().is_some_and(among)
    }

    /// The partitions that a node should hold of a store with so many replicas, in order.
    pub fn partitions_of(&self, node: NodeId, replicas: usize) -> impl Iterator<Item = PartitionId> + '_ {
        let partitions = self.partitions.partitions();
        partitions.filter(move |&partition| self.holds(node, partition, replicas))
    }
}

fn check(partitions: PartitionCount, lists: &[Vec<NodeId>]) -> Result<(), RoutingTableError> {
    if lists.len() != partitions.get() as usize {
        return Err(RoutingTableError::WrongLength {
            found: lists.len(),
            partitions,
        });
    }
    for (partition, nodes) in partitions.partitions().zip(lists) {
        if nodes.is_empty() {
            return Err(RoutingTableError::Empty { partition });
        }
        for (at, &node) in nodes.iter().enumerate() {
            if nodes[..at].contains(&node) {
                return Err(RoutingTableError::Twice { partition, node });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn nodes(numbers: &[u32]) -> Vec<NodeId> {
        numbers.iter().filter_map(|&number| NodeId::new(number)).collect()
    }

    pub(super) fn four() -> RoutingTable {
        let partitions = PartitionCount::try_from(4).unwrap();
        RoutingTable::first(
            partitions,
            vec![nodes(&[1, 2]), nodes(&[2, 3]), nodes(&[3, 1]), nodes(&[1, 2])],
        )
        .unwrap()
    }

    #[test]
    fn owners_change_by_finished_but_not_by_cancelled_plans() {
        let mut next = four().all_owners().to_vec();
        next[0] = nodes(&[4, 2]);
        let planned = four().with_plan(next).unwrap();
        let first = PartitionId::new(0);
        let fourth = NodeId::new(4).unwrap();
        assert_eq!(planned.owners(first), nodes(&[1, 2]));
        assert!(planned.holds(fourth, first, 2) && planned.holds(NodeId::FIRST, first, 2));
        assert_eq!(planned.finished().owners(first), nodes(&[4, 2]));
        assert_eq!(planned.cancelled().owners(first), nodes(&[1, 2]));
        let switched = planned.switched();
        assert_eq!(switched.owners(first), nodes(&[4, 2]));
        assert_eq!(switched.former().unwrap(), four().all_owners());
        assert!(switched.holds(NodeId::FIRST, first, 2), "it still takes writes");
        assert_eq!(switched.cancelled(), switched, "it is too late");
        assert_eq!(switched.finished(), planned.finished());
        assert!(!planned.finished().holds(NodeId::FIRST, first, 2));
        let epochs = [&planned, &switched, &planned.finished(), &planned.cancelled()].map(RoutingTable::epoch);
        assert_eq!(epochs, [2, 3, 4, 3]);
        assert_eq!(four().finished(), four());
    }

    /// A change of a table: one step of a plan, or a new one.
    fn step() -> impl Strategy<Value = (u8, Vec<Vec<NodeId>>)> {
        let list = Just([1, 2, 3, 4]).prop_shuffle().prop_map(|all| nodes(&all[..2]));
        (0..4u8, prop::collection::vec(list, 4))
    }

    proptest! {
        #[test]
        fn allowed_earlier_tables_share_the_read_and_write_owners(
            steps in prop::collection::vec(step(), 1..20),
        ) {
            let mut tables = vec![four()];
            for (what, next) in steps {
                let last = tables.last().unwrap();
                let table = match what {
                    0 if !last.is_in_plan() => last.with_plan(next).unwrap(),
                    1 => last.cancelled(),
                    _ if last.former().is_some() => last.finished(),
                    _ => last.switched(),
                };
                if table != *last {
                    prop_assert_eq!(table.epoch(), last.epoch() + 1);
                    tables.push(table);
                }
            }
            let groups = |table: &RoutingTable, partition| {
                let joint = table.joint(partition).map(<[_]>::to_vec);
                Vec::from_iter([table.owners(partition).to_vec()].into_iter().chain(joint))
            };
            let known = tables.last().unwrap();
            for partition in known.partitions().partitions() {
                for table in &tables {
                    if table.epoch() >= known.reads_since(partition) {
                        prop_assert_eq!(table.owners(partition), known.owners(partition));
                    }
                    if table.epoch() >= known.writes_since(partition) {
                        let written = groups(table, partition);
                        prop_assert!(groups(known, partition).iter().all(|group| written.contains(group)));
                    }
                }
                // A switch that did not change the owners is no reason to refuse a node that does not know of it.
                let former = tables.iter().rev().find(|table| table.epoch() + 3 == known.epoch());
                if let Some(former) = former.filter(|former| !former.is_in_plan() && !known.is_in_plan()) {
                    let is_same = former.owners(partition) == known.owners(partition);
                    prop_assert_eq!(is_same, known.reads_since(partition) <= former.epoch());
                    prop_assert_eq!(is_same, known.writes_since(partition) <= former.epoch());
                }
            }
        }
    }
}
