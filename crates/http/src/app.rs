//! The state that the handlers of the control port share.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use fondaco_agent::{AgentWork, Leader, PushCheck};
use fondaco_api::{KeyMemoryResource, NodeStatus, Role};
use fondaco_catalog::SharedCatalog;
use fondaco_cluster::{Audit, LiveSettings, Operator, RouterWork};
use fondaco_controller::ControllerWork;
use fondaco_fetch::PeerClient;
use fondaco_metrics::NodeMetrics;
use fondaco_model::cluster::ClusterView;
use fondaco_model::{NodeId, PartitionCount, StoreName, VersionNumber};
use fondaco_node::GraphQueries;
use fondaco_os::process;
use fondaco_stream::EventLog;

use crate::callers::Users;
use crate::cluster_client::ClusterClient;
use crate::dev_handle::DevHandle;
use crate::error::ApiError;
use crate::exposition::Exposition;
use crate::limits::Limits;
use crate::store_status::lost_quorums;
use crate::traffic::Traffic;

/// How long a request waits until other nodes have applied its change.
const WAIT_TIME_MAX: Duration = Duration::from_secs(10);

/// The state that handlers answer from.
#[derive(Clone)]
pub struct App(Arc<AppParts>);

/// The parts of the state that handlers answer from.
pub struct AppParts {
    /// The role of the process.
    pub role: Role,
    /// Changes the cluster.
    pub operator: Operator,
    /// Checks sources of pushes.
    pub push_check: PushCheck,
    /// The agent, if the process holds data.
    pub agent: Option<Arc<AgentWork>>,
    /// The part of a router, if it is one.
    pub router: Option<Arc<RouterWork>>,
    /// The controller, if the process can lead.
    pub controller: Option<Arc<ControllerWork>>,
    /// The development cluster that it is a member of.
    pub dev: Option<DevHandle>,
    /// The log of events, if the process is a whole cluster.
    pub events: Option<Arc<EventLog>>,
    /// How the control ports of other nodes are reached.
    pub peers: PeerClient,
    /// The leading controller, for data that only it has.
    pub leader: Arc<Leader>,
    /// The catalog of what is served.
    pub catalog: Arc<SharedCatalog>,
    /// The client for keys that this process does not have.
    pub cluster_client: ClusterClient,
    /// The graphs, once the process serves RESP.
    pub graphs: Arc<OnceLock<GraphQueries>>,
    /// The live settings.
    pub settings: LiveSettings,
    /// The token of the port, if it has one.
    pub token: Option<String>,
    /// Whether the port speaks TLS.
    pub is_tls: bool,
    /// Recognises users, if the port asks for any.
    pub users: Option<Arc<Users>>,
    /// The record of changes that people make.
    pub audit: Arc<Audit>,
    /// The counters of RESP.
    pub metrics: Arc<NodeMetrics>,
    /// The metrics of the process.
    pub exposition: Exposition,
    /// The counters of the port.
    pub traffic: Arc<Traffic>,
    /// How much the port does at a time.
    pub limits: Limits,
    /// The RESP address, if it serves RESP.
    pub resp_addr: Option<SocketAddr>,
    /// The address of the port.
    pub http_addr: SocketAddr,
    /// When the process began to serve.
    pub started: Instant,
    /// The version of the program.
    pub program_version: &'static str,
}

/// The state that handlers answer from, for tasks that may outlive the process's end.
pub(super) struct WeakApp(Weak<AppParts>);

impl WeakApp {
    /// The state, unless the process ends.
    pub(super) fn upgrade(&self) -> Option<App> {
        self.0.upgrade().map(App)
    }
}

impl std::ops::Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}

impl App {
    /// The state of these parts.
    pub fn new(parts: AppParts) -> Self {
        Self(Arc::new(parts))
    }

    /// The state, as long as the process serves.
    pub(super) fn weak(&self) -> WeakApp {
        WeakApp(Arc::downgrade(&self.0))
    }

