//! The columns of a store's rows, from the manifest of a version.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use fondaco_format::{Column, Manifest, ValueEncoding, ValueSchema};
use fondaco_model::{KeyPart, KeyType, ValueType};

use crate::canonical::list_of;
use crate::declared::Declared;
use crate::decoder::Decoder;
use crate::parse::{any_json, parse_type, split_types};

/// The name of the key's column, if the schema has no better one.
const KEY: &str = "key";

/// The name of the value's column, likewise.
const VALUE: &str = "value";

/// The columns of a store's rows: first those of the key, then those of the value.
#[derive(Debug, Clone)]
pub struct TypedSchema {
    pub(crate) key: Vec<FieldRef>,
    pub(crate) values: Vec<FieldRef>,
    pub(crate) form: ValueForm,
    pub(crate) declared: Declared,
    schema: SchemaRef,
    notes: Vec<String>,
}

/// The form of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueForm {
    /// The text or the bytes of one column.
    Raw,
    /// The JSON of one column that is a list, a struct or a map.
    RawJson,
    /// A JSON object of the columns.
    Object,
    /// A set of ids.
    Ids,
}

impl TypedSchema {
    /// The columns of a version. Those of records are the fields of its newest schema.
    pub fn of_version(manifest: &Manifest) -> Self {
        let types = (&manifest.key_type, manifest.value_type);
        Self::of_declared(&manifest.schema, types, &manifest.value_schemas)
    }

    /// The columns of a store whose keys and values are of these types, and the values of these schemas.
    ///
    /// A type that this program does not know becomes bytes or, within JSON, text, and records of a schema that cannot be read are bytes;
    /// [`notes`](Self::notes) says so.
    pub fn of_declared(
        schema: &fondaco_format::Schema,
        (key_type, value_type): (&KeyType, ValueType),
        schemas: &[ValueSchema],
    ) -> Self {
        let (declared, note) = match Declared::of(key_type, value_type, schemas) {
            Ok(declared) => (declared, None),
            Err(error) => (Declared::default(), Some(error.to_string())),
        };
        let mut typed = Self::with(schema, value_type, declared);
        typed.notes.extend(note);
        typed
    }

    /// The columns of a version with this schema and type of values.
    ///
    /// A type that this program does not know becomes bytes or, within JSON, text; [`notes`](Self::notes) says so.
    pub fn of(schema: &fondaco_format::Schema, value_type: ValueType) -> Self {
        Self::with(schema, value_type, Declared::default())
    }

    fn with(schema: &fondaco_format::Schema, value_type: ValueType, declared: Declared) -> Self {
        let mut notes = Vec::new();
        let key = key_columns(&schema.key, declared.key_parts(), &mut notes);
        let name_of_value = schema.values.first().map_or(VALUE, |column| &column.name);
        let (form, values) = match (value_type, schema.encoding) {
            _ if let Some(fields) = declared.fields() => fields_as_columns(&fields, name_of_value, &mut notes),
            (ValueType::String, _) => (ValueForm::Raw, vec![Field::new(name_of_value, DataType::Utf8, true)]),
            (ValueType::Integer, _) => (ValueForm::Raw, vec![Field::new(name_of_value, DataType::Int64, true)]),
            (ValueType::Messagepack, ValueEncoding::Raw) if declared.encodes_values() => {
                (ValueForm::RawJson, vec![any_json(name_of_value)])
            }
            (ValueType::Graph, _) => {
                notes.push("the values of a graph have no columns: they are read raw".to_owned());
                (ValueForm::Raw, vec![Field::new(VALUE, DataType::Binary, true)])
            }
            (ValueType::Ids, _) => {
                let name = schema.values.first().map_or(VALUE, |column| &column.name);
                let ids = list_of(Field::new("item", DataType::UInt64, true));
                (ValueForm::Ids, vec![Field::new(name, ids, true)])
            }
            (ValueType::Avro | ValueType::Protobuf | ValueType::Messagepack, _) if !declared.encodes_values() => {
                notes.push(format!("values of type {value_type} are read raw"));
                (ValueForm::Raw, vec![Field::new(VALUE, DataType::Binary, true)])
            }
            (_, ValueEncoding::Raw) => {
                let column = schema.values.first();
                let name = column.map_or(VALUE, |column| &column.name);
                let text = column.map_or("Binary", |column| &column.r#type);
                let field = raw_column(name, text, &mut notes);
                let form = match field.data_type().is_nested() {
                    true => ValueForm::RawJson,
                    false => ValueForm::Raw,
                };
                (form, vec![field])
            }
            // Objects whose members are not known.
            (_, ValueEncoding::Json) if schema.values.is_empty() => {
                (ValueForm::Raw, vec![Field::new(VALUE, DataType::Utf8, true)])
            }
            (_, ValueEncoding::Json) => {
                let column = |column: &Column| {
                    without_unions(parse_type(&column.name, &column.r#type).unwrap_or_else(|_| {
                        notes.push(unknown(column, "text"));
                        any_json(&column.name)
                    }))
                };
                (ValueForm::Object, schema.values.iter().map(column).collect())
            }
        };
        Self {
            declared,
            ..Self::new(key, values, form, notes)
        }
    }

