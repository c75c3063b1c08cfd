//! `/v1/dev/members`: stopping and starting the members of a development cluster by hand.

use axum::Json;
use axum::extract::State;
use fondaco_api::{DevMemberList, ErrorResource};

use crate::app::App;
use crate::body::PathTexts;
use crate::dev_handle::MemberError;
use crate::error::ApiError;

/// List the members of the development cluster; empty for other clusters.
#[utoipa::path(get, path = "/v1/dev/members", tag = "development", responses(
    (status = 200, description = "The members", body = DevMemberList),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn list(State(app): State<App>) -> Result<Json<DevMemberList>, ApiError> {
    let members = app.blocking(|app| Ok(app.dev.as_ref().map(|dev| dev.members()).unwrap_or_default()));
    Ok(Json(DevMemberList {
        members: members.await?,
    }))
}

/// Stop a member, as an operator would. Ask another member, since a member cannot stop itself.
#[utoipa::path(post, path = "/v1/dev/members/{member}/stop", tag = "development", params(("member" = String, Path, description = "Its name, such as `node-1`")), responses(
    (status = 200, description = "The members as they are now", body = DevMemberList),
    (status = "default", description = "An error: member_not_found, member_busy", body = ErrorResource),
))]
pub(super) async fn stop(
    State(app): State<App>,
    PathTexts(member): PathTexts<String>,
) -> Result<Json<DevMemberList>, ApiError> {
    change(app, member, false).await
}

/// Start a member that was stopped, with the data that it had.
#[utoipa::path(post, path = "/v1/dev/members/{member}/start", tag = "development", params(("member" = String, Path, description = "Its name, such as `node-1`")), responses(
    (status = 200, description = "The members as they are now", body = DevMemberList),
    (status = "default", description = "An error: member_not_found, member_busy", body = ErrorResource),
))]
pub(super) async fn start(
    State(app): State<App>,
    PathTexts(member): PathTexts<String>,
) -> Result<Json<DevMemberList>, ApiError> {
    change(app, member, true).await
}

async fn change(app: App, member: String, start: bool) -> Result<Json<DevMemberList>, ApiError> {
    let members = app.blocking(move |app| {
        let Some(dev) = &app.dev else {
            return Err(MemberError::NotFound { member }.into());
        };
        match start {
            true => dev.start(&member),
            false => dev.stop(&member, app.http_addr),
        }?;
        Ok(dev.members())
    });
    Ok(Json(DevMemberList {
        members: members.await?,
    }))
}
