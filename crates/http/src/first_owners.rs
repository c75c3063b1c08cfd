//! Requests that nodes answer for the partitions of which they are the first live owner, so that each key counts once.
//!
//! The asking process names the routing table and the nodes that it knows to be absent. A node answers page by page.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fondaco_api::UncountedNode;
use fondaco_fetch::PeerPort;
use fondaco_model::cluster::StoreRecord;
use fondaco_model::{NodeId, PartitionCount, PartitionId, RoutingTable, first_replicas};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::app::App;
use crate::error::ApiError;
use crate::other_nodes::{ask_a_node, ask_one};

/// The nodes that answer for the partitions of a store.
pub(super) struct FirstOwners {
    /// With the addresses of their control ports.
    nodes: BTreeMap<NodeId, String>,
    /// The owners of partitions that have no live owner.
    absent: BTreeSet<NodeId>,
    query: String,
}

impl FirstOwners {
    /// Those of a store, as this process sees the cluster.
    pub(super) fn of(app: &App, store: &StoreRecord) -> Result<Self, ApiError> {
        Self::without(app, store, &BTreeSet::new())
    }

    /// The same, as if some nodes were absent, too.
    pub(super) fn without(app: &App, store: &StoreRecord, some: &BTreeSet<NodeId>) -> Result<Self, ApiError> {
        let view = app.operator.mirror().view();
        let Some(table) = view.routing.as_ref().map(|table| &table.record) else {
            let message = "no node has partitions yet: start nodes, or try again in a moment";
            return Err(ApiError::new("unavailable", message));
        };
        let replicas = view.replicas(store);
        let owners = table.all_owners().iter().flatten().copied();
        let is_absent = |node: NodeId| !view.is_live(node) || some.contains(&node);
        let without: BTreeSet<NodeId> = owners.filter(|&node| is_absent(node)).collect();
        let (mut nodes, mut absent) = (BTreeMap::new(), BTreeSet::new());
        for partition in table.partitions().partitions() {
            match first_owner(table, replicas, partition, &without) {
                Some(node) => {
                    let address = || view.nodes.get(&node).map(|node| node.record.http.clone());
                    nodes.entry(node).or_insert_with(|| address().unwrap_or_default());
                }
                None => absent.extend(first_replicas(table.owners(partition), replicas)),
            }
        }
        let list: Vec<String> = without.iter().map(ToString::to_string).collect();
        let query = format!("epoch={}&without={}", table.epoch(), list.join(","));
        Ok(Self { nodes, absent, query })
    }

    /// The nodes, with the addresses of their control ports, and the owners of partitions that have no live owner.
    pub(super) fn nodes(&self) -> (&BTreeMap<NodeId, String>, &BTreeSet<NodeId>) {
        (&self.nodes, &self.absent)
    }

    /// The part of a query that tells a node which partitions are its own.
    pub(super) fn query(&self) -> &str {
        &self.query
    }

    /// Asks all nodes at the same time, each for all pages of these targets, which have a query. Returns the pages, and the nodes that
    /// did not answer for all their partitions.
    pub(super) async fn ask<T: DeserializeOwned + Send + 'static>(
        self,
        app: &App,
        targets: Vec<String>,
        seconds: u64,
        next: fn(&T) -> Option<String>,
    ) -> (Vec<T>, Vec<UncountedNode>) {
        let time_max = Duration::from_secs(seconds);
        let mut asked = JoinSet::new();
        for (node, address) in self.nodes {
            let pages = pages(app.peers.port(&address), targets.clone(), next);
            asked.spawn(async move { (node, tokio::time::timeout(time_max, pages).await) });
        }
        let absent = self.absent.into_iter().map(|node| (node, "it is absent".to_owned()));
        let mut missing: BTreeMap<NodeId, String> = absent.collect();
        let mut answers = Vec::new();
        while let Some(done) = asked.join_next().await {
            match done {
                Ok((_, Ok(Ok(pages)))) => answers.extend(pages),
                Ok((node, Ok(Err(reason)))) => _ = missing.insert(node, reason),
                Ok((node, Err(_))) => {
                    let reason = format!("it has not counted all its records within {seconds} s: wait for longer");
                    missing.insert(node, reason);
                }
                // The process ends.
                Err(_) => {}
            }
        }
        let missing = missing.into_iter().map(|(node, reason)| UncountedNode {
            node: node.get(),
            reason,
        });
        (answers, missing.collect())
    }
}

/// All pages of one node, or the reason why one is missing.
async fn pages<T: DeserializeOwned + Send + 'static>(
    port: PeerPort,
    targets: Vec<String>,
    next: fn(&T) -> Option<String>,
) -> Result<Vec<T>, String> {
    let mut pages = Vec::new();
    for target in targets {
        let mut position = Some(String::new());
        while let Some(after) = position {
            let page: T = ask_one(port.clone(), format!("{target}{after}")).await?;
            position = next(&page).map(|next| format!("&after={next}"));
            pages.push(page);
        }
    }
    Ok(pages)
}

/// The first owner of a partition that is not absent.
fn first_owner(
    table: &RoutingTable,
    replicas: usize,
    partition: PartitionId,
    absent: &BTreeSet<NodeId>,
) -> Option<NodeId> {
    let owners = first_replicas(table.owners(partition), replicas);
    owners.iter().copied().find(|node| !absent.contains(node))
}

/// The partitions of a store that this node answers for, and how many there are in all. The query of another process names the epoch
/// of its routing table, and the absent nodes.
pub(super) fn own_partitions(
    app: &App,
    store: &StoreRecord,
    epoch: u64,
    without: &str,
) -> Result<(PartitionCount, Vec<PartitionId>), ApiError> {
    let view = app.operator.mirror().view();
    let table = view.routing.as_ref().map(|table| &table.record);
    let Some(table) = table.filter(|table| table.epoch() == epoch) else {
        let message = format!("this node does not know the routing table of epoch {epoch}: ask again in a moment");
        return Err(ApiError::new("old_routing", message));
    };
    let Some(node) = app.node() else {
        return Err(ask_a_node(app, "this process holds no records"));
    };
    let absent = without.split(',').filter(|text| !text.is_empty()).map(|text| {
        let node = text.parse().ok().and_then(NodeId::new);
        node.ok_or_else(|| ApiError::invalid(format!("invalid number of a node {text:?}")))
    });
    let absent: BTreeSet<NodeId> = absent.collect::<Result<_, _>>()?;
    let (count, replicas) = (table.partitions(), view.replicas(store));
    let is_own = |&partition: &PartitionId| first_owner(table, replicas, partition, &absent) == Some(node);
    Ok((count, count.partitions().filter(is_own).collect()))
}
