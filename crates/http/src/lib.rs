//! The server of the control port: HTTP with JSON under `/v1`, health, metrics and the console beside it.
//!
//! - `server`, `connections`, `request_heads`, `guard`, `admission`: connections, callers, and limits;
//! - `callers`, `rights`, `sessions`: users, and their rights;
//! - a module for each family of paths: `stores`, `pushes`, `plans`, …;
//! - `openapi`: the document; `console`: pages for people; `exposition`: metrics.
//!
//! Every process has one, whatever its role, and each answers for the whole cluster. It makes no decisions: it parses
//! requests, calls the operator or the node's agent, and turns results and errors into answers. Work that may wait for
//! a disk runs on the runtime's blocking threads.

mod admission;
mod app;
mod body;
mod callers;
mod changes;
mod cluster;
mod cluster_client;
mod connections;
mod console;
mod dev;
mod dev_handle;
mod diff;
mod differences;
mod error;
mod events;
mod exposition;
mod files;
mod first_owners;
mod gate_checks;
mod graphs;
mod guard;
mod limits;
mod load;
mod lookup;
mod losses;
mod node;
mod openapi;
mod other_nodes;
mod plans;
mod pushes;
mod records;
mod request_heads;
mod rights;
mod schema_records;
mod schemas;
mod server;
mod sessions;
mod store_status;
mod stores;
mod streams;
mod traffic;
mod uploads;
mod users;
mod version_lookup;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use fondaco_node::BufferBudget;

pub use app::{App, AppParts};
pub use callers::Users;
pub use changes::{Followers, change_reader};
pub use cluster_client::ClusterClient;
pub use dev_handle::{DevHandle, DevMembers, MemberError};
pub use exposition::{Exposition, Observed};
pub use gate_checks::check_gates;
pub use limits::Limits;
pub use openapi::document;
pub use server::serve;
pub use traffic::Traffic;

use error::ApiError;

