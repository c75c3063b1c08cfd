//! Turns Arrow columns, the decoded form of Parquet and Avro, into keys and values.
//! The table of types in `docs/build.md` says what each becomes; a test compares.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, Int8Array, Int16Array,
    Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, RecordBatch, StringArray, StringViewArray, UInt8Array,
    UInt16Array, UInt32Array, UInt64Array, UnionArray,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::writer::{NullableEncoder, make_encoder};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use fondaco_format::Column;
use std::sync::Arc;

use super::as_text::{Floats, Json, Scalars, is_uuid, of_non_finite, write_uuid};
use super::constants::{Constant, batch_with_constants};
use super::declared::ValueForm;
use super::drift;
use super::json::FieldNames;
use super::key::{KeyColumns, KeyForm};
use super::nested::Selection;
use super::rows::RowSink;
use super::{Chosen, ChosenValue, Conversion, RowKind};
use crate::error::BuildError;
use crate::options::{NonFinite, Numbers, ReadOptions};
use crate::report::excerpt;
use crate::sort::RowId;

/// Converts the columns of a table to records; made once per file.
#[derive(Debug)]
pub(super) struct RecordMaker {
    key_names: Vec<String>,
    key_form: KeyForm,
    chosen: Chosen,
    selection: Selection,
    /// Columns at the end of the table that its batches do not have.
    constants: Vec<Constant>,
    names: FieldNames,
    options: ReadOptions,
    /// The schema of the records, if there is one.
    schema: Option<fondaco_schema::Schema>,
    /// Whether a value of one column is made as JSON.
    is_json: bool,
    /// The column that says which rows delete their keys.
    delete: Option<usize>,
}

impl RecordMaker {
    /// For the table of a file with these selected columns; the last ones may be the constants.
    pub(super) fn new(
        conversion: &Conversion<'_>,
        file: u32,
        chosen: Chosen,
        selection: Selection,
        constants: Vec<Constant>,
    ) -> Result<Self, BuildError> {
        let path = &*conversion.paths[file as usize];
        let options = &conversion.options.reading;
        for field in selection.fields() {
            check_members(field.data_type(), field.name(), path)?;
        }
        for &number in &chosen.key {
            if !is_of_scalars(selection.field(number).data_type()) {
                return Err(unsupported(
                    path,
                    selection.field(number),
                    "a key is a text, binary, a number, a boolean, a date or a time",
                ));
            }
        }
        let kinds = selection
            .fields()
            .map(|field| (field.name().clone(), kind(field, field.data_type(), options.numbers)));
        conversion.drift.check(conversion.paths, file, kinds.collect())?;
        let names = match &chosen.value {
            ChosenValue::Raw(_) => vec![],
            ChosenValue::Object(numbers) => numbers
                .iter()
                .map(|&number| selection.field(number).name().as_str())
                .collect(),
        };
        let names = FieldNames::new(names);
        let declared = &conversion.options.declared;
        let is_binary = |number: usize| {
            kind(
                selection.field(number),
                selection.field(number).data_type(),
                options.numbers,
            ) == drift::BINARY
        };
        let is_json = match &chosen.value {
            ChosenValue::Raw(number) => {
                conversion.rows == RowKind::Record && declared.reads_json() && !is_binary(*number)
            }
            ChosenValue::Object(_) => true,
        };
        Ok(Self {
            is_json,
            schema: declared.written().map(|(_, schema)| schema.clone()),
            key_names: conversion.options.key.clone(),
            key_form: conversion.rows.key_form(conversion.options),
            chosen,
            selection,
            constants,
            names,
            options: options.clone(),
            delete: None,
        })
    }

