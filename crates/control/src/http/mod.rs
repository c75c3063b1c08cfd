//! The control port: HTTP with JSON under `/v1`, health and metrics beside it.
//!
//! Every process has one, whatever its role, and each answers for the whole cluster. It makes no decisions: it parses
//! requests, calls the operator or the node's agent, and turns results and errors into answers. Work that may wait for
//! a disk runs on the runtime's blocking threads.

mod body;
mod cluster;
mod connections;
mod dev;
mod error;
mod files;
mod frame;
mod guard;
mod lookup;
mod losses;
mod node;
mod openapi;
mod pushes;
mod records;
mod request_heads;
mod resources;
pub(crate) mod server;
mod stores;
mod uploads;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use fondaco_model::cluster::ClusterView;
use fondaco_model::{NodeId, StoreName, VersionNumber};
use fondaco_node::{BufferBudget, NodeMetrics, SharedCatalog};
use tokio::sync::Semaphore;

pub use error::{ERROR_CODES, ErrorDetail, ErrorResource};
pub(crate) use files::FILES_AT_ONCE_MAX;
pub use frame::{FRAME_BYTES_MAX, Frame};
pub(crate) use guard::Traffic;
pub(crate) use lookup::Elsewhere;
pub use openapi::document;
pub use records::NEXT_HEADER;
pub(crate) use records::PAGES_AT_ONCE_MAX;
pub use resources::*;

use crate::agent::AgentWork;
use crate::config::Role;
use crate::controller::ControllerWork;
use crate::dev::DevHandle;
use crate::error::ControlError;
use crate::exposition::Exposition;
use crate::operator::Operator;
use crate::process;
use crate::push_check::PushCheck;
use crate::router::RouterWork;
use crate::settings::LiveSettings;
use crate::status::lost_quorums;
use error::ApiError;

