//! Decodes keys and values to batches of columns.

use std::fmt;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_json::ReaderBuilder;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use fondaco_ids::IdSet;
use fondaco_schema::ValueError;
use memchr::memchr;

use crate::canonical::type_text;
use crate::error::{DecodeError, column_and_reason, excerpt};
use crate::json::Exact;
use crate::scalar::{Form, Scalars, scalars};
use crate::schema::{TypedSchema, ValueForm};

/// The most bytes of keys and values in one batch: the offsets of Arrow's columns have 31 bits.
const BATCH_BYTES_MAX: usize = i32::MAX as usize;

/// The separator of the parts of a key of several columns. Only the last part may contain it.
const SEPARATOR: u8 = b':';

/// Decodes keys and values to batches of one schema. It has no state: threads may share it.
#[derive(Clone)]
pub struct Decoder {
    schema: TypedSchema,
    json: Option<ReaderBuilder>,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Decoder")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    pub(crate) fn new(schema: TypedSchema) -> Self {
        let reader = match schema.form {
            ValueForm::Raw | ValueForm::Ids => None,
            ValueForm::RawJson => Some(ReaderBuilder::new_with_field(Arc::clone(&schema.values[0]))),
            ValueForm::Object => {
                Some(ReaderBuilder::new(Arc::new(Schema::new(schema.values.clone()))).with_strict_mode(true))
            }
        };
        let json = reader.map(|reader| reader.with_decoder_factory(Arc::new(Exact)));
        Self { schema, json }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.schema.arrow()
    }

    /// Decodes records. Where a value is missing, all its columns are null.
    ///
    /// # Errors
    /// A key or a value does not fit its type; more than 2 GiB of keys and values.
    ///
    /// # Panics
    /// There are not as many values as keys.
    pub fn decode<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        keys: &[K],
        values: &[Option<V>],
    ) -> Result<RecordBatch, DecodeError> {
        assert_eq!(keys.len(), values.len(), "there is a value, or none, for each key");
        let values: Vec<Option<&[u8]>> = values.iter().map(|value| value.as_ref().map(AsRef::as_ref)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let bytes = keys
            .iter()
            .copied()
            .chain(values.iter().flatten().copied())
            .map(<[u8]>::len)
            .sum();
        if bytes > BATCH_BYTES_MAX {
            return Err(DecodeError::TooLong {
                bytes,
                most: BATCH_BYTES_MAX,
            });
        }
        let mut columns = self.decode_keys(&keys)?;
        columns.extend(self.decode_values(&keys, &values)?);
        let options = RecordBatchOptions::new().with_row_count(Some(keys.len()));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(self.schema()),
            columns,
            &options,
        )?)
    }

    fn decode_keys(&self, keys: &[&[u8]]) -> Result<Vec<ArrayRef>, DecodeError> {
        let fields = &self.schema.key;
        let mut columns = fields.iter().map(raw_scalars).collect::<Result<Vec<_>, _>>()?;
        for &key in keys {
            if let Some(parts) = self.schema.declared.parts(key).filter(|_| fields.len() > 1) {
                self.append_parts(key, parts, &mut columns)?;
                continue;
            }
            let mut rest = Some(key);
            for (number, (column, field)) in columns.iter_mut().zip(fields).enumerate() {
                let is_last = number + 1 == fields.len();
                let part = rest.map(|rest| match memchr(SEPARATOR, rest) {
                    Some(end) if !is_last => (&rest[..end], Some(&rest[end + 1..])),
                    _ => (rest, None),
                });
                let reason = match part {
                    None => format!("the key has fewer parts than columns, which are {}", fields.len()),
                    Some((part, after)) => {
                        rest = after;
                        if column.append(part) {
                            continue;
                        }
                        format!("{} is no {}", excerpt(part), type_text(field))
                    }
                };
                return Err(DecodeError::Key {
                    key: excerpt(key),
                    column: field.name().clone(),
                    reason,
                });
            }
        }
        Ok(columns.iter_mut().map(|column| column.finish()).collect())
    }

    /// Appends the parts of a tuple, each to its column.
    fn append_parts(
        &self,
        key: &[u8],
        parts: Result<Vec<Vec<u8>>, ValueError>,
        columns: &mut [Box<dyn Scalars>],
    ) -> Result<(), DecodeError> {
        let unfit = |field: &FieldRef, reason: String| DecodeError::Key {
            key: excerpt(key),
            column: field.name().clone(),
            reason,
        };
        let fields = &self.schema.key;
        let parts = parts.map_err(|error| unfit(&fields[0], error.reason))?;
        if parts.len() != columns.len() {
            let reason = format!(
                "the key has {} parts, and there are {} columns",
                parts.len(),
                columns.len()
            );
            return Err(unfit(&fields[0], reason));
        }
        for ((column, field), part) in columns.iter_mut().zip(fields).zip(&parts) {
            if !column.append(part) {
                return Err(unfit(field, format!("{} is no {}", excerpt(part), type_text(field))));
            }
        }
        Ok(())
    }

    fn decode_values(&self, keys: &[&[u8]], values: &[Option<&[u8]>]) -> Result<Vec<ArrayRef>, DecodeError> {
        let declared = &self.schema.declared;
        if !declared.encodes_values() {
            return self.decode_columns(keys, values);
        }
        let json = keys.iter().zip(values).map(|(key, value)| {
            let json = value.map(|value| declared.json(value)).transpose();
            let mut json = json.map_err(|error| self.unfit(key, &error.field, error.reason))?;
            if let (Some(json), ValueForm::RawJson) = (&mut json, self.schema.form) {
                // The end of a number.
                json.push(b'\n');
            }
            Ok(json)
        });
        let json = json.collect::<Result<Vec<_>, DecodeError>>()?;
        let json: Vec<Option<&[u8]>> = json.iter().map(Option::as_deref).collect();
        self.decode_columns(keys, &json)
    }

    fn decode_columns(&self, keys: &[&[u8]], values: &[Option<&[u8]>]) -> Result<Vec<ArrayRef>, DecodeError> {
        match self.schema.form {
            ValueForm::Raw => Ok(vec![self.decode_raw(keys, values)?]),
            ValueForm::Ids => Ok(vec![self.decode_ids(keys, values)?]),
            ValueForm::RawJson | ValueForm::Object => self.decode_json(keys, values),
        }
    }

    /// The error for a value.
    fn unfit(&self, key: &[u8], column: &str, reason: String) -> DecodeError {
        let column = match column {
            "" => self.schema.values.first().map_or("", |field| field.name()),
            column => column,
        };
        DecodeError::Value {
            key: excerpt(key),
            column: column.to_owned(),
            reason,
        }
    }

    fn decode_raw(&self, keys: &[&[u8]], values: &[Option<&[u8]>]) -> Result<ArrayRef, DecodeError> {
        let field = &self.schema.values[0];
        let mut column = raw_scalars(field)?;
        for (key, value) in keys.iter().zip(values) {
            match value {
                None => column.append_null(),
                Some(value) if column.append(value) => {}
                Some(value) => {
                    let reason = format!("{} is no {}", excerpt(value), type_text(field));
                    return Err(self.unfit(key, field.name(), reason));
                }
            }
        }
        Ok(column.finish())
    }

    fn decode_ids(&self, keys: &[&[u8]], values: &[Option<&[u8]>]) -> Result<ArrayRef, DecodeError> {
        let field = &self.schema.values[0];
        let mut lists = ListBuilder::new(UInt64Builder::new());
        let mut ids = Vec::new();
        for (key, value) in keys.iter().zip(values) {
            let Some(value) = value else {
                lists.append_null();
                continue;
            };
            let set = IdSet::parse(value).map_err(|error| self.unfit(key, field.name(), error.to_string()))?;
            ids.clear();
            set.decode_into(&mut ids);
            lists.values().append_slice(&ids);
            lists.append(true);
        }
        Ok(Arc::new(lists.finish()))
    }

    fn decode_json(&self, keys: &[&[u8]], values: &[Option<&[u8]>]) -> Result<Vec<ArrayRef>, DecodeError> {
        match self.read_json(values) {
            Ok(columns) => Ok(columns),
            Err(error) => {
                // The error does not say which row it is. This is rare, and happens once.
                for (key, value) in keys.iter().zip(values) {
                    if let Err(error) = self.read_json(&[*value]) {
                        let (column, reason) = column_and_reason(&error);
                        return Err(self.unfit(key, &column, reason));
                    }
                }
                Err(error.into())
            }
        }
    }

    fn read_json(&self, values: &[Option<&[u8]>]) -> Result<Vec<ArrayRef>, ArrowError> {
        let missing: &[u8] = match self.schema.form {
            ValueForm::Object => b"{}",
            _ => b"null",
        };
        let Some(json) = &self.json else { return Ok(vec![]) };
        // It has space for a row, at least.
        let mut decoder = json.clone().with_batch_size(values.len().max(1)).build_decoder()?;
        for (row, value) in values.iter().enumerate() {
            let value = value.unwrap_or(missing);
            let read = decoder.decode(value)?;
            // The batch may be full before what follows the value is looked at.
            let rest = &value[read..];
            if decoder.has_partial_record() || decoder.len() != row + 1 || !rest.iter().all(u8::is_ascii_whitespace) {
                return Err(ArrowError::JsonError(format!(
                    "{} is not one JSON value",
                    excerpt(value)
                )));
            }
        }
        Ok(match decoder.flush()? {
            Some(batch) => batch.columns().to_vec(),
            None => self
                .schema
                .values
                .iter()
                .map(|field| arrow_array::new_empty_array(field.data_type()))
                .collect(),
        })
    }
}

/// The column for a key, or a value of one column.
fn raw_scalars(field: &FieldRef) -> Result<Box<dyn Scalars>, ArrowError> {
    scalars(field, Form::Raw).ok_or_else(|| no_values(field))
}

fn no_values(field: &Field) -> ArrowError {
    let data_type: &DataType = field.data_type();
    ArrowError::NotYetImplemented(format!(
        "column {:?} has the type {data_type}, which has no raw values",
        field.name()
    ))
}
