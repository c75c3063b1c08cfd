//! Look-ups over HTTP, for people and `curl`. The fast path is RESP.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fondaco_model::cluster::operator::OperatorError;
use fondaco_model::{KEY_BYTES_MAX, StoreName};
use fondaco_node::{Catalog, Serving};

use super::App;
use super::body::{JsonBody, KeyPath};
use super::error::{ApiError, ErrorResource};
use super::resources::{LookupRequest, LookupResponse, LookupValue};
use crate::error::ControlError;

/// How many keys one request may look up.
const KEYS_MAX: usize = 1000;

/// How long the values of one answer may be together, in bytes.
const VALUES_BYTES_MAX: usize = 64 << 20;

/// Look one key up.
#[utoipa::path(get, path = "/v1/stores/{store}/keys/{key}", tag = "look-ups", params(
    ("store" = String, Path, description = "The store"),
    ("key" = String, Path, description = "The key, its bytes percent-encoded"),
), responses(
    (status = 200, description = "The value, as it is", body = Vec<u8>, content_type = "application/octet-stream"),
    (status = "default", description = "An error: store_not_found, key_not_found, nothing_served, version_failed", body = ErrorResource),
))]
pub(super) async fn get(State(app): State<App>, KeyPath { store, key }: KeyPath) -> Result<Response, ApiError> {
    let missing = format!("store {store:?} has no key {:?}", String::from_utf8_lossy(&key));
    let value = app
        .blocking(move |app| look_up(&app.catalog.load(), &store, &key))
        .await?;
    match value {
        Some(value) => Ok(([(header::CONTENT_TYPE, "application/octet-stream")], value).into_response()),
        None => Err(ApiError::new("key_not_found", missing)),
    }
}

/// Look several keys up, of one store or of several. All values of a store are of one version.
#[utoipa::path(post, path = "/v1/lookup", tag = "look-ups", request_body = LookupRequest, responses(
    (status = 200, description = "The values", body = LookupResponse),
    (status = "default", description = "An error: invalid_request, store_not_found, nothing_served, version_failed, answer_too_large", body = ErrorResource),
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
    let keys = request
        .keys
        .iter()
        .map(|wire| parse(wire))
        .collect::<Result<Vec<_>, _>>()?;
    let values = app.blocking(move |app| {
        let catalog = Arc::clone(&app.catalog.load());
        let mut bytes = 0;
        let mut values = Vec::with_capacity(keys.len());
        for (store, key) in &keys {
            let value = look_up(&catalog, store, key)?;
            bytes += value.as_ref().map_or(0, Vec::len);
            if bytes > VALUES_BYTES_MAX {
                return Ok(None);
            }
            values.push(value.map(LookupValue::from));
        }
        Ok(Some(values))
    });
    match values.await? {
        Some(values) => Ok(Json(LookupResponse { values })),
        None => Err(ApiError::new(
            "answer_too_large",
            format!("the values have more than {VALUES_BYTES_MAX} bytes: look up fewer keys, or use RESP"),
        )),
    }
}

fn parse(wire: &str) -> Result<(StoreName, Vec<u8>), ApiError> {
    let Some((store, key)) = wire.split_once(':') else {
        return Err(ApiError::invalid(format!(
            "invalid key {wire:?}: keys are written store:key"
        )));
    };
    let store = store.parse().map_err(|error| ApiError::invalid(format!("{error}")))?;
    Ok((store, key.as_bytes().to_vec()))
}

fn look_up(catalog: &Catalog, name: &StoreName, key: &[u8]) -> Result<Option<Vec<u8>>, ControlError> {
    let Some(store) = catalog.store(name) else {
        return Err(OperatorError::StoreNotFound { store: name.clone() }.into());
    };
    match &store.serving {
        // No builder writes such a key.
        Serving::Version(..) if !(1..=KEY_BYTES_MAX).contains(&key.len()) => Ok(None),
        Serving::Version(_, version) => Ok(version.get(key)?.map(|value| value.to_vec())),
        Serving::Nothing => Err(ControlError::NothingServed { store: name.clone() }),
        Serving::Failed(version, reason) => Err(ControlError::VersionFailed {
            store: name.clone(),
            version: *version,
            reason: reason.clone(),
        }),
    }
}

impl From<Vec<u8>> for LookupValue {
    fn from(value: Vec<u8>) -> Self {
        match String::from_utf8(value) {
            Ok(text) => Self::Utf8(text),
            Err(error) => Self::Base64(STANDARD.encode(error.as_bytes())),
        }
    }
}
