//! `/v1/load`, `/v1/decisions`: the load of the cluster, and the decisions of the leading controller about it. Any process
//! answers, with the answer of the leader.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fondaco_api::{
    DecisionList, DecisionResource, ErrorResource, LoadHistory, LoadResource, LoadSample, NodeHistory,
    NodeLoadResource, PartitionLoadResource, StoreLoadResource, StoreSample,
};
use fondaco_cluster::load_window;
use fondaco_controller::{ClusterLoad, ControllerWork, Kept, NodeSummary, Sample, input_of};
use fondaco_decisions::balance::{Advice, LoadReport, Outcome, PartitionLoad, advise};
use fondaco_model::{PartitionId, StoreName};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::body::{JsonBody, PathTexts, QueryOf};
use crate::error::ApiError;

/// How many decisions a list has by default.
const DECISIONS_DEFAULT: u32 = 100;

/// How many decisions a list has at most.
const DECISIONS_MAX: u32 = 3_000;

/// Take a node's report of its load; sent by nodes to the leading controller.
#[utoipa::path(post, path = "/v1/load", tag = "load", request_body = serde_json::Value, responses(
    (status = 204, description = "The report was taken, or is older than one that was, or names other partitions than there are"),
    (status = "default", description = "An error: invalid_request, not_leading", body = ErrorResource),
))]
pub(super) async fn report(
    State(app): State<App>,
    JsonBody(report): JsonBody<LoadReport>,
) -> Result<StatusCode, ApiError> {
    let cluster_load = leading(&app).ok_or_else(ApiError::not_leading)?.cluster_load();
    // A node that does not know of a split yet, or that knew of it earlier, numbers other partitions.
    if app.operator.mirror().view().partitions() == Some(report.divided) {
        cluster_load.take(report);
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Show the load of nodes, partitions, stores and hot keys.
#[utoipa::path(get, path = "/v1/load", tag = "load", responses(
    (status = 200, description = "The load", body = LoadResource),
    (status = "default", description = "An error: not_leading", body = ErrorResource),
))]
pub(super) async fn show(State(app): State<App>) -> Result<Response, ApiError> {
    match leading(&app) {
        Some(controller) => Ok(Json(load_of(&app, controller)).into_response()),
        None => from_leader(&app, "/v1/load".to_owned()).await,
    }
}

/// From when on reports are shown.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Since {
    /// Only reports that arrived later, in milliseconds since 1970.
    #[serde(default)]
    #[param(default = 0)]
    since: u64,
}

/// Show the reports of nodes in the last hour.
#[utoipa::path(get, path = "/v1/load/history", tag = "load", params(Since), responses(
    (status = 200, description = "The reports, in short", body = LoadHistory),
    (status = "default", description = "An error: invalid_request, not_leading", body = ErrorResource),
))]
pub(super) async fn history(
    State(app): State<App>,
    QueryOf(Since { since }): QueryOf<Since>,
) -> Result<Response, ApiError> {
    let Some(controller) = leading(&app) else {
        return from_leader(&app, format!("/v1/load/history?since={since}")).await;
    };
    let past = controller
        .cluster_load()
        .past(since)
        .into_iter()
        .map(|(node, samples)| NodeHistory {
            node: node.get(),
            samples: samples.iter().map(load_sample).collect(),
        });
    Ok(Json(LoadHistory { nodes: past.collect() }).into_response())
}

/// How many decisions are listed.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Count {
    /// The number of decisions at most.
    #[serde(default = "decisions_default")]
    #[param(default = 100, minimum = 1, maximum = 3000)]
    count: u32,
    /// Whether only decisions are listed that move something or request a machine, or that have advice.
    #[serde(default)]
    moves: bool,
}

fn decisions_default() -> u32 {
    DECISIONS_DEFAULT
}

