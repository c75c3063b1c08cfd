//! Why a read or write failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::entry::ENTRY_BYTES_MAX;
use crate::path::EntryPath;

/// Why a read or write failed.
#[derive(Debug, thiserror::Error)]
pub enum CoordinationError {
    /// The path is invalid.
    #[error(
        "invalid metadata path {path:?}: its names have 1 to 100 characters from a-z A-Z 0-9 _ - . and do not begin with a dot"
    )]
    InvalidPath {
        /// The path.
        path: String,
    },
    /// Another session wrote the entry in between.
    #[error("metadata entry {path:?} is not at the expected revision: another process changed it, try again")]
    Conflict {
        /// The entry.
        path: EntryPath,
    },
    /// The entry would have no bytes.
    #[error("metadata entry {path:?} would be empty: an entry has at least one byte")]
    Empty {
        /// The entry.
        path: EntryPath,
    },
    /// The entry, or the transaction with it, would be too long.
    #[error("metadata entry {path:?} would make the write {bytes} bytes long: the limit is {max}", max = ENTRY_BYTES_MAX)]
    TooLong {
        /// The entry.
        path: EntryPath,
        /// The length of the write in bytes.
        bytes: usize,
    },
    /// A transaction names the entry twice.
    #[error("metadata entry {path:?} is named twice in one transaction: name it once")]
    Twice {
        /// The entry.
        path: EntryPath,
    },
    /// The entry would be below an ephemeral entry.
    #[error("metadata entry {path:?} would be below an ephemeral entry: choose another path")]
    BelowEphemeral {
        /// The entry.
        path: EntryPath,
    },
    /// A file is damaged.
    #[error("metadata file {file:?} is corrupt: {reason}; restore it from a copy of the data directory")]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// The damage.
        reason: String,
    },
    /// The operating system refused.
    #[error("cannot {action} metadata file {file:?}: {source}")]
    Io {
        /// The action, as a verb.
        action: &'static str,
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The service does not answer.
    #[error(
        "cannot {action}: no answer from ZooKeeper at {servers:?} within {waited:?}; check that a majority of its servers runs and can be reached"
    )]
    Unavailable {
        /// The action.
        action: String,
        /// The servers that were tried.
        servers: String,
        /// The time that the call waited.
        waited: Duration,
    },
    /// The service cannot be reached by TLS.
    #[error(
        "cannot {action}: no connection by TLS to ZooKeeper at {reason}; check ca, certificate and key in [zookeeper], and that connect names its secure port by a name in its certificate"
    )]
    Untrusted {
        /// The action.
        action: String,
        /// The server, and why the handshake failed.
        reason: String,
    },
    /// The root may not be used.
    #[error(
        "cannot {action}: ZooKeeper refuses its root {root:?} to this process: {reason}; check auth in [zookeeper], or create the root with rights for its user"
    )]
    NoRoot {
        /// The action.
        action: String,
        /// The root.
        root: String,
        /// The reason given by ZooKeeper.
        reason: String,
    },
    /// The settings of TLS cannot be used.
    #[error("invalid TLS for ZooKeeper: {reason}")]
    InvalidTls {
        /// The setting that cannot be used, and why.
        reason: String,
    },
    /// The service answered with an error that has no variant here.
    #[error("cannot {action}: ZooKeeper says {reason:?}")]
    Refused {
        /// The action.
        action: String,
        /// The reason given by ZooKeeper.
        reason: String,
    },
    /// The thread that keeps a session could not be started.
    #[error("cannot start a thread for the session with ZooKeeper: {source}; check the limits of the process")]
    Thread {
        /// The cause, from the operating system.
        source: io::Error,
    },
    /// The settings cannot be used.
    #[error("invalid setting for ZooKeeper: {setting} is {value:?}, but must be {demand}")]
    InvalidSetting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        demand: &'static str,
    },
    /// The session was ended by its owner.
    #[error("the session with the coordination service has ended: start the process again")]
    Closed,
}
