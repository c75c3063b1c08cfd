//! The type of a store's keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text_form::stored_as_text;

/// The parts of a tuple: from two to this many.
const PARTS_MAX: usize = 16;

/// The form of a store's keys: `bytes`, `string`, `integer`, or a tuple such as `(string,integer)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeyType {
    /// One part: the bytes, the text in UTF-8, the integer as decimal text.
    One(KeyPart),
    /// Several parts, in an encoding that sorts as they do.
    Tuple(Vec<KeyPart>),
}

/// The type of one part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPart {
    /// Any bytes.
    Bytes,
    /// Text in UTF-8.
    String,
    /// A signed integer of 64 bits.
    Integer,
}

/// The text names no type of keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown type of keys {found:?}: use bytes, string, integer, or a tuple of 2 to 16 of them: (string,integer)")]
pub struct KeyTypeError {
    /// The text.
    pub found: String,
}

impl KeyPart {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::String => "string",
            Self::Integer => "integer",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Bytes, Self::String, Self::Integer]
            .into_iter()
            .find(|known| known.name() == name)
    }
}

impl Default for KeyType {
    fn default() -> Self {
        Self::One(KeyPart::Bytes)
    }
}

impl KeyType {
    /// Whether it is the default: settings leave it out then.
    pub fn is_bytes(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(part) => f.write_str(part.name()),
            Self::Tuple(parts) => {
                let names: Vec<&str> = parts.iter().map(|part| part.name()).collect();
                write!(f, "({})", names.join(","))
            }
        }
    }
}

impl FromStr for KeyType {
    type Err = KeyTypeError;

    fn from_str(text: &str) -> Result<Self, KeyTypeError> {
        let parsed = match text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            None => KeyPart::from_name(text).map(Self::One),
            Some(parts) => {
                let parts = parts
                    .split(',')
                    .map(|part| KeyPart::from_name(part.trim()))
                    .collect::<Option<Vec<_>>>();
                parts
                    .filter(|parts| (2..=PARTS_MAX).contains(&parts.len()))
                    .map(Self::Tuple)
            }
        };
        parsed.ok_or_else(|| KeyTypeError {
            found: text.chars().take(80).collect(),
        })
    }
}

stored_as_text!(KeyType, KeyTypeError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_keys_are_read_back_from_their_text() {
        for text in [
            "bytes",
            "string",
            "integer",
            "(string,integer)",
            "(bytes,bytes,integer)",
        ] {
            assert_eq!(text.parse::<KeyType>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "text",
            "()",
            "(string)",
            "(string,)",
            "((string,integer),bytes)",
            &format!("({})", ["integer"; 17].join(",")),
        ] {
            assert!(text.parse::<KeyType>().is_err(), "{text}");
        }
    }
}