    /// The same, for rows that delete their keys if this selected column is true.
    pub(super) fn with_delete(self, delete: Option<usize>) -> Self {
        Self { delete, ..self }
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
        let json = Json::new(&self.options, self.schema.as_ref());
        let batch = &match self.constants[..] {
            [] => batch.clone(),
            ref constants => batch_with_constants(batch, constants).map_err(|e| BuildError::unreadable(path, e))?,
        };
        let columns = self.selection.columns(batch);
        let columns = columns
            .and_then(|columns| columns.iter().map(without_dictionary).collect::<Result<Vec<_>, _>>())
            .map_err(|e| BuildError::unreadable(path, e))?;
        let plain = |number: usize| {
            let field = self.selection.field(number);
            Plain::new(field.name(), field, &columns[number], &json, path)
        };
        let mut keys = self
            .chosen
            .key
            .iter()
            .map(|&number| plain(number))
            .collect::<Result<Vec<_>, _>>()?;
        let mut value = match &self.chosen.value {
            ChosenValue::Raw(number) if self.is_json => {
                let field = self.selection.field(*number);
                ValueMaker::Json(field.name(), json_encoder(field, &columns[*number], &json, path)?)
            }
            ChosenValue::Raw(number) => ValueMaker::Raw(plain(*number)?),
            ChosenValue::Object(numbers) => ValueMaker::Object(
                numbers
                    .iter()
                    .map(|&number| json_encoder(self.selection.field(number), &columns[number], &json, path))
                    .collect::<Result<_, BuildError>>()?,
            ),
        };
        let form = match self.is_json {
            true => ValueForm::Json,
            false => ValueForm::Plain,
        };
        let deletes = self.delete.map(|number| columns[number].as_boolean());
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
            if deletes.is_some_and(|deletes| deletes.is_valid(offset) && deletes.value(offset)) {
                sink.delete(id, key)?;
                continue;
            }
            let value = match &mut value {
                ValueMaker::Raw(plain) => plain.bytes(offset, &mut value_text),
                ValueMaker::Json(name, encoder) if encoder.is_null(offset) => Err(format!("{name:?} is null")),
                ValueMaker::Json(name, encoder) => {
                    value_text.clear();
                    encoder.encode(offset, &mut value_text);
                    json.check(name).map(|()| &value_text[..])
                }
                ValueMaker::Object(encoders) => {
                    value_text.clear();
                    let written = self.names.write_object(&mut value_text, |field, out| {
                        let encoder = &mut encoders[field];
                        if encoder.is_null(offset) {
                            out.extend_from_slice(b"null");
                            return Ok(());
                        }
                        encoder.encode(offset, out);
                        json.check(self.names.name(field))
                    });
                    written.map(|()| &value_text[..])
                }
            };
            match value {
                Ok(value) => sink.accept(id, key, form, value)?,
                Err(reason) => sink.refuse(id, reason, sample(batch, offset))?,
            }
        }
        Ok(())
    }
}

/// Whether a key can be made of a type.
fn is_of_scalars(data_type: &DataType) -> bool {
    match data_type {
        DataType::Union(members, _) => members.iter().all(|(_, member)| is_of_scalars(member.data_type())),
        other => !other.is_nested(),
    }
}

/// The kind of a type, as in the table of types: types of one kind become the same text.
fn kind(field: &Field, data_type: &DataType, numbers: Numbers) -> String {
    let of = |field: &Field| kind(field, field.data_type(), numbers);
    let members = |members: &mut dyn Iterator<Item = &FieldRef>| {
        let mut members: Vec<String> = members
            .map(|member| format!("{} {}", member.name(), of(member)))
            .collect();
        members.sort();
        members.join(", ")
    };
    match data_type {
        DataType::Null => drift::NULL.to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => drift::TEXT.to_owned(),
        DataType::FixedSizeBinary(16) if is_uuid(field) => "UUID".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            drift::BINARY.to_owned()
        }
        DataType::Int64 | DataType::UInt64 if numbers == Numbers::Text => "64-bit integer".to_owned(),
        integer if integer.is_integer() => "integer".to_owned(),
        float if float.is_floating() => "float".to_owned(),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => format!("decimal of scale {scale}"),
        DataType::Timestamp(_, Some(_)) => "time with zone".to_owned(),
        DataType::Timestamp(_, None) | DataType::Date64 => "time without zone".to_owned(),
        DataType::Date32 => "date".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "time of day".to_owned(),
        DataType::Duration(_) | DataType::Interval(_) => "interval".to_owned(),
        DataType::Dictionary(_, values) => kind(field, values, numbers),
        DataType::RunEndEncoded(_, values) => of(values),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _) => format!("list of {}", of(field)),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(entry) => format!(
                "map ({})",
                entry.iter().map(|part| of(part)).collect::<Vec<_>>().join(", ")
            ),
            _ => "map".to_owned(),
        },
        DataType::Struct(fields) => format!("struct ({})", members(&mut fields.iter())),
        DataType::Union(fields, _) => format!("union ({})", members(&mut fields.iter().map(|(_, field)| field))),
        other => other.to_string(),
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
pub(super) fn describe(field: &Field) -> Column {
    Column {
        name: field.name().clone(),
        r#type: fondaco_typed::type_text(field),
    }
}

