//! The process itself: its status, its settings, liveness and readiness, its metrics, and the OpenAPI document.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use fondaco_api::{ErrorResource, Front, Health, NodeStatus, Readiness, SettingChanges, SettingList};

use crate::app::App;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::exposition::TextFormat;

/// Show the answering process.
#[utoipa::path(get, path = "/v1/status", tag = "node", responses(
    (status = 200, description = "The process", body = NodeStatus),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn status(State(app): State<App>) -> Result<Json<NodeStatus>, ApiError> {
    Ok(Json(app.blocking(|app| Ok(app.status())).await?))
}

/// Show the settings that can be changed while the cluster runs, as the answering process has them.
#[utoipa::path(get, path = "/v1/settings", tag = "node", responses(
    (status = 200, description = "The settings", body = SettingList),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn settings(State(app): State<App>) -> Json<SettingList> {
    Json(app.settings.list())
}

/// Change settings for all processes of the cluster, at once and permanently. Either all are changed or none.
#[utoipa::path(patch, path = "/v1/settings", tag = "node", request_body = SettingChanges, responses(
    (status = 200, description = "The settings as they are now", body = SettingList),
    (status = "default", description = "An error: invalid_request", body = ErrorResource),
))]
pub(super) async fn change_settings(
    State(app): State<App>,
    JsonBody(changes): JsonBody<SettingChanges>,
) -> Result<Json<SettingList>, ApiError> {
    app.blocking(move |app| Ok(app.settings.change(&changes)?)).await?;
    Ok(Json(app.settings.list()))
}

/// Describe this port, with the paths to continue from; a browser is sent to the console. Needs no token.
#[utoipa::path(get, path = "/", tag = "node", security(()), responses(
    (status = 200, description = "The port", body = Front),
    (status = 307, description = "The console, if the request accepts `text/html`"),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn front(State(app): State<App>, headers: HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT).iter();
    if accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/html"))
    {
        return ([(header::VARY, "accept")], Redirect::temporary("/console/")).into_response();
    }
    let front = Front {
        name: "fondaco".to_owned(),
        program_version: app.program_version.to_owned(),
        role: app.role,
        status: "/v1/status".to_owned(),
        ready: "/readyz".to_owned(),
        metrics: "/metrics".to_owned(),
        document: "/openapi.json".to_owned(),
    };
    ([(header::VARY, "accept")], Json(front)).into_response()
}

/// Whether the process is alive. Needs no token.
#[utoipa::path(get, path = "/healthz", tag = "node", security(()), responses(
    (status = 200, description = "The process is alive", body = Health),
))]
pub(super) async fn healthz() -> Json<Health> {
    Json(Health { alive: true })
}

/// Whether the process serves everything that it should. Needs no token.
#[utoipa::path(get, path = "/readyz", tag = "node", security(()), responses(
    (status = 200, description = "The process is ready", body = Readiness),
    (status = 503, description = "The process is not ready", body = Readiness),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn readyz(State(app): State<App>) -> Result<Response, ApiError> {
    let readiness = app.blocking(|app| {
        let reasons = app.not_ready();
        let warnings = app.warnings(&app.operator.mirror().view());
        Ok((reasons, warnings))
    });
    let (reasons, warnings) = readiness.await?;
    let status = match reasons.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let ready = reasons.is_empty();
    Ok((
        status,
        Json(Readiness {
            ready,
            reasons,
            warnings,
        }),
    )
        .into_response())
}

/// Metrics: in Prometheus's text format, or in OpenMetrics for scrapers that accept it.
#[utoipa::path(get, path = "/metrics", tag = "node", responses(
    (status = 200, description = "The metrics", content((String = "text/plain"), (String = "application/openmetrics-text"))),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn metrics(State(app): State<App>, headers: HeaderMap) -> Result<Response, ApiError> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = TextFormat::accepted(accept);
    let text = app.blocking(move |app| Ok(app.exposition.encode(format))).await?;
    match text {
        Ok(text) => Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response()),
        Err(error) => Err(ApiError::new("internal", format!("cannot write metrics: {error}"))),
    }
}
