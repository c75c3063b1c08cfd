//! The client that asks other nodes for keys.

use std::sync::{Arc, OnceLock};

use fondaco_catalog::{PeerAccess, SharedCatalog};
use fondaco_client::{Client, ClientError};
use fondaco_protocol::replica::LocalReplica;
use fondaco_replica::Replicas;

/// The client for keys on other nodes.
pub struct ClusterClient {
    catalog: Arc<SharedCatalog>,
    access: PeerAccess,
    /// The replicas of versioned stores on this node.
    pub(crate) replicas: Option<Arc<Replicas>>,
    /// Made for the first key that is on another node, or of a versioned store.
    client: OnceLock<Client>,
}

impl ClusterClient {
    /// The client of a process with this catalog, which has the topology, and with these replicas of its own.
    pub fn new(catalog: Arc<SharedCatalog>, access: PeerAccess, replicas: Option<Arc<Replicas>>) -> Self {
        Self {
            catalog,
            access,
            replicas,
            client: OnceLock::new(),
        }
    }

    /// The client. To be called within its runtime.
    pub(crate) fn client(&self) -> Result<&Client, ClientError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let PeerAccess {
            user,
            password,
            tls,
            zone,
        } = self.access.clone();
        let mut builder = Client::builder().topology(self.catalog.topology());
        if let Some(replicas) = &self.replicas {
            builder = builder.replica(Arc::clone(replicas) as Arc<dyn LocalReplica>);
        }
        if let Some(zone) = zone {
            builder = builder.zone(zone);
        }
        if let Some(password) = password {
            builder = builder.credentials(user, password);
        }
        if let Some(tls) = tls {
            builder = builder.tls(tls);
        }
        let client = builder.build()?;
        // If two threads make one at the same time, either may stay: they are equal.
        Ok(self.client.get_or_init(|| client))
    }
}
