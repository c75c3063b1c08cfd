//! What fjall says, in our words.

use std::io;
use std::path::Path;

use fjall::{Error, LsmError};

use crate::error::EngineError;
use crate::failure::is_damage;
pub(super) use crate::failure::{corrupt, io, reading, stopped};

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

/// Names an error of reading from fjall. What the disk cannot read is damaged, as what has a wrong checksum is.
pub(super) fn name_reading(action: &'static str, dir: &Path, error: Error) -> EngineError {
    match error {
        Error::Io(source) | Error::Storage(LsmError::Io(source)) if is_damage(&source) => reading(dir, source),
        error => name(action, dir, error),
    }
}
