//! Reads CSV: a header row, then a row a record; a field is the key or the value as it is written.
//!
//! Where a row ends depends on the quotes of all rows before it, so that one file is read by one
//! thread; several files are read by several.

use std::cell::Cell;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use csv::{ByteRecord, ReaderBuilder};
use fondaco_format::Column;

use super::json::{FieldNames, write_string};
use super::rows::RowSink;
use super::text::{self, LINE_BYTES_MAX};
use super::{Chosen, ChosenValue, Reading};
use crate::error::BuildError;
use crate::report::excerpt;
use crate::sort::RowId;

/// Reads all rows of a file.
pub(super) fn read(reading: &Reading<'_>, file: u32, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
    let path = reading.path(file);
    let row_bytes = Rc::new(Cell::new(0));
    let bounded = BoundedRows {
        reader: text::open(path, sink.progress())?,
        row_bytes: Rc::clone(&row_bytes),
    };
    let mut reader = ReaderBuilder::new()
        .flexible(true)
        .buffer_capacity(256 << 10)
        .from_reader(bounded);
    let failed = |e| BuildError::unreadable(path, e);
    let header = reader.byte_headers().map_err(failed)?.clone();
    if header.is_empty() {
        // An empty file has no row, whatever its columns would have been.
        return Ok(());
    }
    let columns = names(path, &header)?;
    let chosen = Chosen::find(reading.options, path, &columns)?;
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
    let mut record = ByteRecord::new();
    let mut object = Vec::new();
    let mut number = 0;
    while reader.read_byte_record(&mut record).map_err(failed)? {
        row_bytes.set(0);
        number += 1;
        let row = RowId::new(file, number);
        if record.len() != columns.len() {
            let reason = format!("it has {} fields, and the header has {}", record.len(), columns.len());
            sink.refuse(row, reason, sample(&record))?;
            continue;
        }
        let value = match &chosen.value {
            ChosenValue::Raw(place) => &record[*place],
            ChosenValue::Object(places) => {
                object.clear();
                let written = fields.write_object(&mut object, |field, out| {
                    write_string(
                        std::str::from_utf8(&record[places[field]]).map_err(|_| places[field])?,
                        out,
                    );
                    Ok::<(), usize>(())
                });
                if let Err(place) = written {
                    sink.refuse(
                        row,
                        format!("column {:?} is not UTF-8", columns[place]),
                        sample(&record),
                    )?;
                    continue;
                }
                &object
            }
        };
        sink.accept(row, &record[chosen.key], value)?;
    }
    Ok(())
}

fn names<'a>(path: &Path, header: &'a ByteRecord) -> Result<Vec<&'a str>, BuildError> {
    let mut names = Vec::with_capacity(header.len());
    for name in header {
        let name = std::str::from_utf8(name)
            .map_err(|_| BuildError::unreadable(path, format!("the column name {:?} is not UTF-8", excerpt(name))))?;
        names.push(name);
    }
    let mut sorted = names.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(BuildError::unreadable(
            path,
            format!("two columns have the name {:?}", pair[0]),
        )),
        None => Ok(names),
    }
}

fn sample(record: &ByteRecord) -> String {
    let mut text = Vec::new();
    for field in record {
        text.extend_from_slice(&field[..field.len().min(200)]);
        text.push(b',');
        if text.len() > 1000 {
            break;
        }
    }
    text.pop();
    excerpt(&text)
}

/// Fails when a row has no end: a lost quote would make the rest of the file one field.
struct BoundedRows<R> {
    reader: R,
    /// How much was read since the last row ended, about.
    row_bytes: Rc<Cell<usize>>,
}

impl<R: Read> Read for BoundedRows<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.row_bytes.set(self.row_bytes.get() + read);
        if self.row_bytes.get() > LINE_BYTES_MAX {
            return Err(io::Error::other(format!(
                "a row has more than {LINE_BYTES_MAX} bytes: a closing quote may be missing"
            )));
        }
        Ok(read)
    }
}
