//! The routing table: which nodes hold which partition.
//!
//! Every placement yields one, and nothing past the placement knows which. It never changes but by an
//! explicit plan, which raises its epoch. While a plan is under way, the table also says who is to
//! hold each partition next: those nodes fetch it, and requests still go to the owners.
//!
//! It is stored as one JSON entry, of which the coordination service takes no more than 1 MiB: the
//! owners as lists of numbers, and of a plan only the lists that it changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::node::NodeId;
use crate::partition::{PartitionCount, PartitionId};

/// Partition → nodes, in the order of preference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RoutingTableText", into = "RoutingTableText")]
pub struct RoutingTable {
    epoch: u64,
    partitions: PartitionCount,
    owners: Vec<Vec<NodeId>>,
    next: Option<Vec<Vec<NodeId>>>,
}

/// Why lists of nodes are no routing table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoutingTableError {
    /// There is not one list for each partition.
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
    /// A plan names a partition that there is not.
    #[error("the plan of the routing table names partition {partition}, and there are {partitions}")]
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
}

impl RoutingTable {
    /// The first table of a cluster.
    ///
    /// # Errors
    /// Lists that are no routing table.
    pub fn first(partitions: PartitionCount, owners: Vec<Vec<NodeId>>) -> Result<Self, RoutingTableError> {
        check(partitions, &owners)?;
        Ok(Self {
            epoch: 1,
            partitions,
            owners,
            next: None,
        })
    }

    /// This table with a plan begun: these nodes fetch what they do not hold yet.
    ///
    /// # Errors
    /// Lists that are no routing table.
    pub fn with_plan(&self, next: Vec<Vec<NodeId>>) -> Result<Self, RoutingTableError> {
        check(self.partitions, &next)?;
        let mut table = self.clone();
        table.epoch += 1;
        table.next = Some(next);
        Ok(table)
    }

    /// The table once its plan is done: who was next now owns. Itself if there is no plan.
    pub fn finished(&self) -> Self {
        let mut table = self.clone();
        if let Some(next) = table.next.take() {
            table.owners = next;
            table.epoch += 1;
        }
        table
    }

    /// The table with its plan given up. Itself if there is none.
    pub fn cancelled(&self) -> Self {
        let mut table = self.clone();
        if table.next.take().is_some() {
            table.epoch += 1;
        }
        table
    }

    /// How often the table was changed, from 1.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> PartitionCount {
        self.partitions
    }

    /// The nodes that a partition is asked of, in the order of preference.
    pub fn owners(&self, partition: PartitionId) -> &[NodeId] {
        &self.owners[partition.get() as usize]
    }

    /// All owners: one list for each partition.
    pub fn all_owners(&self) -> &[Vec<NodeId>] {
        &self.owners
    }

    /// The owners after the plan under way, if there is one.
    pub fn next(&self) -> Option<&[Vec<NodeId>]> {
        self.next.as_deref()
    }

    /// The lists that the plan under way changes, as they are to be.
    pub fn changes(&self) -> impl Iterator<Item = (PartitionId, &[NodeId])> {
        let next = self.next.iter().flatten().zip(&self.owners);
        let lists = self.partitions.partitions().zip(next);
        let changed = lists.filter(|(_, (next, owners))| next != owners);
        changed.map(|(partition, (next, _))| (partition, next.as_slice()))
    }

    /// Whether a node is to hold a partition of a store with so many replicas: as one of its first
    /// owners, or as one of the first of the plan under way.
    pub fn holds(&self, node: NodeId, partition: PartitionId, replicas: usize) -> bool {
        let among = |lists: &[Vec<NodeId>]| {
            lists[partition.get() as usize]
                .iter()
                .take(replicas)
                .any(|&n| n == node)
        };
        among(&self.owners) || self.next.as_deref().is_some_and(among)
    }

    /// The partitions that a node is to hold of a store with so many replicas, in order.
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

/// The stored form, not yet checked.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoutingTableText {
    epoch: u64,
    partitions: PartitionCount,
    owners: Vec<Vec<NodeId>>,
    /// The lists that the plan changes, by partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<BTreeMap<u32, Vec<NodeId>>>,
}

impl From<RoutingTable> for RoutingTableText {
    fn from(table: RoutingTable) -> Self {
        let RoutingTable {
            epoch,
            partitions,
            owners,
            next,
        } = table;
        let changed = |next: Vec<Vec<NodeId>>| {
            let lists = (0..).zip(next).zip(&owners);
            lists
                .filter(|((_, next), now)| next != *now)
                .map(|(next, _)| next)
                .collect()
        };
        Self {
            epoch,
            partitions,
            next: next.map(changed),
            owners,
        }
    }
}

