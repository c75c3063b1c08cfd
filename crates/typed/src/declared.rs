//! Values of declared types become JSON before they are decoded to columns, and keys of several parts become their texts.

use std::collections::BTreeMap;

use fondaco_format::ValueSchema;
use fondaco_model::{KeyPart, KeyType, ValueType};
use fondaco_schema::{Resolver, Schema, SchemaError, Schemas, ValueError, key_to_parts, read_id, value_to_json};

/// How the keys and values of a version are encoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Declared {
    key_type: KeyType,
    value_type: ValueType,
    newest: Option<Schema>,
    /// By the ids of schemas: from each to the newest.
    resolvers: BTreeMap<u16, Resolver>,
}

impl Declared {
    /// The declaration of a store or a version.
    ///
    /// # Errors
    /// Its schemas cannot be read, or not be resolved to the newest.
    pub(crate) fn of(key_type: &KeyType, value_type: ValueType, texts: &[ValueSchema]) -> Result<Self, SchemaError> {
        let schemas = Schemas::of_texts(value_type, texts.iter().map(ValueSchema::parts))?;
        let newest = schemas.newest().map(|(_, schema)| schema.clone());
        let mut resolvers = BTreeMap::new();
        for (id, schema) in schemas.iter() {
            let resolver = Resolver::new(schema, newest.as_ref().unwrap_or(schema));
            let resolver = resolver.map_err(|error| SchemaError {
                place: format!("schema {id}"),
                reason: error.reason,
            });
            resolvers.insert(id, resolver?);
        }
        Ok(Self {
            key_type: key_type.clone(),
            value_type,
            newest,
            resolvers,
        })
    }

    /// The names and types of the fields of records.
    pub(crate) fn fields(&self) -> Option<Vec<(String, String)>> {
        self.newest.as_ref().map(Schema::column_types)
    }

    /// Whether values have to become JSON.
    pub(crate) fn encodes_values(&self) -> bool {
        self.newest.is_some() || self.value_type == ValueType::Messagepack
    }

    /// A value as JSON.
    pub(crate) fn json(&self, value: &[u8]) -> Result<Vec<u8>, ValueError> {
        let json = match &self.newest {
            Some(newest) => {
                let (id, payload) = read_id(value)?;
                let resolver = self.resolvers.get(&id).ok_or_else(|| ValueError {
                    offset: 0,
                    field: String::new(),
                    reason: format!("no schema has the id {id}"),
                })?;
                Some(newest.to_json(&resolver.resolve(payload)?)?)
            }
            None => value_to_json(self.value_type, value)?,
        };
        Ok(json.map_or_else(|| value.to_vec(), |json| json.to_string().into_bytes()))
    }

    /// The type of each part of a key.
    pub(crate) fn key_parts(&self) -> &[KeyPart] {
        match &self.key_type {
            KeyType::One(part) => std::slice::from_ref(part),
            KeyType::Tuple(parts) => parts,
        }
    }

    /// The texts of the parts of a key, if it is a tuple.
    pub(crate) fn parts(&self, key: &[u8]) -> Option<Result<Vec<Vec<u8>>, ValueError>> {
        match self.key_type {
            KeyType::One(_) => None,
            KeyType::Tuple(_) => Some(key_to_parts(&self.key_type, key)),
        }
    }
}