    /// Runs work that may wait for a disk on a thread where it delays no request.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = self.clone();
        match tokio::task::spawn_blocking(move || work(&app)).await {
            Ok(outcome) => outcome,
            Err(error) => Err(ApiError::new("internal", format!("the request's task ended: {error}"))),
        }
    }

    /// The number of the node that this process is, if it is one.
    pub(super) fn node(&self) -> Option<NodeId> {
        self.agent.as_ref().and_then(|agent| agent.node())
    }

    /// Waits until the requests of this process see its last change.
    pub(super) fn settle(&self) {
        if let Some(agent) = &self.agent {
            agent.wait_looked(WAIT_TIME_MAX);
        }
        if let Some(router) = &self.router {
            router.wait_looked(WAIT_TIME_MAX);
        }
    }

    /// Waits until all live nodes serve a store's current version. Nodes that are still behind are slow or gone, so the
    /// wait is bounded.
    pub(super) fn wait_serving(&self, name: &StoreName) -> Result<(), ApiError> {
        let late = self.operator.wait_serving(name, WAIT_TIME_MAX)?;
        if !late.is_empty() {
            tracing::warn!(store = %name, ?late, "not all nodes serve the current version yet");
        }
        self.settle();
        Ok(())
    }

    /// Waits until this process has deleted its files of a version.
    pub(super) fn wait_dropped(&self, name: &StoreName, version: VersionNumber) {
        if let Some(agent) = &self.agent {
            agent.wait_dropped(name, version, WAIT_TIME_MAX);
        }
    }

    /// Why the process does not serve everything that it should; empty if it does.
    pub(crate) fn not_ready(&self) -> Vec<String> {
        let mut reasons = match (&self.agent, &self.router) {
            (Some(agent), _) => agent.not_ready(),
            (None, Some(router)) => router.not_ready(),
            (None, None) if !self.operator.mirror().has_seen() => {
                vec!["the coordination service has not answered yet".to_owned()]
            }
            (None, None) => Vec::new(),
        };
        reasons.extend(self.operator.mirror().problems());
        if let Some(replicas) = &self.cluster_client.replicas {
            reasons.extend(replicas.damaged_stores(false));
        }
        reasons
    }

    /// Problems of the cluster, although this process does its own part.
    pub(super) fn warnings(&self, view: &ClusterView) -> Vec<String> {
        let mut warnings = lost_quorums(view);
        let mirror = self.operator.mirror();
        // Entries that are rejected are a reason of their own.
        if let Some(since) = mirror.stale_since().filter(|_| mirror.discontinuity().is_none()) {
            warnings.push(format!(
                "ZooKeeper has been silent for {} s: this process serves the state of that time, and nothing can be \
                 changed; see to ZooKeeper",
                since.elapsed().as_secs()
            ));
        }
        warnings.extend(self.agent.iter().flat_map(|agent| agent.problems()));
        if let Some(replicas) = &self.cluster_client.replicas {
            warnings.extend(replicas.damaged_stores(true));
            warnings.extend(replicas.keys_refused());
        }
        warnings
    }

    pub(super) fn keys_in_memory(&self) -> Option<KeyMemoryResource> {
        let memory = self.agent.as_ref()?.replicas().key_memory()?;
        Some(KeyMemoryResource {
            keys: memory.keys,
            bytes: memory.bytes,
            bytes_max: memory.bytes_max,
        })
    }

    pub(super) fn status(&self) -> NodeStatus {
        let mirror = self.operator.mirror();
        let view = mirror.view();
        let data_dir = self.agent.as_ref().map(|agent| agent.data_dir());
        let cluster = view.cluster.as_ref();
        NodeStatus {
            program_version: self.program_version.to_owned(),
            pid: std::process::id(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            role: self.role,
            node: self.node().map(NodeId::get),
            cluster: cluster.map(|cluster| cluster.identity.to_string()),
            resp_addr: self.resp_addr.map(|addr| addr.to_string()),
            http_addr: self.http_addr.to_string(),
            data_directory: data_dir.map(|dir| dir.root().display().to_string()),
            disk_available_bytes: data_dir.and_then(|dir| dir.available_bytes()),
            versions_in_trash: self.agent.as_ref().map(|agent| agent.trashed()),
            partitions: view.partitions().map_or(0, PartitionCount::get),
            resident_bytes: process::resident_bytes(),
            keys_in_memory: self.keys_in_memory(),
            clients: self.metrics.clients(),
            stores: view.stores.len() as u64,
            coordination_silent_ms: mirror.stale_since().map(|since| since.elapsed().as_millis() as u64),
            not_ready: self.not_ready(),
            warnings: self.warnings(&view),
        }
    }
}
