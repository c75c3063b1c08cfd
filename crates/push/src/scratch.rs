//! A temporary directory for the build of a push. It is deleted afterwards, even after a kill.
//!
//! Each directory has a file that its process locks. The next process that makes a directory beside it deletes the
//! directories whose lock is free: their process was killed and could not delete them.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::PushError;

const PREFIX: &str = "fondaco-push-";
const LOCK_FILE: &str = "lock";

/// A temporary directory, deleted on drop.
pub(crate) struct Scratch {
    directory: TempDir,
    /// Locked for the lifetime of this value.
    _lock: File,
}

impl Scratch {
    /// Makes a directory in `parent`, and deletes those that killed pushes left there.
    pub(crate) fn make(parent: &Path) -> Result<Self, PushError> {
        delete_abandoned(parent);
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .map_err(PushError::file_with(
                "make a directory in",
                parent,
                ": choose another with --work",
            ))?;
        // Lock it before it gets its name, so that no process finds it unlocked.
        let path = directory.path().join("lock.new");
        let lock = File::create(&path).map_err(PushError::file("create", &path))?;
        lock.try_lock()
            .map_err(|error| PushError::file("lock", &path)(error.into()))?;
        fs::rename(&path, directory.path().join(LOCK_FILE)).map_err(PushError::file("rename", &path))?;
        Ok(Self { directory, _lock: lock })
    }

    /// Keeps the contents after a kill: from now on no other process takes the directory for abandoned. It is still
    /// deleted on drop.
    pub(crate) fn outlive_kill(&self) -> Result<(), PushError> {
        let lock = self.path()?.join(LOCK_FILE);
        fs::remove_file(&lock).map_err(PushError::file("delete", &lock))
    }

    /// Keeps the directory for good, and returns its path: from now on the user has to delete it.
    pub(crate) fn keep(self) -> Result<PathBuf, PushError> {
        let path = self.path()?;
        // Without its lock file, the next push would take it for abandoned.
        if path.join(LOCK_FILE).exists() {
            self.outlive_kill()?;
        }
        let _ = self.directory.keep();
        Ok(path)
    }

    /// The absolute path.
    pub(crate) fn path(&self) -> Result<PathBuf, PushError> {
        let path = self.directory.path();
        fs::canonicalize(path).map_err(PushError::file("resolve", path))
    }
}

/// Deletes the directories of processes that are gone. One that cannot be deleted belongs to another user, and stays.
fn delete_abandoned(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let Ok(lock) = File::open(entry.path().join(LOCK_FILE)) else {
            // It was made a moment ago and is not locked yet, or it is not a directory of a push.
            continue;
        };
        match lock.try_lock() {
            Ok(()) => drop(fs::remove_dir_all(entry.path())),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_deletes_directories_of_killed_pushes_only() {
        let parent = tempfile::tempdir().unwrap();
        let abandoned = parent.path().join("fondaco-push-gone");
        fs::create_dir_all(&abandoned).unwrap();
        fs::write(abandoned.join(LOCK_FILE), "").unwrap();
        let other = parent.path().join("precious");
        fs::create_dir(&other).unwrap();

        let first = Scratch::make(parent.path()).unwrap();
        let second = Scratch::make(parent.path()).unwrap();
        assert!(!abandoned.exists());
        assert!(other.exists() && first.path().unwrap().exists() && second.path().unwrap().exists());

        let path = first.path().unwrap();
        drop(first);
        assert!(!path.exists());

        second.outlive_kill().unwrap();
        drop(Scratch::make(parent.path()).unwrap());
        assert!(second.path().unwrap().exists());
        let kept = second.keep().unwrap();
        let third = Scratch::make(parent.path()).unwrap();
        assert!(kept.exists() && third.path().unwrap().exists());
    }
}
