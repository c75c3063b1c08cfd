//! The errors of sets of ids.

use crate::ID_MAX;

/// An error of sets of ids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdsError {
    /// The bytes are in a format that this program does not know.
    #[error("a set of ids has the format {found}, and this program knows 1: use a matching release")]
    UnknownVersion {
        /// The number of the format.
        found: u8,
    },
    /// The bytes are not what [`encode`](crate::encode) writes.
    #[error("a set of ids is invalid at byte {at}: {reason}; write the value again")]
    Invalid {
        /// The place of the first byte of what is wrong.
        at: usize,
        /// The fault at that position.
        reason: &'static str,
    },
    /// An id that has more than 63 bits.
    #[error("id {id} is too large: ids are at most {ID_MAX}")]
    TooLarge {
        /// The id.
        id: u64,
    },
    /// Ids to be encoded are not in ascending order, or one is there twice.
    #[error("id {id} follows id {before}: sort the ids and remove duplicates before they are encoded")]
    NotAscending {
        /// The id.
        id: u64,
        /// The id before it.
        before: u64,
    },
    /// More ids than one value can address.
    #[error("a set of {count} ids would pass 4 GiB: split it over several keys")]
    ValueTooLong {
        /// How many.
        count: usize,
    },
    /// A multiplicity to be encoded is zero.
    #[error("id {id} has the multiplicity 0: leave it out")]
    NoMultiplicity {
        /// The id.
        id: u64,
    },
    /// A computation concerns values that are no sets.
    #[error("this computation is not over sets: ask a store whose values it is over")]
    NotOverSets,
    /// A text is not a list of ids.
    #[error("{word:?} at byte {at} is not an id: write whole numbers up to {ID_MAX}, as in \"1 5 9\" or \"1,5,9\"")]
    Text {
        /// The word that is not an id.
        word: String,
        /// Where in the text.
        at: usize,
    },
    /// The result would be longer than the caller allows.
    #[error("the result has more than {ids_max} ids: raise the limit, or ask for the number of ids")]
    TooMany {
        /// The limit.
        ids_max: usize,
    },
    /// The caller's check said that the operation is to stop.
    #[error("the operation was stopped before its end: allow it more time, or fewer sets")]
    Stopped,
}

impl IdsError {
    pub(crate) fn invalid(at: usize, reason: &'static str) -> Self {
        Self::Invalid { at, reason }
    }
}
