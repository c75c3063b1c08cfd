//! Reads JSON lines: one object per line. Blank lines are skipped, but count as rows. A file that begins with `[` is a
//! single [array](super::array) of objects instead.
//!
//! A string becomes a key or value without its quotes and escapes; numbers, booleans, objects and lists stay as they
//! are written. An object may lack columns of a JSON value: these are null. A column that all objects lack is an error,
//! since it must be a mistake.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use fondaco_format::{Column, Schema, ValueEncoding};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::constants::Constant;
use super::declared::ValueForm;
use super::json::{FieldNames, write_string};
use super::key::KeyColumns;
use super::rows::RowSink;
use super::text::{self, LINE_BYTES_MAX};
use super::{Piece, Reading, RowKind, array};
use crate::error::BuildError;
use crate::options::{Numbers, ValueSelection};
use crate::report::excerpt;
use crate::sort::RowId;

/// The size of a piece of text, in bytes.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// Some lines of a file.
pub(super) struct Lines {
    pub(super) file: u32,
    /// The number of the first line.
    pub(super) row: u64,
    pub(super) text: Vec<u8>,
}

/// The columns of a JSON value; each must occur in some object.
pub(super) struct OptionalColumns {
    columns: Vec<(String, AtomicBool)>,
    /// The file of some object, and the columns of that object.
    example: OnceLock<(u32, Vec<String>)>,
}

impl OptionalColumns {
    pub(super) fn new(value: &ValueSelection) -> Self {
        let names = match value {
            ValueSelection::Columns(names) => names.as_slice(),
            ValueSelection::Column(_) | ValueSelection::AllOthers => &[],
        };
        let columns = names
            .iter()
            .map(|name| (name.clone(), AtomicBool::new(false)))
            .collect();
        Self {
            columns,
            example: OnceLock::new(),
        }
    }

    /// Fails if there were objects but none had one of the columns.
    pub(super) fn check(&self, files: &[PathBuf]) -> Result<(), BuildError> {
        let Some((file, existing)) = self.example.get() else {
            return Ok(());
        };
        match self.columns.iter().find(|(_, found)| !found.load(Ordering::Relaxed)) {
            Some((name, _)) => Err(BuildError::missing_column(
                &files[*file as usize],
                name,
                existing.clone(),
            )),
            None => Ok(()),
        }
    }
}

/// Splits a file into pieces of whole lines.
pub(super) fn open(reading: &Reading<'_>, file: u32, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
    let path = reading.path(file);
    if reading.options.reading.numbers == Numbers::Text && reading.rows != RowKind::Deletion {
        return Err(BuildError::InvalidOption {
            option: "numbers",
            value: "\"text\"".to_owned(),
            reason: "numbers of JSON input are taken as they are written: write them as text there",
        });
    }
    let mut reader = text::open(path, sink.progress())?;
    let mut rest = Vec::new();
    let mut row = 1;
    loop {
        let mut text = rest;
        let wanted = PIECE_BYTES.max(text.len());
        let read = fill(&mut reader, &mut text, wanted).map_err(|e| BuildError::unreadable(path, e))?;
        if row == 1 && text.trim_ascii_start().starts_with(b"[") {
            return array::read(reading, file, text, &mut reader, sink);
        }
        let end = if read < wanted {
            Some(text.len())
        } else {
            memchr::memrchr(b'\n', &text).map(|place| place + 1)
        };
        let Some(end) = end else {
            if text.len() > LINE_BYTES_MAX {
                let reason = format!("line {row} has more than {LINE_BYTES_MAX} bytes");
                return Err(BuildError::unreadable(path, reason));
            }
            rest = text;
            continue;
        };
        rest = text.split_off(end);
        let lines = memchr::memchr_iter(b'\n', &text).count() as u64;
        if !text.is_empty() {
            reading.hand_over(Piece::Lines(Lines { file, row, text }), sink)?;
        }
        if read < wanted {
            return Ok(());
        }
        row += lines;
    }
}

/// Appends up to `bytes`; fewer only at the end of the input.
fn fill(reader: &mut impl Read, text: &mut Vec<u8>, bytes: usize) -> io::Result<usize> {
    text.reserve(bytes);
    reader.take(bytes as u64).read_to_end(text)
}

