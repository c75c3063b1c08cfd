//! The entries of the tree, and the changes of a transaction.

use std::fmt;

use crate::path::EntryPath;

/// The longest entry, and the longest transaction with all its paths, in bytes. ZooKeeper refuses requests above 1 MiB;
/// this leaves room for the head of the request.
pub const ENTRY_BYTES_MAX: usize = 1_000_000;

/// Identifies the write of an entry. Later writes have greater revisions, whichever entry they write; all writes of one
/// transaction have one revision. An entry that was deleted and created again never repeats a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(u64);

impl Revision {
    /// The revision with this number, as returned by [`get`](Self::get).
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An entry that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its bytes: at least one.
    pub bytes: Vec<u8>,
    /// Its revision.
    pub revision: Revision,
}

/// A part of a transaction. One transaction names each path once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Requires that an entry is at a revision.
    Check {
        /// The entry.
        path: EntryPath,
        /// Its revision.
        expected: Revision,
    },
    /// Writes an entry.
    Write {
        /// The entry.
        path: EntryPath,
        /// The new bytes.
        bytes: Vec<u8>,
        /// The revision that it must be at; `None` if it must not exist.
        expected: Option<Revision>,
    },
    /// Deletes an entry.
    Delete {
        /// The entry.
        path: EntryPath,
        /// The revision that it must be at.
        expected: Revision,
    },
}

impl Change {
    /// The entry that it changes or checks.
    pub fn path(&self) -> &EntryPath {
        match self {
            Self::Check { path, .. } | Self::Write { path, .. } | Self::Delete { path, .. } => path,
        }
    }

    /// The revision that the entry must be at.
    pub fn expected(&self) -> Option<Revision> {
        match self {
            Self::Write { expected, .. } => *expected,
            Self::Check { expected, .. } | Self::Delete { expected, .. } => Some(*expected),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Write { bytes, .. } => bytes,
            Self::Check { .. } | Self::Delete { .. } => &[],
        }
    }
}

/// Checks the rules for transactions that every implementation has, before it looks at the tree.
pub(crate) fn check_changes(changes: &[Change]) -> Result<(), crate::CoordinationError> {
    let mut bytes = 0;
    for (at, change) in changes.iter().enumerate() {
        let path = change.path();
        if matches!(change, Change::Write { bytes, .. } if bytes.is_empty()) {
            return Err(crate::CoordinationError::Empty { path: path.clone() });
        }
        if changes[..at].iter().any(|other| other.path() == path) {
            return Err(crate::CoordinationError::Twice { path: path.clone() });
        }
        bytes += change.bytes().len() + path.as_str().len() * usize::from(changes.len() > 1);
        if bytes > ENTRY_BYTES_MAX {
            let path = path.clone();
            return Err(crate::CoordinationError::TooLong { path, bytes });
        }
    }
    Ok(())
}
