//! Table names: they become names of directories and of tables in other databases, so only few characters are allowed.

use crate::error::EngineError;
use crate::limits::TABLE_NAME_BYTES_MAX;

/// Checks that every engine can use a name.
pub(crate) fn check(name: &str) -> Result<(), EngineError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if (1..=TABLE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(EngineError::InvalidTableName { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for name in ["hints", "store-12", "a_b", &"x".repeat(TABLE_NAME_BYTES_MAX)] {
            assert!(check(name).is_ok(), "{name:?}");
        }
        for name in [
            "",
            "Store",
            "a/b",
            "..",
            "a b",
            "`",
            &"x".repeat(TABLE_NAME_BYTES_MAX + 1),
        ] {
            assert!(check(name).is_err(), "{name:?}");
        }
    }
}
