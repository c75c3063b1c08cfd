//! The options of `fondaco build` and `fondaco push` that say how keys and values are encoded.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use fondaco_builder::Declaration;
use fondaco_model::{KeyType, ValueType};
use fondaco_schema::Schema;

use super::WrongUsage;

/// The id of a schema that has none yet: that of the first schema of a store.
const ID_DEFAULT: u16 = 1;

/// How keys and values are encoded, besides the type of values.
#[derive(Debug, Args)]
pub struct DeclarationOptions {
    /// The type of keys: bytes, string, integer, or a tuple such as (string,integer), with a column for each part; push takes
    /// that of the store
    #[arg(long, value_name = "TYPE")]
    pub key_type: Option<KeyType>,

    /// The schema that rows become records of: Avro's JSON, or a file that protoc wrote with --descriptor_set_out. push takes the
    /// newest of the store
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,

    /// The full name of Protobuf's message in --schema
    #[arg(long, value_name = "NAME", requires = "schema")]
    message: Option<String>,

    /// The id of the schema in the store, as fondaco schema list shows it; for build, that of --schema
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=i64::from(fondaco_schema::SCHEMA_ID_MAX)))]
    schema_id: Option<u16>,
}

impl DeclarationOptions {
    /// Whether --schema is given: it needs the type of values.
    pub fn has_schema(&self) -> bool {
        self.schema.is_some()
    }

    /// How keys and values of this type are encoded.
    pub fn declaration(&self, value_type: Option<ValueType>) -> anyhow::Result<Declaration> {
        let value_type = value_type.unwrap_or_default();
        let mut declared = Declaration {
            key_type: self.key_type.clone().unwrap_or_default(),
            schema_id: self.schema_id,
            ..value_type.into()
        };
        if let Some(path) = &self.schema {
            if !value_type.has_schemas() {
                let usage = "--schema needs --value-type avro or protobuf: other values have no schema".to_owned();
                return Err(WrongUsage(usage).into());
            }
            let text = std::fs::read(path).with_context(|| format!("cannot read the schema {path:?}"))?;
            let schema = Schema::parse(value_type, &text, self.message.as_deref());
            let schema = schema.with_context(|| format!("cannot use {path:?}"))?;
            declared.schemas.insert(self.schema_id.unwrap_or(ID_DEFAULT), schema);
        }
        Ok(declared)
    }
}
