//! `/v1/stores`: creating, showing, altering, dropping and restoring stores, and swapping their versions.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use fondaco_agent::topic_problem;
use fondaco_api::{
    ErrorResource, NewStore, RollbackRequest, StoreChange, StoreList, StoreResource, SwapRequest, VersionList,
};
use fondaco_decisions::read_options;
use fondaco_model::{PushState, StoreDefinition, StoreName, StreamSource, VersionNumber};

use crate::app::App;
use crate::body::{Dropping, JsonBody, QueryOf, StorePath, Wait};
use crate::error::ApiError;
use crate::guard::AuditNote;
use crate::store_status::Seen;

/// List all stores.
#[utoipa::path(get, path = "/v1/stores", tag = "stores", responses(
    (status = 200, description = "All stores", body = StoreList),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn list(State(app): State<App>) -> Result<Json<StoreList>, ApiError> {
    let stores = app.blocking(|app| {
        let view = app.operator.view_with_reports()?;
        let seen = Seen::new(app.operator.mirror(), &view, app.agent.as_deref());
        let stores = view.stores.values().map(|store| seen.store(&store.record));
        Ok(stores.collect())
    });
    Ok(Json(StoreList { stores: stores.await? }))
}

/// Create a store. Of a hybrid store the brokers are asked for the topic; that they do not have it yet does not keep the store
/// from being created.
#[utoipa::path(post, path = "/v1/stores", tag = "stores", request_body = NewStore, responses(
    (status = 201, description = "The store", body = StoreResource),
    (status = "default", description = "An error: invalid_request, other_kind, no_engine, no_log, store_exists, too_many_stores, no_routing, plan_in_progress, short_lists, placement", body = ErrorResource),
))]
pub(super) async fn create(
    State(app): State<App>,
    JsonBody(new): JsonBody<NewStore>,
) -> Result<(StatusCode, Json<StoreResource>), ApiError> {
    let name: StoreName = new
        .name
        .parse()
        .map_err(|error| ApiError::invalid(format!("{error}")))?;
    let options = read_options(&name, new.kind, &new.options, true)?;
    let definition = StoreDefinition::with_options(name, new.kind, &options);
    let store = app.blocking(move |app| {
        if let Some(StreamSource::Log(_)) = definition.stream.as_ref().map(|stream| &stream.source)
            && app.events.is_none()
        {
            return Err(ApiError::no_event_log());
        }
        app.operator.create(&definition, options.versioned.as_ref())?;
        app.settle();
        let stream = definition.stream.as_ref();
        let problem = stream.and_then(|stream| topic_problem(&stream.source, &app.push_check.kafka));
        Ok((status(app, &definition.name)?, problem))
    });
    let (store, stream_problem) = store.await?;
    let store = StoreResource {
        stream_problem,
        ..store
    };
    Ok((StatusCode::CREATED, Json(store)))
}

/// Show a store.
#[utoipa::path(get, path = "/v1/stores/{store}", tag = "stores", params(("store" = String, Path, description = "The store")), responses(
    (status = 200, description = "The store", body = StoreResource),
    (status = "default", description = "An error: store_not_found", body = ErrorResource),
))]
pub(super) async fn show(State(app): State<App>, StorePath(name): StorePath) -> Result<Json<StoreResource>, ApiError> {
    let store = app.blocking(move |app| status(app, &name)).await?;
    Ok(Json(store))
}

/// Change a store. Surplus backups are deleted.
#[utoipa::path(patch, path = "/v1/stores/{store}", tag = "stores", params(("store" = String, Path, description = "The store")), request_body = StoreChange, responses(
    (status = 200, description = "The store as it is now", body = StoreResource),
    (status = "default", description = "An error: invalid_request, store_not_found, other_kind, unchangeable, version_failed, plan_in_progress, node_absent, short_lists, placement", body = ErrorResource),
))]
pub(super) async fn alter(
    State(app): State<App>,
    StorePath(name): StorePath,
    JsonBody(change): JsonBody<StoreChange>,
) -> Result<Json<StoreResource>, ApiError> {
    let store = app.blocking(move |app| {
        let kind = app.operator.store(&name)?.definition.kind;
        let change = read_options(&name, kind, &change.options, false)?;
        app.operator.alter(&name, &change)?;
        app.settle();
        status(app, &name)
    });
    Ok(Json(store.await?))
}

