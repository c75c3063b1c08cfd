//! The note of acknowledged writes that an engine has lost. It is written to the directory before anything else in it
//! is changed, and kept until the writes are restored from elsewhere or an operator gives them up.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::directory;
use crate::error::EngineError;
use crate::failure;

const FILE: &str = "lost";
/// The maximum length of the note: the first losses are the most useful ones.
const NOTE_BYTES_MAX: usize = 4096;

/// The note of an engine.
#[derive(Debug)]
pub(crate) struct LossNote {
    dir: PathBuf,
    text: Mutex<Option<String>>,
}

impl LossNote {
    /// Reads the note of a directory.
    pub(crate) fn open(dir: &Path) -> Result<Self, EngineError> {
        let path = dir.join(FILE);
        let text = match fs::read(&path) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failure::io("read", &path, error)),
        };
        Ok(Self {
            dir: dir.to_owned(),
            text: Mutex::new(text),
        })
    }

    /// The text of the note.
    pub(crate) fn text(&self) -> Option<String> {
        self.text.lock().clone()
    }

    /// Adds a loss to the note, durably.
    pub(crate) fn add(&self, lost: &str) -> Result<(), EngineError> {
        let mut text = self.text.lock();
        let new = match &*text {
            Some(before) if before.contains(lost) || before.len() > NOTE_BYTES_MAX => return Ok(()),
            Some(before) => format!("{before}; {lost}"),
            None => lost.to_owned(),
        };
        let (begun, complete) = (self.dir.join("lost-begun"), self.dir.join(FILE));
        let write = || {
            let mut file = File::create(&begun)?;
            file.write_all(new.as_bytes())?;
            file.sync_all()?;
            fs::rename(&begun, &complete)?;
            directory::sync(&self.dir)
        };
        write().map_err(|error| failure::io("write", &complete, error))?;
        *text = Some(new);
        Ok(())
    }

    /// Deletes the note: the lost writes were restored, or given up.
    pub(crate) fn forget(&self) -> Result<(), EngineError> {
        let mut text = self.text.lock();
        let path = self.dir.join(FILE);
        let removed = match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| directory::sync(&self.dir)),
        };
        removed.map_err(|error| failure::io("delete", &path, error))?;
        *text = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_noted_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let note = LossNote::open(dir.path()).unwrap();
        assert_eq!(note.text(), None);
        for lost in ["this", "that", "this"] {
            note.add(lost).unwrap();
        }
        assert_eq!(note.text().as_deref(), Some("this; that"));
        let again = LossNote::open(dir.path()).unwrap();
        assert_eq!(again.text(), note.text());
        again.forget().unwrap();
        again.forget().unwrap();
        assert_eq!((again.text(), LossNote::open(dir.path()).unwrap().text()), (None, None));
    }
}
