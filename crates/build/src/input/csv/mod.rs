//! Reads CSV: a header row, then one record per row. A field is used as key or value without conversion.
//!
//! The end of a row depends on the quotes of all rows before it, so one thread reads a whole file; several files are
//! read in parallel.

mod quotes;
mod rows;

use std::path::Path;

use fondaco_format::Column;

use super::discover::without_compression;
use super::json::{FieldNames, write_string};
use super::key::KeyColumns;
use super::rows::RowSink;
use super::{Chosen, ChosenValue, Reading, text};
use crate::error::BuildError;
use crate::report::excerpt;
use crate::sort::RowId;
use rows::{Row, Rows};

/// Reads all rows of a file.
pub(super) fn read(reading: &Reading<'_>, file: u32, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
    let path = reading.path(file);
    let failed = |e| BuildError::unreadable(path, e);
    let delimiter = reading.options.delimiter.unwrap_or_else(|| delimiter_of_name(path));
    let mut rows = Rows::new(text::open(path, sink.progress())?, delimiter);
    let Some(header) = rows.next().map_err(failed)?.cloned() else {
        // An empty file has no rows, so its missing columns are no error.
        return Ok(());
    };
    if let Some(fault) = rows.quotes().fault() {
        return Err(BuildError::unreadable(path, format!("in its header, {fault}")));
    }
    let columns = names(path, &header)?;
    let place = |name: &str| columns.iter().position(|column| *column == name);
    let chosen = Chosen::find(reading.options, path, &columns, place).map_err(|mut error| {
        if let BuildError::MissingColumn {
            column,
            delimiter: guess,
            ..
        } = &mut error
        {
            *guess = guess_delimiter(&columns, column, delimiter);
        }
        error
    })?;
    reading.note_schema(file, 0, || {
        chosen.schema(|place| Column {
            name: columns[place].to_owned(),
            r#type: "text".to_owned(),
        })
    });
    let fields = FieldNames::new(match &chosen.value {
        ChosenValue::Raw(_) => vec![],
        ChosenValue::Object(places) => places.iter().map(|&place| columns[place]).collect(),
    });
    let columns_of_key = KeyColumns {
        names: &reading.options.key,
        form: reading.rows.key_form(),
    };
    let (mut key, mut object) = (Vec::new(), Vec::new());
    let mut number = 0;
    while rows.next().map_err(failed)?.is_some() {
        number += 1;
        let id = RowId::new(file, number);
        let row = rows.row();
        let refused = if let Some(fault) = rows.quotes().fault() {
            fault
        } else if row.len() != columns.len() {
            format!("it has {} fields, and the header has {}", row.len(), columns.len())
        } else {
            let value = match &chosen.value {
                ChosenValue::Raw(place) => Ok(row.field(*place)),
                ChosenValue::Object(places) => {
                    object.clear();
                    let written = fields.write_object(&mut object, |field, out| {
                        let place = places[field];
                        write_string(std::str::from_utf8(row.field(place)).map_err(|_| place)?, out);
                        Ok::<(), usize>(())
                    });
                    written.map(|()| &object[..])
                }
            };
            let key = match chosen.key[..] {
                [place] if columns_of_key.is_plain() => Ok(row.field(place)),
                ref places => {
                    key.clear();
                    let mut places = places.iter().enumerate();
                    places
                        .try_for_each(|(number, &place)| {
                            columns_of_key.append_part(&mut key, number, row.field(place), false)
                        })
                        .map(|()| &key[..])
                }
            };
            match (key, value) {
                (Ok(key), Ok(value)) => {
                    sink.accept(id, key, value)?;
                    continue;
                }
                (Err(reason), _) => reason,
                (_, Err(place)) => format!("column {:?} is not UTF-8", columns[place]),
            }
        };
        let refused = format!("{}: {refused}", rows.quotes().lines());
        sink.refuse(id, refused, sample(row))?;
    }
    Ok(())
}

/// The default delimiter of a file.
fn delimiter_of_name(path: &Path) -> u8 {
    let name = path.to_string_lossy().to_ascii_lowercase();
    match [".tsv", ".tab"]
        .iter()
        .any(|end| without_compression(&name).ends_with(end))
    {
        true => b'\t',
        false => b',',
    }
}

/// A delimiter with which the header would contain the missing column.
fn guess_delimiter(columns: &[&str], missing: &str, delimiter: u8) -> Option<char> {
    let header = columns.join(char::from(delimiter).encode_utf8(&mut [0; 4]));
    [',', ';', '\t', '|', ':', ' ']
        .into_iter()
        .filter(|&guess| u32::from(guess) != u32::from(delimiter))
        .find(|&guess| header.split(guess).any(|name| name.trim_matches(['"', ' ']) == missing))
}

fn names<'a>(path: &Path, header: &'a Row) -> Result<Vec<&'a str>, BuildError> {
    let mut names = Vec::with_capacity(header.len());
    for name in header.fields() {
        let name = std::str::from_utf8(name)
            .map_err(|_| BuildError::unreadable(path, format!("the column name {:?} is not UTF-8", excerpt(name))))?;
        names.push(name);
    }
    Ok(names)
}

fn sample(row: &Row) -> String {
    let mut text = Vec::new();
    for field in row.fields() {
        text.extend_from_slice(&field[..field.len().min(200)]);
        text.push(b',');
        if text.len() > 1000 {
            break;
        }
    }
    text.pop();
    excerpt(&text)
}
