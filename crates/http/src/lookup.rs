//! Lookups over HTTP, for people and `curl`. The fast path is RESP.
//!
//! Keys of versions on this node are looked up here; keys of versioned stores are read from their replicas. If any key
//! of a request is on another node, all keys are read through the client library, so that all values of a store are of
//! one version.

use std::fmt::Display;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fondaco_api::{DecodedValue, ErrorResource, LookupRequest, LookupResponse, LookupValue};
use fondaco_catalog::{Catalog, Serving};
use fondaco_client::{ClientError, ReadOptions};
use fondaco_decisions::operator::OperatorError;
use fondaco_format::FormatError;
use fondaco_model::{KEY_BYTES_MAX, KeyType, StoreKind, StoreName};
use fondaco_protocol::WireKey;
use fondaco_schema::{Schema, key_of_json, read_id, value_to_json};

use crate::app::App;
use crate::body::{Decoding, JsonBody, KeyPath, QueryOf};
use crate::cluster_client::ClusterClient;
use crate::error::ApiError;
use crate::other_nodes::ask_a_node;

/// How many keys one request may look up.
const KEYS_MAX: usize = 1000;

/// How long the values of one answer may be in total, in bytes.
const VALUES_BYTES_MAX: usize = 64 << 20;

/// A key of a store.
type Key = (StoreName, Vec<u8>);

/// Look one key up.
#[utoipa::path(get, path = "/v1/stores/{store}/keys/{key}", tag = "look-ups", params(
    ("store" = String, Path, description = "The store"),
    ("key" = String, Path, description = "The key, its bytes percent-encoded"),
    Decoding,
), responses(
    (status = 200, description = "The value, as it is; or as JSON, with the number of its schema: a DecodedValue", body = Vec<u8>, content_type = "application/octet-stream"),
    (status = "default", description = "An error: store_not_found, key_not_found, not_decodable, nothing_served, version_failed, unavailable", body = ErrorResource),
))]
pub(super) async fn get(
    State(app): State<App>,
    KeyPath { store, key }: KeyPath,
    QueryOf(Decoding { decode }): QueryOf<Decoding>,
) -> Result<Response, ApiError> {
    let missing = format!("store {store:?} has no key {:?}", String::from_utf8_lossy(&key));
    let key = encoded_key(&app, &store, key, decode)?;
    let mut values = look_up(&app, vec![(store.clone(), key)]).await?;
    match values.pop().flatten() {
        Some(value) if decode => match decoded(&app, &store, value).await? {
            LookupValue::Decoded(decoded) => Ok(Json(decoded).into_response()),
            LookupValue::Utf8(_) | LookupValue::Base64(_) => {
                let message = format!("store {store:?} declares no type of values: leave out the decoding");
                Err(ApiError::new("not_decodable", message))
            }
        },
        Some(value) => Ok(([(header::CONTENT_TYPE, "application/octet-stream")], value).into_response()),
        None => Err(ApiError::new("key_not_found", missing)),
    }
}

/// Look up several keys, of one or several stores. All values of a store are of one version.
#[utoipa::path(post, path = "/v1/lookup", tag = "look-ups", request_body = LookupRequest, responses(
    (status = 200, description = "The values", body = LookupResponse),
    (status = "default", description = "An error: invalid_request, store_not_found, nothing_served, version_failed, answer_too_large, unavailable", body = ErrorResource),
))]
pub(super) async fn many(
    State(app): State<App>,
    JsonBody(request): JsonBody<LookupRequest>,
) -> Result<Json<LookupResponse>, ApiError> {
    if request.keys.len() > KEYS_MAX {
        let count = request.keys.len();
        return Err(ApiError::invalid(format!(
            "{count} keys: look up at most {KEYS_MAX} at a time"
        )));
    }
    let keys = request.keys.iter().map(|wire| {
        let (store, key) = parse(wire)?;
        let key = encoded_key(&app, &store, key, request.decode)?;
        Ok((store, key))
    });
    let keys: Vec<Key> = keys.collect::<Result<_, ApiError>>()?;
    let stores: Vec<StoreName> = keys.iter().map(|(store, _)| store.clone()).collect();
    let found = look_up(&app, keys).await?;
    let mut values = Vec::with_capacity(found.len());
    for (store, value) in stores.iter().zip(found) {
        values.push(match value {
            None => None,
            Some(value) if request.decode => Some(decoded(&app, store, value).await?),
            Some(value) => Some(lookup_value(value)),
        });
    }
    Ok(Json(LookupResponse { values }))
}

/// A key as it is stored: people write one of several parts as a JSON list.
pub(super) fn encoded_key(app: &App, store: &StoreName, key: Vec<u8>, decode: bool) -> Result<Vec<u8>, ApiError> {
    let view = app.operator.mirror().view();
    let known = view.stores.get(store).filter(|_| decode);
    let Some(key_type @ KeyType::Tuple(_)) = known.map(|known| &known.record.definition.key_type) else {
        return Ok(key);
    };
    let parts = serde_json::from_slice(&key).map_err(|error| format!("no JSON list: {error}"));
    let encoded = parts.and_then(|parts| key_of_json(key_type, &parts).map_err(|error| error.to_string()));
    encoded.map_err(|error| {
        let (text, key_type) = (String::from_utf8_lossy(&key), key_type);
        let message = format!("key {text:?} of store {store:?} is not of type {key_type}: {error}; write [\"a\", 1]");
        ApiError::new("not_decodable", message)
    })
}

