//! What is in the tree, and what can be done to it at once.

use std::fmt;

use crate::path::EntryPath;

/// The longest entry, and the longest transaction with all its paths, in bytes. ZooKeeper refuses requests
/// above 1 MiB; this leaves room for what surrounds an entry.
pub const ENTRY_BYTES_MAX: usize = 1_000_000;

/// Which write an entry comes from. Later writes have greater revisions, whichever entry they write; what
/// one transaction writes has one revision. An entry that was deleted and made again never has an old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(u64);

impl Revision {
    /// The revision with this number, as it was [got](Self::get) before.
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

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its bytes: one at least.
    pub bytes: Vec<u8>,
    /// Its revision.
    pub revision: Revision,
}

/// A part of a transaction. One transaction names each path once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Demands that an entry is at a revision.
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
        /// What it shall be.
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
    /// The entry that it is about.
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

/// Checks what every implementation demands of a transaction before it looks at the tree.
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
