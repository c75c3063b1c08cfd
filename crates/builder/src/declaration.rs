//! The declaration of a store: how its keys and values are encoded.

use std::collections::BTreeSet;

use fondaco_format::{Manifest, ValueSchema};
use fondaco_model::{KeyType, ValueType};
use fondaco_schema::{Schema, Schemas};

use crate::options::ValueSelection;

/// A contradiction between a declaration and the columns of the rows.
pub(crate) struct Fault {
    pub(crate) option: &'static str,
    pub(crate) value: String,
    /// The remedy.
    pub(crate) reason: &'static str,
}

/// How the keys and values of a store are encoded.
#[derive(Debug, Clone, Default)]
pub struct Declaration {
    /// The type of values. Those of `ids` are read as lists of numbers.
    pub value_type: ValueType,
    /// The type of keys.
    pub key_type: KeyType,
    /// Of types of values with schemas: the known schemas of the store.
    pub schemas: Schemas,
    /// The one that rows become records of; `None`: the newest.
    pub schema_id: Option<u16>,
}

impl From<ValueType> for Declaration {
    fn from(value_type: ValueType) -> Self {
        Self {
            value_type,
            ..Self::default()
        }
    }
}

impl Declaration {
    /// The schema that rows become records of, and its id.
    pub fn written(&self) -> Option<(u16, &Schema)> {
        match self.schema_id {
            Some(id) => self.schemas.get(id).map(|schema| (id, schema)),
            None => self.schemas.newest(),
        }
    }

    /// Whether keys and values are stored as they are read.
    pub(crate) fn is_plain(&self) -> bool {
        self.value_type.is_bytes() && self.key_type.is_bytes()
    }

    /// Whether values are made of JSON, unless they are a column of bytes.
    pub(crate) fn reads_json(&self) -> bool {
        self.value_type.has_schemas() || self.value_type == ValueType::Messagepack
    }

    /// Whether a value of all columns has this one although it is a part of the key: records may have it, too.
    pub(crate) fn keeps(&self, key_column: &str) -> bool {
        self.written().is_some_and(|(_, schema)| schema.takes_field(key_column))
    }

    /// Why rows with these columns cannot have values of this type.
    pub(crate) fn fault(&self, value: &ValueSelection) -> Option<Fault> {
        let is_one_column = matches!(value, ValueSelection::Column(_));
        let reason = match self.value_type {
            ValueType::Ids if !is_one_column => "name the one column with the ids, with --value COLUMN",
            ValueType::Graph => "graphs are built from edges, with --edges FROM,TO",
            ValueType::String | ValueType::Integer if !is_one_column => {
                "name the one column with the value, with --value COLUMN"
            }
            with_schemas if with_schemas.has_schemas() && self.written().is_none() => match self.schema_id {
                Some(id) => {
                    return Some(Fault {
                        option: "schema id",
                        value: id.to_string(),
                        reason: "no schema has it: see fondaco schema list STORE",
                    });
                }
                None => {
                    "it needs a schema: give one with --schema FILE --schema-id N, or fondaco schema register STORE FILE"
                }
            },
            without_schemas if self.schema_id.is_some() && !without_schemas.has_schemas() => {
                "its values have no schema: leave out --schema-id"
            }
            _ => return None,
        };
        Some(Fault {
            option: "type of values",
            value: self.value_type.to_string(),
            reason,
        })
    }

    /// Why these columns cannot be a key.
    pub(crate) fn fault_of_key(&self, key: &[String]) -> Option<Fault> {
        let reason = match &self.key_type {
            KeyType::Tuple(parts) if parts.len() == key.len() => return None,
            KeyType::One(_) if self.key_type.is_bytes() || key.len() == 1 => return None,
            KeyType::Tuple(_) => "name a column for each part of the key, with --key A,B",
            KeyType::One(_) => "name the one column with the key, with --key COLUMN",
        };
        Some(Fault {
            option: "key columns",
            value: format!("{key:?} for keys of type {}", self.key_type),
            reason,
        })
    }

    /// The declaration for a difference to a version: its types, and its schemas besides these.
    ///
    /// # Errors
    /// A schema of the version cannot be read, or is another one here.
    pub(crate) fn on(&self, base: &Manifest) -> Result<Self, String> {
        let of_base = Schemas::of_texts(base.value_type, base.value_schemas.iter().map(ValueSchema::parts))
            .map_err(|error| error.to_string())?;
        for (id, schema) in of_base.iter() {
            if self
                .schemas
                .get(id)
                .is_some_and(|own| own.canonical() != schema.canonical())
            {
                return Err(format!("its schema {id} is another one: give the right --schema-id"));
            }
        }
        let all = of_base.iter().chain(self.schemas.iter());
        Ok(Self {
            value_type: base.value_type,
            key_type: base.key_type.clone(),
            schemas: all.map(|(id, schema)| (id, schema.clone())).collect(),
            schema_id: self.schema_id,
        })
    }

    /// The schemas for the manifest of a version whose records have these.
    pub(crate) fn value_schemas(&self, ids: &BTreeSet<u16>) -> Vec<ValueSchema> {
        let known = self.schemas.iter().filter(|(id, _)| ids.contains(id));
        let text = |(id, schema): (u16, &Schema)| ValueSchema {
            id,
            text: schema.to_text(),
            message: schema.message().map(str::to_owned),
        };
        known.map(text).collect()
    }

    /// The id of the schema that rows become records of.
    pub(crate) fn written_ids(&self) -> BTreeSet<u16> {
        let written = self.written().filter(|_| self.value_type.has_schemas());
        written.map(|(id, _)| id).into_iter().collect()
    }
}