impl Lines {
    pub(super) fn read(&self, reading: &Reading<'_>, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
        let constants = constants_as_json(&reading.files.partitions[self.file as usize]);
        let mut maker = RecordMaker::new(reading, &constants);
        let mut object = Vec::new();
        let mut row = self.row;
        let mut rest = &self.text[..];
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |place| place + 1);
            let (line, others) = rest.split_at(end);
            let id = RowId::new(self.file, row);
            rest = others;
            row += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            object.clear();
            match maker.make(line, &mut object, id) {
                Ok((key, Some(value))) => sink.accept(id, &key, ValueForm::Plain, &value)?,
                Ok((key, None)) => sink.accept(id, &key, ValueForm::Json, &object)?,
                Err(reason) => sink.refuse(id, reason, excerpt(line))?,
            }
        }
        Ok(())
    }
}

/// Converts lines to records.
struct RecordMaker<'r, 'a> {
    reading: &'r Reading<'a>,
    names: FieldNames,
    fields: Vec<(Cow<'r, str>, &'r RawValue)>,
    /// The partition columns of the file.
    constants: &'r [(&'r str, Box<RawValue>)],
    noted: bool,
    /// Whether every optional column was found.
    all_found: bool,
}

/// The key, and the value unless it was already written as JSON.
type Made<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);

impl<'r> RecordMaker<'r, '_> {
    fn make(&mut self, line: &'r [u8], object: &mut Vec<u8>, id: RowId) -> Result<Made<'r>, String> {
        self.fields.clear();
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        let parsed = Fields(&mut self.fields)
            .deserialize(&mut deserializer)
            .and_then(|()| deserializer.end());
        parsed.map_err(|e| format!("it is not a JSON object: {e}"))?;
        for (name, value) in self.constants {
            if self.fields.iter().all(|(field, _)| field != name) {
                self.fields.push((Cow::Borrowed(name), value));
            }
        }
        let options = self.reading.options;
        if !self.noted {
            self.noted = true;
            self.reading.note_schema(id.file(), id.row(), || self.schema());
            self.reading
                .optional
                .example
                .get_or_init(|| (id.file(), self.field_names()));
        }
        let columns = KeyColumns {
            names: &options.key,
            form: self.reading.rows.key_form(options),
        };
        let key = match &options.key[..] {
            [name] if columns.is_plain() => scalar(self.field(name)?, name)?,
            names => {
                let mut key = Vec::new();
                for (number, name) in names.iter().enumerate() {
                    let field = self.field(name)?;
                    let is_number = field
                        .get()
                        .starts_with(|first: char| first == '-' || first.is_ascii_digit());
                    columns.append_part(&mut key, number, &scalar(field, name)?, is_number)?;
                }
                Cow::Owned(key)
            }
        };
        let value = match &options.value {
            ValueSelection::Column(name) if options.declared.reads_json() => {
                let value = self.field(name)?.get();
                if value == "null" {
                    return Err(format!("{name:?} is null"));
                }
                object.extend_from_slice(value.as_bytes());
                None
            }
            ValueSelection::Column(name) => Some(plain(self.field(name)?, name)?),
            ValueSelection::Columns(names) => {
                self.write_columns(names, object);
                None
            }
            ValueSelection::AllOthers => {
                self.write_others(object);
                None
            }
        };
        Ok((key, value))
    }

    fn find(&self, name: &str) -> Option<&'r RawValue> {
        find(&self.fields, name)
    }

    fn field(&self, name: &str) -> Result<&'r RawValue, String> {
        self.find(name).ok_or_else(|| {
            match BuildError::missing_column(self.reading.path(0), name, self.field_names()) {
                BuildError::MissingColumn {
                    nearest: Some(nearest), ..
                } => {
                    format!("it has no {name:?} (did you mean {nearest:?}?)")
                }
                _ => format!("it has no {name:?}"),
            }
        })
    }

    fn field_names(&self) -> Vec<String> {
        self.fields.iter().map(|(name, _)| name.clone().into_owned()).collect()
    }

    fn write_columns(&mut self, names: &[String], object: &mut Vec<u8>) {
        let mut found = 0;
        let written: Result<(), std::convert::Infallible> = self.names.write_object(object, |number, out| {
            match self.find(&names[number]) {
                Some(value) => {
                    found += 1;
                    out.extend_from_slice(value.get().as_bytes());
                    if !self.all_found {
                        self.reading.optional.columns[number].1.store(true, Ordering::Relaxed);
                    }
                }
                None => out.extend_from_slice(b"null"),
            }
            Ok(())
        });
        let Ok(()) = written;
        if found == names.len() && !self.all_found {
            self.all_found = true;
        }
    }

    fn write_others(&self, object: &mut Vec<u8>) {
        object.push(b'{');
        for (name, value) in &self.fields {
            if self.is_left_out(name) {
                continue;
            }
            if object.len() > 1 {
                object.push(b',');
            }
            write_string(name, object);
            object.push(b':');
            object.extend_from_slice(value.get().as_bytes());
        }
        object.push(b'}');
    }

    /// Whether a field is in the key, or excluded.
    fn is_left_out(&self, name: &str) -> bool {
        let options = self.reading.options;
        let is_in = |names: &[String]| names.iter().any(|other| other == name);
        is_in(&options.reading.exclude) || is_in(&options.key) && !options.declared.keeps(name)
    }

    fn schema(&self) -> Schema {
        let column = |name: &str| Column {
            name: name.to_owned(),
            r#type: "json".to_owned(),
        };
        let options = self.reading.options;
        let others = self
            .fields
            .iter()
            .filter(|(name, _)| !self.is_left_out(name))
            .map(|(name, _)| column(name));
        let (values, encoding) = match &options.value {
            ValueSelection::Column(name) => (vec![column(name)], ValueEncoding::Raw),
            ValueSelection::Columns(names) => (names.iter().map(|name| column(name)).collect(), ValueEncoding::Json),
            ValueSelection::AllOthers => (others.collect(), ValueEncoding::Json),
        };
        Schema {
            key: column(&options.key.join(",")),
            values,
            encoding,
        }
    }
}

