//! Checks the quotes of CSV, which `csv-core` does not: it takes the end of the file for a closing quote, and text
//! after a closing quote for a part of the field.
//!
//! It sees the same bytes as the parser, and follows RFC 4180: a field that begins with a quote ends with one, and a
//! quote within it is written twice. A quote within any other field is plain text.

/// The position of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    RowStart,
    FieldStart,
    /// In a field without quotes.
    Plain,
    /// After an opening quote.
    Quoted,
    /// After a quote in a quoted field: the field is closed, unless another quote follows.
    Closed,
}

/// The state of a file up to some byte.
#[derive(Debug)]
pub(super) struct Quotes {
    delimiter: u8,
    place: Place,
    /// The number of the line, counted from 1.
    line: u64,
    /// The lines in which the row begins and ends.
    row_line: u64,
    row_last_line: u64,
    /// The line in which the last quoted field began.
    quote_line: u64,
    /// The line of the row in which text followed a closing quote.
    text_after_quote: Option<u64>,
}

impl Quotes {
    pub(super) fn new(delimiter: u8) -> Self {
        Self {
            delimiter,
            place: Place::RowStart,
            line: 1,
            row_line: 1,
            row_last_line: 1,
            quote_line: 1,
            text_after_quote: None,
        }
    }

    /// Processes the next bytes of the file: those of one row, and of the line breaks around it.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let in_row = self.place != Place::RowStart;
            let (taken, later) = rest.split_at(self.skip(rest));
            if let Some((last, others)) = taken.split_last() {
                self.line += line_ends(others);
                if in_row {
                    self.row_last_line = self.line;
                }
                self.line += u64::from(*last == b'\n');
            }
            rest = later;
        }
    }

    /// Processes the line break of an empty line that is a row.
    pub(super) fn feed_empty_row(&mut self, end: &[u8]) {
        (self.row_line, self.row_last_line) = (self.line, self.line);
        self.text_after_quote = None;
        self.feed(end);
    }

    /// Skips the first bytes, and returns how many; 0 only before a row.
    fn skip(&mut self, bytes: &[u8]) -> usize {
        match self.place {
            Place::RowStart => {
                let text = bytes.iter().position(|&byte| !is_end(byte)).unwrap_or(bytes.len());
                if text < bytes.len() {
                    self.row_line = self.line + line_ends(&bytes[..text]);
                    self.row_last_line = self.row_line;
                    self.text_after_quote = None;
                    self.place = Place::FieldStart;
                }
                text
            }
            Place::FieldStart if bytes[0] == b'"' => {
                self.quote_line = self.line;
                self.place = Place::Quoted;
                1
            }
            // Only quotes at the beginning of a field matter here, and most rows have none.
            Place::FieldStart | Place::Plain => {
                let mut from = 0;
                let length = loop {
                    let Some(quote) = memchr::memchr(b'"', &bytes[from..]) else {
                        break bytes.len();
                    };
                    let quote = from + quote;
                    if quote > 0 && (bytes[quote - 1] == self.delimiter || is_end(bytes[quote - 1])) {
                        break quote;
                    }
                    from = quote + 1;
                };
                let last = bytes[length - 1];
                self.place = if is_end(last) {
                    Place::RowStart
                } else if last == self.delimiter {
                    Place::FieldStart
                } else {
                    Place::Plain
                };
                length
            }
            Place::Quoted => match memchr::memchr(b'"', bytes) {
                Some(quote) => {
                    self.place = Place::Closed;
                    quote + 1
                }
                None => bytes.len(),
            },
            Place::Closed => {
                self.place = match bytes[0] {
                    b'"' => Place::Quoted,
                    byte if byte == self.delimiter => Place::FieldStart,
                    byte if is_end(byte) => Place::RowStart,
                    _ => {
                        self.text_after_quote.get_or_insert(self.line);
                        Place::Plain
                    }
                };
                1
            }
        }
    }

    /// The lines of the last row, as text.
    pub(super) fn lines(&self) -> String {
        if self.row_last_line == self.row_line {
            format!("line {}", self.row_line)
        } else {
            format!("lines {} to {}", self.row_line, self.row_last_line)
        }
    }

    /// The quoting error of the last row, if any.
    pub(super) fn fault(&self) -> Option<String> {
        self.text_after_quote.map(|line| {
            format!("text follows a closing quote in line {line}: write a quote within a quoted field twice, as \"\"")
        })
    }

    /// The error if the file ends here.
    pub(super) fn fault_at_end(&self) -> Option<String> {
        (self.place == Place::Quoted).then(|| {
            format!(
                "the quote that line {} opens is never closed: close it, or write a quote within a quoted field twice, \
                 as \"\"",
                self.quote_line
            )
        })
    }
}

fn is_end(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

fn line_ends(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A simple reference: one byte at a time; the offsets of text after quotes, and whether the end is in quotes.
    fn by_the_book(text: &[u8]) -> (usize, bool) {
        let (mut faults, mut quoted, mut closed, mut start) = (0, false, false, true);
        for &byte in text {
            if quoted {
                (quoted, closed) = (byte != b'"', byte == b'"');
                continue;
            }
            match byte {
                b'"' if start || closed => (quoted, start, closed) = (true, false, false),
                b',' | b'\n' => (start, closed) = (true, false),
                _ => {
                    faults += usize::from(closed);
                    (start, closed) = (false, false);
                }
            }
        }
        (faults, quoted)
    }

    proptest! {
        #[test]
        fn the_check_of_quotes_does_not_depend_on_pieces(
            text in "[\",\na]{0,30}", pieces in prop::collection::vec(1..5_usize, 30),
        ) {
            let mut quotes = Quotes::new(b',');
            let mut rest = text.as_bytes();
            let mut faults = 0;
            for piece in pieces {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                for byte_or_more in now.chunks(2) {
                    let before = quotes.text_after_quote;
                    quotes.feed(byte_or_more);
                    faults += usize::from(before.is_none() && quotes.text_after_quote.is_some());
                }
                rest = later;
            }
            let (expected, quoted) = by_the_book(&text.as_bytes()[..text.len() - rest.len()]);
            prop_assert_eq!(faults > 0, expected > 0);
            prop_assert_eq!(quotes.fault_at_end().is_some(), quoted);
            let lines = 1 + text.as_bytes()[..text.len() - rest.len()].iter().filter(|&&byte| byte == b'\n').count();
            prop_assert_eq!(quotes.line, lines as u64);
        }
    }
}