/// A value as JSON, if its store declares a type; else as it is.
pub(super) async fn decoded(app: &App, store: &StoreName, value: Vec<u8>) -> Result<LookupValue, ApiError> {
    let (value_type, schemas) = {
        let catalog = app.catalog.load();
        let Some(known) = catalog.store(store) else {
            return Ok(lookup_value(value));
        };
        (catalog.value_type(known), catalog.schemas(known).cloned())
    };
    let wrong = |error: &dyn Display| {
        let message = format!("a value of store {store:?} cannot be decoded: {error}");
        ApiError::new("not_decodable", message)
    };
    if !value_type.has_schemas() {
        let json = value_to_json(value_type, &value).map_err(|error| wrong(&error))?;
        return Ok(match json {
            Some(json) => LookupValue::Decoded(DecodedValue { schema: None, json }),
            None => lookup_value(value),
        });
    }
    let (id, payload) = read_id(&value).map_err(|error| wrong(&error))?;
    let schema = match schemas.and_then(|schemas| schemas.get(id).cloned()) {
        Some(schema) => schema,
        None => {
            // This process may not have heard of it yet.
            let name = store.clone();
            let found = app.blocking(move |app| Ok(app.operator.schema(&name, id)?)).await?;
            let found = found.ok_or_else(|| wrong(&format!("no schema has the number {id}")))?;
            Schema::of_record(&found).map_err(|error| wrong(&error))?
        }
    };
    let json = schema.to_json(payload).map_err(|error| wrong(&error))?;
    Ok(LookupValue::Decoded(DecodedValue { schema: Some(id), json }))
}

fn parse(wire: &str) -> Result<Key, ApiError> {
    let Some((store, key)) = wire.split_once(':') else {
        return Err(ApiError::invalid(format!(
            "invalid key {wire:?}: keys are written store:key"
        )));
    };
    let store = store.parse().map_err(|error| ApiError::invalid(format!("{error}")))?;
    Ok((store, key.as_bytes().to_vec()))
}

/// The values of some keys, wherever they are stored.
async fn look_up(app: &App, keys: Vec<Key>) -> Result<Vec<Option<Vec<u8>>>, ApiError> {
    if app.agent.is_none() && app.router.is_none() {
        return Err(ask_a_node(app, "this process answers no look-ups"));
    }
    let keys = Arc::new(keys);
    let own = Arc::clone(&keys);
    let found = app.blocking(move |app| look_up_here(&app.catalog.load(), &own)).await?;
    match found {
        Here::Values(values) => Ok(values),
        Here::TooLarge => Err(too_large()),
        Here::Elsewhere => look_up_elsewhere(&app.cluster_client, &keys).await,
    }
}

fn too_large() -> ApiError {
    let message = format!("the values have more than {VALUES_BYTES_MAX} bytes: look up fewer keys, or use RESP");
    ApiError::new("answer_too_large", message)
}

/// The result of a lookup in this process.
enum Here {
    /// All values.
    Values(Vec<Option<Vec<u8>>>),
    /// More bytes than an answer may have.
    TooLarge,
    /// Incomplete: some keys are on other nodes.
    Elsewhere,
}

fn look_up_here(catalog: &Catalog, keys: &[Key]) -> Result<Here, ApiError> {
    let mut bytes = 0;
    let mut values = Vec::with_capacity(keys.len());
    for (name, key) in keys {
        let Some(store) = catalog.store(name) else {
            return Err(OperatorError::StoreNotFound { store: name.clone() }.into());
        };
        // The later events of a hybrid store may be on the disk.
        if matches!(store.kind, StoreKind::Versioned | StoreKind::Hybrid) {
            return Ok(Here::Elsewhere);
        }
        let others = catalog
            .membership()
            .is_some_and(|membership| membership.topology().nodes.len() > 1 || membership.is_router());
        let value = match &store.serving {
            // Builders write no such key.
            Serving::Version(..) if !is_key(key) => None,
            Serving::Version(_, version) => match version.get_owned(key) {
                Ok(value) => value,
                Err(FormatError::NotHeld { .. }) => return Ok(Here::Elsewhere),
                Err(error) => return Err(error.into()),
            },
            _ if others => return Ok(Here::Elsewhere),
            Serving::Nothing => {
                let message = format!("store {name:?} serves no version: push one first");
                return Err(ApiError::new("nothing_served", message));
            }
            Serving::Failed(version, reason) => {
                let message = format!("version {version} of store {name:?} cannot be served: {reason}");
                return Err(ApiError::new("version_failed", message));
            }
        };
        bytes += value.as_ref().map_or(0, Vec::len);
        if bytes > VALUES_BYTES_MAX {
            return Ok(Here::TooLarge);
        }
        values.push(value);
    }
    Ok(Here::Values(values))
}

fn is_key(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len())
}

async fn look_up_elsewhere(cluster_client: &ClusterClient, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>, ApiError> {
    let client = cluster_client.client()?;
    let mut wire_keys = Vec::with_capacity(keys.len());
    for (store, key) in keys.iter().filter(|(_, key)| is_key(key)) {
        wire_keys.push(WireKey::new(store, key).map_err(ClientError::from)?);
    }
    let reply = client.read(wire_keys, &ReadOptions::default()).await?;
    let mut found = reply.values.into_iter();
    let mut values = Vec::with_capacity(keys.len());
    let mut bytes = 0;
    for (_, key) in keys {
        let value = match is_key(key) {
            true => found.next().transpose()?.flatten(),
            false => None,
        };
        bytes += value.as_ref().map_or(0, |value| value.len());
        if bytes > VALUES_BYTES_MAX {
            return Err(too_large());
        }
        values.push(value.map(|value| value.to_vec()));
    }
    Ok(values)
}

/// A value as text, or in base 64.
pub(super) fn lookup_value(value: Vec<u8>) -> LookupValue {
    match String::from_utf8(value) {
        Ok(text) => LookupValue::Utf8(text),
        Err(error) => LookupValue::Base64(STANDARD.encode(error.as_bytes())),
    }
}
