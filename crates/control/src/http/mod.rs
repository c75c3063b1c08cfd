//! The control port: HTTP with JSON under `/v1`, health and metrics beside it.
//!
//! It decides nothing: it parses, asks the stores, and puts answers and errors into words. Whatever
//! may wait for a disk is done on the runtime's blocking threads.

mod body;
mod error;
mod guard;
mod lookup;
mod node;
mod openapi;
mod pushes;
mod resources;
pub(crate) mod server;
mod stores;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::routing::{MethodRouter, delete, get, patch, post};
use fondaco_node::{NodeMetrics, SharedCatalog};

pub use error::{ERROR_CODES, ErrorDetail, ErrorResource};
pub(crate) use guard::Traffic;
pub use openapi::document;
pub use resources::*;

use crate::error::ControlError;
use crate::exposition::Exposition;
use crate::process;
use crate::settings::LiveSettings;
use crate::stores::Stores;
use error::ApiError;

/// The longest body of a request, in bytes: a look-up of many long keys.
const BODY_BYTES_MAX: usize = 16 << 20;

/// What handlers answer from.
#[derive(Clone)]
pub(crate) struct App(Arc<AppParts>);

pub(crate) struct AppParts {
    pub(crate) stores: Stores,
    pub(crate) catalog: Arc<SharedCatalog>,
    pub(crate) settings: LiveSettings,
    pub(crate) metrics: Arc<NodeMetrics>,
    pub(crate) exposition: Exposition,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) partitions: u32,
    pub(crate) resp_addr: SocketAddr,
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

    /// Does what may wait for a disk where nobody waits with it.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&App) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = self.clone();
        match tokio::task::spawn_blocking(move || work(&app)).await {
            Ok(outcome) => Ok(outcome?),
            Err(error) => Err(ApiError::new("internal", format!("the request's work ended: {error}"))),
        }
    }

    fn status(&self) -> NodeStatus {
        NodeStatus {
            program_version: self.program_version.to_owned(),
            pid: std::process::id(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            resp_addr: self.resp_addr.to_string(),
            http_addr: self.http_addr.to_string(),
            data_directory: self.stores.data_dir().root().display().to_string(),
            disk_available_bytes: self.stores.data_dir().available_bytes(),
            partitions: self.partitions,
            resident_bytes: process::resident_bytes(),
            clients: self.metrics.clients(),
            stores: self.catalog.load().stores().len() as u64,
            not_ready: self.stores.not_ready(),
        }
    }
}

/// All routes: path, method, handler. The tests hold them against the document.
fn routes() -> Vec<(&'static str, Method, MethodRouter<App>)> {
    vec![
        ("/v1/stores", Method::GET, get(stores::list)),
        ("/v1/stores", Method::POST, post(stores::create)),
        ("/v1/stores/{store}", Method::GET, get(stores::show)),
        ("/v1/stores/{store}", Method::PATCH, patch(stores::alter)),
        ("/v1/stores/{store}", Method::DELETE, delete(stores::drop_store)),
        ("/v1/stores/{store}/versions", Method::GET, get(stores::versions)),
        ("/v1/stores/{store}/swap", Method::POST, post(stores::swap)),
        ("/v1/stores/{store}/rollback", Method::POST, post(stores::rollback)),
        ("/v1/stores/{store}/pushes", Method::POST, post(pushes::start)),
        ("/v1/stores/{store}/push", Method::GET, get(pushes::show)),
        ("/v1/stores/{store}/push", Method::DELETE, delete(pushes::cancel)),
        ("/v1/stores/{store}/keys/{key}", Method::GET, get(lookup::get)),
        ("/v1/lookup", Method::POST, post(lookup::many)),
        ("/v1/status", Method::GET, get(node::status)),
        ("/v1/settings", Method::GET, get(node::settings)),
        ("/v1/settings", Method::PATCH, patch(node::change_settings)),
        ("/healthz", Method::GET, get(node::healthz)),
        ("/readyz", Method::GET, get(node::readyz)),
        ("/metrics", Method::GET, get(node::metrics)),
        ("/openapi.json", Method::GET, get(node::document)),
    ]
}

/// The service that answers requests.
pub(crate) fn router(app: App, token: Option<&str>) -> Router {
    let guard = guard::Guard::new(token, Arc::clone(&app.traffic));
    let routes = routes().into_iter();
    let router = routes.fold(Router::new(), |router, (path, _, handler)| router.route(path, handler));
    router
        .fallback(|| async { ApiError::new("route_not_found", "nothing has this path: see /openapi.json") })
        .method_not_allowed_fallback(|| async {
            ApiError::new("method_not_allowed", "this path has other methods: see /openapi.json")
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
