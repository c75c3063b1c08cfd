//! `/v1/cluster`, `/v1/nodes`, `/v1/routing`: the members of the cluster, and the owners of partitions.

use std::collections::BTreeMap;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use fondaco_api::{
    Adoption, ClusterNode, ClusterResource, ClusterRouter, ErrorResource, KeyOwner, KeyPlaceResource, NewMark,
    NodeList, RoutingResource,
};
use fondaco_cluster::layout::ELECTION;
use fondaco_cluster::{Candidate, Mirror};
use fondaco_decisions::operator::OperatorError;
use fondaco_model::cluster::{ClusterView, NodeMark, Topology};
use fondaco_model::{Copies, NodeId, SlotPrefix, StoreName};

use crate::app::App;
use crate::body::{JsonBody, PathTexts, QueryOf};
use crate::error::ApiError;
use crate::other_nodes::ask_a_node;
use crate::store_status::lost_quorums;

/// How long the leading controller may take to accept a connection until it counts as gone.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);

/// Show the cluster: its nodes, its routers, its leader.
#[utoipa::path(get, path = "/v1/cluster", tag = "cluster", responses(
    (status = 200, description = "The cluster", body = ClusterResource),
    (status = "default", description = "An error: no_cluster", body = ErrorResource),
))]
pub(super) async fn show(State(app): State<App>) -> Result<Json<ClusterResource>, ApiError> {
    Ok(Json(app.blocking(cluster).await?))
}

/// After the coordination service lost entries or went back to older ones: write back the entries that the answering
/// node remembers, or declare the present entries to be the true ones.
#[utoipa::path(post, path = "/v1/cluster/adopt", tag = "cluster", request_body = Adoption, responses(
    (status = 200, description = "The cluster as it is now", body = ClusterResource),
    (status = "default", description = "An error: invalid_request, no_cluster, entries_lost, conflict, unavailable", body = ErrorResource),
))]
pub(super) async fn adopt(
    State(app): State<App>,
    JsonBody(adoption): JsonBody<Adoption>,
) -> Result<Json<ClusterResource>, ApiError> {
    if app.agent.is_none() {
        return Err(ask_a_node(&app, "this process remembers no entries to write back"));
    }
    let adopted = app.blocking(move |app| {
        app.operator.adopt(adoption.present)?;
        app.settle();
        cluster(app)
    });
    Ok(Json(adopted.await?))
}

/// List the nodes.
#[utoipa::path(get, path = "/v1/nodes", tag = "cluster", responses(
    (status = 200, description = "The nodes", body = NodeList),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn nodes(State(app): State<App>) -> Json<NodeList> {
    let nodes = nodes_of(app.operator.mirror());
    Json(NodeList { nodes })
}

/// Show the routing table.
#[utoipa::path(get, path = "/v1/routing", tag = "cluster", responses(
    (status = 200, description = "The routing table", body = RoutingResource),
    (status = "default", description = "An error: no_routing", body = ErrorResource),
))]
pub(super) async fn routing(State(app): State<App>) -> Result<Json<RoutingResource>, ApiError> {
    let view = app.operator.mirror().view();
    match &view.routing {
        Some(routing) => Ok(Json((&routing.record).into())),
        None => Err(no_routing(&view).into()),
    }
}

/// Split each partition in two, which stay on the nodes that have it. It cannot be undone.
#[utoipa::path(post, path = "/v1/routing/split", tag = "cluster", responses(
    (status = 200, description = "The routing table, with twice as many partitions", body = RoutingResource),
    (status = "default", description = "An error: no_routing, plan_in_progress, too_many_partitions", body = ErrorResource),
))]
pub(super) async fn split(State(app): State<App>) -> Result<Json<RoutingResource>, ApiError> {
    app.blocking(|app| Ok(app.operator.split_partitions()?)).await?;
    routing(State(app)).await
}

/// The key to find.
#[derive(Debug, Clone, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyQuery {
    /// The key as on the wire: `store:key`.
    key: String,
}

