//! Why records cannot be decoded.

use arrow_schema::ArrowError;

/// The longest excerpt of a key or a value, in characters.
const EXCERPT_CHARS_MAX: usize = 80;

/// Records that cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// A key does not fit the types of the key columns.
    #[error("key {key:?} does not fit the schema: column {column:?}: {reason}; read it raw (--raw)")]
    Key {
        /// The key.
        key: String,
        /// The column of the key.
        column: String,
        /// The reason.
        reason: String,
    },
    /// A value does not fit the types of its columns.
    #[error("the value of key {key:?} does not fit the schema: column {column:?}: {reason}; read it raw (--raw)")]
    Value {
        /// The key of the record.
        key: String,
        /// The column, with the members on the way to the value.
        column: String,
        /// The reason.
        reason: String,
    },
    /// More bytes than one column of a batch can have.
    #[error("{bytes} bytes of keys and values cannot be decoded at once: use batches of at most {most} bytes")]
    TooLong {
        /// The bytes of all keys and values.
        bytes: usize,
        /// The most that a batch may have.
        most: usize,
    },
    /// The columns do not make up a batch.
    #[error("records cannot be decoded")]
    Arrow(#[from] ArrowError),
}

/// The beginning of some bytes as text on one line.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let beginning = &bytes[..bytes.len().min(EXCERPT_CHARS_MAX * 4)];
    let text = String::from_utf8_lossy(beginning);
    let mut excerpt: String = text
        .chars()
        .take(EXCERPT_CHARS_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if beginning.len() < bytes.len() || text.chars().nth(EXCERPT_CHARS_MAX).is_some() {
        excerpt.push('…');
    }
    excerpt
}

/// The column in an error of `arrow-json`, with the members on the way to the value, and the reason.
pub(crate) fn column_and_reason(error: &ArrowError) -> (String, String) {
    let (ArrowError::JsonError(text) | ArrowError::ParseError(text)) = error else {
        return (String::new(), error.to_string());
    };
    let (mut column, mut reason) = (String::new(), text.as_str());
    while let Some((name, rest)) = reason
        .strip_prefix("whilst decoding field '")
        .and_then(|rest| rest.split_once("': "))
    {
        if !column.is_empty() {
            column.push('.');
        }
        column.push_str(name);
        reason = rest;
    }
    (column, reason.to_owned())
}
