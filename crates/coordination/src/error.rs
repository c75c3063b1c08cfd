//! Why something could not be read or written.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::entry::ENTRY_BYTES_MAX;
use crate::path::EntryPath;

/// Why something could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CoordinationError {
    /// No entry can have this path.
    #[error(
        "invalid metadata path {path:?}: its names have 1 to 100 characters from a-z A-Z 0-9 _ - . and do not begin with a dot"
    )]
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
    /// It would have no bytes.
    #[error("metadata entry {path:?} would be empty: an entry has at least one byte")]
    Empty {
        /// The entry.
        path: EntryPath,
    },
    /// It, or the transaction with it, would be too long.
    #[error("metadata entry {path:?} would make the write {bytes} bytes long: the limit is {max}", max = ENTRY_BYTES_MAX)]
    TooLong {
        /// The entry.
        path: EntryPath,
        /// The length of what would be written at once.
        bytes: usize,
    },
    /// A transaction names it twice.
    #[error("metadata entry {path:?} is named twice in one transaction: name it once")]
    Twice {
        /// The entry.
        path: EntryPath,
    },
    /// It would be below an entry that goes with its session.
    #[error("metadata entry {path:?} would be below an ephemeral entry: choose another path")]
    BelowEphemeral {
        /// The entry.
        path: EntryPath,
    },
    /// A file does not hold what was written.
    #[error("metadata file {file:?} is corrupt: {reason}; restore it from a copy of the data directory")]
    Corrupt {
        /// Its file.
        file: PathBuf,
        /// What does not fit.
        reason: String,
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
    /// The service does not answer.
    #[error(
        "cannot {action}: no answer from ZooKeeper at {servers:?} within {waited:?}; check that a majority of its servers runs and can be reached"
    )]
    Unavailable {
        /// What was tried.
        action: String,
        /// The servers that were asked.
        servers: String,
        /// How long.
        waited: Duration,
    },
    /// The service answered with an error that has no meaning of its own here.
    #[error("cannot {action}: ZooKeeper says {reason:?}")]
    Refused {
        /// What was tried.
        action: String,
        /// Its reason.
        reason: String,
    },
    /// The thread that keeps a session could not be started.
    #[error("cannot start a thread for the session with ZooKeeper: {source}; check the limits of the process")]
    Thread {
        /// The reason of the operating system.
        source: io::Error,
    },
    /// The settings cannot be used.
    #[error("invalid setting for ZooKeeper: {setting} is {value:?}, but must be {demand}")]
    InvalidSetting {
        /// Which one.
        setting: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        demand: &'static str,
    },
    /// The session was ended by its owner.
    #[error("the session with the coordination service has ended: start the process again")]
    Closed,
}
