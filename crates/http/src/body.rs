//! Reading requests: bodies, names, and keys, each refused with a reason.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use fondaco_model::StoreName;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::error::ApiError;

/// A JSON body; an empty one counts as `{}`.
pub(super) struct JsonBody<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let BytesBody(bytes) = BytesBody::from_request(request, state).await?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text)
            .map(Self)
            .map_err(|error| ApiError::invalid(format!("invalid request body: {error}; see /openapi.json")))
    }
}

/// A body of raw bytes.
pub(super) struct BytesBody(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for BytesBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let read = Bytes::from_request(request, state).await;
        read.map(Self).map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::new("body_too_large", "the request's body is too long"),
            _ => ApiError::invalid(format!("cannot read the request's body: {rejection}")),
        })
    }
}

/// The store named in the path.
pub(super) struct StorePath(pub(super) StoreName);

impl<S: Send + Sync> FromRequestParts<S> for StorePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path: Path<Vec<(String, String)>> = Path::from_request_parts(parts, state)
            .await
            .map_err(|error| ApiError::invalid(format!("invalid path: {error}")))?;
        let name = path.iter().find(|(parameter, _)| parameter == "store");
        let name = name.map_or("", |(_, name)| name);
        name.parse()
            .map(Self)
            .map_err(|error| ApiError::invalid(format!("{error}")))
    }
}

/// The store and the key of `…/stores/{store}/keys/{key}`. The key is any bytes, percent-encoded.
pub(super) struct KeyPath {
    pub(super) store: StoreName,
    pub(super) key: Vec<u8>,
}

impl<S: Send + Sync> FromRequestParts<S> for KeyPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // Not with axum's extractor, which takes a path's parameters for text.
        let mut segments = parts.uri.path().rsplit('/');
        let (key, store) = (segments.next().unwrap_or_default(), segments.nth(1).unwrap_or_default());
        let decode = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
        let store = String::from_utf8_lossy(&decode(store)).into_owned();
        let store = store.parse().map_err(|error| ApiError::invalid(format!("{error}")))?;
        Ok(Self {
            store,
            key: decode(key),
        })
    }
}

/// Whether the answer waits until all live nodes know of the change.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Wait {
    /// Whether to wait until all live nodes serve the version, for 10 seconds at most.
    #[serde(default = "yes")]
    #[param(default = true)]
    pub(super) wait: bool,
}

/// Whether the data of a dropped store is kept.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Dropping {
    /// Whether to delete the data at once, instead of keeping it for a while, with that of earlier dropped stores of
    /// this name.
    #[serde(default)]
    #[param(default = false)]
    pub(super) now: bool,
}

/// Whether values are shown as JSON.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Decoding {
    /// Whether the value, and a key of several parts, is JSON, by the types that the store declares.
    #[serde(default)]
    #[param(default = false)]
    pub(super) decode: bool,
}

/// The parameters of a query.
pub(super) struct QueryOf<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryOf<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(parameters)) => Ok(Self(parameters)),
            Err(error) => Err(ApiError::invalid(format!("invalid query: {error}"))),
        }
    }
}

/// The parameters of a path, as text.
pub(super) struct PathTexts<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathTexts<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(texts)) => Ok(Self(texts)),
            Err(error) => Err(ApiError::invalid(format!("invalid path: {error}"))),
        }
    }
}

fn yes() -> bool {
    true
}