/// Drop a store with all its versions. Nodes keep its data for a day, unless configured: until then it can be restored.
#[utoipa::path(delete, path = "/v1/stores/{store}", tag = "stores", params(("store" = String, Path, description = "The store"), Dropping), responses(
    (status = 204, description = "The store is dropped"),
    (status = "default", description = "An error: store_not_found, push_in_progress, entries_lost", body = ErrorResource),
))]
pub(super) async fn drop_store(
    State(app): State<App>,
    StorePath(name): StorePath,
    QueryOf(dropping): QueryOf<Dropping>,
) -> Result<StatusCode, ApiError> {
    let dropped = app.blocking(move |app| {
        app.operator.drop_store(&name, dropping.now)?;
        app.settle();
        Ok(())
    });
    dropped.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restore a dropped store as it was. Nodes restore its data from the trash.
#[utoipa::path(post, path = "/v1/stores/{store}/restore", tag = "stores", params(("store" = String, Path, description = "The store")), responses(
    (status = 200, description = "The store", body = StoreResource),
    (status = "default", description = "An error: store_exists, not_restorable, entries_lost", body = ErrorResource),
))]
pub(super) async fn restore(
    State(app): State<App>,
    StorePath(name): StorePath,
) -> Result<Json<StoreResource>, ApiError> {
    let store = app.blocking(move |app| {
        app.operator.restore_store(&name)?;
        app.settle();
        status(app, &name)
    });
    Ok(Json(store.await?))
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
    let store = app.blocking(move |app| status(app, &name)).await?;
    Ok(Json(VersionList {
        versions: store.versions,
        push: store.push.filter(|push| !push.state.is_end()),
    }))
}

/// Make a kept version current, or one that the gates of its push hold, and those of other stores by the same write. Answers when all
/// live nodes serve it.
#[utoipa::path(post, path = "/v1/stores/{store}/swap", tag = "versions", params(("store" = String, Path, description = "The store"), Wait), request_body = SwapRequest, responses(
    (status = 200, description = "The store as it is now", body = StoreResource),
    (status = "default", description = "An error: store_not_found, versioned_store, version_not_found, version_failed, old_members", body = ErrorResource),
))]
pub(super) async fn swap(
    State(app): State<App>,
    StorePath(name): StorePath,
    QueryOf(wait): QueryOf<Wait>,
    JsonBody(request): JsonBody<SwapRequest>,
) -> Result<(Option<Extension<AuditNote>>, Json<StoreResource>), ApiError> {
    let version = version(request.version)?;
    let swapped = app.blocking(move |app| {
        let mut versions = request.with;
        if versions.insert(name.clone(), version).is_some() {
            return Err(ApiError::invalid(format!(
                "store {name} is named twice: leave it out of `with`"
            )));
        }
        let mut notes = Vec::new();
        for (store, &version) in &versions {
            let push = app.operator.store(store)?.push;
            if let Some(push) = push.filter(|push| push.state == PushState::Held && push.version == version) {
                let reason = push.error.unwrap_or_default();
                notes.push(format!(
                    "version {version} of store {store} went live though it was held: {reason}"
                ));
            }
        }
        app.operator.swap(&versions)?;
        let note = (!notes.is_empty()).then(|| Extension(AuditNote(notes.join("; "))));
        Ok((note, swapped(app, &name, wait)?))
    });
    let (note, store) = swapped.await?;
    Ok((note, Json(store)))
}

/// Go back to an earlier version: the given one, or the one before the current one. If it was swapped in together with versions of
/// other stores, the request says whether those go back too. Answers when all live nodes serve it.
#[utoipa::path(post, path = "/v1/stores/{store}/rollback", tag = "versions", params(("store" = String, Path, description = "The store"), Wait), request_body = RollbackRequest, responses(
    (status = 200, description = "The store as it is now", body = StoreResource),
    (status = "default", description = "An error: store_not_found, versioned_store, no_rollback, swapped_together, base_changed, version_not_found, version_failed", body = ErrorResource),
))]
pub(super) async fn rollback(
    State(app): State<App>,
    StorePath(name): StorePath,
    QueryOf(wait): QueryOf<Wait>,
    JsonBody(request): JsonBody<RollbackRequest>,
) -> Result<Json<StoreResource>, ApiError> {
    let to = request.to.map(version).transpose()?;
    let store = app.blocking(move |app| {
        app.operator.roll_back(&name, to, request.set, request.if_current)?;
        swapped(app, &name, wait)
    });
    Ok(Json(store.await?))
}

/// A store after its current version has changed, once all nodes know, if that was requested.
fn swapped(app: &App, name: &StoreName, wait: Wait) -> Result<StoreResource, ApiError> {
    if wait.wait {
        app.wait_serving(name)?;
    }
    status(app, name)
}

fn status(app: &App, name: &StoreName) -> Result<StoreResource, ApiError> {
    let record = app.operator.store(name)?;
    let view = app.operator.view_with_reports()?;
    Ok(Seen::new(app.operator.mirror(), &view, app.agent.as_deref()).store(&record))
}

fn version(number: u64) -> Result<VersionNumber, ApiError> {
    VersionNumber::new(number).ok_or_else(|| ApiError::invalid("invalid version 0: versions are whole numbers from 1"))
}