/// Show which nodes would answer for a key, whether or not it exists.
#[utoipa::path(get, path = "/v1/where", tag = "cluster", params(KeyQuery), responses(
    (status = 200, description = "The place of the key", body = KeyPlaceResource),
    (status = "default", description = "An error: invalid_request, store_not_found, no_routing", body = ErrorResource),
))]
pub(super) async fn place(
    State(app): State<App>,
    QueryOf(KeyQuery { key }): QueryOf<KeyQuery>,
) -> Result<Json<KeyPlaceResource>, ApiError> {
    let named = key.split_once(':').filter(|(_, key)| !key.is_empty());
    let (name, key) = named.ok_or_else(|| ApiError::invalid("a key is written as store:key"))?;
    let name: StoreName = name.parse().map_err(|error| ApiError::invalid(format!("{error}")))?;
    let view = app.operator.mirror().view();
    let store = view.stores.get(&name).map(|store| &store.record);
    let store = store.ok_or_else(|| OperatorError::StoreNotFound { store: name.clone() })?;
    let table = view.routing.as_ref().ok_or_else(|| no_routing(&view))?;
    let table = &table.record;
    let slot = SlotPrefix::of(&name).slot(key.as_bytes());
    let partition = table.partitions().partition_of(slot);
    let Copies {
        owners: replicas,
        joint,
    } = view.copies(store);
    let owner = |&node: &NodeId| {
        let record = view.nodes.get(&node).map(|node| &node.record);
        KeyOwner {
            node: node.get(),
            resp: record.map(|record| record.resp.clone()).unwrap_or_default(),
            live: view.is_live(node),
            resting: record.is_some_and(|record| record.mark == Some(NodeMark::Maintenance)),
            late: store.late.contains(&node),
        }
    };
    let mut owners: Vec<NodeId> = table.owners(partition).iter().take(replicas).copied().collect();
    if store.definition.everywhere {
        let others = table.owned(replicas).into_keys();
        let others: Vec<NodeId> = others.filter(|node| !owners.contains(node)).collect();
        owners.extend(others);
    }
    let next = table.next(partition).unwrap_or_default();
    Ok(Json(KeyPlaceResource {
        store: name.to_string(),
        key: key.to_owned(),
        slot: slot.get(),
        partition: partition.get(),
        owners: owners.iter().map(owner).collect(),
        next: next.iter().take(joint).map(|node| node.get()).collect(),
    }))
}

/// Mark a node as leaving for good, or for maintenance; or take its mark away. Taking the mark from a leaving node
/// also cancels the plan that drains it; the node keeps what has not moved.
#[utoipa::path(post, path = "/v1/nodes/{node}/mark", tag = "cluster", params(("node" = u32, Path, description = "The number of the node")), request_body = NewMark, responses(
    (status = 200, description = "The nodes", body = NodeList),
    (status = "default", description = "An error: invalid_request, no_cluster, node_not_found", body = ErrorResource),
))]
pub(super) async fn mark(
    State(app): State<App>,
    PathTexts(node): PathTexts<u32>,
    JsonBody(new): JsonBody<NewMark>,
) -> Result<Json<NodeList>, ApiError> {
    let node = NodeId::new(node).ok_or_else(|| ApiError::invalid("nodes are numbers from 1"))?;
    let marked = app.blocking(move |app| {
        app.operator.mark_node(node, new.mark)?;
        Ok(nodes_of(app.operator.mirror()))
    });
    Ok(Json(NodeList { nodes: marked.await? }))
}

/// Forget a node that was drained and stopped: it is listed no more, unless it comes back.
#[utoipa::path(delete, path = "/v1/nodes/{node}", tag = "cluster", params(("node" = u32, Path, description = "The number of the node")), responses(
    (status = 200, description = "The other nodes", body = NodeList),
    (status = "default", description = "An error: invalid_request, node_not_found, node_in_use", body = ErrorResource),
))]
pub(super) async fn forget(
    State(app): State<App>,
    PathTexts(node): PathTexts<u32>,
) -> Result<Json<NodeList>, ApiError> {
    let node = NodeId::new(node).ok_or_else(|| ApiError::invalid("nodes are numbers from 1"))?;
    let forgotten = app.blocking(move |app| {
        app.operator.forget_node(node)?;
        Ok(nodes_of(app.operator.mirror()))
    });
    Ok(Json(NodeList {
        nodes: forgotten.await?,
    }))
}