/// List the decisions of the leading controller about the load, those to do nothing included.
#[utoipa::path(get, path = "/v1/decisions", tag = "load", params(Count), responses(
    (status = 200, description = "The decisions, the latest first", body = DecisionList),
    (status = "default", description = "An error: invalid_request, not_leading", body = ErrorResource),
))]
pub(super) async fn decisions(
    State(app): State<App>,
    QueryOf(Count { count, moves }): QueryOf<Count>,
) -> Result<Response, ApiError> {
    if !(1..=DECISIONS_MAX).contains(&count) {
        return Err(ApiError::invalid(format!(
            "count is a number from 1 to {DECISIONS_MAX}"
        )));
    }
    let Some(controller) = leading(&app) else {
        return from_leader(&app, format!("/v1/decisions?count={count}&moves={moves}")).await;
    };
    let kept = controller
        .journal()
        .last(count as usize, |decision| !moves || decision.is_notable());
    let decisions = kept.iter().map(|kept| decision_resource(kept, false)).collect();
    Ok(Json(DecisionList { decisions }).into_response())
}

/// Show a decision with its input.
#[utoipa::path(get, path = "/v1/decisions/{decision}", tag = "load", params(("decision" = u64, Path, description = "The number of the decision")), responses(
    (status = 200, description = "The decision", body = DecisionResource),
    (status = "default", description = "An error: invalid_request, decision_not_found, not_leading", body = ErrorResource),
))]
pub(super) async fn decision(State(app): State<App>, PathTexts(number): PathTexts<u64>) -> Result<Response, ApiError> {
    let Some(controller) = leading(&app) else {
        return from_leader(&app, format!("/v1/decisions/{number}")).await;
    };
    let kept = controller
        .journal()
        .get(number)
        .ok_or_else(|| decision_not_found(number))?;
    Ok(Json(decision_resource(&kept, true)).into_response())
}

fn decision_not_found(number: u64) -> ApiError {
    let message = format!(
        "the leading controller has made no decision {number}, or has forgotten it: fondaco why lists the last ones"
    );
    ApiError::new("decision_not_found", message)
}

/// The controller of this process, if it leads.
fn leading(app: &App) -> Option<&ControllerWork> {
    let controller = app.controller.as_deref();
    controller.filter(|controller| controller.counts().leading)
}

/// The answer of the leading controller to the same request.
async fn from_leader(app: &App, target: String) -> Result<Response, ApiError> {
    let asked = app.blocking(move |app| {
        let port = app.leader.other().ok_or_else(ApiError::not_leading)?;
        match port.get(&target) {
            Ok((status, body)) => {
                if status == StatusCode::CONFLICT {
                    app.leader.forget();
                }
                Ok((status, body))
            }
            Err(error) => {
                app.leader.forget();
                tracing::debug!(%error, leader = port.address(), "the leading controller does not answer");
                Err(ApiError::not_leading())
            }
        }
    });
    let (status, body) = asked.await?;
    let json = [(axum::http::header::CONTENT_TYPE, "application/json")];
    Ok((status, json, body).into_response())
}

pub(super) fn load_of(app: &App, controller: &ControllerWork) -> LoadResource {
    let cluster_load = controller.cluster_load();
    let window_ms = load_window(&app.settings.settings).as_millis() as u64;
    let summaries = cluster_load.summaries(window_ms);
    let sizes = cluster_load.sizes();
    let mut partitions = BTreeMap::<PartitionId, PartitionLoad>::new();
    let mut stores = BTreeMap::<String, StoreLoadResource>::new();
    for summary in summaries.values() {
        for (&partition, load) in summary.mean.iter().flat_map(|mean| &mean.partitions) {
            let sum = partitions.entry(partition).or_insert(PartitionLoad {
                requests: 0.0,
                writes: 0.0,
                bytes: 0.0,
                ..*load
            });
            sum.requests += load.requests;
            sum.writes += load.writes;
            sum.bytes += load.bytes;
        }
        for load in &summary.last.stores {
            let one = StoreLoadResource::from(load);
            let sum = stores.entry(one.store.clone());
            let add = |sum: &mut StoreLoadResource| {
                sum.requests_per_second += one.requests_per_second;
                sum.p50_microseconds = sum.p50_microseconds.max(one.p50_microseconds);
                sum.p99_microseconds = sum.p99_microseconds.max(one.p99_microseconds);
            };
            sum.and_modify(add).or_insert_with(|| one.clone());
        }
    }
    // Partitions without requests are listed, too.
    for &partition in sizes.keys() {
        partitions.entry(partition).or_insert(PartitionLoad {
            store: 0,
            partition,
            requests: 0.0,
            writes: 0.0,
            bytes: 0.0,
        });
    }
    let bytes = |partition: &PartitionId| sizes.get(partition).copied().unwrap_or(0);
    LoadResource {
        window_ms,
        nodes: summaries.values().map(node_load).collect(),
        stores: stores.into_values().collect(),
        partitions: partitions
            .iter()
            .map(|(id, load)| PartitionLoadResource::of(load, bytes(id)))
            .collect(),
        hot_keys: cluster_load.hot_keys().iter().map(Into::into).collect(),
        advice: advice(app, cluster_load).iter().map(Into::into).collect(),
    }
}

