//! `/v1/stores/{store}/pushes`: starting, watching and cancelling pushes.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use fondaco_api::{CanaryRequest, Confirmation, DryRunResource, ErrorResource, NewPush, PushResource};
use fondaco_decisions::operator::{OperatorError, PushTerms, SetPush};
use fondaco_model::cluster::PushRecord;
use fondaco_model::{Gates, PushState, StoreKind, StoreName, VersionNumber};
use fondaco_protocol::now_unix_ms;

use crate::app::App;
use crate::body::{JsonBody, QueryOf, StorePath};
use crate::error::ApiError;
use crate::store_status::Seen;

/// How long after the end of a push a request for it still waits until nodes serve it.
const NEWS_TIME_MAX: Duration = Duration::from_secs(10);

/// The header that names the run of a push.
const RUN_HEADER: &str = "idempotency-key";

/// Push a built version: all nodes fetch it, then it is swapped in. Answers when the push is under way. A version with the
/// content of the current one is not pushed, nor is a second one of the same run: the answer is the earlier push, and says
/// that it is `repeated`.
#[utoipa::path(post, path = "/v1/stores/{store}/pushes", tag = "pushes", params(("store" = String, Path, description = "The store"), ("idempotency-key" = Option<String>, Header, description = "The id of the run, as `run` in the body")), request_body = NewPush, responses(
    (status = 202, description = "The push that was started", body = PushResource),
    (status = 200, description = "The effects of the push, if `dry_run` is set", body = DryRunResource),
    (status = "default", description = "An error: invalid_request, store_not_found, versioned_store, not_hybrid, push_in_progress, base_changed, invalid_source, not_enough_space, space_quota, too_many_pushes, upload_not_found, upload_incomplete, upload_elsewhere", body = ErrorResource),
))]
pub(super) async fn start(
    State(app): State<App>,
    StorePath(name): StorePath,
    headers: HeaderMap,
    JsonBody(new): JsonBody<NewPush>,
) -> Result<Response, ApiError> {
    let run = run_of(&headers, &new)?;
    if new.canary.is_some() && !new.with.is_empty() {
        let message = "stores that become current together have no canary: leave out canary, or push them one by one without with";
        return Err(ApiError::invalid(message));
    }
    if new.dry_run {
        let run = app.blocking(move |app| {
            check_kind(app, &name)?;
            let node = app.node();
            let check = |name: &StoreName, source: &str| {
                app.push_check.dry_run(&app.operator, node, name, source, new.any_base)
            };
            for (store, source) in &new.with {
                check_kind(app, store)?;
                check(store, source)?;
            }
            Ok(check(&name, &new.source)?)
        });
        return Ok(Json(run.await?).into_response());
    }
    let push = app.blocking(move |app| {
        check_kind(app, &name)?;
        // Its source may be gone by now.
        let earlier = |app: &App| match &run {
            Some(run) => app.operator.push_of_run(&name, run),
            None => Ok(None),
        };
        if let Some(push) = earlier(app)? {
            return status(app, &name, Some(push)).map(|status| (status, true));
        }
        let all = std::iter::once((&name, &new.source)).chain(&new.with);
        let checked = all.map(|(store, source)| -> Result<SetPush, ApiError> {
            check_kind(app, store)?;
            let (detail, set) = app.push_check.check(&app.operator, app.node(), store, source)?;
            let own = *store == name;
            let terms = PushTerms {
                base: set.base.filter(|_| !new.any_base),
                as_of_unix_ms: new.as_of_unix_ms.filter(|_| own),
                started_unix_ms: new.started_unix_ms,
                if_current: new.if_current.filter(|_| own),
                run: run.clone(),
                again: new.again,
                canary: new.canary.clone(),
                gates: if own { new.gates.clone() } else { Gates::default() },
                serve_while_copying: new.serve_while_copying,
                ..set
            };
            let store = store.clone();
            Ok(SetPush { store, detail, terms })
        });
        let pushes = match checked.collect::<Result<Vec<_>, ApiError>>() {
            Ok(pushes) => pushes,
            // Another request of the run may have been faster.
            Err(error) => {
                let push = earlier(app)?.ok_or(error)?;
                return status(app, &name, Some(push)).map(|status| (status, true));
            }
        };
        let (push, is_repeated) = app.operator.push(&pushes)?;
        Ok((status(app, &name, Some(push))?, is_repeated))
    });
    let (push, repeated) = push.await?;
    let push = PushResource { repeated, ..push };
    Ok((StatusCode::ACCEPTED, Json(push)).into_response())
}

/// The id of the run, from the header or the body.
fn run_of(headers: &HeaderMap, new: &NewPush) -> Result<Option<String>, ApiError> {
    let header = headers.get(RUN_HEADER).map(|value| value.to_str().map(str::to_owned));
    let header = header.transpose();
    let header = header.map_err(|_| ApiError::invalid("invalid Idempotency-Key: use printable ASCII characters"))?;
    if let (Some(header), Some(run)) = (&header, &new.run)
        && header != run
    {
        return Err(ApiError::invalid(format!(
            "the Idempotency-Key is {header:?}, and the run {run:?}: leave one out"
        )));
    }
    let run = header.or_else(|| new.run.clone());
    match &run {
        Some(run) if !(1..=NewPush::RUN_BYTES_MAX).contains(&run.len()) => Err(ApiError::invalid(format!(
            "the id of a run has {} bytes: use 1 to {}",
            run.len(),
            NewPush::RUN_BYTES_MAX
        ))),
        _ => Ok(run),
    }
}

