//! The state that the handlers of the control port share.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use fondaco_fetch::PeerClient;
use fondaco_model::cluster::ClusterView;
use fondaco_model::{NodeId, PartitionCount, StoreName, VersionNumber};
use fondaco_node::{GraphQueries, NodeMetrics, SharedCatalog};
use fondaco_stream::EventLog;
use tokio::sync::Semaphore;

use super::callers::Users;
use super::elsewhere::Elsewhere;
use super::error::ApiError;
use super::resources::{KeyMemoryResource, NodeStatus};
use super::traffic::Traffic;
use crate::agent::AgentWork;
use crate::audit::Audit;
use crate::config::Role;
use crate::controller::ControllerWork;
use crate::dev_handle::DevHandle;
use crate::error::ControlError;
use crate::exposition::Exposition;
use crate::load::Leader;
use crate::operator::Operator;
use crate::process;
use crate::push_check::PushCheck;
use crate::router::RouterWork;
use crate::settings::LiveSettings;
use crate::status::lost_quorums;

/// How long a request waits until other nodes have applied its change.
const WAIT_TIME_MAX: Duration = Duration::from_secs(10);

/// The state that handlers answer from.
#[derive(Clone)]
pub(crate) struct App(Arc<AppParts>);

pub(crate) struct AppParts {
    pub(crate) role: Role,
    pub(crate) operator: Operator,
    pub(crate) push_check: PushCheck,
    pub(crate) agent: Option<Arc<AgentWork>>,
    pub(crate) router: Option<Arc<RouterWork>>,
    pub(crate) controller: Option<Arc<ControllerWork>>,
    pub(crate) dev: Option<DevHandle>,
    /// The log of events, if the process is a whole cluster.
    pub(crate) events: Option<Arc<EventLog>>,
    /// How the control ports of other nodes are reached.
    pub(crate) peers: PeerClient,
    /// The leading controller, for what only it knows.
    pub(crate) leader: Arc<Leader>,
    pub(crate) catalog: Arc<SharedCatalog>,
    /// The client for keys that this process does not have.
    pub(crate) elsewhere: Elsewhere,
    /// The graphs, once the process serves RESP.
    pub(crate) graphs: Arc<OnceLock<GraphQueries>>,
    pub(crate) settings: LiveSettings,
    /// The token of the port, if it has one.
    pub(crate) token: Option<String>,
    /// Whether the port speaks TLS.
    pub(crate) is_tls: bool,
    /// Recognises users, if the port asks for any.
    pub(crate) users: Option<Arc<Users>>,
    pub(crate) audit: Arc<Audit>,
    /// How many streams of events may be open.
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) metrics: Arc<NodeMetrics>,
    pub(crate) exposition: Exposition,
    pub(crate) traffic: Arc<Traffic>,
    /// How many files may be sent to peers at a time.
    pub(crate) files: Arc<Semaphore>,
    /// How many pages of records may be read at a time.
    pub(crate) pages: Arc<Semaphore>,
    pub(crate) resp_addr: Option<SocketAddr>,
    pub(crate) http_addr: SocketAddr,
    pub(crate) started: Instant,
    pub(crate) program_version: &'static str,
}

/// The state that handlers answer from, for what may outlive the process's end.
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
    pub(crate) fn new(parts: AppParts) -> Self {
        Self(Arc::new(parts))
    }

    /// The state, as long as the process serves.
    pub(super) fn weak(&self) -> WeakApp {
        WeakApp(Arc::downgrade(&self.0))
    }

    /// Runs work that may wait for a disk on a thread where it delays no request.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&App) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = self.clone();
        match tokio::task::spawn_blocking(move || work(&app)).await {
            Ok(outcome) => Ok(outcome?),
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
    pub(super) fn wait_serving(&self, name: &StoreName) -> Result<(), ControlError> {
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
        if let Some(replicas) = &self.elsewhere.replicas {
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
        if let Some(replicas) = &self.elsewhere.replicas {
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
