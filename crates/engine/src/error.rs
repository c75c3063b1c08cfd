//! What can go wrong in an engine, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::limits::{KEY_BYTES_MAX, TABLE_NAME_BYTES_MAX, VALUE_BYTES_MAX};

/// Why an engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The name cannot be that of a table.
    #[error(
        "{name:?} is no name for a table: use 1 to {TABLE_NAME_BYTES_MAX} of the characters a-z, 0-9, \"-\" and \"_\""
    )]
    InvalidTableName {
        /// The name.
        name: String,
    },

    /// The table was dropped.
    #[error("table {table:?} is not there: it was dropped; open it again")]
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
        /// The length of all its keys and values, about.
        bytes: usize,
    },

    /// The disk is full, or so nearly that the rest is kept for putting it in order.
    #[error("no space left on the disk of {dir:?}: free some; writing goes on by itself when there is")]
    DiskFull {
        /// The directory of the engine.
        dir: PathBuf,
    },

    /// There is no memory for keys that are not there yet.
    #[error(
        "{keys} keys take {bytes} bytes of memory, and may take {bytes_max}: new keys are refused, while overwriting and \
         deleting go on; delete keys, give the process more memory (the setting \"memory\"), add nodes, or keep the store \
         in trees (--engine disk)"
    )]
    KeysFull {
        /// How many there are.
        keys: u64,
        /// What they take, in bytes.
        bytes: u64,
        /// What they may take.
        bytes_max: u64,
    },

    /// The disk does not keep up with what is written.
    #[error(
        "the disk of {dir:?} is {waited_seconds} s behind with writing out and merging: write less, or use a faster one"
    )]
    Behind {
        /// The directory of the engine.
        dir: PathBuf,
        /// For how long it was waited, in seconds.
        waited_seconds: u64,
    },

    /// What is stored is not what was written.
    #[error("what is stored in {place:?} is damaged: {reason}; {}", remedy(.key.as_deref()))]
    Corrupt {
        /// The directory or table.
        place: String,
        /// What was found.
        reason: String,
        /// The key of the record that is damaged, if it is known to be one. Another replica may have it.
        key: Option<Box<[u8]>>,
    },

    /// Another process, or another engine of this one, uses the directory.
    #[error("{dir:?} is in use: end the other process, or choose another directory")]
    Locked {
        /// The directory.
        dir: PathBuf,
    },

    /// The operating system refused.
    #[error("cannot {action} {place:?}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        place: String,
        /// What it said.
        source: io::Error,
    },

    /// The database server does not answer.
    #[error("cannot reach the database at {server}: {reason}; check that it runs, and the address")]
    Unreachable {
        /// Its address and database, without the password.
        server: String,
        /// What was said.
        reason: String,
    },

    /// The database server does not do what it was asked.
    #[error("the database at {server} refused to {action}: {reason}")]
    Refused {
        /// Its address and database, without the password.
        server: String,
        /// What was attempted.
        action: &'static str,
        /// What it said, or what to do.
        reason: String,
    },

    /// The disk did not take what was to be on it. The operating system may have dropped it, and would say nothing of
    /// that when it is asked again: so nothing more is written.
    #[error(
        "what was written last may never be on the disk of {dir:?}: {reason}; nothing more is written until the process \
         is started again: look at the disk first, and replace it if it fails"
    )]
    SyncFailed {
        /// The directory of the engine.
        dir: PathBuf,
        /// What the operating system said.
        reason: String,
    },

    /// The storage stopped, after an error that was told before, and could not be started again.
    #[error("the storage in {dir:?} has stopped: {reason}; see the first error, and start the process again")]
    Stopped {
        /// The directory of the engine.
        dir: PathBuf,
        /// What is in the way.
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
    /// The key of the record that alone is damaged; `None` if it is any other error.
    pub fn damaged_key(&self) -> Option<&[u8]> {
        match self {
            Self::Corrupt { key, .. } => key.as_deref(),
            _ => None,
        }
    }

    /// The same, known to be of the record of a key.
    pub(crate) fn of_record(mut self, of: &[u8]) -> Self {
        if let Self::Corrupt { key, .. } = &mut self {
            *key = Some(of.into());
        }
        self
    }
}
