//! Errors of schemas and of values.

use std::fmt;

/// A schema that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid schema, at {place}: {reason}")]
pub struct SchemaError {
    /// The place within the schema: names of types and fields.
    pub place: String,
    /// The rule that is broken.
    pub reason: String,
}

impl SchemaError {
    pub(crate) fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            reason: reason.into(),
        }
    }
}

/// A value that does not fit its schema or its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// The position in the payload; 0 if the value comes from JSON.
    pub offset: usize,
    /// The path of the field; empty for the value itself.
    pub field: String,
    /// The reason.
    pub reason: String,
}

impl ValueError {
    pub(crate) fn new(offset: usize, reason: impl Into<String>) -> Self {
        Self {
            offset,
            field: String::new(),
            reason: reason.into(),
        }
    }

    /// The same error, within the field or item `name`.
    pub(crate) fn within(mut self, name: &str) -> Self {
        // A path longer than this helps no reader; values may be nested deeply.
        if self.field.len() < 512 {
            let dot = if self.field.is_empty() || self.field.starts_with('[') {
                ""
            } else {
                "."
            };
            self.field = format!("{name}{dot}{}", self.field);
        }
        self
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid value")?;
        if !self.field.is_empty() {
            write!(f, ", field {:?}", self.field)?;
        }
        if self.offset > 0 {
            write!(f, ", byte {}", self.offset)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for ValueError {}