impl<'r, 'a> RecordMaker<'r, 'a> {
    fn new(reading: &'r Reading<'a>, constants: &'r [(&'r str, Box<RawValue>)]) -> Self {
        let names = match &reading.options.value {
            ValueSelection::Columns(names) => FieldNames::new(names.iter().map(String::as_str)),
            ValueSelection::Column(_) | ValueSelection::AllOthers => FieldNames::new([]),
        };
        Self {
            reading,
            names,
            fields: Vec::new(),
            constants,
            noted: false,
            all_found: false,
        }
    }
}

/// Columns of partitions, as the fields of an object.
fn constants_as_json(constants: &[Constant]) -> Vec<(&str, Box<RawValue>)> {
    let as_json = |column: &Constant| match &column.value {
        Some(number) if column.is_integer() => number.clone(),
        text => serde_json::json!(text).to_string(),
    };
    let constants = constants.iter();
    constants
        .filter_map(|column| Some((column.name.as_str(), RawValue::from_string(as_json(column)).ok()?)))
        .collect()
}

/// Finds a field of an object by its name or, if no field has it, by its path. Of several fields with one name the last
/// one counts, as in most JSON libraries.
fn find<'a>(fields: &[(Cow<'a, str>, &'a RawValue)], name: &str) -> Option<&'a RawValue> {
    let found = fields.iter().rfind(|(field, _)| field == name);
    found.map(|(_, value)| *value).or_else(|| {
        name.match_indices('.').find_map(|(dot, _)| {
            let (_, object) = fields.iter().rfind(|(field, _)| *field == name[..dot])?;
            let mut members = Vec::new();
            Fields(&mut members)
                .deserialize(&mut serde_json::Deserializer::from_str(object.get()))
                .ok()?;
            find(&members, &name[dot + 1..])
        })
    })
}

/// The bytes of a key.
fn scalar<'a>(value: &'a RawValue, name: &str) -> Result<Cow<'a, [u8]>, String> {
    match value.get().as_bytes() {
        [b'{', ..] => Err(format!(
            "{name:?} is an object, and a key is a text, a number or a boolean"
        )),
        [b'[', ..] => Err(format!(
            "{name:?} is a list, and a key is a text, a number or a boolean"
        )),
        _ => plain(value, name),
    }
}

/// The bytes of a value.
fn plain<'a>(value: &'a RawValue, name: &str) -> Result<Cow<'a, [u8]>, String> {
    match value.get().as_bytes() {
        b"null" => Err(format!("{name:?} is null")),
        [b'"', ..] => match serde_json::from_str(value.get()) {
            Ok(Text(Cow::Borrowed(text))) => Ok(Cow::Borrowed(text.as_bytes())),
            Ok(Text(Cow::Owned(text))) => Ok(Cow::Owned(text.into_bytes())),
            Err(e) => Err(format!("{name:?} is not a text: {e}")),
        },
        other => Ok(Cow::Borrowed(other)),
    }
}

/// A string, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Collects the fields of an object, unparsed.
struct Fields<'v, 'a>(&'v mut Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> DeserializeSeed<'a> for Fields<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Fields<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        /// More fields would be a mistake, and slow to search.
        const FIELDS_MAX: usize = 10_000;
        while let Some(Text(name)) = map.next_key()? {
            if self.0.len() == FIELDS_MAX {
                return Err(A::Error::custom(format_args!("it has more than {FIELDS_MAX} fields")));
            }
            self.0.push((name, map.next_value()?));
        }
        Ok(())
    }
}
