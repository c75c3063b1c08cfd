//! `fondaco schema`: the schemas of a store's values.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use fondaco_api::{
    NewSchema, SchemaCount, SchemaDiff, SchemaField, SchemaList, SchemaRecords, SchemaResource, UncountedNode,
};
use fondaco_model::{StoreName, ValueType};

use super::WrongUsage;
use crate::control_port::ControlPort;
use crate::output::{self, Output, table};

/// `fondaco schema`.
#[derive(Debug, Subcommand)]
pub enum SchemaCommand {
    /// Register a schema of a store's values, or find the one that means the same
    Register(RegisterOptions),
    /// Check whether a schema could be registered
    Check(NewOptions),
    /// List the schemas of a store
    List(ListOptions),
    /// Show a schema, the newest one by default
    Show(ShowOptions),
    /// Show the differences of two schemas
    Diff(DiffOptions),
}

/// `fondaco schema register`.
#[derive(Debug, Args)]
#[command(after_help = "\
The store's --compatibility says which schemas must read values of one another. A schema is never changed or deleted.

Example:
  fondaco store create members --kind versioned --value-type avro
  fondaco schema register members member.avsc
  protoc --include_imports --descriptor_set_out=cart.bin cart.proto
  fondaco schema register carts cart.bin --message shop.Cart")]
pub struct RegisterOptions {
    #[command(flatten)]
    new: NewOptions,

    /// Only check it
    #[arg(long)]
    dry_run: bool,
}

/// `fondaco schema check`.
#[derive(Debug, Args)]
pub struct NewOptions {
    /// The store
    store: StoreName,

    /// Avro: the schema's file (.avsc); Protobuf: a serialized FileDescriptorSet, as protoc writes it
    file: PathBuf,

    /// The full name of Protobuf's message
    #[arg(long, value_name = "NAME")]
    message: Option<String>,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco schema list`.
#[derive(Debug, Args)]
pub struct ListOptions {
    /// The store
    store: StoreName,

    /// Count the records of each schema, in each version: nodes may have to read all records
    #[arg(long)]
    records: bool,

    /// How long to wait for the counts, 1 to 3600
    #[arg(long, default_value_t = 30, requires = "records", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco schema show`.
#[derive(Debug, Args)]
pub struct ShowOptions {
    /// The store
    store: StoreName,

