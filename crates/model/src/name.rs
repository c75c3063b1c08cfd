//! Store names: the part before the colon of a wire key, and the name of a directory.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text_form::stored_as_text;

/// The name of a store: 1 to 64 characters from `a-z A-Z 0-9 _ - .`, the first a letter, digit or underscore. It never
/// contains the colon that ends it on the wire, nor anything with a meaning in a path. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StoreName(Arc<str>);

/// Why a text is not a store name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid store name {name:?}: use 1 to 64 characters from a-z A-Z 0-9 _ - . beginning with a letter, digit or underscore"
)]
pub struct NameError {
    name: String,
}

impl StoreName {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 64;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StoreName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let valid = (1..=Self::BYTES_MAX).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
            && !name.starts_with(['-', '.']);
        if valid {
            Ok(Self(name.into()))
        } else {
            let name = name.chars().take(80).collect();
            Err(NameError { name })
        }
    }
}

/// Names can be looked up by text.
impl std::borrow::Borrow<str> for StoreName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

stored_as_text!(StoreName, NameError);

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_accepted() {
        for name in ["pymk", "a", "_x", "Member-Features.v2", &"n".repeat(64)] {
            assert_eq!(name.parse::<StoreName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn names_with_a_meaning_in_paths_or_commands_are_refused() {
        for name in [
            "",
            "a:b",
            "../x",
            ".hidden",
            "-flag",
            "a/b",
            "ü",
            "a b",
            &"n".repeat(65),
        ] {
            assert!(name.parse::<StoreName>().is_err(), "{name:?}");
        }
    }
}
