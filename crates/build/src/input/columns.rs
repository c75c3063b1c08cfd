//! Turns Arrow columns, the decoded form of Parquet and Avro, into keys and values.
//!
//! | type | as a key, or as a value by itself | in a JSON object |
//! |---|---|---|
//! | text | its bytes | string |
//! | binary | its bytes | base64 string |
//! | integer | decimal digits | number |
//! | float | shortest digits that read back the same, `1.5`, `2.0` | number; null if not finite |
//! | decimal | decimal digits, `12.50` | number |
//! | boolean | `true`, `false` | `true`, `false` |
//! | date, time, timestamp | ISO 8601, `2026-01-31T12:00:00Z` if it has a zone | the same, as a string |
//! | UUID | `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` | the same, as a string |
//! | enumeration, dictionary | as the type of its values | the same |
//! | struct, list, map with text keys | not as a key; JSON | JSON |
//! | null | a bad row | `null` |

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, Int8Array, Int16Array,
    Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, RecordBatch, StringArray, StringViewArray, UInt8Array,
    UInt16Array, UInt32Array, UInt64Array,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::writer::{NullableEncoder, make_encoder};
use arrow_schema::{ArrowError, DataType, FieldRef};
use fondaco_format::Column;
use std::sync::Arc;

use super::as_text::{Json, SCALARS, is_uuid, no_text, write_uuid};
use super::json::FieldNames;
use super::key::{KeyColumns, KeyForm};
use super::nested::Selection;
use super::rows::RowSink;
use super::{Chosen, ChosenValue};
use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::report::excerpt;
use crate::sort::RowId;

/// Converts the columns of a table to records; made once per file.
#[derive(Debug)]
pub(super) struct RecordMaker {
    key_names: Vec<String>,
    key_form: KeyForm,
    chosen: Chosen,
    selection: Selection,
    names: FieldNames,
}

impl RecordMaker {
    /// For tables with these selected columns.
    pub(super) fn new(
        options: &BuildOptions,
        key_form: KeyForm,
        chosen: Chosen,
        selection: Selection,
        path: &Path,
    ) -> Result<Self, BuildError> {
        for field in selection.fields() {
            check_members(field.data_type(), field.name(), path)?;
        }
        for &number in &chosen.key {
            if selection.field(number).data_type().is_nested() {
                return Err(unsupported(
                    path,
                    selection.field(number),
                    "a key is a text, binary, a number, a boolean, a date or a time",
                ));
            }
        }
        let names = match &chosen.value {
            ChosenValue::Raw(_) => vec![],
            ChosenValue::Object(numbers) => numbers
                .iter()
                .map(|&number| selection.field(number).name().as_str())
                .collect(),
        };
        let names = FieldNames::new(names);
        Ok(Self {
            key_names: options.key.clone(),
            key_form,
            chosen,
            selection,
            names,
        })
    }

    /// Hands over the rows of a batch, whose first row is row `row` of the file.
    pub(super) fn make(
        &self,
        batch: &RecordBatch,
        file: u32,
        path: &Path,
        row: u64,
        sink: &mut RowSink<'_>,
    ) -> Result<(), BuildError> {
        let json = Json::default();
        let columns = self.selection.columns(batch);
        let columns = columns
            .and_then(|columns| columns.iter().map(without_dictionary).collect::<Result<Vec<_>, _>>())
            .map_err(|e| BuildError::unreadable(path, e))?;
        let plain = |number: usize| Plain::new(self.selection.field(number), &columns[number], &json, path);
        let mut keys = self
            .chosen
            .key
            .iter()
            .map(|&number| plain(number))
            .collect::<Result<Vec<_>, _>>()?;
        let mut value = match &self.chosen.value {
            ChosenValue::Raw(number) => ValueMaker::Raw(plain(*number)?),
            ChosenValue::Object(numbers) => ValueMaker::Object(
                numbers
                    .iter()
                    .map(|&number| json_encoder(self.selection.field(number), &columns[number], &json, path))
                    .collect::<Result<_, BuildError>>()?,
            ),
        };
        let columns_of_key = KeyColumns {
            names: &self.key_names,
            form: self.key_form,
        };
        let (mut key_text, mut part_text, mut value_text) = (Vec::new(), Vec::new(), Vec::new());
        for offset in 0..batch.num_rows() {
            let id = RowId::new(file, row + offset as u64);
            let key = match &mut keys[..] {
                [key] if columns_of_key.is_plain() => key.bytes(offset, &mut key_text),
                parts => {
                    key_text.clear();
                    let mut parts = parts.iter_mut().enumerate();
                    parts
                        .try_for_each(|(number, part)| {
                            let is_number = part.is_number();
                            let part = part.bytes(offset, &mut part_text)?;
                            columns_of_key.append_part(&mut key_text, number, part, is_number)
                        })
                        .map(|()| &key_text[..])
                }
            };
            let key = match key {
                Ok(key) => key,
                Err(reason) => {
                    sink.refuse(id, reason, sample(batch, offset))?;
                    continue;
                }
            };
            let value = match &mut value {
                ValueMaker::Raw(plain) => plain.bytes(offset, &mut value_text),
                ValueMaker::Object(encoders) => {
                    value_text.clear();
                    let written = self.names.write_object(&mut value_text, |field, out| {
                        let encoder = &mut encoders[field];
                        if encoder.is_null(offset) {
                            out.extend_from_slice(b"null");
                            return Ok(());
                        }
                        encoder.encode(offset, out);
                        json.check()
                    });
                    written.map(|()| &value_text[..])
                }
            };
            match value {
                Ok(value) => sink.accept(id, key, value)?,
                Err(reason) => sink.refuse(id, reason, sample(batch, offset))?,
            }
        }
        Ok(())
    }
}

