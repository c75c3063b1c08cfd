//! `/v1/plans`: moves of partitions between nodes, as plans that are shown, run, paused and cancelled.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use fondaco_api::{ErrorResource, NewPlan, PlanList, PlanResource};
use fondaco_controller::move_rates;
use fondaco_decisions::operator::{MoveCosts, OperatorError, PlanRequest};
use fondaco_model::cluster::PlanRecord;
use fondaco_model::{Move, NodeId, PartitionId};

use crate::app::App;
use crate::body::{JsonBody, PathTexts};
use crate::callers::Caller;
use crate::cluster::no_routing;
use crate::error::ApiError;
use crate::load::partition_sizes;

/// The most moves of a node at a time that a plan may ask for.
const MOVES_PER_NODE_MAX: u32 = 1_000;

/// The longest reason of a plan, in bytes.
const REASON_BYTES_MAX: usize = 1_000;

/// List the plans.
#[utoipa::path(get, path = "/v1/plans", tag = "plans", responses(
    (status = 200, description = "The plans, the latest first", body = PlanList),
    (status = "default", description = "An error: no_routing", body = ErrorResource),
))]
pub(super) async fn list(State(app): State<App>) -> Result<Json<PlanList>, ApiError> {
    let view = app.operator.mirror().view();
    let table = view.routing.as_ref().ok_or_else(|| no_routing(&view))?;
    let plans = view.plans.values().rev();
    let plans = plans
        .map(|plan| PlanResource::of(&plan.record, &table.record))
        .collect();
    Ok(Json(PlanList { plans }))
}

/// Show a plan and its progress.
#[utoipa::path(get, path = "/v1/plans/{plan}", tag = "plans", params(("plan" = u64, Path, description = "The number of the plan")), responses(
    (status = 200, description = "The plan", body = PlanResource),
    (status = "default", description = "An error: invalid_request, no_routing, plan_not_found", body = ErrorResource),
))]
pub(super) async fn show(
    State(app): State<App>,
    PathTexts(number): PathTexts<u64>,
) -> Result<Json<PlanResource>, ApiError> {
    Ok(Json(app.blocking(move |app| plan(app, number)).await?))
}

/// Make a plan: nodes are given their share, or give up all their partitions, or replicas are moved by hand. It is saved
/// as a proposal, unless it is to run at once.
#[utoipa::path(post, path = "/v1/plans", tag = "plans", request_body = NewPlan, responses(
    (status = 201, description = "The plan that was saved", body = PlanResource),
    (status = 202, description = "The plan that runs, if `run` is set", body = PlanResource),
    (status = 200, description = "The effects of the plan, if `dry_run` is set", body = PlanResource),
    (status = "default", description = "An error: invalid_request, no_routing, plan_in_progress, nothing_to_move, impossible_move, node_not_found, node_absent, placement", body = ErrorResource),
))]
pub(super) async fn make(
    State(app): State<App>,
    caller: Option<Extension<Caller>>,
    JsonBody(new): JsonBody<NewPlan>,
) -> Result<(StatusCode, Json<PlanResource>), ApiError> {
    let user = caller
        .map(|Extension(caller)| caller.name)
        .filter(|name| !name.is_empty());
    let request = PlanRequest { user, ..request(&new)? };
    let made = app.blocking(move |app| {
        let each = app.operator.mirror().view().partition_bytes();
        let sizes = partition_sizes(app);
        let costs = MoveCosts {
            bytes: &|partition| sizes.get(&partition).copied().unwrap_or(each),
            rates: move_rates(&app.settings.settings),
        };
        if new.dry_run {
            let plan = app.operator.dry_plan(&request, &costs)?;
            return Ok((StatusCode::OK, resource(app, &plan)?));
        }
        let proposed = app.operator.propose(&request, &costs)?;
        if new.run {
            app.operator.run_plan(proposed.number)?;
            return Ok((StatusCode::ACCEPTED, plan(app, proposed.number)?));
        }
        Ok((StatusCode::CREATED, resource(app, &proposed)?))
    });
    let (status, plan) = made.await?;
    Ok((status, Json(plan)))
}

/// Run a proposed plan.
#[utoipa::path(post, path = "/v1/plans/{plan}/run", tag = "plans", params(("plan" = u64, Path, description = "The number of the plan")), responses(
    (status = 202, description = "The plan, which runs", body = PlanResource),
    (status = "default", description = "An error: invalid_request, no_routing, plan_not_found, plan_state, plan_in_progress, plan_outdated", body = ErrorResource),
))]
pub(super) async fn run(
    State(app): State<App>,
    PathTexts(number): PathTexts<u64>,
) -> Result<(StatusCode, Json<PlanResource>), ApiError> {
    let run = app.blocking(move |app| {
        app.operator.run_plan(number)?;
        plan(app, number)
    });
    Ok((StatusCode::ACCEPTED, Json(run.await?)))
}

