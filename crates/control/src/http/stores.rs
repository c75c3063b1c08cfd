//! `/v1/stores`: creating, showing, altering and dropping stores, and swapping their versions.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use fondaco_model::{StoreDefinition, VersionNumber};

use super::App;
use super::body::{JsonBody, StorePath};
use super::error::{ApiError, ErrorResource};
use super::resources::{NewStore, RollbackRequest, StoreChange, StoreList, StoreResource, SwapRequest, VersionList};

/// List all stores.
#[utoipa::path(get, path = "/v1/stores", tag = "stores", responses(
    (status = 200, description = "All stores", body = StoreList),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn list(State(app): State<App>) -> Result<Json<StoreList>, ApiError> {
    let stores = app.blocking(|app| Ok(app.stores.list())).await?;
    let stores = stores.into_iter().map(Into::into).collect();
    Ok(Json(StoreList { stores }))
}

/// Create a store.
#[utoipa::path(post, path = "/v1/stores", tag = "stores", request_body = NewStore, responses(
    (status = 201, description = "The store", body = StoreResource),
    (status = "default", description = "An error: invalid_request, store_exists, too_many_stores", body = ErrorResource),
))]
pub(super) async fn create(
    State(app): State<App>,
    JsonBody(new): JsonBody<NewStore>,
) -> Result<(StatusCode, Json<StoreResource>), ApiError> {
    let name = new
        .name
        .parse()
        .map_err(|error| ApiError::invalid(format!("{error}")))?;
    let definition = StoreDefinition {
        kind: new.kind,
        backups: new.backups,
        ..StoreDefinition::batch(name)
    };
    let store = app.blocking(|app| app.stores.create(definition)).await?;
    Ok((StatusCode::CREATED, Json(store.into())))
}

/// Show a store.
#[utoipa::path(get, path = "/v1/stores/{store}", tag = "stores", params(("store" = String, Path, description = "The store")), responses(
    (status = 200, description = "The store", body = StoreResource),
    (status = "default", description = "An error: store_not_found", body = ErrorResource),
))]
pub(super) async fn show(State(app): State<App>, StorePath(name): StorePath) -> Result<Json<StoreResource>, ApiError> {
    let store = app.blocking(move |app| app.stores.show(&name)).await?;
    Ok(Json(store.into()))
}

/// Change a store. Backups that are too many are deleted.
#[utoipa::path(patch, path = "/v1/stores/{store}", tag = "stores", params(("store" = String, Path, description = "The store")), request_body = StoreChange, responses(
    (status = 200, description = "The store as it is now", body = StoreResource),
    (status = "default", description = "An error: invalid_request, store_not_found", body = ErrorResource),
))]
pub(super) async fn alter(
    State(app): State<App>,
    StorePath(name): StorePath,
    JsonBody(change): JsonBody<StoreChange>,
) -> Result<Json<StoreResource>, ApiError> {
    let store = app.blocking(move |app| app.stores.alter(&name, change.backups)).await?;
    Ok(Json(store.into()))
}

/// Drop a store with all its versions.
#[utoipa::path(delete, path = "/v1/stores/{store}", tag = "stores", params(("store" = String, Path, description = "The store")), responses(
    (status = 204, description = "It is gone"),
    (status = "default", description = "An error: store_not_found, push_in_progress", body = ErrorResource),
))]
pub(super) async fn drop_store(State(app): State<App>, StorePath(name): StorePath) -> Result<StatusCode, ApiError> {
    app.blocking(move |app| app.stores.drop_store(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the versions of a store.
#[utoipa::path(get, path = "/v1/stores/{store}/versions", tag = "versions", params(("store" = String, Path, description = "The store")), responses(
    (status = 200, description = "Its versions", body = VersionList),
    (status = "default", description = "An error: store_not_found", body = ErrorResource),
))]
pub(super) async fn versions(
    State(app): State<App>,
    StorePath(name): StorePath,
) -> Result<Json<VersionList>, ApiError> {
    let store = app.blocking(move |app| app.stores.show(&name)).await?;
    let versions = store.versions.into_iter().map(Into::into).collect();
    Ok(Json(VersionList { versions }))
}

/// Make a version current that the store keeps.
#[utoipa::path(post, path = "/v1/stores/{store}/swap", tag = "versions", params(("store" = String, Path, description = "The store")), request_body = SwapRequest, responses(
    (status = 200, description = "The store as it is now", body = StoreResource),
    (status = "default", description = "An error: store_not_found, version_not_found, version_failed", body = ErrorResource),
))]
pub(super) async fn swap(
    State(app): State<App>,
    StorePath(name): StorePath,
    JsonBody(request): JsonBody<SwapRequest>,
) -> Result<Json<StoreResource>, ApiError> {
    let version = version(request.version)?;
    let store = app.blocking(move |app| app.stores.swap(&name, version)).await?;
    Ok(Json(store.into()))
}

/// Go back to an earlier version.
#[utoipa::path(post, path = "/v1/stores/{store}/rollback", tag = "versions", params(("store" = String, Path, description = "The store")), request_body = RollbackRequest, responses(
    (status = 200, description = "The store as it is now", body = StoreResource),
    (status = "default", description = "An error: store_not_found, no_rollback, version_not_found, version_failed", body = ErrorResource),
))]
pub(super) async fn rollback(
    State(app): State<App>,
    StorePath(name): StorePath,
    JsonBody(request): JsonBody<RollbackRequest>,
) -> Result<Json<StoreResource>, ApiError> {
    let to = request.to.map(version).transpose()?;
    let store = app.blocking(move |app| app.stores.roll_back(&name, to)).await?;
    Ok(Json(store.into()))
}

fn version(number: u64) -> Result<VersionNumber, ApiError> {
    VersionNumber::new(number).ok_or_else(|| ApiError::invalid("invalid version 0: versions are whole numbers from 1"))
}