/// Refuses objects with two members of the same name: most JSON parsers would drop one of them.
fn check_members(data_type: &DataType, name: &str, path: &Path) -> Result<(), BuildError> {
    match data_type {
        DataType::Struct(fields) => {
            for (number, field) in fields.iter().enumerate() {
                let member = format!("{name}.{}", field.name());
                if fields[..number].iter().any(|other| other.name() == field.name()) {
                    return Err(BuildError::SameName {
                        file: path.to_owned(),
                        column: member,
                    });
                }
                check_members(field.data_type(), &member, path)?;
            }
            Ok(())
        }
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => check_members(field.data_type(), name, path),
        _ => Ok(()),
    }
}

/// A column's entry in the manifest.
pub(super) fn describe(field: &arrow_schema::Field) -> Column {
    Column {
        name: field.name().clone(),
        r#type: field.data_type().to_string(),
    }
}

enum ValueMaker<'a> {
    Raw(Plain<'a>),
    Object(Vec<NullableEncoder<'a>>),
}

/// A column as plain bytes.
struct Plain<'a> {
    field: &'a arrow_schema::Field,
    array: &'a dyn Array,
    nullable: bool,
    kind: Kind<'a>,
}

enum Kind<'a> {
    StringView(&'a StringViewArray),
    BinaryView(&'a BinaryViewArray),
    String(&'a StringArray),
    LargeString(&'a LargeStringArray),
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    FixedSizeBinary(&'a FixedSizeBinaryArray),
    Uuid(&'a FixedSizeBinaryArray),
    Boolean(&'a BooleanArray),
    Int8(&'a Int8Array),
    Int16(&'a Int16Array),
    Int32(&'a Int32Array),
    Int64(&'a Int64Array),
    UInt8(&'a UInt8Array),
    UInt16(&'a UInt16Array),
    UInt32(&'a UInt32Array),
    UInt64(&'a UInt64Array),
    /// Other scalars: rare as keys and values, so exactness matters more than speed.
    Formatted(ArrayFormatter<'a>),
    Nested(NullableEncoder<'a>, &'a Json),
}

impl<'a> Plain<'a> {
    fn new(
        field: &'a arrow_schema::Field,
        array: &'a ArrayRef,
        json: &'a Json,
        path: &Path,
    ) -> Result<Self, BuildError> {
        let kind = match array.data_type() {
            DataType::Utf8View => Kind::StringView(array.as_string_view()),
            DataType::BinaryView => Kind::BinaryView(array.as_binary_view()),
            DataType::Utf8 => Kind::String(array.as_string()),
            DataType::LargeUtf8 => Kind::LargeString(array.as_string()),
            DataType::Binary => Kind::Binary(array.as_binary()),
            DataType::LargeBinary => Kind::LargeBinary(array.as_binary()),
            DataType::FixedSizeBinary(16) if is_uuid(field) => Kind::Uuid(array.as_fixed_size_binary()),
            DataType::FixedSizeBinary(_) => Kind::FixedSizeBinary(array.as_fixed_size_binary()),
            DataType::Boolean => Kind::Boolean(array.as_boolean()),
            DataType::Int8 => Kind::Int8(array.as_primitive::<Int8Type>()),
            DataType::Int16 => Kind::Int16(array.as_primitive::<Int16Type>()),
            DataType::Int32 => Kind::Int32(array.as_primitive::<Int32Type>()),
            DataType::Int64 => Kind::Int64(array.as_primitive::<Int64Type>()),
            DataType::UInt8 => Kind::UInt8(array.as_primitive::<UInt8Type>()),
            DataType::UInt16 => Kind::UInt16(array.as_primitive::<UInt16Type>()),
            DataType::UInt32 => Kind::UInt32(array.as_primitive::<UInt32Type>()),
            DataType::UInt64 => Kind::UInt64(array.as_primitive::<UInt64Type>()),
            nested if nested.is_nested() => Kind::Nested(nested_encoder(field, array, json, path)?, json),
            _ => Kind::Formatted(
                ArrayFormatter::try_new(array.as_ref(), &SCALARS)
                    .map_err(|_| unsupported(path, field, "no key or value can be made of it"))?,
            ),
        };
        Ok(Self {
            field,
            array: array.as_ref(),
            nullable: array.is_nullable(),
            kind,
        })
    }

    /// Whether its type is one of numbers.
    fn is_number(&self) -> bool {
        let data_type = self.array.data_type();
        data_type.is_numeric()
    }

    /// The bytes of a row; `text` is the buffer if they have to be converted.
    ///
    /// # Errors
    /// Why the row is bad: it has no value, or its value has no text form, such as a time out of range.
    #[inline]
    fn bytes<'t>(&'t mut self, row: usize, text: &'t mut Vec<u8>) -> Result<&'t [u8], String> {
        if self.nullable && (self.array.is_null(row) || *self.array.data_type() == DataType::Null) {
            return Err(format!("{:?} is null", self.field.name()));
        }
        let mut digits = itoa::Buffer::new();
        let digits = match &mut self.kind {
            Kind::StringView(array) => return Ok(array.value(row).as_bytes()),
            Kind::BinaryView(array) => return Ok(array.value(row)),
            Kind::String(array) => return Ok(array.value(row).as_bytes()),
            Kind::LargeString(array) => return Ok(array.value(row).as_bytes()),
            Kind::Binary(array) => return Ok(array.value(row)),
            Kind::LargeBinary(array) => return Ok(array.value(row)),
            Kind::FixedSizeBinary(array) => return Ok(array.value(row)),
            Kind::Boolean(array) => return Ok(if array.value(row) { b"true" } else { b"false" }),
            Kind::Uuid(array) => {
                text.clear();
                write_uuid(array.value(row), text);
                return Ok(text);
            }
            Kind::Formatted(formatter) => {
                text.clear();
                // Reuses the memory of the empty buffer.
                let mut string = String::from_utf8(std::mem::take(text)).unwrap_or_default();
                let written = formatter.value(row).write(&mut string);
                *text = string.into_bytes();
                written.map_err(|error| no_text(self.field, &error))?;
                return Ok(text);
            }
            Kind::Nested(encoder, json) => {
                text.clear();
                encoder.encode(row, text);
                json.check()?;
                return Ok(text);
            }
            Kind::Int8(array) => digits.format(array.value(row)),
            Kind::Int16(array) => digits.format(array.value(row)),
            Kind::Int32(array) => digits.format(array.value(row)),
            Kind::Int64(array) => digits.format(array.value(row)),
            Kind::UInt8(array) => digits.format(array.value(row)),
            Kind::UInt16(array) => digits.format(array.value(row)),
            Kind::UInt32(array) => digits.format(array.value(row)),
            Kind::UInt64(array) => digits.format(array.value(row)),
        };
        text.clear();
        text.extend_from_slice(digits.as_bytes());
        Ok(text)
    }
}

fn nested_encoder<'a>(
    field: &'a arrow_schema::Field,
    array: &'a ArrayRef,
    json: &'a Json,
    path: &Path,
) -> Result<NullableEncoder<'a>, BuildError> {
    // The encoder of a nested column uses only the type's fields.
    static ANY: std::sync::LazyLock<FieldRef> =
        std::sync::LazyLock::new(|| Arc::new(arrow_schema::Field::new("", DataType::Null, true)));
    make_encoder(&ANY, array.as_ref(), &json.options)
        .map_err(|_| unsupported(path, field, "it cannot be written as JSON"))
}

fn json_encoder<'a>(
    field: &'a FieldRef,
    array: &'a ArrayRef,
    json: &'a Json,
    path: &Path,
) -> Result<NullableEncoder<'a>, BuildError> {
    make_encoder(field, array.as_ref(), &json.options)
        .map_err(|_| unsupported(path, field, "it cannot be written as JSON"))
}

fn unsupported(path: &Path, field: &arrow_schema::Field, reason: &'static str) -> BuildError {
    BuildError::UnsupportedType {
        file: path.to_owned(),
        column: field.name().clone(),
        data_type: field.data_type().to_string(),
        reason,
    }
}

/// Dictionary encoding is common for columns with few distinct values; this expands it to one value per row.
fn without_dictionary(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::Dictionary(_, values) => arrow_cast::cast(column, values),
        DataType::RunEndEncoded(_, values) => arrow_cast::cast(column, values.data_type()),
        _ => Ok(Arc::clone(column)),
    }
}

/// The beginning of a row as text.
fn sample(batch: &RecordBatch, row: usize) -> String {
    const COLUMNS_MAX: usize = 8;
    let options = FormatOptions::new().with_null("null");
    let mut text = String::new();
    for (field, column) in batch
        .schema_ref()
        .fields()
        .iter()
        .zip(batch.columns())
        .take(COLUMNS_MAX)
    {
        // Avoids converting a huge value only to cut it off.
        let one = column.slice(row, 1);
        let value = match ArrayFormatter::try_new(&one, &options) {
            Ok(formatter) if one.get_array_memory_size() < 1 << 20 || !field.data_type().is_nested() => {
                excerpt(formatter.value(0).to_string().as_bytes())
            }
            _ => "…".to_owned(),
        };
        if !text.is_empty() {
            text.push_str(", ");
        }
        text += &format!("{}={value}", field.name());
    }
    excerpt(text.as_bytes())
}
