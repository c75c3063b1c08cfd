//! Plans: lists of moves of partitions between nodes, which the leading controller carries out in waves.
//!
//! A plan names the next owners of each of its partitions. The moves that remain follow from the routing table: those of the
//! partitions whose owners are still others. So a plan's entry changes only when an operator changes its state, when a
//! move is given up, and when it ends; and a new leader continues where the former one stopped.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::record::StoreRecord;
use crate::name::StoreName;
use crate::node::NodeId;
use crate::partition::{PartitionCount, PartitionId};
use crate::partition_set::PartitionSet;
use crate::placement::{Move, moves_of};
use crate::routing::{RoutingTable, Stage, first_replicas};
use crate::version::VersionNumber;
use crate::versioned::Quorums;

/// How many moves of a plan a node takes part in at a time, unless the plan says otherwise.
pub const MOVES_PER_NODE: u32 = 2;

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRecord {
    /// Its number, from 1.
    pub number: u64,
    /// Its state.
    pub state: PlanState,
    /// The partitions that it moves, with their owners when it was made.
    pub before: BTreeMap<PartitionId, Vec<NodeId>>,
    /// The partitions that it moves, with their next owners.
    pub next: BTreeMap<PartitionId, Vec<NodeId>>,
    /// The moves that were given up, and why. Their partitions stay where they are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given_up: BTreeMap<PartitionId, String>,
    /// The stores that partitions moved without, by their names: their former owners are absent, and the next ones cannot fetch them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stuck: BTreeMap<StoreName, StuckStore>,
    /// The nodes that it takes all partitions from: they leave for good.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leaving: BTreeSet<NodeId>,
    /// Those of them that no operator drains, but that were absent when it was made: if one returns before anything has moved, it
    /// stays.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub replaced: BTreeSet<NodeId>,
    /// The store whose number of replicas it changes: its lists are then those of the store. `None` if it moves partitions of all stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<PlanCount>,
    /// Its maker: an operator or the analyzer.
    pub by: PlanMaker,
    /// The operator's name, if the control port knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Why it was made, for people.
    pub reason: String,
    /// How many moves a node takes part in at a time.
    pub moves_per_node: u32,
    /// Its expected cost.
    pub cost: PlanCost,
    /// When it was made, in milliseconds since 1970.
    pub made_unix_ms: u64,
    /// When it ended, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_ms: Option<u64>,
}

/// A change of the number of replicas of a versioned store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanCount {
    /// The store.
    pub store: StoreName,
    /// Its number.
    pub id: u16,
    /// Its quorums when the plan was made.
    pub now: Quorums,
    /// Its next quorums.
    pub next: Quorums,
}

/// The maker of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PlanMaker {
    /// A person.
    Operator,
    /// The leading controller.
    Analyzer,
}

/// The state of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PlanState {
    /// It waits for an operator to run it.
    Proposed,
    /// Its moves are carried out.
    Running,
    /// Moves that have begun are completed; no other begins.
    Paused,
    /// It has ended: all its moves are done, or given up. A final state.
    Done,
    /// It was cancelled, or other moves overtook it. A final state.
    Cancelled,
    /// A newer proposal took its place before it ran. A final state.
    Replaced,
}

/// A store that partitions moved without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StuckStore {
    /// The number of the store: one of the same name that is made later has nothing to do with it.
    pub id: u16,
    /// The newest version that may be missing.
    pub newest: Option<VersionNumber>,
    /// The partitions, numbered among [`count`](Self::count).
    pub partitions: PartitionSet,
    /// How many partitions there were.
    pub count: PartitionCount,
    /// Why the last of them could not be fetched.
    pub error: String,
}

impl StuckStore {
    /// Whether the store still keeps a version that may be missing.
    pub fn is_missed(&self, store: &StoreRecord) -> bool {
        store.id == self.id && store.versions.kept().any(|version| Some(version) <= self.newest)
    }
}

impl PlanState {
    /// Whether its moves are under way: one plan at a time.
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }

    /// Whether it is final.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled | Self::Replaced)
    }
}

/// The state of the move of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MoveState {
    /// It has not begun.
    Waiting,
    /// The next owners fetch the partition.
    Moving,
    /// The next owners serve it.
    Done,
    /// It was given up, with the plan or by itself.
    GivenUp,
}

