//! A directory for what a push builds, deleted afterwards, even after a kill.
//!
//! Each holds a file that its process has locked. The process that makes the next one beside it deletes those
//! whose lock is free: their process is gone and could not do it.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::TempDir;

const PREFIX: &str = "fondaco-push-";
const LOCK_FILE: &str = "lock";

/// A directory that is deleted when this is dropped.
pub struct Scratch {
    directory: TempDir,
    /// Locked for as long as this lives.
    _lock: File,
}

impl Scratch {
    /// Makes one in `parent`, and deletes what killed pushes left there.
    pub fn make(parent: &Path) -> anyhow::Result<Self> {
        delete_abandoned(parent);
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .with_context(|| format!("cannot make a directory in {parent:?}: choose another with --work"))?;
        // Locked before it has its name, so that no process finds it free.
        let path = directory.path().join("lock.new");
        let lock = File::create(&path).with_context(|| format!("cannot create {path:?}"))?;
        lock.try_lock().with_context(|| format!("cannot lock {path:?}"))?;
        fs::rename(&path, directory.path().join(LOCK_FILE)).with_context(|| format!("cannot rename {path:?}"))?;
        Ok(Self { directory, _lock: lock })
    }

    /// Has what is in it stay after a kill: from now on no other process takes it for abandoned. It is still deleted when
    /// this is dropped.
    pub fn outlive_kill(&self) -> anyhow::Result<()> {
        let lock = self.path()?.join(LOCK_FILE);
        fs::remove_file(&lock).with_context(|| format!("cannot delete {lock:?}"))
    }

    /// Keeps it, and says where: from now on it is for people to delete.
    pub fn keep(self) -> anyhow::Result<PathBuf> {
        let path = self.path()?;
        // Without its lock the next push would take it for abandoned.
        if path.join(LOCK_FILE).exists() {
            self.outlive_kill()?;
        }
        let _ = self.directory.keep();
        Ok(path)
    }

    /// Where it is, absolute.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        let path = self.directory.path();
        fs::canonicalize(path).with_context(|| format!("cannot resolve {path:?}"))
    }
}

/// Deletes those of gone processes. One that cannot be deleted belongs to another user: let it be.
fn delete_abandoned(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let Ok(lock) = File::open(entry.path().join(LOCK_FILE)) else {
            // Made a moment ago, and not locked yet; or none of ours.
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
    fn what_a_killed_push_left_is_deleted_by_the_next_and_what_a_living_one_uses_is_not() {
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
