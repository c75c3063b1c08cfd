//! The nodes that have the parts of a store, and how they are asked.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use fondaco_api::{ChangesPart, ERROR_CODES, ErrorResource};
use fondaco_fetch::PeerPort;
use fondaco_model::cluster::StoreRecord;
use fondaco_model::{NodeId, PartitionCount, PartitionId, first_replicas};
use tokio::task::JoinSet;

use super::position::{Place, Position, ViewPlace};
use super::views::least;
use crate::app::App;
use crate::error::ApiError;
use crate::first_owners::FirstOwners;

/// How long a node may take for a part.
const PART_TIME_MAX: Duration = Duration::from_secs(10);
/// The nodes that have the parts of a store.
pub(super) struct Owners {
    nodes: BTreeMap<NodeId, String>,
    /// The node that compares each partition, if one is live.
    of_partitions: Vec<Option<NodeId>>,
    pub(super) partitions: PartitionCount,
    query: String,
}

impl Owners {
    pub(super) fn of(app: &App, store: &StoreRecord) -> Result<Self, ApiError> {
        let view = app.operator.mirror().view();
        // Nodes that do not have the current version yet are passed over.
        let first_owners = FirstOwners::without(app, store, &store.late)?;
        let (nodes, absent) = first_owners.nodes();
        if !absent.is_empty() {
            let absent: Vec<String> = absent.iter().map(ToString::to_string).collect();
            let message = format!(
                "partitions of store {:?} have no live owner: start node {}",
                store.definition.name,
                absent.join(", ")
            );
            return Err(ApiError::new("unavailable", message));
        }
        let table = view.routing.as_ref().map(|table| &table.record);
        let table = table.ok_or_else(|| ApiError::new("unavailable", "no node has partitions yet"))?;
        let replicas = view.replicas(store);
        let owner = |partition| {
            let owners = first_replicas(table.owners(partition), replicas).iter().copied();
            owners
                .into_iter()
                .find(|node| nodes.contains_key(node) && view.is_live(*node) && !store.late.contains(node))
        };
        Ok(Self {
            nodes: nodes.clone(),
            of_partitions: table.partitions().partitions().map(owner).collect(),
            partitions: table.partitions(),
            query: first_owners.query().to_owned(),
        })
    }

    fn target(&self, store: &StoreRecord, place: &ViewPlace, kind: &str) -> (String, String) {
        let position = Position {
            created_unix_ms: store.created_unix_ms,
            place: Place::View(place.clone()),
        };
        let position = position.encode();
        let name = &store.definition.name;
        let target = format!(
            "/v1/stores/{name}/changes/part?position={position}&{}&kind={kind}",
            self.query
        );
        (target, position)
    }

    /// Asks all nodes for their parts.
    pub(super) async fn ask(
        &self,
        app: &App,
        store: &StoreRecord,
        place: &ViewPlace,
        kind: &str,
    ) -> Result<Vec<ChangesPart>, ApiError> {
        let (target, position) = self.target(store, place, kind);
        let reader = app.limits.followers.reader_at(&offsets_of(place, &position));
        let query = format!("reader={}", reader.number);
        let mut asked = JoinSet::new();
        for (&node, address) in &self.nodes {
            let (port, target) = (app.peers.port(address), format!("{target}&{query}"));
            asked.spawn(async move { ask_part(port, node, target).await });
        }
        let mut parts = Vec::with_capacity(self.nodes.len());
        while let Some(part) = asked.join_next().await {
            let part = part.unwrap_or_else(|error| Err(ApiError::internal(&error)));
            parts.push(part?);
        }
        let mut after = place.clone();
        after.offsets.extend(least(&parts));
        reader.done(offsets_of(&after, &position));
        Ok(parts)
    }

    /// Asks the node that compares a partition, which is numbered among this many.
    pub(super) async fn ask_owner(
        &self,
        app: &App,
        store: &StoreRecord,
        place: &ViewPlace,
        partitions: PartitionCount,
        partition: PartitionId,
    ) -> Result<ChangesPart, ApiError> {
        let here = self.partitions.covering(partition, partitions);
        let owner = self.of_partitions.get(here.get() as usize).copied().flatten();
        let Some((node, address)) = owner.and_then(|node| Some((node, self.nodes.get(&node)?))) else {
            return Err(ApiError::new(
                "unavailable",
                format!("partition {here} has no live owner"),
            ));
        };
        let (target, _) = self.target(store, place, "comparison");
        let purpose = format!("comparison of {}", store.definition.name);
        let reader = app.limits.followers.reader_at(&purpose);
        let target = format!("{target}&reader={}", reader.number);
        let part = ask_part(app.peers.port(address), node, target).await?;
        reader.done(purpose);
        Ok(part)
    }
}

/// The place in the topic at which a reader continues.
fn offsets_of(place: &ViewPlace, position: &str) -> String {
    match place.offsets.is_empty() {
        true => position.to_owned(),
        false => {
            let offsets = place
                .offsets
                .iter()
                .map(|(partition, read)| format!("{partition}:{}", read.next));
            format!("{}/{}", place.topic_mark, offsets.collect::<Vec<_>>().join(","))
        }
    }
}

/// Asks a node for a part.
pub(super) async fn ask_part(port: PeerPort, node: NodeId, target: String) -> Result<ChangesPart, ApiError> {
    let asked = tokio::task::spawn_blocking(move || port.get(&target));
    let unavailable = |reason: &dyn Display| ApiError::new("unavailable", format!("node {node}: {reason}"));
    let (status, body) = match tokio::time::timeout(PART_TIME_MAX, asked).await {
        Err(_) => {
            return Err(unavailable(&format!(
                "it did not answer within {} s",
                PART_TIME_MAX.as_secs()
            )));
        }
        Ok(Err(error)) => return Err(unavailable(&error)),
        Ok(Ok(answer)) => answer.map_err(|error| unavailable(&error))?,
    };
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(|error| unavailable(&error));
    }
    let Ok(ErrorResource { error }) = serde_json::from_slice::<ErrorResource>(&body) else {
        return Err(unavailable(&status));
    };
    let code = ERROR_CODES
        .iter()
        .map(|(code, ..)| *code)
        .find(|code| *code == error.code);
    // A node that has yet to hear of the store, or is overloaded, answers later.
    match code {
        Some(code @ ("too_far_behind" | "not_followable")) => Err(ApiError::new(code, error.message)),
        Some("internal") => Err(ApiError::new("internal", format!("node {node}: {}", error.message))),
        _ => Err(unavailable(&error.message)),
    }
}
