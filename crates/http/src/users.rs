//! `/v1/users`, `/v1/audit`: the users of the cluster, and the changes that people made.

use std::collections::VecDeque;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use fondaco_api::{AuditEntry, AuditList, ErrorResource, NewUser, UserList, UserResource};
use fondaco_catalog::hash_password;
use fondaco_model::cluster::{UserName, UserRecord};

use crate::app::App;
use crate::body::{JsonBody, PathTexts, QueryOf};
use crate::error::ApiError;

/// The shortest password.
const PASSWORD_BYTES_MIN: usize = 8;

/// The longest password.
const PASSWORD_BYTES_MAX: usize = 1024;

/// How many patterns of stores a user may have.
const PATTERNS_MAX: usize = 100;

/// List the users of the cluster. Those of configuration files are not among them.
#[utoipa::path(get, path = "/v1/users", tag = "access", responses(
    (status = 200, description = "The users", body = UserList),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn list(State(app): State<App>) -> Json<UserList> {
    let view = app.operator.mirror().view();
    let users = view.users.values().map(|user| UserResource::from(&user.record));
    Json(UserList { users: users.collect() })
}

/// Add a user, or change one. All processes let the user in with the new rights from then on.
#[utoipa::path(put, path = "/v1/users/{user}", tag = "access", params(("user" = String, Path, description = "The name of the user")), request_body = NewUser, responses(
    (status = 200, description = "The user", body = UserResource),
    (status = "default", description = "An error: invalid_request, too_many_users", body = ErrorResource),
))]
pub(super) async fn put(
    State(app): State<App>,
    PathTexts(name): PathTexts<String>,
    JsonBody(new): JsonBody<NewUser>,
) -> Result<Json<UserResource>, ApiError> {
    let name: UserName = name.parse().map_err(|error| ApiError::invalid(format!("{error}")))?;
    if new.stores.len() + new.writes.len() > PATTERNS_MAX {
        return Err(ApiError::invalid(format!(
            "a user may have {PATTERNS_MAX} patterns of stores"
        )));
    }
    if let Some(password) = &new.password
        && !(PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX).contains(&password.len())
    {
        let message = format!("a password has {PASSWORD_BYTES_MIN} to {PASSWORD_BYTES_MAX} bytes");
        return Err(ApiError::invalid(message));
    }
    let known = app.operator.mirror().view().users.contains_key(&name);
    if new.password.is_none() && !known {
        return Err(ApiError::invalid(format!("user {name} is new, and needs a password")));
    }
    let put = app.blocking(move |app| {
        let password = new.password.as_ref().map(|password| hash_password(password.as_bytes()));
        let password = password.transpose().map_err(|reason| ApiError::internal(&reason))?;
        let record = app.operator.put_user(&name, |former| UserRecord {
            name: name.clone(),
            password: password
                .clone()
                .or_else(|| former.map(|former| former.password.clone()))
                .unwrap_or_default(),
            stores: new.stores.clone(),
            writes: new.writes.clone(),
            admin: new.admin,
            role: new.role,
        })?;
        Ok(UserResource::from(&record))
    });
    Ok(Json(put.await?))
}

/// Delete a user: connections and sessions of it end.
#[utoipa::path(delete, path = "/v1/users/{user}", tag = "access", params(("user" = String, Path, description = "The name of the user")), responses(
    (status = 204, description = "The user is deleted"),
    (status = "default", description = "An error: invalid_request, user_not_found", body = ErrorResource),
))]
pub(super) async fn delete(State(app): State<App>, PathTexts(name): PathTexts<String>) -> Result<StatusCode, ApiError> {
    let name: UserName = name.parse().map_err(|error| ApiError::invalid(format!("{error}")))?;
    app.blocking(move |app| Ok(app.operator.delete_user(&name)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How many entries are listed.
#[derive(Debug, Clone, Copy, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Count {
    /// The number of entries at most.
    #[serde(default = "count_default")]
    #[param(default = 200)]
    count: usize,
}

fn count_default() -> usize {
    200
}

/// List the latest changes that people made through the control ports of the cluster.
#[utoipa::path(get, path = "/v1/audit", tag = "access", params(Count), responses(
    (status = 200, description = "The changes, the latest first", body = AuditList),
    (status = "default", description = "An error: invalid_request, unavailable", body = ErrorResource),
))]
pub(super) async fn audit(
    State(app): State<App>,
    QueryOf(Count { count }): QueryOf<Count>,
) -> Result<Json<AuditList>, ApiError> {
    let entries: VecDeque<AuditEntry> = app.blocking(|app| Ok(app.audit.read()?)).await?;
    let entries = entries.into_iter().rev().take(count).collect();
    Ok(Json(AuditList { entries }))
}