enum ValueMaker<'a> {
    Raw(Plain<'a>),
    Json(&'a str, NullableEncoder<'a>),
    Object(Vec<NullableEncoder<'a>>),
}

/// A column as plain bytes.
struct Plain<'a> {
    name: &'a str,
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
    Formatted(Scalars<'a>),
    Float(Scalars<'a>, Floats<'a>, NonFinite),
    /// Each type by its id.
    Union(&'a UnionArray, Vec<(i8, Plain<'a>)>),
    Nested(NullableEncoder<'a>, &'a Json<'a>),
}

impl<'a> Plain<'a> {
    fn new(
        name: &'a str,
        field: &'a FieldRef,
        array: &'a ArrayRef,
        json: &'a Json<'_>,
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
            DataType::Union(members, _) => {
                let array = array.as_union();
                let member =
                    |(id, member): (i8, &'a FieldRef)| Ok((id, Plain::new(name, member, array.child(id), json, path)?));
                Kind::Union(array, members.iter().map(member).collect::<Result<_, BuildError>>()?)
            }
            nested if nested.is_nested() => Kind::Nested(json_encoder(field, array, json, path)?, json),
            _ => {
                let scalars = Scalars::new(array.as_ref())
                    .map_err(|_| unsupported(path, field, "no key or value can be made of it"))?;
                match Floats::of(array.as_ref()) {
                    Some(floats) => Kind::Float(scalars, floats, json.non_finite),
                    None => Kind::Formatted(scalars),
                }
            }
        };
        Ok(Self {
            name,
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
            return Err(format!("{:?} is null", self.name));
        }
        if let Kind::Float(_, floats, choice) = &self.kind
            && let Some(name) = floats.non_finite(row)
        {
            return match of_non_finite(name, *choice) {
                Ok(Some(text)) => Ok(text.as_bytes()),
                Ok(None) => Err(format!("{:?} is null", self.name)),
                Err(reason) => Err(format!("{:?} {reason}", self.name)),
            };
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
            Kind::Union(array, members) => {
                let (id, offset) = (array.type_id(row), array.value_offset(row));
                return match members.iter_mut().find(|(member, _)| *member == id) {
                    Some((_, member)) => member.bytes(offset, text),
                    None => Err(format!("{:?} has no value", self.name)),
                };
            }
            Kind::Formatted(scalars) | Kind::Float(scalars, ..) => {
                text.clear();
                // Reuses the memory of the empty buffer.
                let mut string = String::from_utf8(std::mem::take(text)).unwrap_or_default();
                let written = scalars.write(row, &mut string);
                *text = string.into_bytes();
                written.map_err(|reason| format!("{:?} {reason}", self.name))?;
                return Ok(text);
            }
            Kind::Nested(encoder, json) => {
                text.clear();
                encoder.encode(row, text);
                json.check(self.name)?;
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

fn json_encoder<'a>(
    field: &'a FieldRef,
    array: &'a ArrayRef,
    json: &'a Json<'_>,
    path: &Path,
) -> Result<NullableEncoder<'a>, BuildError> {
    make_encoder(field, array.as_ref(), json.options_of(field))
        .map_err(|_| unsupported(path, field, "it cannot be written as JSON"))
}

fn unsupported(path: &Path, field: &Field, reason: &'static str) -> BuildError {
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