/// The longest body of a request, in bytes: a lookup of many long keys.
const BODY_BYTES_MAX: usize = 16 << 20;

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
    pub(crate) catalog: Arc<SharedCatalog>,
    /// The client for keys that this process does not have.
    pub(crate) elsewhere: Elsewhere,
    pub(crate) settings: LiveSettings,
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

    /// Runs work that may wait for a disk on a thread where it delays no request.
    async fn blocking<T: Send + 'static>(
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
    fn node(&self) -> Option<NodeId> {
        self.agent.as_ref().and_then(|agent| agent.node())
    }

    /// Waits until the requests of this process see its last change.
    fn settle(&self) {
        if let Some(agent) = &self.agent {
            agent.wait_looked(WAIT_TIME_MAX);
        }
        if let Some(router) = &self.router {
            router.wait_looked(WAIT_TIME_MAX);
        }
    }

    /// Waits until all live nodes serve a store's current version. Nodes that are still behind are slow or gone, so the
    /// wait is bounded.
    fn wait_serving(&self, name: &StoreName) -> Result<(), ControlError> {
        let late = self.operator.wait_serving(name, WAIT_TIME_MAX)?;
        if !late.is_empty() {
            tracing::warn!(store = %name, ?late, "not all nodes serve the current version yet");
        }
        self.settle();
        Ok(())
    }

    /// Waits until this process has deleted its files of a version.
    fn wait_dropped(&self, name: &StoreName, version: VersionNumber) {
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
    fn warnings(&self, view: &ClusterView) -> Vec<String> {
        let mut warnings = lost_quorums(view);
        warnings.extend(self.agent.iter().flat_map(|agent| agent.damage()));
        if let Some(replicas) = &self.elsewhere.replicas {
            warnings.extend(replicas.damaged_stores(true));
            warnings.extend(replicas.keys_refused());
        }
        warnings
    }

    fn keys_in_memory(&self) -> Option<KeyMemoryResource> {
        let memory = self.agent.as_ref()?.replicas().key_memory()?;
        Some(KeyMemoryResource {
            keys: memory.keys,
            bytes: memory.bytes,
            bytes_max: memory.bytes_max,
        })
    }

    fn status(&self) -> NodeStatus {
        let mirror = self.operator.mirror();
        let view = mirror.view();
        let data_dir = self.agent.as_ref().map(|agent| agent.data_dir());
        let cluster = view.cluster.as_ref();
        NodeStatus {
            program_version: self.program_version.to_owned(),
            pid: std::process::id(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            role: self.role.into(),
            node: self.node().map(NodeId::get),
            cluster: cluster.map(|cluster| cluster.identity.to_string()),
            resp_addr: self.resp_addr.map(|addr| addr.to_string()),
            http_addr: self.http_addr.to_string(),
            data_directory: data_dir.map(|dir| dir.root().display().to_string()),
            disk_available_bytes: data_dir.and_then(|dir| dir.available_bytes()),
            versions_in_trash: self.agent.as_ref().map(|agent| agent.trashed()),
            partitions: cluster.map_or(0, |cluster| cluster.partitions.get()),
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

impl From<Role> for RoleName {
    fn from(role: Role) -> Self {
        match role {
            Role::Single => Self::Single,
            Role::Node => Self::Node,
            Role::Router => Self::Router,
            Role::Controller => Self::Controller,
        }
    }
}

/// All routes: path, method, handler. The tests compare them with the document.
fn routes() -> Vec<(&'static str, Method, MethodRouter<App>)> {
    vec![
        ("/v1/stores", Method::GET, get(stores::list)),
        ("/v1/stores", Method::POST, post(stores::create)),
        ("/v1/stores/{store}", Method::GET, get(stores::show)),
        ("/v1/stores/{store}", Method::PATCH, patch(stores::alter)),
        ("/v1/stores/{store}", Method::DELETE, delete(stores::drop_store)),
        ("/v1/stores/{store}/restore", Method::POST, post(stores::restore)),
        ("/v1/stores/{store}/versions", Method::GET, get(stores::versions)),
        ("/v1/stores/{store}/swap", Method::POST, post(stores::swap)),
        ("/v1/stores/{store}/rollback", Method::POST, post(stores::rollback)),
        ("/v1/stores/{store}/pushes", Method::POST, post(pushes::start)),
        ("/v1/stores/{store}/push", Method::GET, get(pushes::show)),
        ("/v1/stores/{store}/push", Method::DELETE, delete(pushes::cancel)),
        ("/v1/stores/{store}/keys/{key}", Method::GET, get(lookup::get)),
        (
            "/v1/stores/{store}/versions/{version}/files/{file}",
            Method::GET,
            get(files::get),
        ),
        (
            "/v1/stores/{store}/uploads",
            Method::POST,
            post(uploads::begin).layer(DefaultBodyLimit::max(uploads::MANIFEST_BYTES_MAX)),
        ),
        ("/v1/stores/{store}/uploads/{upload}", Method::GET, get(uploads::show)),
        (
            "/v1/stores/{store}/uploads/{upload}",
            Method::DELETE,
            delete(uploads::delete),
        ),
        (
            "/v1/stores/{store}/uploads/{upload}/files/{file}",
            Method::PUT,
            put(uploads::put),
        ),
        (
            "/v1/stores/{store}/uploads/{upload}/files/{file}",
            Method::GET,
            get(uploads::file),
        ),
        (
            "/v1/stores/{store}/partitions/{partition}/records",
            Method::GET,
            get(records::partition),
        ),
        ("/v1/stores/{store}/hints", Method::GET, get(records::hints)),
        (
            "/v1/stores/{store}/records",
            Method::POST,
            post(records::merge).layer(DefaultBodyLimit::max(records::MERGE_BYTES_MAX)),
        ),
        ("/v1/lookup", Method::POST, post(lookup::many)),
        ("/v1/cluster", Method::GET, get(cluster::show)),
        ("/v1/cluster/adopt", Method::POST, post(cluster::adopt)),
        ("/v1/nodes", Method::GET, get(cluster::nodes)),
        ("/v1/routing", Method::GET, get(cluster::routing)),
        ("/v1/routing/plans", Method::POST, post(cluster::begin_plan)),
        ("/v1/routing/plan", Method::DELETE, delete(cluster::cancel_plan)),
        ("/v1/dev/members", Method::GET, get(dev::list)),
        ("/v1/dev/members/{member}/stop", Method::POST, post(dev::stop)),
        ("/v1/dev/members/{member}/start", Method::POST, post(dev::start)),
        ("/v1/losses", Method::GET, get(losses::list)),
        ("/v1/losses/{loss}/accept", Method::POST, post(losses::accept)),
        ("/v1/status", Method::GET, get(node::status)),
        ("/v1/settings", Method::GET, get(node::settings)),
        ("/v1/settings", Method::PATCH, patch(node::change_settings)),
        ("/", Method::GET, get(node::front)),
        ("/healthz", Method::GET, get(node::healthz)),
        ("/readyz", Method::GET, get(node::readyz)),
        ("/metrics", Method::GET, get(node::metrics)),
        ("/openapi.json", Method::GET, get(node::document)),
    ]
}

/// The service that answers requests. `own` is its `host:port` for other processes; without a token it answers to IP
/// addresses, `localhost`, and the host of `name`.
pub(crate) fn router(app: App, token: Option<&str>, own: &str, name: Option<&str>, buffers: BufferBudget) -> Router {
    let guard = guard::Guard::new(token, own, name, Arc::clone(&app.traffic), buffers);
    let routes = routes().into_iter();
    let router = routes.fold(Router::new(), |router, (path, _, handler)| router.route(path, handler));
    router
        .fallback(|| async { ApiError::new("route_not_found", "there is no such path: see /openapi.json") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(
                "method_not_allowed",
                "this path does not support this method: see /openapi.json",
            )
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(axum::middleware::from_fn_with_state(guard, guard::guard))
        .with_state(app)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_documented_and_every_documented_operation_is_routed() {
        let document = serde_json::to_value(document()).unwrap();
        let mut documented = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                documented.insert((path.clone(), method.to_uppercase()));
            }
        }
        let routed: BTreeSet<_> = routes()
            .into_iter()
            .map(|(path, method, _)| (path.to_owned(), method.to_string()))
            .collect();
        assert_eq!(documented, routed);
    }

    #[test]
    fn every_error_code_has_a_status_and_is_unique() {
        let codes: BTreeSet<_> = ERROR_CODES.iter().map(|(code, ..)| code).collect();
        assert_eq!(codes.len(), ERROR_CODES.len());
    }
}
