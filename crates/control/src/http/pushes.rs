//! `/v1/stores/{store}/pushes`: starting, watching and cancelling pushes.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fondaco_model::cluster::operator::{OperatorError, PushTerms};
use fondaco_model::{PushState, StoreKind, StoreName, VersionNumber};

use super::app::App;
use super::body::{JsonBody, QueryOf, StorePath};
use super::error::{ApiError, ErrorResource};
use super::resources::{DryRunResource, NewPush, PushResource};
use crate::error::ControlError;
use crate::now_unix_ms;
use crate::status::{PushStatus, Seen};

/// How long after the end of a push a request for it still waits until nodes serve it.
const NEWS_TIME_MAX: Duration = Duration::from_secs(10);

/// Push a built version: all nodes fetch it, then it is swapped in. Answers when the push is under way.
#[utoipa::path(post, path = "/v1/stores/{store}/pushes", tag = "pushes", params(("store" = String, Path, description = "The store")), request_body = NewPush, responses(
    (status = 202, description = "The push that was started", body = PushResource),
    (status = 200, description = "The effects of the push, if `dry_run` is set", body = DryRunResource),
    (status = "default", description = "An error: invalid_request, store_not_found, versioned_store, not_hybrid, push_in_progress, base_changed, invalid_source, not_enough_space, space_quota, too_many_pushes, upload_not_found, upload_incomplete, upload_elsewhere", body = ErrorResource),
))]
pub(super) async fn start(
    State(app): State<App>,
    StorePath(name): StorePath,
    JsonBody(new): JsonBody<NewPush>,
) -> Result<Response, ApiError> {
    if new.dry_run {
        let run = app.blocking(move |app| {
            check_kind(app, &name)?;
            let node = app.node();
            app.push_check
                .dry_run(&app.operator, node, &name, &new.source, new.any_base)
        });
        return Ok(Json(DryRunResource::from(run.await?)).into_response());
    }
    let push = app.blocking(move |app| {
        check_kind(app, &name)?;
        let (detail, set) = app.push_check.look(&app.operator, app.node(), &name, &new.source)?;
        let terms = PushTerms {
            base: set.base.filter(|_| !new.any_base),
            as_of_unix_ms: new.as_of_unix_ms,
            started_unix_ms: new.started_unix_ms,
            ..set
        };
        app.operator.push(&name, &detail, &terms)?;
        status(app, &name)
    });
    Ok((StatusCode::ACCEPTED, Json(PushResource::from(push.await?))).into_response())
}

/// Checks that a store has versions that may be pushed, before the source is read.
pub(super) fn check_kind(app: &App, name: &StoreName) -> Result<(), ControlError> {
    match app.operator.store(name)?.definition.kind {
        StoreKind::Batch | StoreKind::Hybrid => Ok(()),
        StoreKind::Versioned => Err(OperatorError::Versioned { store: name.clone() }.into()),
    }
}

/// Show the push under way, or the last one. Once a client sees that it is swapped in, its version is served.
#[utoipa::path(get, path = "/v1/stores/{store}/push", tag = "pushes", params(("store" = String, Path, description = "The store")), responses(
    (status = 200, description = "The push", body = PushResource),
    (status = "default", description = "An error: store_not_found, push_not_found", body = ErrorResource),
))]
pub(super) async fn show(State(app): State<App>, StorePath(name): StorePath) -> Result<Json<PushResource>, ApiError> {
    let push = app.blocking(move |app| {
        let push = status(app, &name)?;
        let ended_ms = push.record.ended_unix_ms.unwrap_or(0);
        let is_news = now_unix_ms().saturating_sub(ended_ms) < NEWS_TIME_MAX.as_millis() as u64;
        if push.record.state == PushState::Swapped && is_news {
            app.wait_serving(&name)?;
        }
        Ok(push)
    });
    Ok(Json(push.await?.into()))
}

/// Which push is cancelled.
#[derive(Debug, Clone, Copy, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Cancelling {
    /// Only the push of this version: another one may have begun meanwhile.
    #[param(value_type = Option<u64>, minimum = 1)]
    version: Option<VersionNumber>,
}

/// Cancel the push under way. The nodes delete its files; the answering node has already deleted them.
#[utoipa::path(delete, path = "/v1/stores/{store}/push", tag = "pushes", params(("store" = String, Path, description = "The store"), Cancelling), responses(
    (status = 200, description = "The push, as it ended", body = PushResource),
    (status = "default", description = "An error: invalid_request, store_not_found, push_not_found, push_ended", body = ErrorResource),
))]
pub(super) async fn cancel(
    State(app): State<App>,
    StorePath(name): StorePath,
    QueryOf(Cancelling { version }): QueryOf<Cancelling>,
) -> Result<Json<PushResource>, ApiError> {
    let push = app.blocking(move |app| {
        let version = app.operator.cancel_push(&name, version)?;
        app.wait_dropped(&name, version);
        status(app, &name)
    });
    Ok(Json(push.await?.into()))
}

fn status(app: &App, name: &StoreName) -> Result<PushStatus, ControlError> {
    let record = app.operator.store(name)?;
    let view = app.operator.view_with_reports()?;
    let status = Seen::new(app.operator.mirror(), &view, app.agent.as_deref()).push(&record);
    Ok(status.ok_or_else(|| OperatorError::PushNotFound { store: name.clone() })?)
}
