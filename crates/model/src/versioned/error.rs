//! Reasons why bytes are not a record.

/// Why bytes are not a record, update or clock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end too early.
    #[error("a record of a versioned store ends too early: repair it from another replica")]
    Truncated,
    /// The format is unknown.
    #[error("a record of a versioned store has format {found}, but this program only knows 1: use a newer release")]
    UnknownVersion {
        /// The number of the format.
        found: u8,
    },
    /// The bytes were changed.
    #[error(
        "a record of a versioned store has checksum {found:016x}, not {expected:016x}: repair it from another replica"
    )]
    Checksum {
        /// The checksum of the bytes.
        found: u64,
        /// The stored checksum.
        expected: u64,
    },
    /// The bytes were not written by this program.
    #[error("a record of a versioned store is invalid, {reason}: repair it from another replica")]
    Invalid {
        /// The reason.
        reason: &'static str,
    },
}

impl RecordError {
    pub(super) fn invalid(reason: &'static str) -> Self {
        Self::Invalid { reason }
    }
}
