//! `/v1/stores/{store}/schemas`: the schemas of a store's values.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use fondaco_api::{ErrorResource, NewSchema, SchemaDiff, SchemaField, SchemaList, SchemaResource};
use fondaco_model::StoreName;
use fondaco_model::cluster::SchemaRecord;
use fondaco_schema::{Schema, SchemaError};
use serde_json::Value;

use crate::app::App;
use crate::body::{JsonBody, PathTexts, StorePath};
use crate::error::ApiError;
use crate::other_nodes;

/// List the schemas of a store.
#[utoipa::path(get, path = "/v1/stores/{store}/schemas", tag = "schemas", params(("store" = String, Path, description = "The store")), responses(
    (status = 200, description = "Its schemas", body = SchemaList),
    (status = "default", description = "An error: store_not_found", body = ErrorResource),
))]
pub(super) async fn list(State(app): State<App>, StorePath(name): StorePath) -> Result<Json<SchemaList>, ApiError> {
    let list = app.blocking(move |app| {
        let store = app.operator.store(&name)?;
        let view = app.operator.mirror().view();
        Ok(SchemaList {
            value_type: store.definition.value_type,
            compatibility: store.definition.compatibility,
            schemas: view.schemas_of(store.id).map(|record| resource(record, true)).collect(),
        })
    });
    Ok(Json(list.await?))
}

/// Register a schema, or only check it. If the store has one that means the same, that is the answer. Once it is answered, all
/// nodes and routers that answer know the schema, so that values of it may be written.
#[utoipa::path(post, path = "/v1/stores/{store}/schemas", tag = "schemas", params(("store" = String, Path, description = "The store")), request_body = NewSchema, responses(
    (status = 200, description = "The store has it, or it was only checked", body = SchemaResource),
    (status = 201, description = "It is registered", body = SchemaResource),
    (status = "default", description = "An error: invalid_request, store_not_found, schema_clash, too_many_schemas", body = ErrorResource),
))]
pub(super) async fn register(
    State(app): State<App>,
    StorePath(name): StorePath,
    JsonBody(new): JsonBody<NewSchema>,
) -> Result<(StatusCode, Json<SchemaResource>), ApiError> {
    let (store, is_new) = (name.clone(), !new.dry_run);
    let (record, is_known) = app
        .blocking(move |app| {
            let text = match &new.schema {
                Value::String(text) => text.clone(),
                schema => schema.to_string(),
            };
            let value_type = app.operator.store(&name)?.definition.value_type;
            let schema = Schema::of_text(value_type, &text, new.message.as_deref()).map_err(|error| invalid(&error))?;
            let registered = app.operator.register_schema(&name, &schema, new.dry_run)?;
            app.settle();
            Ok(registered)
        })
        .await?;
    let is_new = is_new && !is_known;
    if is_new {
        tell_all(&app, &store, record.id).await;
    }
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(resource(&record, is_known))))
}

/// Show a schema.
#[utoipa::path(get, path = "/v1/stores/{store}/schemas/{id}", tag = "schemas", params(
    ("store" = String, Path, description = "The store"),
    ("id" = u16, Path, description = "The number of the schema"),
), responses(
    (status = 200, description = "The schema", body = SchemaResource),
    (status = "default", description = "An error: invalid_request, store_not_found, schema_not_found", body = ErrorResource),
))]
pub(super) async fn show(
    State(app): State<App>,
    PathTexts((store, id)): PathTexts<(String, String)>,
) -> Result<Json<SchemaResource>, ApiError> {
    let (store, id) = (store_name(&store)?, number(&id)?);
    let record = app.blocking(move |app| {
        let record = found(app, &store, id)?;
        // Requests see it from now on, too.
        app.settle();
        Ok(record)
    });
    Ok(Json(resource(&record.await?, true)))
}

/// Compare two schemas of a store.
#[utoipa::path(get, path = "/v1/stores/{store}/schemas/{id}/diff/{other}", tag = "schemas", params(
    ("store" = String, Path, description = "The store"),
    ("id" = u16, Path, description = "The number of the first schema"),
    ("other" = u16, Path, description = "The number of the second schema"),
), responses(
    (status = 200, description = "The differences, from the first to the second", body = SchemaDiff),
    (status = "default", description = "An error: invalid_request, store_not_found, schema_not_found", body = ErrorResource),
))]
pub(super) async fn diff(
    State(app): State<App>,
    PathTexts((store, id, other)): PathTexts<(String, String, String)>,
) -> Result<Json<SchemaDiff>, ApiError> {
    let (store, ids) = (store_name(&store)?, [number(&id)?, number(&other)?]);
    let changes = app.blocking(move |app| {
        let [from, to] = ids.map(|id| {
            let record = found(app, &store, id)?;
            Schema::of_record(&record).map_err(|error| invalid(&error))
        });
        let changes = fondaco_schema::diff(&from?, &to?);
        Ok(changes.iter().map(ToString::to_string).collect())
    });
    Ok(Json(SchemaDiff {
        changes: changes.await?,
    }))
}

/// Makes all other live processes look at a new schema: a client that has the answer may write values of it anywhere. Those that are
/// silent see it when they next hear of the coordination service.
async fn tell_all(app: &App, store: &StoreName, id: u16) {
    let silent = other_nodes::ask_all::<SchemaResource>(app, &format!("/v1/stores/{store}/schemas/{id}")).await;
    if !silent.is_empty() {
        tracing::warn!(%store, id, ?silent, "some processes may not know a new schema yet");
    }
}

fn found(app: &App, store: &StoreName, id: u16) -> Result<SchemaRecord, ApiError> {
    let record = app.operator.schema(store, id)?;
    record.ok_or_else(|| {
        let message =
            format!("store {store:?} has no schema {id}: fondaco schema list {store} shows those that it has");
        ApiError::new("schema_not_found", message)
    })
}

fn store_name(text: &str) -> Result<StoreName, ApiError> {
    text.parse().map_err(|error| ApiError::invalid(format!("{error}")))
}

fn number(text: &str) -> Result<u16, ApiError> {
    let refuse = || {
        ApiError::invalid(format!(
            "invalid number of a schema {text:?}: use 1 to {}",
            fondaco_schema::SCHEMA_ID_MAX
        ))
    };
    text.parse().map_err(|_| refuse())
}

fn invalid(error: &SchemaError) -> ApiError {
    ApiError::invalid(error.to_string())
}

fn resource(record: &SchemaRecord, is_known: bool) -> SchemaResource {
    let fields = Schema::of_record(record)
        .map(|schema| schema.fields())
        .unwrap_or_default();
    let field = |field: fondaco_schema::FieldInfo| SchemaField {
        name: field.name,
        r#type: field.texts.type_text,
        default: field.texts.default,
    };
    SchemaResource {
        id: record.id,
        value_type: record.value_type,
        schema: record.text.clone(),
        message: record.message.clone(),
        fields: fields.into_iter().map(field).collect(),
        registered_unix_ms: record.registered_unix_ms,
        is_known,
    }
}