/// All routes: path, method, handler. The tests hold them against the document.
fn routes() -> Vec<(&'static str, Method, MethodRouter<App>)> {
    vec![
        ("/v1/stores", Method::GET, get(stores::list)),
        ("/v1/stores", Method::POST, post(stores::create)),
        ("/v1/stores/{store}", Method::GET, get(stores::show)),
        ("/v1/stores/{store}", Method::PATCH, patch(stores::alter)),
        ("/v1/stores/{store}", Method::DELETE, delete(stores::drop_store)),
        ("/v1/stores/{store}/restore", Method::POST, post(stores::restore)),
        ("/v1/stores/{store}/schemas", Method::GET, get(schemas::list)),
        ("/v1/stores/{store}/schemas", Method::POST, post(schemas::register)),
        (
            "/v1/stores/{store}/schemas/records",
            Method::GET,
            get(schema_records::count),
        ),
        ("/v1/stores/{store}/schemas/{id}", Method::GET, get(schemas::show)),
        (
            "/v1/stores/{store}/schemas/{id}/diff/{other}",
            Method::GET,
            get(schemas::diff),
        ),
        ("/v1/stores/{store}/versions", Method::GET, get(stores::versions)),
        ("/v1/stores/{store}/diff", Method::GET, get(diff::show)),
        ("/v1/stores/{store}/swap", Method::POST, post(stores::swap)),
        ("/v1/stores/{store}/rollback", Method::POST, post(stores::rollback)),
        ("/v1/stores/{store}/pushes", Method::POST, post(pushes::start)),
        ("/v1/stores/{store}/push", Method::GET, get(pushes::show)),
        ("/v1/stores/{store}/events", Method::POST, post(streams::log)),
        ("/v1/stores/{store}/stream", Method::GET, get(streams::show)),
        ("/v1/stores/{store}/stream/poison", Method::GET, get(streams::poison)),
        (
            "/v1/stores/{store}/stream/changes/{partition}",
            Method::GET,
            get(streams::changes),
        ),
        ("/v1/stores/{store}/changes", Method::GET, get(changes::follow_store)),
        ("/v1/stores/{store}/changes/part", Method::GET, get(changes::part)),
        ("/v1/stores/{store}/push", Method::DELETE, delete(pushes::cancel)),
        ("/v1/stores/{store}/canary", Method::POST, post(pushes::steer_canary)),
        (
            "/v1/stores/{store}/push/confirmation",
            Method::POST,
            post(pushes::confirm),
        ),
        ("/v1/stores/{store}/keys/{key}", Method::GET, get(lookup::get)),
        (
            "/v1/stores/{store}/versions/{version}/keys/{key}",
            Method::GET,
            get(version_lookup::get),
        ),
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
        ("/v1/graphs/{store}/query", Method::POST, post(graphs::query)),
        ("/v1/cluster", Method::GET, get(cluster::show)),
        ("/v1/cluster/adopt", Method::POST, post(cluster::adopt)),
        ("/v1/nodes", Method::GET, get(cluster::nodes)),
        ("/v1/routing", Method::GET, get(cluster::routing)),
        ("/v1/routing/split", Method::POST, post(cluster::split)),
        ("/v1/nodes/{node}", Method::DELETE, delete(cluster::forget)),
        ("/v1/nodes/{node}/mark", Method::POST, post(cluster::mark)),
        ("/v1/session", Method::GET, get(sessions::show)),
        (
            "/v1/session",
            Method::POST,
            post(sessions::begin).layer(DefaultBodyLimit::max(guard::OPEN_BODY_BYTES_MAX)),
        ),
        ("/v1/session", Method::DELETE, delete(sessions::end)),
        ("/v1/users", Method::GET, get(users::list)),
        ("/v1/users/{user}", Method::PUT, put(users::put)),
        ("/v1/users/{user}", Method::DELETE, delete(users::delete)),
        ("/v1/audit", Method::GET, get(users::audit)),
        ("/v1/events", Method::GET, get(events::stream)),
        ("/v1/where", Method::GET, get(cluster::place)),
        ("/v1/load", Method::GET, get(load::show)),
        ("/v1/load", Method::POST, post(load::report)),
        ("/v1/load/history", Method::GET, get(load::history)),
        ("/v1/decisions", Method::GET, get(load::decisions)),
        ("/v1/decisions/{decision}", Method::GET, get(load::decision)),
        ("/v1/plans", Method::GET, get(plans::list)),
        ("/v1/plans", Method::POST, post(plans::make)),
        ("/v1/plans/{plan}", Method::GET, get(plans::show)),
        ("/v1/plans/{plan}", Method::DELETE, delete(plans::cancel)),
        ("/v1/plans/{plan}/run", Method::POST, post(plans::run)),
        ("/v1/plans/{plan}/pause", Method::POST, post(plans::pause)),
        ("/v1/plans/{plan}/resume", Method::POST, post(plans::resume)),
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
        ("/openapi.json", Method::GET, get(openapi::show)),
    ]
}

/// The pages for people, which are no operations.
fn pages() -> [(&'static str, MethodRouter<App>); 3] {
    [
        ("/console", get(console::redirect)),
        ("/console/", get(console::index)),
        ("/console/{*file}", get(console::file)),
    ]
}

/// The service that answers requests. `own` is its `host:port` for other processes; without a token it answers to IP
/// addresses, `localhost`, and the host of `name`.
pub fn router(app: App, token: Option<&str>, own: &str, name: Option<&str>, buffers: BufferBudget) -> Router {
    let guard = guard::Guard::new(token, own, name, &app, buffers);
    let routes = routes().into_iter();
    let router = routes.fold(Router::new(), |router, (path, _, handler)| router.route(path, handler));
    let router = pages()
        .into_iter()
        .fold(router, |router, (path, handler)| router.route(path, handler));
    router
        .fallback(|| async { ApiError::new("route_not_found", "there is no such path: see /openapi.json") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(
                "method_not_allowed",
                "this path does not support this method: see /openapi.json",
            )
        })
        .layer(DefaultBodyLimit::max(guard::BODY_BYTES_MAX))
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
}
