//! The OpenAPI document of the control port, generated from the handlers and types that answer.

use axum::Json;
use axum::response::{IntoResponse, Response};
use fondaco_api::{ERROR_CODES, ErrorResource};
use fondaco_decisions::StoreOption;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{Modify, OpenApi};

use crate::{
    cluster, dev, events, files, graphs, load, lookup, losses, node, plans, pushes, records, sessions, stores, streams,
    uploads, users,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "fondaco control port", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    paths(
        stores::list,
        stores::create,
        stores::show,
        stores::alter,
        stores::drop_store,
        stores::restore,
        stores::versions,
        stores::swap,
        stores::rollback,
        streams::log,
        streams::show,
        streams::poison,
        streams::changes,
        pushes::start,
        pushes::show,
        pushes::cancel,
        files::get,
        uploads::begin,
        uploads::show,
        uploads::delete,
        uploads::put,
        uploads::file,
        records::partition,
        records::hints,
        records::merge,
        cluster::show,
        cluster::adopt,
        cluster::nodes,
        cluster::routing,
        cluster::split,
        cluster::mark,
        cluster::forget,
        sessions::show,
        sessions::begin,
        sessions::end,
        users::list,
        users::put,
        users::delete,
        users::audit,
        events::stream,
        cluster::place,
        load::show,
        load::report,
        load::history,
        load::decisions,
        load::decision,
        plans::list,
        plans::make,
        plans::show,
        plans::cancel,
        plans::run,
        plans::pause,
        plans::resume,
        dev::list,
        dev::stop,
        dev::start,
        lookup::get,
        lookup::many,
        graphs::query,
        losses::list,
        losses::accept,
        node::status,
        node::settings,
        node::change_settings,
        node::front,
        node::healthz,
        node::readyz,
        node::metrics,
        show,
    ),
    modifiers(&Token, &Codes, &OperationIds, &Kinds),
    // A port has a token or none; without a token, both are accepted.
    security(("token" = []), ()),
    tags(
        (name = "stores", description = "Stores and their settings"),
        (name = "versions", description = "The versions of stores"),
        (name = "pushes", description = "Pushes of new versions"),
        (name = "streams", description = "The streams of hybrid stores"),
        (name = "backups", description = "The records of versioned stores, replica by replica"),
        (name = "look-ups", description = "For people; programs use RESP"),
        (name = "cluster", description = "The members of the cluster, and the owners of partitions"),
        (name = "access", description = "Users, sessions of browsers, and the changes that people made"),
        (name = "load", description = "The load of the cluster, and decisions about it"),
        (name = "plans", description = "Moves of partitions between nodes"),
        (name = "node", description = "The answering process"),
        (name = "development", description = "Stopping and starting the members of a development cluster"),
    ),
)]
struct Document;

/// The document.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

/// This OpenAPI document.
#[utoipa::path(get, path = "/openapi.json", tag = "node", responses(
    (status = 200, description = "The document", body = serde_json::Value),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn show() -> Response {
    Json(document()).into_response()
}

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The token of the control port, where one is configured."))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Puts the list of error codes where readers look first.
struct Codes;

impl Modify for Codes {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let mut text =
            "Administration of a fondaco cluster, at any of its processes. Errors have one shape; their codes:\n\n"
                .to_owned();
        for (code, status, meaning) in ERROR_CODES {
            text += &format!("- `{code}` ({status}): {meaning}\n");
        }
        document.info.description = Some(text);
    }
}

/// Adds to each option of a store the kinds that have it.
struct Kinds;

impl Modify for Kinds {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        for (schema, prefix) in [
            ("NewStore", ""),
            ("StoreChange", ""),
            ("VersionedOptions", "versioned."),
            ("StreamResource", "stream."),
            ("StreamOptions", "stream."),
        ] {
            let Some(RefOr::T(Schema::Object(schema))) = components.schemas.get_mut(schema) else {
                continue;
            };
            for (name, property) in &mut schema.properties {
                let option = StoreOption::of_member(&format!("{prefix}{name}"));
                let described = match property {
                    RefOr::T(Schema::Object(object)) => &mut object.description,
                    RefOr::T(Schema::OneOf(one_of)) => &mut one_of.description,
                    _ => continue,
                };
                if let Some(option) = option.filter(|option| option.is_special()) {
                    let text = described.get_or_insert_default();
                    *text = format!("{text}\n\nOnly {} stores have it.", option.kinds());
                }
            }
        }
    }
}

/// Names each operation by its method and path: handlers of several resources have the same names.
struct OperationIds;

impl Modify for OperationIds {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut document.paths.paths {
            let words = path
                .split(['/', '{', '}', '.'])
                .filter(|word| !word.is_empty() && *word != "v1");
            let words = words.collect::<Vec<_>>().join("_");
            for (method, operation) in [
                ("get", &mut item.get),
                ("post", &mut item.post),
                ("put", &mut item.put),
                ("patch", &mut item.patch),
                ("delete", &mut item.delete),
            ] {
                if let Some(operation) = operation {
                    operation.operation_id = Some(match words.as_str() {
                        "" => method.to_owned(),
                        words => format!("{method}_{words}"),
                    });
                }
            }
        }
    }
}
