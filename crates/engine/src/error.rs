//! The errors of an engine, and their remedies.

use std::io;
use std::path::PathBuf;

use crate::limits::{KEY_BYTES_MAX, TABLE_NAME_BYTES_MAX, VALUE_BYTES_MAX};

/// Why an engine failed or refused an operation.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The name is not a valid table name.
    #[error("invalid table name {name:?}: use 1 to {TABLE_NAME_BYTES_MAX} of the characters a-z, 0-9, \"-\" and \"_\"")]
    InvalidTableName {
        /// The name.
        name: String,
    },

    /// The table was dropped.
    #[error("table {table:?} does not exist: it was dropped; open it again")]
    NoTable {
        /// Its name.
        table: String,
    },

    /// A key is empty, or longer than an engine stores.
    #[error("a key of {bytes} bytes for table {table:?}: keys have 1 to {KEY_BYTES_MAX} bytes")]
    KeyTooLong {
        /// The table.
        table: String,
        /// The length of the key.
        bytes: usize,
    },

    /// A value is longer than an engine stores.
    #[error("a value of {bytes} bytes for table {table:?}: values have at most {VALUE_BYTES_MAX} bytes")]
    ValueTooLong {
        /// The table.
        table: String,
        /// The length of the value.
        bytes: usize,
    },

    /// A batch is longer than an engine stores.
    #[error("a batch of {bytes} bytes: make it of several that are shorter")]
    BatchTooLong {
        /// The approximate length of all keys and values.
        bytes: usize,
    },

    /// The disk is full, or has only the reserve left.
    #[error("no space left on the disk of {dir:?}: free some space; writes then resume by themselves")]
    DiskFull {
        /// The directory of the engine.
        dir: PathBuf,
    },

    /// There is no memory for new keys.
    #[error(
        "{keys} keys take {bytes} bytes of memory, and may take {bytes_max}: new keys are refused, while overwriting and \
         deleting go on; delete keys, give the process more memory (the setting \"memory\"), add nodes, or keep the store \
         in trees (--engine disk)"
    )]
    KeysFull {
        /// The number of keys.
        keys: u64,
        /// The memory that the keys use, in bytes.
        bytes: u64,
        /// The limit of that memory, in bytes.
        bytes_max: u64,
    },

    /// The disk cannot keep up with the writes.
    #[error(
        "the disk of {dir:?} is {waited_seconds} s behind with flushes and compaction: write less, or use a faster disk"
    )]
    Behind {
        /// The directory of the engine.
        dir: PathBuf,
        /// How long the write waited, in seconds.
        waited_seconds: u64,
    },

    /// The stored data is not what was written.
    #[error("the data in {place:?} is damaged: {reason}; {}", remedy(.key.as_deref()))]
    Corrupt {
        /// The directory or table.
        place: String,
        /// The damage.
        reason: String,
        /// The key of the damaged record, if the damage is in a single known record. Another replica may have the
        /// record.
        key: Option<Box<[u8]>>,
    },

    /// Another process, or another engine of this process, uses the directory.
    #[error("{dir:?} is in use: end the other process, or choose another directory")]
    Locked {
        /// The directory.
        dir: PathBuf,
    },

    /// The operating system refused.
    #[error("cannot {action} {place:?}: {source}")]
    Io {
        /// The action.
        action: &'static str,
        /// The file or directory.
        place: String,
        /// The error of the operating system.
        source: io::Error,
    },

    /// The database server does not answer.
    #[error("cannot reach the database at {server}: {reason}; check that it runs, and the address")]
    Unreachable {
        /// Its address and database, without the password.
        server: String,
        /// The reason.
        reason: String,
    },

    /// The database server refused the operation.
    #[error("the database at {server} refused to {action}: {reason}")]
    Refused {
        /// Its address and database, without the password.
        server: String,
        /// The action.
        action: &'static str,
        /// The server's error, or what to do.
        reason: String,
    },

    /// A sync failed. The operating system may have dropped the data and would not report that on the next sync, so the
    /// engine refuses further writes.
    #[error(
        "the last writes may never reach the disk of {dir:?}: {reason}; further writes are refused until the process \
         is restarted: check the disk first, and replace it if it fails"
    )]
    SyncFailed {
        /// The directory of the engine.
        dir: PathBuf,
        /// The error of the operating system.
        reason: String,
    },

    /// The storage stopped after an earlier, reported error, and could not be started again.
    #[error("the storage in {dir:?} has stopped: {reason}; see the first error, and restart the process")]
    Stopped {
        /// The directory of the engine.
        dir: PathBuf,
        /// The reason.
        reason: String,
    },
}

fn remedy(key: Option<&[u8]>) -> &'static str {
    match key {
        Some(_) => "another replica that has the record replaces it",
        None => "delete it, and let the other replicas fill it again",
    }
}

impl EngineError {
    /// The key, if only the record of this key is damaged; `None` for any other error.
    pub fn damaged_key(&self) -> Option<&[u8]> {
        match self {
            Self::Corrupt { key, .. } => key.as_deref(),
            _ => None,
        }
    }

    /// Marks the damage as that of the record of a key.
    pub(crate) fn of_record(mut self, of: &[u8]) -> Self {
        if let Self::Corrupt { key, .. } = &mut self {
            *key = Some(of.into());
        }
        self
    }
}
