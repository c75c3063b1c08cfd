//! How much of the disk is left for writes.
//!
//! Looked at before each group of writes, for it costs a microsecond: so writes are refused while the disk is
//! full, and go on by themselves when it is not. Reads and what frees space are never refused.

use std::path::{Path, PathBuf};

/// The disk that versioned stores are on.
#[derive(Debug)]
pub(crate) struct Space {
    dir: PathBuf,
    /// How much of it must stay free, in bytes.
    reserve_bytes: u64,
}

impl Space {
    pub(crate) fn new(dir: &Path, reserve_bytes: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            reserve_bytes,
        }
    }

    /// Whether more may be written than stands there.
    ///
    /// # Errors
    /// What to tell who wants to write.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Ok(found) = rustix::fs::statvfs(&self.dir) else {
            // The engine will say what is wrong.
            return Ok(());
        };
        let left_bytes = found.f_bavail.saturating_mul(found.f_frsize);
        if left_bytes >= self.reserve_bytes {
            return Ok(());
        }
        Err(format!(
            "{left_bytes} bytes are left on the disk of {:?}, and {} must stay free: free some, or add nodes; \
             reads go on, and writes do when there is room",
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
        assert_eq!(Space::new(dir.path(), 0).check(), Ok(()));
        let refused = Space::new(dir.path(), u64::MAX).check().unwrap_err();
        assert!(refused.contains("must stay free"), "{refused}");
    }
}
