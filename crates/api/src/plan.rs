//! Plans: moves of partitions between nodes.

use std::collections::BTreeSet;

use fondaco_model::RoutingTable;
use fondaco_model::cluster::{MoveState, NodeMark, PlanMaker, PlanRecord, PlanState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A plan to be made. Without nodes and moves it evens out what nodes hold, if `even` is set.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlan {
    /// Nodes to be given their share. What others hold relative to one another stays as it is.
    #[serde(default)]
    #[schema(example = json!([4]))]
    pub add: BTreeSet<u32>,
    /// Nodes to lose all their partitions, for good.
    #[serde(default)]
    pub remove: BTreeSet<u32>,
    /// Replicas to be moved by hand.
    #[serde(default)]
    pub moves: Vec<NewMove>,
    /// Whether every node gets its share by weight again, whatever was moved before.
    #[serde(default)]
    pub even: bool,
    /// How many moves a node takes part in at a time; 2 unless said.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1000)]
    pub moves_per_node: Option<u32>,
    /// Why, for people.
    #[serde(default)]
    #[schema(max_length = 1000)]
    pub reason: String,
    /// Show it, and save nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Run it at once.
    #[serde(default)]
    pub run: bool,
}

/// A replica to be moved.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMove {
    /// The partition.
    pub partition: u32,
    /// The node that gives it up.
    pub from: u32,
    /// The node that gets it.
    pub to: u32,
}

/// All plans that are known: proposed, under way, and the last ones that ended.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PlanList {
    /// The plans, the latest first.
    pub plans: Vec<PlanResource>,
}

/// A plan.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PlanResource {
    /// Its number; the next free one for a dry run.
    pub number: u64,
    /// Its state.
    pub state: PlanState,
    /// Its maker.
    pub by: PlanMaker,
    /// The name of the operator who made it; absent if the control port asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Why it was made.
    pub reason: String,
    /// When it was made, in milliseconds since 1970.
    pub made_unix_ms: u64,
    /// When it ended, in milliseconds since 1970; null before.
    pub ended_unix_ms: Option<u64>,
    /// The moves, in the order of partitions.
    pub moves: Vec<MoveResource>,
    /// How many replicas must be fetched.
    pub fetches: u64,
    /// How many partitions change their nodes, or the order of these.
    pub partitions: u64,
    /// How many of these are done.
    pub partitions_done: u64,
    /// The stores that partitions moved without: their former owners are absent, and the next ones cannot fetch them.
    #[serde(default)]
    pub stuck: Vec<StuckStoreResource>,
    /// How many moves a node takes part in at a time.
    pub moves_per_node: u32,
    /// The nodes that it takes all partitions from.
    pub leaving: BTreeSet<u32>,
    /// The bytes that have to be fetched, as far as known.
    pub bytes: u64,
    /// How many of these come from another zone.
    pub bytes_between_zones: u64,
    /// About how long it takes, in seconds, from its beginning to its end.
    pub seconds: u64,
}

/// One replica of a partition that moves.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MoveResource {
    /// The partition.
    pub partition: u32,
    /// The node that gives it up; null if a replica is added.
    pub from: Option<u32>,
    /// The node that gets it; null if a replica is removed.
    pub to: Option<u32>,
    /// Its state.
    pub state: MoveState,
    /// Why it was given up; null unless it was.
    pub error: Option<String>,
}

/// A store that partitions moved without.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StuckStoreResource {
    /// The store.
    pub store: String,
    /// The partitions.
    pub partitions: Vec<u32>,
    /// Why the last of them could not be fetched.
    pub error: String,
}

/// The mark of a node.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMark {
    /// The mark; null takes it away.
    pub mark: Option<NodeMark>,
}

impl PlanResource {
    /// A plan, with its progress in a routing table.
    pub fn of(plan: &PlanRecord, table: &RoutingTable) -> Self {
        let moves = plan.moves().into_iter().map(|one| MoveResource {
            partition: one.partition.get(),
            from: one.from.map(|node| node.get()),
            to: one.to.map(|node| node.get()),
            state: plan.state_of(one.partition, table),
            error: plan.given_up.get(&one.partition).cloned(),
        });
        let moves: Vec<MoveResource> = moves.collect();
        let stuck = plan.stuck.iter().map(|(store, stuck)| StuckStoreResource {
            store: store.to_string(),
            partitions: stuck.partitions.iter().map(|partition| partition.get()).collect(),
            error: stuck.error.clone(),
        });
        let is_done = |partition| plan.state_of(partition, table) == MoveState::Done;
        Self {
            number: plan.number,
            state: plan.state,
            by: plan.by,
            user: plan.user.clone(),
            reason: plan.reason.clone(),
            made_unix_ms: plan.made_unix_ms,
            ended_unix_ms: plan.ended_unix_ms,
            fetches: moves.iter().filter(|one| one.to.is_some()).count() as u64,
            moves,
            partitions: plan.next.len() as u64,
            partitions_done: plan.next.keys().filter(|&&partition| is_done(partition)).count() as u64,
            stuck: stuck.collect(),
            moves_per_node: plan.moves_per_node,
            leaving: plan.leaving.iter().map(|node| node.get()).collect(),
            bytes: plan.cost.bytes,
            bytes_between_zones: plan.cost.bytes_between_zones,
            seconds: plan.cost.seconds,
        }
    }
}
