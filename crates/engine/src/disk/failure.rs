//! Maps errors of fjall to [`EngineError`].

use std::io;
use std::path::Path;

use fjall::{Error, LsmError};

use super::opened::OpenFailure;
use crate::error::EngineError;
use crate::failure::is_damage;
pub(super) use crate::failure::{corrupt, io, reading, stopped};

/// Maps an error of fjall when it opens a database.
pub(super) fn opening(dir: &Path, error: Error) -> OpenFailure {
    match error {
        Error::JournalRecovery(error) => OpenFailure::DamagedLog {
            reason: format!("the log in {dir:?} is damaged: {error}"),
        },
        Error::InvalidVersion(_) => {
            let reason = "another version of fjall has written it; nothing was changed: use the program that wrote it";
            corrupt(dir, reason).into()
        }
        error => name("open", dir, error).into(),
    }
}

/// Maps an error of fjall.
pub(super) fn name(action: &'static str, dir: &Path, error: Error) -> EngineError {
    match error {
        Error::Io(source) | Error::Storage(LsmError::Io(source)) => match source.kind() {
            // fjall only opens files that its own lists name.
            io::ErrorKind::NotFound => corrupt(dir, "a file is missing, or a list names the wrong file"),
            _ => io(action, dir, source),
        },
        Error::Locked => EngineError::Locked { dir: dir.to_owned() },
        Error::Poisoned => stopped(dir, "an earlier write or a merge of its files failed"),
        Error::Storage(error) => corrupt(dir, error.to_string()),
        error => corrupt(dir, error.to_string()),
    }
}

/// Maps an error of a read from fjall. Data that the disk cannot read counts as damaged, like data with a wrong
/// checksum.
pub(super) fn name_reading(action: &'static str, dir: &Path, error: Error) -> EngineError {
    match error {
        Error::Io(source) | Error::Storage(LsmError::Io(source)) if is_damage(&source) => reading(dir, source),
        error => name(action, dir, error),
    }
}