/// Checks that a store has versions that may be pushed, before the source is read.
pub(super) fn check_kind(app: &App, name: &StoreName) -> Result<(), ApiError> {
    match app.operator.store(name)?.definition.kind {
        StoreKind::Batch | StoreKind::Hybrid => Ok(()),
        StoreKind::Versioned => Err(OperatorError::Versioned { store: name.clone() }.into()),
    }
}

/// The push to show.
#[derive(Debug, Clone, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Showing {
    /// The push of this run, in place of the last one.
    run: Option<String>,
}

/// Show the push under way, or the last one. Once a client sees that it is swapped in, its version is served.
#[utoipa::path(get, path = "/v1/stores/{store}/push", tag = "pushes", params(("store" = String, Path, description = "The store"), Showing), responses(
    (status = 200, description = "The push", body = PushResource),
    (status = "default", description = "An error: store_not_found, push_not_found", body = ErrorResource),
))]
pub(super) async fn show(
    State(app): State<App>,
    StorePath(name): StorePath,
    QueryOf(Showing { run }): QueryOf<Showing>,
) -> Result<Json<PushResource>, ApiError> {
    let push = app.blocking(move |app| {
        let push = match run {
            None => status(app, &name, None)?,
            Some(run) => {
                let push = app.operator.push_of_run(&name, &run)?;
                let push = push.ok_or_else(|| OperatorError::PushNotFound { store: name.clone() })?;
                status(app, &name, Some(push))?
            }
        };
        let ended_ms = push.ended_unix_ms.unwrap_or(0);
        let is_news = now_unix_ms().saturating_sub(ended_ms) < NEWS_TIME_MAX.as_millis() as u64;
        if push.state == PushState::Swapped && is_news {
            app.wait_serving(&name)?;
        }
        Ok(push)
    });
    Ok(Json(push.await?))
}

/// The push to cancel.
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
        status(app, &name, None)
    });
    Ok(Json(push.await?))
}

/// Pause, resume, abort or promote the canary of the push under way. A promoted version becomes current as soon as the leader has seen
/// the request.
#[utoipa::path(post, path = "/v1/stores/{store}/canary", tag = "pushes", params(("store" = String, Path, description = "The store")), request_body = CanaryRequest, responses(
    (status = 200, description = "The push, with its canary", body = PushResource),
    (status = "default", description = "An error: invalid_request, store_not_found, versioned_store, no_canary, canary_not_begun", body = ErrorResource),
))]
pub(super) async fn steer_canary(
    State(app): State<App>,
    StorePath(name): StorePath,
    JsonBody(request): JsonBody<CanaryRequest>,
) -> Result<Json<PushResource>, ApiError> {
    let push = app.blocking(move |app| {
        app.operator.steer_canary(&name, request.action)?;
        status(app, &name, None)
    });
    Ok(Json(push.await?))
}

/// Confirm the version of the push that awaits it: it goes live, with those that it is pushed with, or its canary begins. Or refuse it: then it stays
/// held, with the reason. Answers when all live nodes serve it, or the leader can begin the canary.
#[utoipa::path(post, path = "/v1/stores/{store}/push/confirmation", tag = "pushes", params(("store" = String, Path, description = "The store")), request_body = Confirmation, responses(
    (status = 200, description = "The push: swapped, ready for its canary, or held", body = PushResource),
    (status = "default", description = "An error: invalid_request, store_not_found, versioned_store, push_not_found, push_ended, version_failed", body = ErrorResource),
))]
pub(super) async fn confirm(
    State(app): State<App>,
    StorePath(name): StorePath,
    JsonBody(Confirmation { version, refused }): JsonBody<Confirmation>,
) -> Result<Json<PushResource>, ApiError> {
    let refused = refused.map(|reason| reason.chars().take(Confirmation::REASON_CHARS_MAX).collect::<String>());
    let push = app.blocking(move |app| {
        app.operator.confirm(&name, version, refused.as_deref())?;
        let push = status(app, &name, None)?;
        if push.state == PushState::Swapped {
            app.wait_serving(&name)?;
        }
        Ok(push)
    });
    Ok(Json(push.await?))
}

/// A push of a store, or the last one.
fn status(app: &App, name: &StoreName, push: Option<PushRecord>) -> Result<PushResource, ApiError> {
    let mut record = app.operator.store(name)?;
    record.push = push.or(record.push);
    let view = app.operator.view_with_reports()?;
    let status = Seen::new(app.operator.mirror(), &view, app.agent.as_deref()).push(&record);
    Ok(status.ok_or_else(|| OperatorError::PushNotFound { store: name.clone() })?)
}
