//! The cluster: its nodes, its routing table, and changes of that.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_model::{Placement, Plan, RoutingTable};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How partitions get their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlacementName {
    /// A list of distinct nodes for each partition.
    Ring,
    /// As a ring, spread over zones.
    Zoned,
    /// Each group of nodes has a complete copy.
    Grouped,
    /// Every node holds everything.
    All,
}

/// A cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClusterResource {
    /// Which cluster it is.
    pub identity: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// How they get their nodes.
    pub placement: PlacementName,
    /// How many nodes a partition gets.
    pub replicas: u32,
    /// How many nodes the first routing table waits for.
    pub nodes_initial: u32,
    /// How often the routing table was changed; null before there is one.
    pub routing_epoch: Option<u64>,
    /// Whether a plan for the routing table is under way.
    pub plan_under_way: bool,
    /// Where the leading controller serves HTTP; null if none leads.
    pub leader: Option<String>,
    /// The nodes, in the order of their numbers.
    pub nodes: Vec<ClusterNode>,
    /// The routers that are there.
    pub routers: Vec<ClusterRouter>,
    /// What keeps the cluster from doing all that it should, as far as the process that answers knows.
    pub problems: Vec<String>,
}

/// Which entries of a cluster are the true ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Adoption {
    /// Those that are in the coordination service now, instead of those that the node remembers.
    #[serde(default)]
    pub present: bool,
}

/// The nodes of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    /// In the order of their numbers.
    pub nodes: Vec<ClusterNode>,
}

/// A node, as the cluster knows it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClusterNode {
    /// Its number.
    pub node: u32,
    /// Who it is.
    pub identity: String,
    /// Where it stands.
    pub zone: String,
    /// Its group, if it has one.
    pub group: Option<String>,
    /// How much it holds, relative to other nodes.
    pub weight: u32,
    /// Where it serves RESP.
    pub resp: String,
    /// Where it serves HTTP.
    pub http: String,
    /// Whether it is there.
    pub live: bool,
    /// When the process that answers saw it leave, in milliseconds since 1970; null if it is there, or was never seen.
    pub absent_since_unix_ms: Option<u64>,
    /// How many partitions it owns.
    pub partitions: u64,
    /// How many it will own when the plan under way is done; null without one.
    pub partitions_next: Option<u64>,
    /// The stores of which it does not have the current version yet.
    pub late: Vec<String>,
}

/// A router that is there.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClusterRouter {
    /// Who it is.
    pub identity: String,
    /// Where it serves RESP.
    pub resp: String,
    /// Where it serves HTTP.
    pub http: String,
}

/// The routing table.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RoutingResource {
    /// How often it was changed, from 1.
    pub epoch: u64,
    /// How many partitions there are.
    pub partitions: u32,
    /// The numbers of the nodes of each partition, in the order of preference.
    pub owners: Vec<Vec<u32>>,
    /// The same after the plan under way; null without one.
    pub next: Option<Vec<Vec<u32>>>,
    /// Of partitions whose owners a plan changes, until it is finished, those that it makes owners, or that were: writes
    /// go to them, too.
    pub joint: BTreeMap<u32, Vec<u32>>,
}

/// A change of the routing table to be begun.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlan {
    /// Nodes to be given their share.
    #[serde(default)]
    #[schema(example = json!([4]))]
    pub add: BTreeSet<u32>,
    /// Nodes to hold nothing any more.
    #[serde(default)]
    pub remove: BTreeSet<u32>,
    /// Show it and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// A change of the routing table.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PlanResource {
    /// What moves, in the order of partitions.
    pub moves: Vec<MoveResource>,
    /// How many replicas have to be fetched.
    pub fetches: u64,
}

/// One replica of a partition that moves.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MoveResource {
    /// The partition.
    pub partition: u32,
    /// The node that gives it up; null where a replica is added.
    pub from: Option<u32>,
    /// The node that gets it; null where a replica is given up.
    pub to: Option<u32>,
}

/// The members of a development cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DevMemberList {
    /// Nodes, routers, controllers.
    pub members: Vec<DevMember>,
}

/// A member of a development cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DevMember {
    /// Its name, such as `node-1`.
    pub name: String,
    /// What it does.
    pub role: super::RoleName,
    /// Whether it runs.
    pub running: bool,
    /// Where it serves RESP; null if it does not.
    pub resp: Option<String>,
    /// Where it serves HTTP; null while it does not run.
    pub http: Option<String>,
}

impl From<Placement> for PlacementName {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Ring => Self::Ring,
            Placement::Zoned => Self::Zoned,
            Placement::Grouped => Self::Grouped,
            Placement::All => Self::All,
        }
    }
}

impl From<&RoutingTable> for RoutingResource {
    fn from(table: &RoutingTable) -> Self {
        let numbers = |lists: &[Vec<fondaco_model::NodeId>]| {
            let list = |nodes: &Vec<fondaco_model::NodeId>| nodes.iter().map(|node| node.get()).collect();
            lists.iter().map(list).collect()
        };
        Self {
            epoch: table.epoch(),
            partitions: table.partitions().get(),
            owners: numbers(table.all_owners()),
            next: table.planned().map(numbers),
            joint: (table.partitions().partitions())
                .filter_map(|partition| {
                    let joint = table.joint(partition)?;
                    Some((partition.get(), joint.iter().map(|node| node.get()).collect()))
                })
                .collect(),
        }
    }
}

impl From<&Plan> for PlanResource {
    fn from(plan: &Plan) -> Self {
        let moves = plan.moves.iter().map(|one| MoveResource {
            partition: one.partition.get(),
            from: one.from.map(|node| node.get()),
            to: one.to.map(|node| node.get()),
        });
        Self {
            moves: moves.collect(),
            fetches: plan.fetches() as u64,
        }
    }
}
