//! Errors as the HTTP port reports them: one JSON shape, a status, and a code that scripts can test.
//!
//! `{"error": {"code": "push_in_progress", "message": "…what to do…"}}`

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, body::Body};
use fondaco_node::FetchError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ControlError;

/// An error.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorResource {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// For programs; one of the documented codes.
    #[schema(example = "push_in_progress")]
    pub code: String,
    /// For people: what failed, on what, and what to do.
    pub message: String,
}

/// An error on its way to a client.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

/// All codes, with the status that each comes with and its meaning.
pub const ERROR_CODES: [(&str, u16, &str); 24] = [
    (
        "invalid_request",
        400,
        "the request's path, query or body is not what the document says",
    ),
    (
        "unauthorized",
        401,
        "the control port has a token, and the request has not, or another one",
    ),
    (
        "foreign_origin",
        403,
        "a browser sent it for a web page of another origin, and the control port has no token",
    ),
    ("route_not_found", 404, "nothing has this path"),
    ("store_not_found", 404, "no store has this name"),
    ("version_not_found", 404, "the store does not keep this version"),
    ("push_not_found", 404, "the store was never pushed to"),
    (
        "key_not_found",
        404,
        "the store's current version does not have this key",
    ),
    ("method_not_allowed", 405, "the path has other methods"),
    ("store_exists", 409, "a store has this name already"),
    ("too_many_stores", 409, "the node has as many stores as it can"),
    ("push_in_progress", 409, "the store is being pushed to"),
    ("push_ended", 409, "there is no push to cancel"),
    ("version_failed", 409, "the version is kept, but cannot be opened"),
    ("nothing_served", 409, "the store serves no version yet"),
    ("no_rollback", 409, "the store keeps no version to go back to"),
    (
        "body_too_large",
        413,
        "the request's body is longer than the port accepts",
    ),
    (
        "invalid_source",
        422,
        "there is no version at the source that this store could take",
    ),
    ("answer_too_large", 422, "the values are too long for one answer"),
    ("internal", 500, "the node could not do it; its log says more"),
    ("overloaded", 503, "too many requests are being answered"),
    ("too_many_pushes", 503, "too many stores are being pushed to"),
    ("unavailable", 503, "the node is stopping, or the request took too long"),
    ("not_enough_space", 507, "the version does not fit on the disk"),
];

impl ApiError {
    /// An error with one of the [`ERROR_CODES`].
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        let known = ERROR_CODES.iter().find(|(known, ..)| *known == code);
        debug_assert!(known.is_some(), "error code {code:?} is not documented");
        let status = known.and_then(|(_, status, _)| StatusCode::from_u16(*status).ok());
        Self {
            status: status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code,
            message: message.into(),
        }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new("invalid_request", message)
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let code = code_of(&error);
        if code == "internal" {
            tracing::error!(%error, "request failed");
        }
        Self::new(code, error.to_string())
    }
}

fn code_of(error: &ControlError) -> &'static str {
    match error {
        ControlError::StoreNotFound { .. } => "store_not_found",
        ControlError::StoreExists { .. } => "store_exists",
        ControlError::TooManyStores { .. } => "too_many_stores",
        ControlError::InvalidDefinition { .. } | ControlError::Setting(_) => "invalid_request",
        ControlError::VersionNotFound { .. } => "version_not_found",
        ControlError::VersionFailed { .. } => "version_failed",
        ControlError::NothingServed { .. } => "nothing_served",
        ControlError::NoRollback { .. } => "no_rollback",
        ControlError::PushInProgress { .. } => "push_in_progress",
        ControlError::PushNotFound { .. } => "push_not_found",
        ControlError::PushEnded { .. } => "push_ended",
        ControlError::TooManyPushes { .. } => "too_many_pushes",
        ControlError::Stopping => "unavailable",
        ControlError::InvalidSource(_) => "invalid_source",
        ControlError::Fetch(error) => match error {
            FetchError::Source { .. }
            | FetchError::Manifest { .. }
            | FetchError::WrongStore { .. }
            | FetchError::WrongPartitions { .. }
            | FetchError::Mismatch { .. } => "invalid_source",
            FetchError::NoSpace { .. } | FetchError::DiskFull { .. } => "not_enough_space",
            FetchError::Cancelled | FetchError::Interrupted => "unavailable",
            FetchError::Io { .. } => "internal",
        },
        ControlError::Coordination(_)
        | ControlError::Format(_)
        | ControlError::PushPanicked
        | ControlError::InvalidMetadata { .. }
        | ControlError::PartitionsChanged { .. }
        | ControlError::DataDirLocked { .. }
        | ControlError::Insecure { .. }
        | ControlError::InvalidConfig(_)
        | ControlError::Resp(_)
        | ControlError::Listen { .. }
        | ControlError::Io { .. } => "internal",
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let body = Json(ErrorResource {
            error: ErrorDetail {
                code: self.code.to_owned(),
                message: self.message,
            },
        });
        let mut response = (self.status, body).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"fondaco\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
