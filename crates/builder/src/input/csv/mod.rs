//! Reads CSV: a header row, unless the options name the columns, then one record per row. A field is used as key or value without conversion.
//!
//! The end of a row depends on the quotes of all rows before it, so one thread reads a whole file; several files are
//! read in parallel.

mod quotes;
mod rows;

use std::path::Path;

use fondaco_format::Column;
use fondaco_model::ValueType;

use super::constants::Constant;
use super::declared::{ValueForm, write_text};
use super::discover::without_compression;
use super::json::{FieldNames, write_string};
use super::key::KeyColumns;
use super::rows::RowSink;
use super::{Chosen, ChosenValue, Reading, drift, named_columns, text};
use crate::error::BuildError;
use crate::options::Numbers;
use crate::report::excerpt;
use crate::sort::RowId;
use rows::{Row, Rows};

/// Reads all rows of a file.
pub(super) fn read(reading: &Reading<'_>, file: u32, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
    let path = reading.path(file);
    let failed = |e| BuildError::unreadable(path, e);
    let delimiter = reading.options.delimiter.unwrap_or_else(|| delimiter_of_name(path));
    let mut rows = Rows::new(text::open(path, sink.progress())?, delimiter);
    let named = reading.options.reading.csv_columns.as_deref();
    let header;
    let mut columns: Vec<&str> = match named {
        Some(names) => names.iter().map(String::as_str).collect(),
        None => {
            header = match rows.next().map_err(failed)? {
                Some(header) => header.clone(),
                // An empty file has no rows, so its missing columns are no error.
                None => return Ok(()),
            };
            if let Some(fault) = rows.quotes().fault() {
                return Err(BuildError::unreadable(path, format!("in its header, {fault}")));
            }
            names(path, &header)?
        }
    };
    let fields_in_row = columns.len();
    rows.expect_empty_rows(fields_in_row == 1);
    let constants = reading.constants(file, |name| columns.contains(&name));
    let constants_text: Vec<Option<&[u8]>> = constants
        .iter()
        .map(|column| column.value.as_deref().map(str::as_bytes))
        .collect();
    columns.extend(constants.iter().map(|column| column.name.as_str()));
    let missing = |error: BuildError| with_guesses(error, reading, &columns[..fields_in_row], delimiter);
    if named.is_none() && !named_columns(reading.options).any(|name| columns.contains(&name)) {
        let name = &reading.options.key[0];
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        return Err(missing(BuildError::missing_column(path, name, columns)));
    }
    let place = |name: &str| columns.iter().position(|column| *column == name);
    let chosen = Chosen::find(&reading.conversion, path, &columns, place).map_err(missing)?;
    let kind = |place: usize| match place.checked_sub(fields_in_row).map(|place| &constants[place]) {
        Some(constant) if constant.is_integer() => "integer",
        Some(constant) if constant.value.is_none() => drift::NULL,
        _ => drift::TEXT,
    };
    let used = chosen
        .places()
        .map(|place| (columns[place].to_owned(), kind(place).to_owned()));
    reading
        .conversion
        .drift
        .check(&reading.files.paths, file, used.collect())?;
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
        form: reading.rows.key_form(reading.options),
    };
    // Properties of a graph are compared with numbers.
    let numbers = reading.options.reading.numbers;
    let declared = &reading.options.declared;
    let has_numbers = declared.value_type == ValueType::Graph;
    // The fields of a record have types.
    let schema = declared.written().map(|(_, schema)| schema);
    let reads_text = |place: usize| schema.map(|schema| schema.reads_text(Some(columns[place])));
    let reads_text: Vec<Option<bool>> = (0..columns.len()).map(reads_text).collect();
    let value_form = match &chosen.value {
        ChosenValue::Raw(_) if !declared.reads_json() => ValueForm::Plain,
        _ => ValueForm::Json,
    };
    let (mut key, mut object) = (Vec::new(), Vec::new());
    let mut number = 0;
    while rows.next().map_err(failed)?.is_some() {
        number += 1;
        let id = RowId::new(file, number);
        let row = rows.row();
        let refused = if let Some(fault) = rows.quotes().fault() {
            fault
        } else if row.len() != fields_in_row {
            let expected = named.map_or("the header has", |_| "--columns names");
            format!("it has {} fields, and {expected} {fields_in_row}", row.len())
        } else {
            let field = |place: usize| match place.checked_sub(fields_in_row) {
                None => Ok(row.field(place)),
                Some(constant) => {
                    constants_text[constant].ok_or_else(|| format!("{:?} is null", constants[constant].name))
                }
            };
            let value = match &chosen.value {
                ChosenValue::Raw(place) if value_form == ValueForm::Json => field(*place).and_then(|text| {
                    let text =
                        str::from_utf8(text).map_err(|_| format!("column {:?} is not UTF-8", columns[*place]))?;
                    object.clear();
                    write_text(text, schema.is_none_or(|schema| schema.reads_text(None)), &mut object);
                    Ok(&object[..])
                }),
                ChosenValue::Raw(place) => field(*place),
                ChosenValue::Object(places) => {
                    object.clear();
                    let written = fields.write_object(&mut object, |field, out| {
                        let place = places[field];
                        let constant = place.checked_sub(fields_in_row).map(|place| &constants[place]);
                        let text = match constant {
                            None => row.field(place),
                            Some(constant) => constant.value.as_deref().unwrap_or("null").as_bytes(),
                        };
                        let is_verbatim = match constant {
                            None => has_numbers && is_number(text),
                            Some(constant) => constant.value.is_none() || is_verbatim(constant, numbers),
                        };
                        if is_verbatim {
                            out.extend_from_slice(text);
                            return Ok(());
                        }
                        let text =
                            str::from_utf8(text).map_err(|_| format!("column {:?} is not UTF-8", columns[place]))?;
                        match reads_text[place] {
                            Some(reads_text) => write_text(text, reads_text, out),
                            None => write_string(text, out),
                        }
                        Ok::<(), String>(())
                    });
                    written.map(|()| &object[..])
                }
            };
            let key = key_of(field, &chosen.key, columns_of_key, &mut key);
            match (key, value) {
                (Ok(key), Ok(value)) => {
                    sink.accept(id, key, value_form, value)?;
                    continue;
                }
                (Err(reason), _) | (_, Err(reason)) => reason,
            }
        };
        let refused = format!("{}: {refused}", rows.quotes().lines());
        sink.refuse(id, refused, sample(row))?;
    }
    Ok(())
}

