//! The cluster view that a node saw last, kept in its data directory, so that the node can serve when it starts while
//! the coordination service is away.
//!
//! It is a copy, never the truth: nothing is decided, deleted or fetched by it.

use std::path::Path;
use std::{fs, io};

use fondaco_model::cluster::{
    Announcement, ClusterRecord, ClusterView, DroppedStore, NodeRecord, Numbers, Revised, RouterRecord, SchemaRecord,
    StoreRecord, UserRecord,
};
use fondaco_model::{Identity, RoutingTable};
use serde::{Deserialize, Serialize};

use crate::data_dir::replace_file;
use crate::error::AgentError;

/// The content of `view.json`.
#[derive(Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    cluster: Option<ClusterRecord>,
    routing: Option<Revised<RoutingTable>>,
    #[serde(default)]
    numbers: Option<Revised<Numbers>>,
    nodes: Vec<Revised<NodeRecord>>,
    announcements: Vec<Announcement>,
    routers: Vec<(Identity, RouterRecord)>,
    stores: Vec<Revised<StoreRecord>>,
    #[serde(default)]
    dropped: Vec<Revised<DroppedStore>>,
    #[serde(default)]
    schemas: Vec<Revised<SchemaRecord>>,
    #[serde(default)]
    users: Vec<Revised<UserRecord>>,
}

impl Memory {
    /// The part of a view that is worth remembering.
    pub fn of(view: &ClusterView) -> Self {
        Self {
            cluster: view.cluster.clone(),
            routing: view.routing.clone(),
            numbers: view.numbers.clone(),
            nodes: view.nodes.values().cloned().collect(),
            announcements: view.announcements.values().cloned().collect(),
            routers: view.routers.clone().into_iter().collect(),
            stores: view.stores.values().cloned().collect(),
            dropped: view.dropped.values().cloned().collect(),
            schemas: view.schemas.values().cloned().collect(),
            users: view.users.values().cloned().collect(),
        }
    }

    /// Reads the file; `None` if it is missing or cannot be read. The node then waits for the service, like a node that
    /// never saw the cluster.
    pub fn read(path: &Path) -> Option<Self> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(?path, %error, "cannot read the remembered view of the cluster");
                return None;
            }
        };
        match serde_json::from_slice(&bytes) {
            Ok(memory) => Some(memory),
            Err(error) => {
                tracing::warn!(?path, %error, "the remembered view of the cluster cannot be used");
                None
            }
        }
    }

    /// Writes it to the file, durably.
    pub fn write(&self, path: &Path) -> Result<(), AgentError> {
        let bytes = serde_json::to_vec(self).map_err(AgentError::invalid_metadata(path.display()))?;
        replace_file(path, &bytes)
    }

    /// Turns it back into a view.
    pub fn into_view(self) -> ClusterView {
        let announcements = self.announcements.into_iter();
        let stores = self.stores.into_iter();
        ClusterView {
            remembered: true,
            cluster: self.cluster,
            routing: self.routing,
            numbers: self.numbers,
            nodes: self.nodes.into_iter().map(|node| (node.record.id, node)).collect(),
            announcements: announcements.map(|one| (one.identity.clone(), one)).collect(),
            routers: self.routers.into_iter().collect(),
            stores: stores
                .map(|store| (store.record.definition.name.clone(), store))
                .collect(),
            dropped: self
                .dropped
                .into_iter()
                .map(|one| (one.record.record.id, one))
                .collect(),
            schemas: self.schemas.into_iter().map(|one| (one.record.key(), one)).collect(),
            users: self
                .users
                .into_iter()
                .map(|user| (user.record.name.clone(), user))
                .collect(),
            ..ClusterView::default()
        }
    }
}
