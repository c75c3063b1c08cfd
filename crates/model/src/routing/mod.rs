//! The routing table: which nodes hold which partition.
//!
//! Every placement yields one, and nothing after the placement depends on which. Its lists change only by explicit moves
//! of partitions. Each partition moves by itself, in three steps, each of which raises the table's epoch:
//!
//! 1. the move *begins*: the table also names the next owners of the partition. They fetch it, requests still go to the
//!    owners, and writes of versioned stores go to both;
//! 2. the next owners have all the data, and there is the *switch*: they become the owners, and the table names the
//!    former owners. Writes still go to both, since some readers that do not know of the switch read the former owners;
//! 3. no former owner accepts reads any more, and the move is *finished*.
//!
//! So of two consecutive tables, a read at a quorum of one never misses a write at a quorum of the other. Tables that
//! are further apart may: for each partition, a table says which earlier ones may still be used, for reads and for
//! writes ([`reads_since`](RoutingTable::reads_since), [`writes_since`](RoutingTable::writes_since)).
//!
//! The number of replicas of a versioned store changes in the same steps: all partitions move at once, to the same lists of
//! owners; the store then uses more of each list, or fewer. Until the end the table names both numbers ([`Counts`]), with the
//! quorums of each.

mod counts;
mod holders;
mod steps;
mod stored;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::node::NodeId;
use crate::partition::{PartitionCount, PartitionId};
use crate::partition_set::PartitionSet;
pub use counts::Counts;
pub use holders::{Copies, EVERYWHERE, first_replicas};
pub use steps::{Stage, Steps};
use stored::RoutingTableText;

