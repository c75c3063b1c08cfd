//! `/v1/losses`: acknowledged writes that the engines of this node have lost, and accepting their loss.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fondaco_api::{ErrorResource, LossList, LossResource};
use fondaco_replica::{Loss, Replicas};

use crate::app::App;
use crate::body::PathTexts;
use crate::error::ApiError;
use crate::other_nodes::ask_a_node;

/// List the losses of this node's engines that were neither recovered from other nodes nor accepted.
#[utoipa::path(get, path = "/v1/losses", tag = "node", responses(
    (status = 200, description = "The losses", body = LossList),
    (status = "default", description = "An error: unavailable", body = ErrorResource),
))]
pub(super) async fn list(State(app): State<App>) -> Result<Json<LossList>, ApiError> {
    let replicas = replicas_of(&app)?;
    let losses = app.blocking(move |_| Ok(replicas.losses())).await?;
    Ok(Json(LossList {
        losses: losses.into_iter().map(loss_resource).collect(),
    }))
}

/// Accept a loss of an engine of this node: the remaining data counts as complete, and is read again.
#[utoipa::path(post, path = "/v1/losses/{loss}/accept", tag = "node", params(("loss" = String, Path, description = "Its id, such as `log-5f3a9c21`")), responses(
    (status = 200, description = "The accepted loss", body = LossResource),
    (status = "default", description = "An error: loss_not_found, unavailable", body = ErrorResource),
))]
pub(super) async fn accept(
    State(app): State<App>,
    PathTexts(loss): PathTexts<String>,
) -> Result<Json<LossResource>, ApiError> {
    let replicas = replicas_of(&app)?;
    let id = loss.clone();
    let accepted = app.blocking(move |_| Ok(replicas.accept_loss(&id)?)).await?;
    match accepted {
        Some(loss) => Ok(Json(loss_resource(loss))),
        None => Err(ApiError::new(
            "loss_not_found",
            format!("this node has no loss {loss:?}: list them with fondaco repair losses"),
        )),
    }
}

fn loss_resource(loss: Loss) -> LossResource {
    LossResource {
        id: loss.id,
        engine: loss.engine,
        lost: loss.lost,
        partitions_behind: loss.partitions_behind as u64,
        partitions_alone: loss.partitions_alone as u64,
    }
}

fn replicas_of(app: &App) -> Result<Arc<Replicas>, ApiError> {
    app.cluster_client
        .replicas
        .clone()
        .ok_or_else(|| ask_a_node(app, "this process holds no records"))
}
