//! The cluster: its nodes, its routing table, and changes of the table.

use std::collections::BTreeMap;

use fondaco_model::cluster::NodeMark;
use fondaco_model::{Placement, RoutingTable};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Role;

/// A cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClusterResource {
    /// The identity of the cluster.
    pub identity: String,
    /// The number of partitions.
    pub partitions: u32,
    /// How partitions are assigned to nodes.
    pub placement: Placement,
    /// The number of replicas of each partition.
    pub replicas: u32,
    /// How many nodes the first routing table waits for.
    pub nodes_initial: u32,
    /// The epoch of the routing table: how often it was changed; null before there is one.
    pub routing_epoch: Option<u64>,
    /// Whether a plan for the routing table is under way.
    pub plan_under_way: bool,
    /// The HTTP address of the leading controller; null if none leads.
    pub leader: Option<String>,
    /// The nodes, in the order of their numbers.
    pub nodes: Vec<ClusterNode>,
    /// The live routers.
    pub routers: Vec<ClusterRouter>,
    /// The number of partitions of which a store has too few ready replicas: nodes are absent or late.
    #[serde(default)]
    pub partitions_short: u64,
    /// The protocol in force, which processes write: the lowest one that a member speaks.
    #[serde(default = "first_protocol")]
    pub protocol: u32,
    /// Problems that keep the cluster from working fully, as far as the answering process knows.
    pub problems: Vec<String>,
}

/// The protocol of a process that tells none.
fn first_protocol() -> u32 {
    1
}

/// The entries of a cluster that are the true ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Adoption {
    /// Whether the entries in the coordination service now are the true ones, instead of those that the node remembers.
    #[serde(default)]
    pub present: bool,
}

/// The nodes of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    /// The nodes, in the order of their numbers.
    pub nodes: Vec<ClusterNode>,
}

/// A node, as the cluster knows it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClusterNode {
    /// Its number.
    pub node: u32,
    /// Its identity.
    pub identity: String,
    /// Its zone.
    pub zone: String,
    /// Its group, if it has one.
    pub group: Option<String>,
    /// Its capacity relative to other nodes.
    pub weight: u32,
    /// Its RESP address.
    pub resp: String,
    /// Its HTTP address.
    pub http: String,
    /// Whether it is live.
    pub live: bool,
    /// When the answering process saw it leave, in milliseconds since 1970; null if it is live, or was never seen.
    pub absent_since_unix_ms: Option<u64>,
    /// How many partitions it owns.
    pub partitions: u64,
    /// How many it will own when the moves under way are done; null if no partition moves.
    pub partitions_next: Option<u64>,
    /// The stores whose current version it does not have yet.
    pub late: Vec<String>,
    /// The machine that it runs on, if that is known.
    #[serde(default)]
    pub host: Option<String>,
    /// Whether it waits to replace a node that dies.
    #[serde(default)]
    pub backup: bool,
    /// The decision of an operator about it; null without one.
    #[serde(default)]
    pub mark: Option<NodeMark>,
    /// The highest protocol that it speaks.
    #[serde(default = "first_protocol")]
    pub protocol: u32,
}

/// Where a key is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct KeyPlaceResource {
    /// Its store.
    pub store: String,
    /// The key, without the store.
    pub key: String,
    /// Its slot.
    pub slot: u16,
    /// Its partition.
    pub partition: u32,
    /// The nodes that have it, in the order of preference.
    pub owners: Vec<KeyOwner>,
    /// The nodes that get it, if its partition moves.
    pub next: Vec<u32>,
}

/// A node that has a key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct KeyOwner {
    /// The node.
    pub node: u32,
    /// Its RESP address.
    pub resp: String,
    /// Whether it is live.
    pub live: bool,
    /// Whether it is in maintenance: others are asked first.
    pub resting: bool,
    /// Whether it does not have the store's current version yet: it is not asked.
    pub late: bool,
}

/// A live router.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClusterRouter {
    /// Its identity.
    pub identity: String,
    /// Its RESP address.
    pub resp: String,
    /// Its HTTP address.
    pub http: String,
    /// The highest protocol that it speaks.
    #[serde(default = "first_protocol")]
    pub protocol: u32,
}

/// The routing table.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RoutingResource {
    /// The number of changes of the table, from 1.
    pub epoch: u64,
    /// The number of partitions.
    pub partitions: u32,
    /// The numbers of the nodes of each partition, in the order of preference.
    pub owners: Vec<Vec<u32>>,
    /// The owners after the moves under way; null if no partition moves.
    pub next: Option<Vec<Vec<u32>>>,
    /// For each partition that moves, the next owners, or after the switch the former ones, until the move is finished:
    /// writes go to them, too.
    pub joint: BTreeMap<u32, Vec<u32>>,
}

/// The members of a development cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DevMemberList {
    /// The members: nodes, routers, controllers.
    pub members: Vec<DevMember>,
}

/// A member of a development cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DevMember {
    /// Its name, such as `node-1`.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Whether it runs.
    pub running: bool,
    /// Its RESP address; null if it does not serve RESP.
    pub resp: Option<String>,
    /// Its HTTP address; null while it does not run.
    pub http: Option<String>,
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
            next: table.is_moving().then(|| numbers(&table.planned())),
            joint: (table.partitions().partitions())
                .filter_map(|partition| {
                    let joint = table.joint(partition)?;
                    Some((partition.get(), joint.iter().map(|node| node.get()).collect()))
                })
                .collect(),
        }
    }
}
