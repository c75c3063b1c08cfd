//! The acknowledged writes that an engine finds lost when it is opened. An engine only reports them: they are remembered
//! elsewhere, until they are restored or given up.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::directory;
use crate::error::EngineError;
use crate::failure;

/// The file in which former releases noted the losses of an engine, in its directory.
const FORMER_NOTE: &str = "lost";

/// The record in which the losses of an engine are noted.
pub trait LossNotes: fmt::Debug + Send + Sync {
    /// Notes a loss, once however often it is reported. It is on the disk when this returns.
    ///
    /// # Errors
    /// The error of the operating system: the loss is not noted.
    fn note(&self, lost: &str) -> io::Result<()>;
}

/// The reaction of an engine that finds, when it is opened, that acknowledged writes are lost: bits of its log have
/// changed, files are missing, the machine lost power before everything was on the disk, or the database went back to
/// an older state.
#[derive(Clone, Debug)]
pub enum OnLoss {
    /// Fail with [`EngineError::Corrupt`].
    Refuse,
    /// Note the loss, and continue without the lost writes. The next time that it is opened, the engine does not report
    /// them again.
    Note(Arc<dyn LossNotes>),
}

impl OnLoss {
    /// Reacts to losses, if there are any. An engine calls this before it changes anything in its directory: if the
    /// process ends in between, it finds the same losses again.
    pub(crate) fn react(&self, dir: &Path, losses: &[String]) -> Result<(), EngineError> {
        match self {
            _ if losses.is_empty() => Ok(()),
            Self::Refuse => Err(failure::corrupt(dir, losses.join("; "))),
            Self::Note(notes) => notes
                .note(&losses.join("; "))
                .map_err(|error| failure::io("note lost writes of", dir, error)),
        }
    }

    /// Reacts to losses that a former release noted in the directory, and deletes its note.
    pub(crate) fn take_former_note(&self, dir: &Path) -> Result<(), EngineError> {
        let path = dir.join(FORMER_NOTE);
        let lost = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failure::io("read", &path, error)),
        };
        self.react(dir, &[lost])?;
        let deleted = fs::remove_file(&path).and_then(|()| directory::sync(dir));
        deleted.map_err(|error| failure::io("delete", &path, error))
    }
}
