//! The OpenAPI document of the control port, generated from the handlers and types that answer.

use axum::Json;
use axum::response::{IntoResponse, Response};
use fondaco_api::{ERROR_CODES, ErrorResource};
use fondaco_model::{OptionValue, StoreOption};
use utoipa::openapi::schema::{AdditionalProperties, Object, SchemaType, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{Modify, OpenApi};

use crate::{
    changes, cluster, dev, diff, events, files, graphs, load, lookup, losses, node, plans, pushes, records,
    schema_records, schemas, sessions, stores, streams, uploads, users, version_lookup,
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
        schemas::list,
        schemas::register,
        schema_records::count,
        schemas::show,
        schemas::diff,
        stores::versions,
        diff::show,
        stores::swap,
        stores::rollback,
        streams::log,
        streams::show,
        streams::poison,
        streams::changes,
        changes::follow_store,
        changes::part,
        pushes::start,
        pushes::show,
        pushes::cancel,
        pushes::steer_canary,
        pushes::confirm,
        files::get,
        version_lookup::get,
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
    modifiers(&Token, &Codes, &OperationIds, &Options),
    // A port has a token or none; without a token, both are accepted.
    security(("token" = []), ()),
    tags(
        (name = "stores", description = "Stores and their settings"),
        (name = "versions", description = "The versions of stores"),
        (name = "pushes", description = "Pushes of new versions"),
        (name = "schemas", description = "The schemas of the values of stores"),
        (name = "streams", description = "The streams of hybrid stores"),
        (name = "changes", description = "The changes of stores, for programs that follow them"),
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

/// Adds the options of stores to the documents that create, change and show one.
struct Options;

impl Modify for Options {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        for (name, is_read) in [("NewStore", true), ("StoreChange", true), ("StoreResource", false)] {
            let Some(RefOr::T(Schema::Object(schema))) = components.schemas.get_mut(name) else {
                continue;
            };
            for option in StoreOption::all() {
                for member in option.members() {
                    let (object, member) = match member.split_once('.') {
                        None => (&mut *schema, member),
                        Some((part, member)) => (part_of(schema, part, is_read), member),
                    };
                    let property = || RefOr::T(Schema::Object(schema_of(option)));
                    object.properties.entry(member.to_owned()).or_insert_with(property);
                }
            }
            if is_read {
                schema.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
            }
        }
    }
}

/// The schema of a part of a store's document: `versioned` or `stream`. In answers it is null for other kinds.
fn part_of<'a>(schema: &'a mut Object, part: &str, is_read: bool) -> &'a mut Object {
    let new = || {
        let description = format!(
            "The options of a {} store.",
            if part == "stream" { "hybrid" } else { part }
        );
        let mut object = Object::with_type(match is_read {
            true => Type::Object.into(),
            false => SchemaType::Array(vec![Type::Object, Type::Null]),
        });
        object.description = Some(description);
        object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        RefOr::T(Schema::Object(object))
    };
    match schema.properties.entry(part.to_owned()).or_insert_with(new) {
        RefOr::T(Schema::Object(object)) => object,
        _ => unreachable!("the part was added as an object"),
    }
}

/// The schema of an option.
fn schema_of(option: &StoreOption) -> Object {
    let kind = match option.value {
        OptionValue::Bool => Type::Boolean,
        OptionValue::Word(..) | OptionValue::Text(..) => Type::String,
        OptionValue::Count(..) | OptionValue::Bytes(..) | OptionValue::Time(..) => Type::Integer,
    };
    let mut object = Object::with_type(match option.none {
        Some(_) => SchemaType::Array(vec![kind, Type::Null]),
        None => kind.into(),
    });
    let only = match option.is_special() {
        true => format!("\n\nOnly {} stores have it.", option.kinds()),
        false => String::new(),
    };
    let fixed = if option.is_fixed { " It cannot be changed." } else { "" };
    object.description = Some(format!("{}.{fixed}{only}", option.help()));
    if let Some((least, most)) = option.value.bounds() {
        let least = if option.none == Some("0") { 0 } else { least };
        object.minimum = Some((least as usize).into());
        object.maximum = most.map(|most| (most as usize).into());
    }
    if let OptionValue::Word(_, words) = option.value {
        object.enum_values = Some(words.iter().map(|&word| word.into()).collect());
    }
    object
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
