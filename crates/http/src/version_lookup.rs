//! `/v1/stores/{store}/versions/{version}/keys/{key}`: a look-up in a version that may not be current, for the checks of a push.
//!
//! Any process answers: it asks the live owners of the key one after the other.

use axum::Json;
use axum::extract::State;
use fondaco_api::{ErrorResource, LookupResponse};
use fondaco_model::{StoreName, VersionNumber, first_replicas, slot_of_key};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::body::{PathTexts, QueryOf};
use crate::diff::store_with;
use crate::error::ApiError;
use crate::lookup::{decoded, encoded_key};
use crate::other_nodes::{ask_a_node, ask_one};

/// The query of a look-up.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Own {
    /// Between nodes: whether only the answering node looks.
    #[serde(default)]
    #[param(default = false)]
    own: bool,
}

/// Look one key up in a version that is kept, held or being pushed, whether or not it is current. Events on top of it and expiry do not
/// count. A key of several parts is a JSON list, and the value is JSON if the store declares a type.
#[utoipa::path(get, path = "/v1/stores/{store}/versions/{version}/keys/{key}", tag = "versions", params(("store" = String, Path, description = "The store"), ("version" = u64, Path, description = "The version"), ("key" = String, Path, description = "The key, as text"), Own), responses(
    (status = 200, description = "The value, the only one of the list; null if the version has no such key", body = LookupResponse),
    (status = "default", description = "An error: invalid_request, store_not_found, versioned_store, version_not_found, not_decodable, unavailable", body = ErrorResource),
))]
pub(super) async fn get(
    State(app): State<App>,
    PathTexts((name, version, text)): PathTexts<(StoreName, VersionNumber, String)>,
    QueryOf(Own { own }): QueryOf<Own>,
) -> Result<Json<LookupResponse>, ApiError> {
    let of_store = name.clone();
    let store = app.blocking(move |app| store_with(app, &of_store, &[version])).await?;
    let key = encoded_key(&app, &name, text.clone().into_bytes(), true)?;
    if own {
        let of_store = name.clone();
        let found = app.blocking(move |app| {
            let open = app
                .agent
                .as_ref()
                .and_then(|agent| agent.open_version(&of_store, version));
            let open =
                open.ok_or_else(|| ask_a_node(app, &format!("version {version} of {of_store} is not open here")))?;
            Ok(open.get_owned(&key)?)
        });
        let value = match found.await? {
            Some(value) => Some(decoded(&app, &name, value).await?),
            None => None,
        };
        return Ok(Json(LookupResponse { values: vec![value] }));
    }
    let owners: Vec<String> = {
        let view = app.operator.mirror().view();
        let table = view.routing.as_ref().map(|table| &table.record);
        let partition = |slot| table.map(|table| table.owners(table.partitions().partition_of(slot)));
        let owners = partition(slot_of_key(&name, &key)).unwrap_or_default();
        let live = first_replicas(owners, view.replicas(&store)).iter();
        let live = live.filter(|&&node| view.is_live(node));
        live.filter_map(|node| Some(view.nodes.get(node)?.record.http.clone()))
            .collect()
    };
    let key = utf8_percent_encode(&text, NON_ALPHANUMERIC);
    let target = format!("/v1/stores/{name}/versions/{version}/keys/{key}?own=true");
    let mut reason = "no node that owns it is live".to_owned();
    for address in owners {
        match ask_one(app.peers.port(&address), target.clone()).await {
            Ok(found) => return Ok(Json(found)),
            Err(error) => reason = format!("{address}: {error}"),
        }
    }
    let message = format!("cannot look up key {text:?} in version {version} of store {name:?}: {reason}");
    Err(ApiError::new("unavailable", message))
}
