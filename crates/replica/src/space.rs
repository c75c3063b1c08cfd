//! How much of the disk is left for writes.
//!
//! Looked at before groups of writes, not more often than every few milliseconds as long as there is enough: so writes
//! are refused while the disk is full, and go on by themselves when it is not. Reads and what frees space are never
//! refused.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long there is enough where there was. What can be written meanwhile is little beside any reserve.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The disk that versioned stores are on.
#[derive(Debug)]
pub(crate) struct Space {
    dir: PathBuf,
    /// How much of it must stay free, in bytes.
    reserve_bytes: u64,
    /// When there was enough.
    had_enough: Mutex<Option<Instant>>,
}

impl Space {
    pub(crate) fn new(dir: &Path, reserve_bytes: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            reserve_bytes,
            had_enough: Mutex::default(),
        }
    }

    /// Whether more may be written than stands there, given what [the engines may take][pending] besides.
    ///
    /// # Errors
    /// What to tell the client that wants to write.
    ///
    /// [pending]: fondaco_engine::Engine::pending_disk_bytes
    pub(crate) fn check(&self, pending: impl FnOnce() -> u64) -> Result<(), String> {
        let mut had_enough = self.had_enough.lock().unwrap_or_else(PoisonError::into_inner);
        if had_enough.is_some_and(|when| when.elapsed() < LOOK_AGAIN) {
            return Ok(());
        }
        let looked = self.look(pending);
        *had_enough = looked.is_ok().then(Instant::now);
        looked
    }

    fn look(&self, pending: impl FnOnce() -> u64) -> Result<(), String> {
        let Ok(found) = rustix::fs::statvfs(&self.dir) else {
            // The engine will say what is wrong.
            return Ok(());
        };
        let left_bytes = found.f_bavail.saturating_mul(found.f_frsize);
        // Without a reserve the disk may be filled to its last byte.
        let pending_bytes = if self.reserve_bytes == 0 { 0 } else { pending() };
        if left_bytes >= self.reserve_bytes.saturating_add(pending_bytes) {
            return Ok(());
        }
        Err(format!(
            "{left_bytes} bytes are left on the disk of {:?}, {} must stay free, and {pending_bytes} more are kept for writing \
             out and merging: free some, or add nodes; reads go on, and writes do when there is room",
            self.dir, self.reserve_bytes
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_would_touch_the_reserve_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Space::new(dir.path(), 0).check(|| u64::MAX), Ok(()));
        let refused = Space::new(dir.path(), u64::MAX).check(|| 0).unwrap_err();
        assert!(refused.contains("must stay free"), "{refused}");
        assert_eq!(Space::new(dir.path(), 1).check(|| 0), Ok(()));
        assert!(Space::new(dir.path(), 1).check(|| u64::MAX - 1).is_err());
    }
}
