//! What the operating system says of files, in our words.

use std::io;
use std::path::Path;

use crate::error::EngineError;

/// Names an error of the operating system.
pub(crate) fn io(action: &'static str, dir: &Path, source: io::Error) -> EngineError {
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

pub(crate) fn corrupt(dir: &Path, reason: impl Into<String>) -> EngineError {
    EngineError::Corrupt {
        place: dir.display().to_string(),
        reason: reason.into(),
        key: None,
    }
}

pub(crate) fn stopped(dir: &Path, reason: impl Into<String>) -> EngineError {
    EngineError::Stopped {
        dir: dir.to_owned(),
        reason: reason.into(),
    }
}
