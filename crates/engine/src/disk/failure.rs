//! What fjall and the operating system say, in our words.

use std::io;
use std::path::Path;

use fjall::{Error, LsmError};

use crate::error::EngineError;

/// Names an error of fjall.
pub(super) fn name(action: &'static str, dir: &Path, error: Error) -> EngineError {
    match error {
        Error::Io(source) | Error::Storage(LsmError::Io(source)) => match source.kind() {
            // It looks for nothing that its own lists do not name.
            io::ErrorKind::NotFound => corrupt(dir, "a file is missing, or misnamed in a list"),
            _ => io(action, dir, source),
        },
        Error::Locked => EngineError::Locked { dir: dir.to_owned() },
        Error::Poisoned => stopped(dir, "an earlier write or a merge of its files failed"),
        Error::Storage(error) => corrupt(dir, error.to_string()),
        error => corrupt(dir, error.to_string()),
    }
}

/// Names an error of the operating system.
pub(super) fn io(action: &'static str, dir: &Path, source: io::Error) -> EngineError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::DiskFull { dir: dir.to_owned() },
        // A file that is shorter than it says.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => corrupt(dir, source.to_string()),
        _ => EngineError::Io {
            action,
            place: dir.display().to_string(),
            source,
        },
    }
}

pub(super) fn corrupt(dir: &Path, reason: impl Into<String>) -> EngineError {
    EngineError::Corrupt {
        place: dir.display().to_string(),
        reason: reason.into(),
    }
}

pub(super) fn stopped(dir: &Path, reason: impl Into<String>) -> EngineError {
    EngineError::Stopped {
        dir: dir.to_owned(),
        reason: reason.into(),
    }
}