    /// Keys and values as they are.
    pub fn raw() -> Self {
        let key = vec![Field::new(KEY, DataType::Binary, false)];
        let value = vec![Field::new(VALUE, DataType::Binary, true)];
        Self::new(key, value, ValueForm::Raw, Vec::new())
    }

    fn new(key: Vec<Field>, values: Vec<Field>, form: ValueForm, notes: Vec<String>) -> Self {
        let shared = |fields: Vec<Field>| fields.into_iter().map(Arc::new).collect::<Vec<_>>();
        let (key, values) = (shared(key), shared(values));
        let mut names: HashSet<String> = key.iter().map(|field| field.name().clone()).collect();
        // A column may be both of the key and of the value.
        let renamed = values.iter().map(|field| {
            let mut name = field.name().clone();
            while !names.insert(name.clone()) {
                name = format!("{VALUE}.{name}");
            }
            match name == *field.name() {
                true => Arc::clone(field),
                false => Arc::new(Field::clone(field).with_name(name)),
            }
        });
        let schema = Schema::new(key.iter().cloned().chain(renamed).collect::<Vec<_>>());
        Self {
            schema: Arc::new(schema),
            key,
            values,
            form,
            declared: Declared::default(),
            notes,
        }
    }

    /// The schema of decoded batches.
    pub fn arrow(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many of its first columns are those of the key.
    pub fn key_columns(&self) -> usize {
        self.key.len()
    }

    /// The columns that are read otherwise than as they were built, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Decodes records to this schema.
    pub fn decoder(&self) -> Decoder {
        Decoder::new(self.clone())
    }
}

/// The fields of records as columns; a value that is no record is one column, of this name.
fn fields_as_columns(fields: &[(String, String)], name: &str, notes: &mut Vec<String>) -> (ValueForm, Vec<Field>) {
    let mut field = |(name, text): (&str, &str)| {
        without_unions(parse_type(name, text).unwrap_or_else(|_| {
            let column = Column {
                name: name.to_owned(),
                r#type: text.to_owned(),
            };
            notes.push(unknown(&column, "text"));
            any_json(name)
        }))
    };
    match fields {
        [(no_name, text)] if no_name.is_empty() => (ValueForm::RawJson, vec![field((name, text))]),
        fields => {
            let fields = fields.iter().map(|(name, text)| (name.as_str(), text.as_str()));
            (ValueForm::Object, fields.map(field).collect())
        }
    }
}

/// The columns of the key, of which these are the types of its parts. Several have their names and their types joined by commas.
fn key_columns(key: &Column, parts: &[KeyPart], notes: &mut Vec<String>) -> Vec<Field> {
    let types = split_types(&key.r#type);
    let names: Vec<&str> = key.name.split(',').collect();
    // The types of columns of JSON lines are not joined.
    let is_joined_json = key.r#type == "json" && names.len() > 1;
    let columns: Vec<(&str, &str)> = match types.len() {
        1 if !is_joined_json => vec![(&key.name, &key.r#type)],
        1 => names.iter().map(|&name| (name, "json")).collect(),
        count if count == names.len() => names.into_iter().zip(types).collect(),
        _ => {
            notes.push(format!(
                "the names of the key's columns, {:?}, contain commas: the key is read as one column {KEY:?}",
                key.name
            ));
            return vec![Field::new(KEY, DataType::Binary, false)];
        }
    };
    let fields = columns
        .into_iter()
        .enumerate()
        .map(|(number, (name, text))| match (text, parts.get(number)) {
            // Parts of a key are not null, and a key of JSON is text.
            ("json" | "text", Some(KeyPart::Integer)) => Field::new(name, DataType::Int64, false),
            ("json" | "text", _) => Field::new(name, DataType::Utf8, false),
            (text, _) => raw_column(name, text, notes).with_nullable(false),
        });
    fields.collect()
}

/// A key, or a value of one column.
fn raw_column(name: &str, text: &str, notes: &mut Vec<String>) -> Field {
    let field = parse_type(name, text).unwrap_or_else(|_| {
        let column = Column {
            name: name.to_owned(),
            r#type: text.to_owned(),
        };
        notes.push(unknown(&column, "bytes"));
        Field::new(name, DataType::Binary, true)
    });
    match field.data_type() {
        DataType::Union(members, _) => {
            let is_binary = members.iter().any(|(_, member)| member.data_type().is_binary());
            match is_binary {
                true => Field::new(name, DataType::Binary, true),
                false => any_json(name),
            }
        }
        _ => without_unions(field),
    }
}

fn unknown(column: &Column, read_as: &str) -> String {
    format!(
        "column {:?} has the type {:?}, which this program does not know: it is read as {read_as}",
        column.name, column.r#type
    )
}

/// The same column, with any JSON in place of unions: the text of a value does not say which type of the union it has.
fn without_unions(field: Field) -> Field {
    let inner = |field: &FieldRef| Arc::new(without_unions(Field::clone(field)));
    let data_type = match field.data_type() {
        DataType::Union(_, _) => return any_json(field.name()).with_nullable(field.is_nullable()),
        DataType::List(item) => DataType::List(inner(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(inner(item), *length),
        DataType::Struct(members) => DataType::Struct(members.iter().map(inner).collect()),
        DataType::Map(entries, sorted) => DataType::Map(inner(entries), *sorted),
        _ => return field,
    };
    field.with_data_type(data_type)
}