    /// The number of the schema
    id: Option<u16>,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco schema diff`.
#[derive(Debug, Args)]
pub struct DiffOptions {
    /// The store
    store: StoreName,

    /// The number of the first schema
    from: u16,

    /// The number of the second schema
    to: u16,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco schema`.
pub fn run(command: SchemaCommand, output: &Output) -> anyhow::Result<()> {
    match command {
        SchemaCommand::Register(options) => register(&options.new, options.dry_run, output),
        SchemaCommand::Check(options) => register(&options, true, output),
        SchemaCommand::List(options) if options.records => output.result(&records(&options)?, records_text),
        SchemaCommand::List(options) => {
            let list = list(&options.node, &options.store)?;
            output.result(&list, list_text)
        }
        SchemaCommand::Show(options) => {
            let mut list = list(&options.node, &options.store)?;
            let found = match options.id {
                None => list.schemas.pop(),
                Some(id) => list.schemas.into_iter().find(|schema| schema.id == id),
            };
            let store = &options.store;
            let found =
                found.with_context(|| format!("store {store:?} has no such schema: fondaco schema list {store}"))?;
            output.result(&found, schema_text)
        }
        SchemaCommand::Diff(DiffOptions { store, from, to, node }) => {
            let diff: SchemaDiff = node
                .client()?
                .get(&format!("/v1/stores/{store}/schemas/{from}/diff/{to}"))?;
            output.result(&diff, |diff| match diff.changes.is_empty() {
                true => "no difference\n".to_owned(),
                false => diff.changes.iter().map(|change| format!("{change}\n")).collect(),
            })
        }
    }
}

fn list(node: &ControlPort, store: &StoreName) -> anyhow::Result<SchemaList> {
    Ok(node.client()?.get(&format!("/v1/stores/{store}/schemas"))?)
}

fn records(options: &ListOptions) -> anyhow::Result<SchemaRecords> {
    let ListOptions {
        store, seconds, node, ..
    } = options;
    let mut endpoint = node.endpoint();
    endpoint.request_time_max += Duration::from_secs(*seconds);
    Ok(endpoint
        .client()?
        .get(&format!("/v1/stores/{store}/schemas/records?seconds={seconds}"))?)
}

fn register(options: &NewOptions, dry_run: bool, output: &Output) -> anyhow::Result<()> {
    let NewOptions {
        store,
        file,
        message,
        node,
    } = options;
    let value_type = list(node, store)?.value_type;
    let new = NewSchema {
        schema: read(file, value_type)?.into(),
        message: message.clone(),
        dry_run,
    };
    let found: SchemaResource = node.client()?.post(&format!("/v1/stores/{store}/schemas"), &new)?;
    output.result(&found, |found| match (found.is_known, dry_run) {
        (true, _) => format!("schema {} of store {store} means the same\n", found.id),
        (false, true) => format!("the schema fits store {store}: it would be schema {}\n", found.id),
        (false, false) => format!("schema {} of store {store} is registered\n", found.id),
    })
}

/// The text form of the schema in a file.
fn read(file: &Path, value_type: ValueType) -> anyhow::Result<String> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    if value_type == ValueType::Protobuf {
        return Ok(STANDARD.encode(bytes));
    }
    let text = String::from_utf8(bytes);
    Ok(text.map_err(|_| WrongUsage(format!("{} is no text: give a schema of Avro, in JSON", file.display())))?)
}

fn list_text(list: &SchemaList) -> String {
    if list.schemas.is_empty() {
        return match list.value_type.has_schemas() {
            true => "the store has no schemas yet: fondaco schema register STORE FILE\n".to_owned(),
            false => format!("values of type {} have no schemas\n", list.value_type),
        };
    }
    let row = |schema: &SchemaResource| {
        vec![
            schema.id.to_string(),
            output::timestamp(schema.registered_unix_ms),
            schema.message.clone().unwrap_or_else(|| "-".to_owned()),
            schema
                .fields
                .iter()
                .map(|field| field.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        ]
    };
    let rows: Vec<Vec<String>> = list.schemas.iter().map(row).collect();
    let rows = table(
        &["SCHEMA", "REGISTERED", "MESSAGE", "FIELDS"],
        &rows,
        &[true, false, false, false],
    );
    format!("{rows}compatibility: {}\n", list.compatibility)
}

fn schema_text(schema: &SchemaResource) -> String {
    let row = |field: &SchemaField| {
        let default = field.default.clone().unwrap_or_else(|| "-".to_owned());
        vec![field.name.clone(), field.r#type.clone(), default]
    };
    let rows: Vec<Vec<String>> = schema.fields.iter().map(row).collect();
    let rows = table(&["FIELD", "TYPE", "DEFAULT"], &rows, &[false; 3]);
    match schema.value_type {
        ValueType::Protobuf => format!("{rows}message: {}\n", schema.message.as_deref().unwrap_or_default()),
        _ => format!("{rows}{}\n", schema.schema.trim_end()),
    }
}

fn records_text(counted: &SchemaRecords) -> String {
    let row = |count: &SchemaCount| {
        let version = count
            .version
            .map_or_else(|| "-".to_owned(), |version| version.to_string());
        vec![
            count
                .schema
                .map_or_else(|| "none".to_owned(), |schema| schema.to_string()),
            if count.events {
                format!("{version} + events")
            } else {
                version
            },
            count.records.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = counted.counts.iter().map(row).collect();
    let mut text = match rows.is_empty() {
        true => "no records\n".to_owned(),
        false => table(&["SCHEMA", "VERSION", "RECORDS"], &rows, &[true, false, true]),
    };
    for UncountedNode { node, reason } in &counted.missing {
        text += &format!("not counted: the records of node {node}: {reason}\n");
    }
    text
}