fn cluster(app: &App) -> Result<ClusterResource, ApiError> {
    let mirror = app.operator.mirror();
    let view = mirror.view();
    let cluster = view.cluster.as_ref().ok_or(OperatorError::NoCluster)?;
    // A view that may be old does not name a leader reliably.
    let leader = match mirror.stale_since() {
        None => app.operator.coordination().leader(&ELECTION.parse()?)?,
        Some(_) => None,
    };
    let leader = leader.and_then(|bytes| serde_json::from_slice::<Candidate>(&bytes).ok());
    // The entry of a controller that was killed stays for a session timeout.
    let leads = app.controller.as_ref().is_some_and(|own| own.counts().leading);
    let leader = leader.filter(|leader| leads || accepts_connections(&leader.http));
    let mut problems = mirror.problems();
    if let Some(controller) = &app.controller {
        problems.extend(controller.problems());
    }
    problems.extend(lost_quorums(&view));
    if view.routing.is_none() {
        problems.push(no_routing(&view).to_string());
    }
    let routers = view.routers.iter().map(|(identity, router)| ClusterRouter {
        identity: identity.to_string(),
        resp: router.resp.clone(),
        http: router.http.clone(),
        protocol: router.protocol,
    });
    let table = view.routing.as_ref().map(|routing| &routing.record);
    Ok(ClusterResource {
        identity: cluster.identity.to_string(),
        partitions: view.partitions().unwrap_or(cluster.partitions).get(),
        placement: cluster.placement,
        replicas: cluster.replicas,
        nodes_initial: cluster.nodes_initial,
        routing_epoch: table.map(|table| table.epoch()),
        plan_under_way: table.is_some_and(|table| table.is_moving())
            || view.plans.values().any(|plan| plan.record.state.is_under_way()),
        leader: leader.map(|leader| leader.http),
        nodes: nodes_of(mirror),
        routers: routers.collect(),
        partitions_short: Topology::of(&view).map_or(0, |topology| topology.short_partitions().len() as u64),
        protocol: view.protocol(),
        problems,
    })
}

/// Whether a process accepts connections at this address.
fn accepts_connections(address: &str) -> bool {
    let mut addresses = address.to_socket_addrs().into_iter().flatten();
    addresses.any(|address| TcpStream::connect_timeout(&address, CONNECT_TIME_MAX).is_ok())
}

fn nodes_of(mirror: &Mirror) -> Vec<ClusterNode> {
    let view = &*mirror.view();
    let count = |lists: &[Vec<NodeId>]| {
        let mut counts = BTreeMap::<NodeId, u64>::new();
        lists
            .iter()
            .flatten()
            .for_each(|&node| *counts.entry(node).or_default() += 1);
        counts
    };
    let table = view.routing.as_ref().map(|routing| &routing.record);
    let owned = table.map(|table| count(table.all_owners())).unwrap_or_default();
    let next = table
        .filter(|table| table.is_moving())
        .map(|table| count(&table.planned()));
    let late = |id: &NodeId| {
        let stores = view.stores.iter().filter(|(_, store)| store.record.late.contains(id));
        stores.map(|(name, _)| name.to_string()).collect()
    };
    let node = |node: &fondaco_model::cluster::Revised<fondaco_model::cluster::NodeRecord>| {
        let record = &node.record;
        let id = &record.id;
        ClusterNode {
            node: id.get(),
            identity: record.identity.to_string(),
            zone: record.zone.clone(),
            group: record.group.clone(),
            weight: record.weight,
            resp: record.resp.clone(),
            http: record.http.clone(),
            live: view.is_live(*id),
            absent_since_unix_ms: mirror.absent_since_unix_ms(&record.identity),
            partitions: owned.get(id).copied().unwrap_or(0),
            partitions_next: next.as_ref().map(|next| next.get(id).copied().unwrap_or(0)),
            late: late(id),
            host: record.host.clone(),
            backup: record.backup,
            mark: record.mark,
            protocol: record.protocol,
        }
    };
    view.listed_nodes().map(node).collect()
}

pub(super) fn no_routing(view: &ClusterView) -> OperatorError {
    let nodes_initial = view.cluster.as_ref().map(|cluster| cluster.nodes_initial);
    nodes_initial.map_or(OperatorError::NoCluster, |nodes_initial| {
        OperatorError::NoRoutingTable { nodes_initial }
    })
}