impl TryFrom<RoutingTableText> for RoutingTable {
    type Error = RoutingTableError;

    fn try_from(text: RoutingTableText) -> Result<Self, RoutingTableError> {
        let RoutingTableText {
            epoch,
            partitions,
            owners,
            next: changed,
        } = text;
        check(partitions, &owners)?;
        let next = changed.map(|changed| {
            let mut next = owners.clone();
            for (partition, nodes) in changed {
                let list = next.get_mut(partition as usize);
                *list.ok_or(RoutingTableError::NoPartition { partition, partitions })? = nodes;
            }
            check(partitions, &next).map(|()| next)
        });
        Ok(Self {
            epoch,
            partitions,
            next: next.transpose()?,
            owners,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: &[u32]) -> Vec<NodeId> {
        numbers.iter().filter_map(|&number| NodeId::new(number)).collect()
    }

    fn four() -> RoutingTable {
        let partitions = PartitionCount::try_from(4).unwrap();
        RoutingTable::first(
            partitions,
            vec![nodes(&[1, 2]), nodes(&[2, 3]), nodes(&[3, 1]), nodes(&[1, 2])],
        )
        .unwrap()
    }

    #[test]
    fn a_table_without_a_plan_is_stored_as_lists_of_numbers() {
        let text = serde_json::to_string(&four()).unwrap();
        assert_eq!(text, r#"{"epoch":1,"partitions":4,"owners":[[1,2],[2,3],[3,1],[1,2]]}"#);
        assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), four());
    }

    #[test]
    fn of_a_plan_only_what_it_changes_is_stored() {
        let mut next = four().all_owners().to_vec();
        next[2] = nodes(&[3, 4]);
        let table = four().with_plan(next).unwrap();
        let text = serde_json::to_string(&table).unwrap();
        assert!(text.ends_with(r#""next":{"2":[3,4]}}"#), "{text}");
        let changes: Vec<_> = table.changes().collect();
        assert_eq!(changes, [(PartitionId::new(2), &nodes(&[3, 4])[..])]);
        assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), table);
    }

    #[test]
    fn a_plan_that_changes_nothing_is_still_a_plan_when_read_again() {
        let table = four().with_plan(four().all_owners().to_vec()).unwrap();
        let text = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), table);
    }

    #[test]
    fn a_stored_table_is_checked_when_read() {
        for text in [
            r#"{"epoch":1,"partitions":2,"owners":[[1]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2,2]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[0]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"next":{"2":[1]}}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"next":{"1":[1,1]}}"#,
        ] {
            assert!(serde_json::from_str::<RoutingTable>(text).is_err(), "{text}");
        }
    }

    /// Every list changed, all numbers of five digits: the largest that `place` makes.
    #[test]
    fn the_largest_table_with_the_largest_plan_fits_into_an_entry() {
        for (count, replicas) in [(16384u32, 3u32), (16384, 4), (32, 2048)] {
            let partitions = PartitionCount::try_from(count).unwrap();
            let list = |first: u32| (first..first + replicas).filter_map(NodeId::new).collect();
            let table = RoutingTable::first(partitions, vec![list(90_000); count as usize]).unwrap();
            let table = table.with_plan(vec![list(97_000); count as usize]).unwrap();
            let bytes = serde_json::to_vec(&table).unwrap().len();
            assert!(
                bytes < 1 << 20,
                "{count} partitions, {replicas} replicas: {bytes} bytes"
            );
        }
    }

    #[test]
    fn owners_change_when_the_plan_is_finished_and_not_when_it_is_cancelled() {
        let mut next = four().all_owners().to_vec();
        next[0] = nodes(&[4, 2]);
        let planned = four().with_plan(next).unwrap();
        let first = PartitionId::new(0);
        let fourth = NodeId::new(4).unwrap();
        assert_eq!(planned.owners(first), nodes(&[1, 2]));
        assert!(planned.holds(fourth, first, 2) && planned.holds(NodeId::FIRST, first, 2));
        assert_eq!(planned.finished().owners(first), nodes(&[4, 2]));
        assert_eq!(planned.cancelled().owners(first), nodes(&[1, 2]));
        let epochs = [planned.epoch(), planned.finished().epoch(), planned.cancelled().epoch()];
        assert_eq!(epochs, [2, 3, 3]);
        assert_eq!(four().finished(), four());
    }
}