/// The expected cost of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanCost {
    /// The bytes that nodes have to fetch.
    pub bytes: u64,
    /// How many of them come from another zone.
    pub bytes_between_zones: u64,
    /// About how long it takes, in seconds.
    pub seconds: u64,
}

impl PlanRecord {
    /// A proposal that moves these partitions from their present owners to the next ones.
    pub fn new(
        number: u64,
        by: PlanMaker,
        before: BTreeMap<PartitionId, Vec<NodeId>>,
        next: BTreeMap<PartitionId, Vec<NodeId>>,
    ) -> Self {
        Self {
            number,
            state: PlanState::Proposed,
            before,
            next,
            given_up: BTreeMap::new(),
            stuck: BTreeMap::new(),
            leaving: BTreeSet::new(),
            replaced: BTreeSet::new(),
            count: None,
            by,
            user: None,
            reason: String::new(),
            moves_per_node: MOVES_PER_NODE,
            cost: PlanCost::default(),
            made_unix_ms: 0,
            ended_unix_ms: None,
        }
    }

    /// The partitions that are still to be moved, with their next owners.
    pub fn remaining<'a>(&'a self, table: &'a RoutingTable) -> impl Iterator<Item = (PartitionId, &'a [NodeId])> {
        let next = self.next.iter().map(|(&partition, next)| (partition, next.as_slice()));
        next.filter(|(partition, _)| !self.given_up.contains_key(partition) && !self.is_moved(table, *partition))
    }

    /// Whether the next owners of one of its partitions are the owners. Those of a store may be the same if there are few nodes.
    fn is_moved(&self, table: &RoutingTable, partition: PartitionId) -> bool {
        match &self.count {
            Some(count) => {
                let counts = table.counts().get(&count.id);
                counts.is_some_and(|counts| counts.now == count.next)
            }
            None => self.next.get(&partition).map(Vec::as_slice) == Some(table.owners(partition)),
        }
    }

    /// The owners of a partition, as far as the plan is about them.
    pub fn owners<'a>(&self, table: &'a RoutingTable, partition: PartitionId) -> &'a [NodeId] {
        let owners = table.owners(partition);
        let Some(count) = &self.count else { return owners };
        let now = table.counts().get(&count.id).map_or(count.now, |counts| counts.now);
        first_replicas(owners, now.replicas as usize)
    }

    /// Whether a move that has begun, to these owners, is one of the plan.
    pub fn is_of(&self, partition: PartitionId, next: &[NodeId], table: &RoutingTable) -> bool {
        let planned = self.next.get(&partition);
        match &self.count {
            None => planned.is_some_and(|planned| planned == next),
            Some(count) => {
                let counts = table.counts().get(&count.id);
                counts.is_some_and(|counts| counts.joint == Some(count.next))
            }
        }
    }

    /// Whether its partitions have the owners that they had when it was made, and none of them moves.
    pub fn fits(&self, table: &RoutingTable) -> bool {
        let mut before = self.before.iter();
        before.all(|(&partition, owners)| self.owners(table, partition) == owners && table.joint(partition).is_none())
    }

    /// The nodes that it gives partitions to.
    pub fn receivers(&self) -> BTreeSet<NodeId> {
        self.moves().into_iter().filter_map(|one| one.to).collect()
    }

    /// The replicas that it moves, in the order of partitions.
    pub fn moves(&self) -> Vec<Move> {
        let lists = self.before.iter().zip(self.next.values());
        lists
            .flat_map(|((&partition, before), after)| moves_of(partition, before, after))
            .collect()
    }

    /// The state of the move of one of its partitions.
    pub fn state_of(&self, partition: PartitionId, table: &RoutingTable) -> MoveState {
        match table.moves().get(&partition) {
            _ if self.given_up.contains_key(&partition) => MoveState::GivenUp,
            _ if self.state == PlanState::Proposed => MoveState::Waiting,
            Some(Stage::Begun { .. }) if self.state.is_under_way() => MoveState::Moving,
            _ if self.is_moved(table, partition) => MoveState::Done,
            _ if self.state.is_end() => MoveState::GivenUp,
            _ => MoveState::Waiting,
        }
    }
}