/// Partition → nodes, in the order of preference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RoutingTableText", into = "RoutingTableText")]
pub struct RoutingTable {
    epoch: u64,
    partitions: PartitionCount,
    owners: Vec<Vec<NodeId>>,
    /// The moves under way.
    moves: BTreeMap<PartitionId, Stage>,
    /// The partitions whose last switch began this epoch. Each is in one set at most.
    switches: BTreeMap<u64, PartitionSet>,
    /// All other partitions have had their owners since this epoch, or for longer.
    since: u64,
    /// The versioned stores whose number of replicas has changed or is changing, by their numbers.
    counts: BTreeMap<u16, Counts>,
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
    /// A move names a partition that does not exist.
    #[error("the routing table names partition {partition}, but there are only {partitions}")]
    NoPartition {
        /// The partition.
        partition: PartitionId,
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
    /// A partition is to move that is moving.
    #[error("partition {partition} is moving already")]
    Moving {
        /// The partition.
        partition: PartitionId,
    },
    /// Its epochs are not in an order that steps of moves produce.
    #[error("the routing table of epoch {epoch} says that owners changed at {at}")]
    Epochs {
        /// Its own epoch.
        epoch: u64,
        /// The epoch of a change that cannot be.
        at: u64,
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
            moves: BTreeMap::new(),
            switches: BTreeMap::new(),
            since: 1,
            counts: BTreeMap::new(),
        })
    }

    /// The table after each partition is split in two halves, both with its owners, its past and its move under way. `None`
    /// if there are as many partitions as slots.
    ///
    /// Readers and writers with the former table ask the same nodes for each key. A request that names a partition by its number
    /// also has to say how many partitions there are.
    pub fn split(&self) -> Option<Self> {
        let partitions = self.partitions.doubled()?;
        let halves = |partition: PartitionId| [0, 1].map(|half| PartitionId::new(2 * partition.get() + half));
        let moves = self.moves.iter();
        Some(Self {
            epoch: self.epoch + 1,
            partitions,
            owners: self
                .owners
                .iter()
                .flat_map(|owners| [owners.clone(), owners.clone()])
                .collect(),
            moves: moves
                .flat_map(|(&partition, stage)| halves(partition).map(|half| (half, stage.clone())))
                .collect(),
            switches: self
                .switches
                .iter()
                .map(|(&at, set)| (at, set.among(self.partitions, partitions)))
                .collect(),
            since: self.since,
            counts: self.counts.clone(),
        })
    }

    /// How often the table was changed, from 1.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of partitions.
    pub fn partitions(&self) -> PartitionCount {
        self.partitions
    }

    /// The nodes to ask for a partition, in the order of preference: none if there is no such partition.
    pub fn owners(&self, partition: PartitionId) -> &[NodeId] {
        self.owners.get(partition.get() as usize).map_or(&[], Vec::as_slice)
    }

    /// All owners: one list for each partition.
    pub fn all_owners(&self) -> &[Vec<NodeId>] {
        &self.owners
    }

    /// The moves under way.
    pub fn moves(&self) -> &BTreeMap<PartitionId, Stage> {
        &self.moves
    }

    /// The moves that have begun and not switched: partitions, next owners, and the epochs at which they began.
    pub fn begun(&self) -> impl Iterator<Item = (PartitionId, &[NodeId], u64)> {
        self.moves.iter().filter_map(|(&partition, stage)| match stage {
            Stage::Begun { at, next } => Some((partition, next.as_slice(), *at)),
            Stage::Switched { .. } => None,
        })
    }

    /// The next owners of a partition whose move has begun and not switched.
    pub fn next(&self, partition: PartitionId) -> Option<&[NodeId]> {
        match self.moves.get(&partition) {
            Some(Stage::Begun { next, .. }) => Some(next),
            _ => None,
        }
    }

    /// Whether partitions are moving.
    pub fn is_moving(&self) -> bool {
        !self.moves.is_empty()
    }

    /// All owners after the moves under way.
    pub fn planned(&self) -> Vec<Vec<NodeId>> {
        let mut owners = self.owners.clone();
        for (partition, next, _) in self.begun() {
            owners[partition.get() as usize] = next.to_vec();
        }
        owners
    }

    /// The lists of the moves under way: the next owners, or after the switch the former ones.
    pub fn changes(&self) -> impl Iterator<Item = (PartitionId, &[NodeId])> {
        self.moves.iter().map(|(&partition, stage)| (partition, stage.joint()))
    }

    /// The nodes besides the owners that take the writes of a partition: the next owners, or the former ones after the
    /// switch. Some of them may be owners, too. `None` if the partition does not move.
    pub fn joint(&self, partition: PartitionId) -> Option<&[NodeId]> {
        self.moves.get(&partition).map(Stage::joint)
    }

    /// The first epoch whose table names the same owners of a partition as this one, as far as this one knows: a read
    /// at a quorum of an earlier table may miss writes by this one.
    pub fn reads_since(&self, partition: PartitionId) -> u64 {
        let mut switches = self.switches.iter().rev();
        let found = switches.find(|(_, partitions)| partitions.contains(partition));
        found.map_or(self.since, |(&epoch, _)| epoch)
    }

    /// The first epoch whose table sends a partition's writes to all nodes that this one names, as far as this one
    /// knows: reads by this table, or the next, may miss a write at a quorum of an earlier table.
    pub fn writes_since(&self, partition: PartitionId) -> u64 {
        match self.moves.get(&partition) {
            Some(Stage::Begun { at, .. }) => *at,
            // From the beginning of a move on, writes also go to the owners after its switch, which is a later step.
            _ => (self.reads_since(partition) - 1).max(1),
        }
    }

    /// For each node the epoch of the last step that concerned it: one that gave it a partition, to fetch or to own, or
    /// took one away from it. Its reports under that table or a later one hold under this one, too.
    pub fn last_steps(&self) -> BTreeMap<NodeId, u64> {
        let mut last = BTreeMap::new();
        let mut note = |nodes: &[NodeId], at: u64| {
            for &node in nodes {
                let known = last.entry(node).or_insert(self.since);
                *known = at.max(*known);
            }
        };
        self.owners.iter().for_each(|owners| note(owners, self.since));
        for (&at, partitions) in &self.switches {
            partitions.iter().for_each(|partition| note(self.owners(partition), at));
        }
        self.moves.values().for_each(|stage| note(stage.joint(), stage.at()));
        last
    }
}

fn check(partitions: PartitionCount, lists: &[Vec<NodeId>]) -> Result<(), RoutingTableError> {
    if lists.len() != partitions.get() as usize {
        return Err(RoutingTableError::WrongLength {
            found: lists.len(),
            partitions,
        });
    }
    let mut lists = partitions.partitions().zip(lists);
    lists.try_for_each(|(partition, nodes)| check_list(partitions, partition, nodes))
}

