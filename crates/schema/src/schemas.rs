//! The schemas of one store.

use std::collections::BTreeMap;

use fondaco_model::ValueType;
use serde_json::Value;

use crate::{Schema, SchemaError, ValueError, read_id};

/// The schemas of one store by id: what a node holds.
#[derive(Debug, Clone, Default)]
pub struct Schemas(BTreeMap<u16, Schema>);

impl Schemas {
    /// Parses the schemas of a manifest: id, text and message of each. The place in an error begins with the id.
    pub fn of_texts<'a>(
        value_type: ValueType,
        texts: impl Iterator<Item = (u16, &'a str, Option<&'a str>)>,
    ) -> Result<Self, SchemaError> {
        let parsed = texts.map(|(id, text, message)| {
            let schema = Schema::of_text(value_type, text, message).map_err(|error| SchemaError {
                place: format!("schema {id}, {}", error.place),
                ..error
            });
            Ok((id, schema?))
        });
        parsed.collect()
    }

    /// Adds a schema. Ids are never used again: the same id has the same schema.
    pub fn insert(&mut self, id: u16, schema: Schema) {
        self.0.insert(id, schema);
    }

    /// The schema with this id.
    pub fn get(&self, id: u16) -> Option<&Schema> {
        self.0.get(&id)
    }

    /// The newest schema, and its id.
    pub fn newest(&self) -> Option<(u16, &Schema)> {
        self.0.last_key_value().map(|(id, schema)| (*id, schema))
    }

    /// All schemas, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u16, &Schema)> {
        self.0.iter().map(|(id, schema)| (*id, schema))
    }

    /// Splits a stored value: the id, its schema, the payload. An id that is unknown here is an error: [`read_id`] tells it.
    pub fn split<'s, 'v>(&'s self, value: &'v [u8]) -> Result<(u16, &'s Schema, &'v [u8]), ValueError> {
        let (id, payload) = read_id(value)?;
        let schema = self
            .get(id)
            .ok_or_else(|| ValueError::new(0, format!("no schema has the id {id}")))?;
        Ok((id, schema, payload))
    }

    /// Checks a stored value: its id is known, and its payload fits the schema.
    pub fn validate(&self, value: &[u8]) -> Result<u16, ValueError> {
        let (id, schema, payload) = self.split(value)?;
        schema.validate(payload)?;
        Ok(id)
    }

    /// A stored value as JSON, with the id of its schema.
    pub fn decode(&self, value: &[u8]) -> Result<(u16, Value), ValueError> {
        let (id, schema, payload) = self.split(value)?;
        Ok((id, schema.to_json(payload)?))
    }
}

impl FromIterator<(u16, Schema)> for Schemas {
    fn from_iter<I: IntoIterator<Item = (u16, Schema)>>(schemas: I) -> Self {
        Self(schemas.into_iter().collect())
    }
}
