//! Splits a file that is one JSON array into its objects, one per line, for [`jsonl`](super::jsonl) to read.
//!
//! It looks only at brackets and quotes; the reader checks whether an element is a valid object.

use std::io::Read;

use super::jsonl::{Lines, PIECE_BYTES};
use super::rows::RowSink;
use super::text::LINE_BYTES_MAX;
use super::{Piece, Reading};
use crate::error::BuildError;

/// Splits an array; `text` is its beginning, and `reader` has the rest.
pub(super) fn read(
    reading: &Reading<'_>,
    file: u32,
    mut text: Vec<u8>,
    reader: &mut dyn Read,
    sink: &mut RowSink<'_>,
) -> Result<(), BuildError> {
    let path = reading.path(file);
    let mut splitter = Splitter::default();
    let mut row = 1;
    loop {
        if text.is_empty() {
            return splitter.end().map_err(|reason| BuildError::unreadable(path, reason));
        }
        splitter
            .feed(&text)
            .map_err(|reason| BuildError::unreadable(path, reason))?;
        let complete = splitter.take_lines();
        if !complete.is_empty() {
            let next = splitter.elements + 1;
            let lines = Lines {
                file,
                row,
                text: complete,
            };
            row = next;
            reading.hand_over(Piece::Lines(lines), sink)?;
        }
        text.clear();
        reader
            .take(PIECE_BYTES as u64)
            .read_to_end(&mut text)
            .map_err(|e| BuildError::unreadable(path, e))?;
    }
}

/// The state of the array up to some byte.
#[derive(Default)]
struct Splitter {
    /// The elements, each followed by a line feed, and the beginning of the next one.
    lines: Vec<u8>,
    /// The offset of the unfinished element.
    element: usize,
    /// The number of finished elements.
    elements: u64,
    /// The number of open brackets.
    depth: usize,
    in_string: bool,
    escaped: bool,
    ended: bool,
}

impl Splitter {
    fn feed(&mut self, text: &[u8]) -> Result<(), String> {
        for &byte in text {
            self.byte(byte)?;
        }
        if self.lines.len() - self.element > LINE_BYTES_MAX {
            return Err(format!(
                "element {} of its array has more than {LINE_BYTES_MAX} bytes",
                self.elements + 1
            ));
        }
        Ok(())
    }

    #[inline]
    fn byte(&mut self, byte: u8) -> Result<(), String> {
        if self.in_string {
            self.in_string = byte != b'"' || self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            // A JSON string must not contain a line feed: it stays an error, but does not split the line.
            self.lines.push(if byte == b'\n' { b'\r' } else { byte });
            return Ok(());
        }
        let empty = self.lines.len() == self.element;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                if !empty {
                    self.lines.push(b' ');
                }
                return Ok(());
            }
            _ if self.ended => return Err("there is text after the end of its array".to_owned()),
            b'[' if self.depth == 0 => {
                self.depth = 1;
                return Ok(());
            }
            b',' if self.depth == 1 => return self.end_element(empty),
            b']' if self.depth == 1 => {
                self.ended = true;
                return match empty && self.elements == 0 {
                    true => Ok(()),
                    false => self.end_element(empty),
                };
            }
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => self.depth = (self.depth - 1).max(1),
            b'"' => self.in_string = true,
            _ => {}
        }
        self.lines.push(byte);
        Ok(())
    }

    fn end_element(&mut self, empty: bool) -> Result<(), String> {
        if empty {
            return Err(format!("element {} of its array is empty", self.elements + 1));
        }
        self.lines.push(b'\n');
        self.element = self.lines.len();
        self.elements += 1;
        Ok(())
    }

    /// The elements that were finished since the last call.
    fn take_lines(&mut self) -> Vec<u8> {
        let begun = self.lines.split_off(self.element);
        self.element = 0;
        std::mem::replace(&mut self.lines, begun)
    }

    fn end(&self) -> Result<(), String> {
        match self.ended {
            true => Ok(()),
            false => Err(format!(
                "its array does not end: the file is cut off in element {}",
                self.elements + 1
            )),
        }
    }
}
