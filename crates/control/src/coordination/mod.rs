//! Coordination: a small tree of entries that survives anything, where all metadata lives.
//!
//! It is not a database and not a queue: entries are small, few, and written whole. Every write names
//! the revision that it replaces, so that two writers can never overwrite each other unseen. An
//! acknowledged write is durable.
//!
//! [`EmbeddedCoordination`] keeps the tree in one directory of one process. The trait is what a
//! service shared by many processes offers as well: entries with versions, conditional writes.

mod embedded;

use std::fmt;
use std::io;
use std::path::PathBuf;

pub use embedded::EmbeddedCoordination;

/// The longest entry, in bytes: what ZooKeeper allows.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// A tree of entries. All calls wait for the disk or the network.
pub trait Coordination: Send + Sync {
    /// The entry at a path; `None` if there is none.
    ///
    /// # Errors
    /// An entry that is corrupt or cannot be read.
    fn read(&self, path: &EntryPath) -> Result<Option<Entry>, CoordinationError>;

    /// Writes an entry, which must be at the expected revision now, or not exist if that is `None`.
    /// Durable when it returns. Returns the new revision.
    ///
    /// # Errors
    /// [`CoordinationError::Conflict`] if it is at another revision; nothing is changed then.
    fn write(&self, path: &EntryPath, bytes: &[u8], expected: Option<Revision>) -> Result<Revision, CoordinationError>;

    /// Deletes an entry, which must be at the expected revision now. Durable when it returns.
    ///
    /// # Errors
    /// [`CoordinationError::Conflict`] if it is at another revision, or not there.
    fn delete(&self, path: &EntryPath, expected: Revision) -> Result<(), CoordinationError>;

    /// The names right below a path that are entries or have some below them, in order.
    ///
    /// # Errors
    /// A directory that cannot be read.
    fn children(&self, path: &EntryPath) -> Result<Vec<String>, CoordinationError>;
}

/// How often an entry was written, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(u64);

impl Revision {
    /// The revision of a new entry.
    pub const FIRST: Self = Self(1);

    fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its revision.
    pub revision: Revision,
}

/// The path of an entry: names joined by `/`, each of 1 to 100 characters from `a-z A-Z 0-9 _ - .`,
/// not beginning with a dot.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EntryPath(String);

impl EntryPath {
    const NAME_BYTES_MAX: usize = 100;

    /// The path of these names.
    ///
    /// # Errors
    /// [`CoordinationError::InvalidPath`] if one of them is no name.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, CoordinationError> {
        let path = names.into_iter().collect::<Vec<_>>().join("/");
        if path.split('/').all(Self::is_name) {
            Ok(Self(path))
        } else {
            Err(CoordinationError::InvalidPath { path })
        }
    }

    fn is_name(name: &str) -> bool {
        (1..=Self::NAME_BYTES_MAX).contains(&name.len())
            && !name.starts_with('.')
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
    }
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Why an entry could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CoordinationError {
    /// No entry can have this path.
    #[error("invalid metadata path {path:?}: names have 1 to 100 characters from a-z A-Z 0-9 _ - .")]
    InvalidPath {
        /// The path.
        path: String,
    },
    /// Somebody else wrote it in between.
    #[error("metadata entry {path:?} is not at the expected revision: somebody else changed it, try again")]
    Conflict {
        /// The entry.
        path: EntryPath,
    },
    /// It would be too long.
    #[error("metadata entry {path:?} would have {bytes} bytes: the limit is {max}", max = ENTRY_BYTES_MAX)]
    TooLong {
        /// The entry.
        path: EntryPath,
        /// Its length.
        bytes: usize,
    },
    /// It does not hold what was written.
    #[error("metadata file {file:?} is corrupt: {reason}; restore it from a copy of the data directory")]
    Corrupt {
        /// Its file.
        file: PathBuf,
        /// What does not fit.
        reason: &'static str,
    },
    /// The operating system refused.
    #[error("cannot {action} metadata file {file:?}: {source}")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        file: PathBuf,
        /// Its reason.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_lead_out_of_the_tree() {
        for names in [
            &["..", "x"][..],
            &["a/../b"],
            &[""],
            &["a", ""],
            &[".entry"],
            &["a b"],
            &[],
        ] {
            assert!(EntryPath::new(names.iter().copied()).is_err(), "{names:?}");
        }
        assert_eq!(EntryPath::new(["stores", "pymk"]).unwrap().to_string(), "stores/pymk");
    }
}