/// Pause a running plan: moves that have begun are completed, and no other begins.
#[utoipa::path(post, path = "/v1/plans/{plan}/pause", tag = "plans", params(("plan" = u64, Path, description = "The number of the plan")), responses(
    (status = 200, description = "The plan", body = PlanResource),
    (status = "default", description = "An error: invalid_request, no_routing, plan_not_found, plan_state", body = ErrorResource),
))]
pub(super) async fn pause(
    State(app): State<App>,
    PathTexts(number): PathTexts<u64>,
) -> Result<Json<PlanResource>, ApiError> {
    set_paused(app, number, true).await
}

/// Resume a paused plan.
#[utoipa::path(post, path = "/v1/plans/{plan}/resume", tag = "plans", params(("plan" = u64, Path, description = "The number of the plan")), responses(
    (status = 200, description = "The plan", body = PlanResource),
    (status = "default", description = "An error: invalid_request, no_routing, plan_not_found, plan_state", body = ErrorResource),
))]
pub(super) async fn resume(
    State(app): State<App>,
    PathTexts(number): PathTexts<u64>,
) -> Result<Json<PlanResource>, ApiError> {
    set_paused(app, number, false).await
}

/// Cancel a plan: partitions whose moves have only begun stay where they are.
#[utoipa::path(delete, path = "/v1/plans/{plan}", tag = "plans", params(("plan" = u64, Path, description = "The number of the plan")), responses(
    (status = 200, description = "The plan, which is cancelled", body = PlanResource),
    (status = "default", description = "An error: invalid_request, no_routing, plan_not_found, plan_state", body = ErrorResource),
))]
pub(super) async fn cancel(
    State(app): State<App>,
    PathTexts(number): PathTexts<u64>,
) -> Result<Json<PlanResource>, ApiError> {
    let cancelled = app.blocking(move |app| {
        app.operator.cancel_plan(number)?;
        plan(app, number)
    });
    Ok(Json(cancelled.await?))
}

async fn set_paused(app: App, number: u64, is_paused: bool) -> Result<Json<PlanResource>, ApiError> {
    let changed = app.blocking(move |app| {
        app.operator.pause_plan(number, is_paused)?;
        plan(app, number)
    });
    Ok(Json(changed.await?))
}

fn plan(app: &App, number: u64) -> Result<PlanResource, ApiError> {
    let view = app.operator.mirror().view();
    let plan = view.plans.get(&number).ok_or(OperatorError::PlanNotFound { number })?;
    resource(app, &plan.record)
}

fn resource(app: &App, plan: &PlanRecord) -> Result<PlanResource, ApiError> {
    let view = app.operator.mirror().view();
    let table = view.routing.as_ref().ok_or_else(|| no_routing(&view))?;
    Ok(PlanResource::of(plan, &table.record))
}

fn request(new: &NewPlan) -> Result<PlanRequest, ApiError> {
    let node = |number: u32| NodeId::new(number).ok_or_else(|| ApiError::invalid("nodes are numbers from 1"));
    let nodes = |numbers: &BTreeSet<u32>| {
        let nodes = numbers.iter().copied().map(node);
        nodes.collect::<Result<BTreeSet<NodeId>, ApiError>>()
    };
    let moves = new.moves.iter().map(|one| {
        Ok(Move {
            partition: PartitionId::new(one.partition),
            from: Some(node(one.from)?),
            to: Some(node(one.to)?),
        })
    });
    if new
        .moves_per_node
        .is_some_and(|moves| !(1..=MOVES_PER_NODE_MAX).contains(&moves))
    {
        return Err(ApiError::invalid(format!(
            "moves_per_node is a number from 1 to {MOVES_PER_NODE_MAX}"
        )));
    }
    if new.reason.len() > REASON_BYTES_MAX {
        return Err(ApiError::invalid(format!(
            "reason is longer than {REASON_BYTES_MAX} bytes"
        )));
    }
    Ok(PlanRequest {
        add: nodes(&new.add)?,
        remove: nodes(&new.remove)?,
        moves: moves.collect::<Result<_, ApiError>>()?,
        even: new.even,
        moves_per_node: new.moves_per_node,
        reason: new.reason.clone(),
        user: None,
    })
}
