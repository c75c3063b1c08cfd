//! `/v1/stores/{store}/pushes`: starting, watching and cancelling pushes.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::App;
use super::body::{JsonBody, StorePath};
use super::error::{ApiError, ErrorResource};
use super::resources::{DryRunResource, NewPush, PushResource};

/// Push a version that was built: fetch it, and swap it in. Answers when the push is under way.
#[utoipa::path(post, path = "/v1/stores/{store}/pushes", tag = "pushes", params(("store" = String, Path, description = "The store")), request_body = NewPush, responses(
    (status = 202, description = "The push that was started", body = PushResource),
    (status = 200, description = "What the push would do, if `dry_run` was asked for", body = DryRunResource),
    (status = "default", description = "An error: invalid_request, store_not_found, push_in_progress, invalid_source, not_enough_space, too_many_pushes", body = ErrorResource),
))]
pub(super) async fn start(
    State(app): State<App>,
    StorePath(name): StorePath,
    JsonBody(new): JsonBody<NewPush>,
) -> Result<Response, ApiError> {
    if new.dry_run {
        let run = app.blocking(move |app| app.stores.dry_run(&name, &new.source)).await?;
        return Ok(Json(DryRunResource::from(run)).into_response());
    }
    let push = app.blocking(move |app| app.stores.push(&name, &new.source)).await?;
    Ok((StatusCode::ACCEPTED, Json(PushResource::from(push))).into_response())
}

/// Show the push under way, or the last one.
#[utoipa::path(get, path = "/v1/stores/{store}/push", tag = "pushes", params(("store" = String, Path, description = "The store")), responses(
    (status = 200, description = "The push", body = PushResource),
    (status = "default", description = "An error: store_not_found, push_not_found", body = ErrorResource),
))]
pub(super) async fn show(State(app): State<App>, StorePath(name): StorePath) -> Result<Json<PushResource>, ApiError> {
    let push = app.blocking(move |app| app.stores.push_status(&name)).await?;
    Ok(Json(push.into()))
}

/// Cancel the push under way. Answers when its files are deleted.
#[utoipa::path(delete, path = "/v1/stores/{store}/push", tag = "pushes", params(("store" = String, Path, description = "The store")), responses(
    (status = 200, description = "The push, as it ended", body = PushResource),
    (status = "default", description = "An error: store_not_found, push_not_found, push_ended", body = ErrorResource),
))]
pub(super) async fn cancel(State(app): State<App>, StorePath(name): StorePath) -> Result<Json<PushResource>, ApiError> {
    let push = app.blocking(move |app| app.stores.cancel_push(&name)).await?;
    Ok(Json(push.into()))
}
