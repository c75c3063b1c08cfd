//! Queries of graphs over HTTP, for programs without a client of Redis. They are answered on the threads for computations of
//! the process that is asked.

use axum::Json;
use axum::extract::State;
use fondaco_api::{ErrorResource, GraphQuery, GraphRows};
use fondaco_client::graph::Value;

use crate::app::App;
use crate::body::{JsonBody, StorePath};
use crate::error::ApiError;
use crate::other_nodes::ask_a_node;

/// Answer a query in openCypher.
#[utoipa::path(post, path = "/v1/graphs/{store}/query", tag = "look-ups", request_body = GraphQuery, params(
    ("store" = String, Path, description = "The store of the graph"),
), responses(
    (status = 200, description = "The rows", body = GraphRows),
    (status = "default", description = "An error: invalid_request, store_not_found, not_a_graph, nothing_served, query_limit, query_timeout, overloaded, unavailable", body = ErrorResource),
))]
pub(super) async fn query(
    State(app): State<App>,
    StorePath(graph): StorePath,
    JsonBody(asked): JsonBody<GraphQuery>,
) -> Result<Json<GraphRows>, ApiError> {
    let graphs = app
        .graphs
        .get()
        .ok_or_else(|| ask_a_node(&app, "this process answers no queries"))?;
    let parameters = asked
        .parameters
        .iter()
        .map(|(name, value)| (name.clone(), Value::of_json(value)));
    let parameters = parameters.collect();
    let result = graphs
        .query(&graph, &asked.query, parameters, asked.timeout_ms, asked.partial)
        .await
        .map_err(|error| refused(&error))?;
    Ok(Json(GraphRows {
        rows: result.json_rows(),
        columns: result.columns,
        expanded: result.expanded,
        requests: result.requests,
        incomplete: result.incomplete,
    }))
}

/// An error of RESP, whose code comes first, as one of this port.
fn refused(error: &str) -> ApiError {
    let (word, message) = error.split_once(' ').unwrap_or(("", error));
    let code = match word {
        "ERR" => "invalid_request",
        "NOSTORE" => "store_not_found",
        "NOVERSION" => "nothing_served",
        "WRONGTYPE" => "not_a_graph",
        "LIMIT" => "query_limit",
        "TIMEOUT" => "query_timeout",
        "OVERLOADED" => "overloaded",
        _ => return ApiError::new("unavailable", error),
    };
    ApiError::new(code, message)
}