/// The key of a row, written to `key` if it is not one field as it stands.
fn key_of<'a>(
    field: impl Fn(usize) -> Result<&'a [u8], String>,
    places: &[usize],
    columns: KeyColumns<'_>,
    key: &'a mut Vec<u8>,
) -> Result<&'a [u8], String> {
    if let ([place], true) = (places, columns.is_plain()) {
        return field(*place);
    }
    key.clear();
    for (number, &place) in places.iter().enumerate() {
        columns.append_part(key, number, field(place)?, false)?;
    }
    Ok(key)
}

/// Whether a partition column is written without quotes.
fn is_verbatim(constant: &Constant, numbers: Numbers) -> bool {
    constant.is_integer() && numbers == Numbers::Number
}

/// The error for a missing column, with what may be wrong about the whole file.
fn with_guesses(mut error: BuildError, reading: &Reading<'_>, columns: &[&str], used: u8) -> BuildError {
    if let BuildError::MissingColumn {
        column,
        delimiter,
        headerless,
        ..
    } = &mut error
    {
        *delimiter = guess_delimiter(columns, column, used);
        let is_header = delimiter.is_some() || named_columns(reading.options).any(|name| columns.contains(&name));
        let is_named = reading.options.reading.csv_columns.is_some();
        *headerless = (!is_header && !is_named).then_some(columns.len());
    }
    error
}

/// Whether a field is a number as it is usually written: no zeros in front, no sign but a minus, no exponent, and so few digits
/// that none is lost.
fn is_number(field: &[u8]) -> bool {
    const DIGITS_MAX: usize = 15;
    let digits = field.strip_prefix(b"-").unwrap_or(field);
    let point = digits.iter().position(|&byte| byte == b'.').unwrap_or(digits.len());
    let (whole, part) = digits.split_at(point);
    let are_digits = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let has_no_zeros = whole.len() == 1 || whole.first() != Some(&b'0');
    digits.len() <= DIGITS_MAX
        && are_digits(whole)
        && has_no_zeros
        && part.strip_prefix(b".").map_or(part.is_empty(), are_digits)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_are_written_as_usual() {
        for number in ["0", "-7", "42", "2.50", "-0.5", "123456789012345"] {
            assert!(is_number(number.as_bytes()), "{number}");
        }
        for text in [
            "",
            "-",
            "007",
            "+1",
            "1e5",
            ".5",
            "1.",
            "1.2.3",
            "1234567890123456",
            "12a",
            "NaN",
            "--1",
        ] {
            assert!(!is_number(text.as_bytes()), "{text}");
        }
    }
}
