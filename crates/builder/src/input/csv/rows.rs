//! Iterates over the rows of a CSV file: parsed by `csv-core`, with their quotes checked.

use std::io::{self, BufRead, BufReader, Read};

use csv_core::ReadRecordResult;

use super::quotes::Quotes;
use crate::input::text::LINE_BYTES_MAX;

const READ_BUFFER_BYTES: usize = 256 << 10;

/// Reads rows into a reused buffer.
pub(super) struct Rows<R> {
    reader: BufReader<R>,
    parser: csv_core::Reader,
    quotes: Quotes,
    row: Row,
    /// Whether an empty line is a row, of one empty field. `csv-core` passes over empty lines.
    has_empty_rows: bool,
    /// The last byte that was read.
    last_byte: u8,
}

/// One row.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    /// The bytes of all fields. The buffer may be longer than the row.
    bytes: Vec<u8>,
    /// The end of each field. The buffer may have more entries than the row has fields.
    ends: Vec<usize>,
    fields: usize,
}

impl Row {
    /// The number of fields.
    pub(super) fn len(&self) -> usize {
        self.fields
    }

    /// A field by its number.
    #[inline]
    pub(super) fn field(&self, number: usize) -> &[u8] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.bytes[start..self.ends[number]]
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.fields).map(|number| self.field(number))
    }
}

impl<R: Read> Rows<R> {
    pub(super) fn new(reader: R, delimiter: u8) -> Self {
        Self {
            reader: BufReader::with_capacity(READ_BUFFER_BYTES, reader),
            parser: csv_core::ReaderBuilder::new().delimiter(delimiter).build(),
            quotes: Quotes::new(delimiter),
            row: Row {
                bytes: vec![0; 1024],
                ends: vec![0; 32],
                fields: 0,
            },
            has_empty_rows: false,
            last_byte: b'\n',
        }
    }

    /// Says whether an empty line is a row.
    pub(super) fn expect_empty_rows(&mut self, are_rows: bool) {
        self.has_empty_rows = are_rows;
    }

    /// Takes an empty line, if one is next.
    fn take_empty_row(&mut self) -> io::Result<bool> {
        // The second half of a line break belongs to the row before.
        if self.last_byte == b'\r' && self.reader.fill_buf()?.first() == Some(&b'\n') {
            self.take_byte(b'\n', Quotes::feed);
        }
        match self.reader.fill_buf()?.first() {
            Some(&end @ (b'\r' | b'\n')) => {
                self.take_byte(end, Quotes::feed_empty_row);
                self.row.ends[0] = 0;
                self.row.fields = 1;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn take_byte(&mut self, byte: u8, feed: fn(&mut Quotes, &[u8])) {
        feed(&mut self.quotes, &[byte]);
        self.reader.consume(1);
        self.last_byte = byte;
    }

    /// Reads the next row; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<&Row>> {
        if self.has_empty_rows && self.take_empty_row()? {
            return Ok(Some(&self.row));
        }
        let row = &mut self.row;
        let (mut read, mut bytes, mut ends) = (0, 0, 0);
        loop {
            let input = self.reader.fill_buf()?;
            if input.is_empty()
                && let Some(fault) = self.quotes.fault_at_end()
            {
                return Err(io::Error::new(io::ErrorKind::InvalidData, fault));
            }
            let (result, used, written, ended) =
                self.parser
                    .read_record(input, &mut row.bytes[bytes..], &mut row.ends[ends..]);
            self.quotes.feed(&input[..used]);
            if let Some(last) = input[..used].last() {
                self.last_byte = *last;
            }
            self.reader.consume(used);
            read += used;
            bytes += written;
            ends += ended;
            match result {
                _ if read > LINE_BYTES_MAX => {
                    return Err(io::Error::other(format!(
                        "the row in {} has more than {LINE_BYTES_MAX} bytes: a closing quote may be missing",
                        self.quotes.lines()
                    )));
                }
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => row.bytes.resize(row.bytes.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => row.ends.resize(row.ends.len() * 2, 0),
                ReadRecordResult::Record => {
                    row.fields = ends;
                    return Ok(Some(&self.row));
                }
                ReadRecordResult::End => return Ok(None),
            }
        }
    }

    /// The last row.
    pub(super) fn row(&self) -> &Row {
        &self.row
    }

    /// The quotes of the last row.
    pub(super) fn quotes(&self) -> &Quotes {
        &self.quotes
    }
}