/// The bytes of each partition on a node, as the leading controller knows them; none if no controller leads.
pub(super) fn partition_sizes(app: &App) -> BTreeMap<PartitionId, u64> {
    if let Some(controller) = leading(app) {
        return controller.cluster_load().sizes();
    }
    let answer = app.leader.other().and_then(|port| port.get("/v1/load").ok());
    let answer = answer.and_then(|(_, body)| serde_json::from_slice::<LoadResource>(&body).ok());
    let partitions = answer.into_iter().flat_map(|load| load.partitions);
    partitions
        .map(|one| (PartitionId::new(one.partition), one.bytes))
        .collect()
}

/// Advice for the cluster, besides moves.
fn advice(app: &App, cluster_load: &ClusterLoad) -> Vec<Advice> {
    let view = app.operator.mirror().view();
    let Some(input) = input_of(cluster_load, &app.settings.settings, &view, |_| 0) else {
        return Vec::new();
    };
    let names: BTreeMap<u16, &StoreName> = view
        .stores
        .iter()
        .map(|(name, store)| (store.record.id, name))
        .collect();
    let busiest = cluster_load.busiest_stores().into_iter();
    let busiest = busiest.filter_map(|(partition, store)| Some((partition, StoreName::clone(names.get(&store)?))));
    advise(&input, &busiest.collect())
}

fn node_load(summary: &NodeSummary) -> NodeLoadResource {
    let mean = summary.mean.as_ref().map(|mean| mean.resources);
    NodeLoadResource {
        node: summary.last.node.get(),
        load: mean.unwrap_or(summary.last.resources).into(),
        known: summary.known,
        held_bytes: summary.last.sizes.iter().map(|(_, bytes)| bytes).sum(),
    }
}

fn load_sample(sample: &Sample) -> LoadSample {
    let store = |(store, requests, p99_us): &(StoreName, f64, u64)| StoreSample {
        store: store.to_string(),
        requests_per_second: *requests,
        p99_microseconds: *p99_us,
    };
    LoadSample {
        at_unix_ms: sample.at_unix_ms,
        load: sample.resources.into(),
        stores: sample.stores.iter().map(store).collect(),
    }
}

/// A decision; `with_input` adds its input.
fn decision_resource(kept: &Kept, with_input: bool) -> DecisionResource {
    let decision = &kept.decision;
    let relief = match &decision.outcome {
        Outcome::Nothing => Vec::new(),
        Outcome::Move { moves, .. } => moves.iter().map(Into::into).collect(),
    };
    let input = kept.input.as_ref().filter(|_| with_input);
    DecisionResource {
        number: decision.number,
        at_unix_ms: decision.at_unix_ms,
        mode: decision.mode,
        moves: decision.moves(),
        plan: kept.plan,
        request: decision.request(),
        reasons: decision.reasons.clone(),
        advice: decision.advice.iter().map(Into::into).collect(),
        struggling: decision.struggling.iter().map(|node| node.get()).collect(),
        relief,
        input: input.and_then(|input| serde_json::to_value(input).ok()),
    }
}
