//! The type of a store's values with its schemas: all that is needed to check, show and change a value.

use std::sync::Arc;

use fondaco_model::ValueType;
use serde_json::Value;

use crate::{Schemas, Update, ValueError, check_value, put_id, value_of_json, value_to_json};

/// The rules for the values of one store. The default is that of values without a declared type.
#[derive(Debug, Clone, Default)]
pub struct ValueRules {
    value_type: ValueType,
    schemas: Arc<Schemas>,
}

impl ValueRules {
    /// Values of this type, with these schemas.
    pub fn new(value_type: ValueType, schemas: Arc<Schemas>) -> Self {
        Self { value_type, schemas }
    }

    /// The type.
    pub fn value_type(&self) -> ValueType {
        self.value_type
    }

    /// The schemas: none for types that need none.
    pub fn schemas(&self) -> &Arc<Schemas> {
        &self.schemas
    }

    /// JSON as a stored value: of the newest schema, if the type has schemas.
    pub fn of_json(&self, json: &Value) -> Result<Vec<u8>, ValueError> {
        if self.value_type.has_schemas() {
            let newest = self.schemas.newest();
            let (id, schema) = newest.ok_or_else(|| ValueError::new(0, "the store has no schema yet: register one"))?;
            let mut value = Vec::new();
            put_id(id, &mut value);
            value.extend(schema.of_json(json)?);
            return Ok(value);
        }
        let value = value_of_json(self.value_type, json)?;
        value.ok_or_else(|| {
            let reason = format!("values of type {} are not made from JSON", self.value_type);
            ValueError::new(0, reason)
        })
    }

    /// A stored value as JSON; null for types without a form in JSON.
    pub fn shown(&self, value: &[u8]) -> Result<Value, ValueError> {
        match self.value_type {
            ValueType::Avro | ValueType::Protobuf => self.schemas.decode(value).map(|(_, json)| json),
            // Updates change JSON text there.
            ValueType::Bytes => Ok(value_to_json(ValueType::Json, value)?.unwrap_or_default()),
            value_type => Ok(value_to_json(value_type, value)?.unwrap_or_default()),
        }
    }

    /// Whether the newest schema has all fields that an update names, if the type has schemas.
    pub fn knows_fields(&self, update: &Update) -> bool {
        let newest = self.schemas.newest();
        let knows = |name| newest.is_some_and(|(_, schema)| schema.has_field(name));
        !self.value_type.has_schemas() || update.fields().all(knows)
    }

    /// Checks that an update may fit a value, as far as that can be told without the value.
    ///
    /// # Errors
    /// The type has no such updates, or the newest schema lacks a field.
    pub fn check_update(&self, update: &Update) -> Result<(), ValueError> {
        let has_fields = update.fields().next().is_some();
        let fits = match self.value_type {
            ValueType::Ids => update.is_of_set(),
            // The allowed values depend on the key.
            ValueType::Graph => update.is_of_set() || has_fields,
            _ if update.is_of_set() => false,
            ValueType::Bytes | ValueType::Json => true,
            ValueType::Avro | ValueType::Protobuf | ValueType::Messagepack => has_fields,
            ValueType::Integer => !has_fields,
            ValueType::String => false,
        };
        if !fits {
            return Err(ValueError::new(
                0,
                format!("no such updates of values of type {}", self.value_type),
            ));
        }
        match self.knows_fields(update) {
            true => Ok(()),
            false => Err(ValueError::new(0, "the newest schema lacks a field of the update")),
        }
    }

    /// Checks a stored value: with its id, if the type has schemas.
    pub fn check(&self, value: &[u8]) -> Result<(), ValueError> {
        match self.value_type.has_schemas() {
            true => self.schemas.validate(value).map(drop),
            false => check_value(self.value_type, value),
        }
    }
}