fn check_list(partitions: PartitionCount, partition: PartitionId, nodes: &[NodeId]) -> Result<(), RoutingTableError> {
    if partition.get() >= partitions.get() {
        return Err(RoutingTableError::NoPartition { partition, partitions });
    }
    if nodes.is_empty() {
        return Err(RoutingTableError::Empty { partition });
    }
    let mut found = (0..).zip(nodes);
    match found.find(|&(at, node)| nodes[..at].contains(node)) {
        Some((_, &node)) => Err(RoutingTableError::Twice { partition, node }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::steps::SWITCHES_MAX;
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
        assert!(planned.holds(fourth, first, Copies::of(2)) && planned.holds(NodeId::FIRST, first, Copies::of(2)));
        assert_eq!(planned.finished().owners(first), nodes(&[4, 2]));
        assert_eq!(planned.cancelled().owners(first), nodes(&[1, 2]));
        let switched = planned.switched();
        assert_eq!(switched.owners(first), nodes(&[4, 2]));
        assert_eq!(switched.joint(first).unwrap(), nodes(&[1, 2]));
        assert!(
            switched.holds(NodeId::FIRST, first, Copies::of(2)),
            "it still takes writes"
        );
        assert_eq!(switched.cancelled(), switched, "it is too late");
        assert_eq!(switched.finished(), planned.finished());
        assert!(!planned.finished().holds(NodeId::FIRST, first, Copies::of(2)));
        let epochs = [&planned, &switched, &planned.finished(), &planned.cancelled()].map(RoutingTable::epoch);
        assert_eq!(epochs, [2, 3, 4, 3]);
        assert_eq!(four().finished(), four());
    }

    /// For each of four partitions, the step that its move takes at the same time, if it can; and its next owners.
    fn steps() -> impl Strategy<Value = Vec<(u8, Vec<NodeId>)>> {
        let list = Just([1, 2, 3, 4]).prop_shuffle().prop_map(|all| nodes(&all[..2]));
        prop::collection::vec((0..8u8, list), 4)
    }

    fn stepped(table: &RoutingTable, steps: &[(u8, Vec<NodeId>)]) -> RoutingTable {
        let mut taken = Steps::default();
        for (partition, (step, next)) in (0..).map(PartitionId::new).zip(steps) {
            match step {
                0 => taken.cancel.insert(partition),
                1 | 2 => taken.switch.insert(partition),
                3 | 4 => taken.finish.insert(partition),
                5 if table.joint(partition).is_none() => drop(taken.begin.insert(partition, next.clone())),
                _ => {}
            }
        }
        table.after(&taken).unwrap()
    }

    proptest! {
        #[test]
        fn allowed_earlier_tables_share_the_read_and_write_owners(
            steps in prop::collection::vec(steps(), 1..300),
        ) {
            let mut tables = vec![four()];
            for steps in steps {
                let last = tables.last().unwrap();
                let table = stepped(last, &steps);
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
                // Switches of other partitions are no reason to refuse a node that does not know of them.
                let recent = tables.iter().rev().take(SWITCHES_MAX / 2);
                let unchanged = recent.take_while(|table| groups(table, partition) == groups(known, partition));
                let oldest = unchanged.last().unwrap().epoch();
                prop_assert!(known.reads_since(partition) <= oldest);
                prop_assert!(known.writes_since(partition) <= oldest);
            }
        }

        #[test]
        fn a_report_holds_until_a_step_concerns_its_node(steps in prop::collection::vec(steps(), 1..100)) {
            let mut tables = vec![four()];
            for steps in steps {
                let table = stepped(tables.last().unwrap(), &steps);
                tables.push(table);
            }
            let known = tables.last().unwrap();
            for (node, since) in known.last_steps() {
                let assigned = |table: &RoutingTable| {
                    let own = |list: &[NodeId]| list.contains(&node);
                    let owned = table.partitions().partitions().filter(|&partition| own(table.owners(partition)));
                    let next = table.begun().filter(|(_, next, _)| own(next)).map(|(partition, ..)| partition);
                    (owned.collect::<PartitionSet>(), next.collect::<PartitionSet>())
                };
                for table in tables.iter().filter(|table| table.epoch() >= since) {
                    let (then, now) = (assigned(table), assigned(known));
                    prop_assert!(then.0.covers(&now.0) && then.1.covers(&now.1), "{} {:?}", node, table);
                }
            }
        }

        #[test]
        fn halves_have_the_past_of_the_partition_that_was_split(steps in prop::collection::vec(steps(), 1..100)) {
            let table = steps.iter().fold(four(), |table, steps| stepped(&table, steps));
            let split = table.split().unwrap();
            prop_assert_eq!((split.epoch(), split.partitions().get()), (table.epoch() + 1, 8));
            for half in split.partitions().partitions() {
                let whole = PartitionId::new(half.get() / 2);
                prop_assert_eq!(split.owners(half), table.owners(whole));
                prop_assert_eq!(split.joint(half), table.joint(whole));
                prop_assert_eq!(split.reads_since(half), table.reads_since(whole));
                prop_assert_eq!(split.writes_since(half), table.writes_since(whole));
            }
            prop_assert_eq!(split.last_steps(), table.last_steps());
            let text = serde_json::to_string(&split).unwrap();
            prop_assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), split);
        }

        #[test]
        fn tables_are_parsed_as_they_are_stored(steps in prop::collection::vec(steps(), 1..100)) {
            let table = steps.iter().fold(four(), |table, steps| stepped(&table, steps));
            let text = serde_json::to_string(&table).unwrap();
            prop_assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), table);
        }
    }
}
