//! The schemas of a version's values, in its manifest.

use fondaco_format::ValueSchema;
use fondaco_model::ValueType;
use fondaco_schema::{Schema, SchemaError, Schemas};

/// Parses the schemas of a manifest.
///
/// # Errors
/// One of them is invalid; the place begins with its id.
pub fn schemas_of(value_type: ValueType, texts: &[ValueSchema]) -> Result<Schemas, SchemaError> {
    let parsed = texts.iter().map(|ValueSchema { id, text, message }| {
        let schema = Schema::of_text(value_type, text, message.as_deref());
        let schema = schema.map_err(|error| SchemaError {
            place: format!("schema {id}, {}", error.place),
            ..error
        });
        Ok((*id, schema?))
    });
    parsed.collect()
}

/// A schema as it is written to a manifest.
pub fn value_schema(id: u16, schema: &Schema) -> ValueSchema {
    ValueSchema {
        id,
        text: schema.to_text(),
        message: schema.message().map(str::to_owned),
    }
}
