//! How much room the disk has. Writes stop before it is full: a tree that cannot write out what it has in memory
//! would have to stop altogether, and could not even make room by merging.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::EngineError;

/// Others use the disk too: looked at again after this time,
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// or when so much was written since.
const LOOK_AGAIN_BYTES: u64 = 4 << 20;

pub(crate) struct Space {
    dir: PathBuf,
    reserve_bytes: u64,
    looked: Option<Look>,
}

struct Look {
    at: Instant,
    written_bytes: u64,
}

impl Space {
    pub(crate) fn new(dir: &Path, reserve_bytes: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            reserve_bytes,
            looked: None,
        }
    }

    /// Lets a write of so many bytes pass, unless the disk would be too full after it.
    pub(crate) fn claim(&mut self, bytes: usize) -> Result<(), EngineError> {
        let bytes = bytes as u64;
        if let Some(look) = &mut self.looked
            && look.at.elapsed() < LOOK_AGAIN
            && look.written_bytes + bytes < LOOK_AGAIN_BYTES
        {
            look.written_bytes += bytes;
            return Ok(());
        }
        self.looked = None;
        // Where it cannot be asked, the writes themselves will tell.
        if let Ok(disk) = rustix::fs::statvfs(&self.dir) {
            let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
            if free_bytes < self.reserve_bytes.saturating_add(bytes) {
                return Err(EngineError::DiskFull { dir: self.dir.clone() });
            }
        }
        self.looked = Some(Look {
            at: Instant::now(),
            written_bytes: bytes,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_larger_than_the_disk_lets_nothing_pass() {
        let dir = tempfile::tempdir().unwrap();
        let full = Space::new(dir.path(), u64::MAX).claim(1);
        assert!(matches!(full, Err(EngineError::DiskFull { .. })), "{full:?}");
        assert!(Space::new(dir.path(), 0).claim(1).is_ok());
    }
}
