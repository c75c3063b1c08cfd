//! The routing table: which nodes hold which partition.
//!
//! Every placement yields one, and nothing past the placement knows which. It never changes but by an
//! explicit plan, which raises its epoch. While a plan is under way, the table also says who is to
//! hold each partition next: those nodes fetch it, and requests still go to the owners.

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Vec<Vec<NodeId>>>,
}

impl From<RoutingTable> for RoutingTableText {
    fn from(table: RoutingTable) -> Self {
        let RoutingTable {
            epoch,
            partitions,
            owners,
            next,
        } = table;
        Self {
            epoch,
            partitions,
            owners,
            next,
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
            next,
        } = text;
        check(partitions, &owners)?;
        next.as_deref().map_or(Ok(()), |next| check(partitions, next))?;
        Ok(Self {
            epoch,
            partitions,
            owners,
            next,
        })
    }
}
