//! Free disk space for writes.
//!
//! Checked before groups of writes, at most every few milliseconds as long as there is enough: so writes are refused
//! while the disk is full, and resume when it is not. Reads and operations that free space are never refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::host::Host;

/// How long a positive check is valid. Writes within this time are small compared with any reserve.
const VALID_FOR: Duration = Duration::from_millis(5);

/// The disk that versioned stores are on.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    host: Arc<dyn Host>,
    /// How much of it must stay free, in bytes.
    reserve_bytes: u64,
    /// When the last check found enough space.
    had_enough: Mutex<Option<Instant>>,
}

impl DiskSpace {
    pub(crate) fn new(host: &Arc<dyn Host>, reserve_bytes: u64) -> Self {
        Self {
            host: Arc::clone(host),
            reserve_bytes,
            had_enough: Mutex::default(),
        }
    }

    /// Whether more may be written than is there now, given what [the engines may still write][pending].
    ///
    /// # Errors
    /// The error for the client that wants to write.
    ///
    /// [pending]: fondaco_engine::Engine::pending_disk_bytes
    pub(crate) fn check(&self, pending: impl FnOnce() -> u64) -> Result<(), String> {
        let mut had_enough = self.had_enough.lock();
        if had_enough.is_some_and(|when| self.host.now() - when < VALID_FOR) {
            return Ok(());
        }
        let checked = self.check_now(pending);
        *had_enough = checked.is_ok().then(|| self.host.now());
        checked
    }

    fn check_now(&self, pending: impl FnOnce() -> u64) -> Result<(), String> {
        let Some(left_bytes) = self.host.free_bytes() else {
            // The engine will report the error.
            return Ok(());
        };
        // Without a reserve the disk may be filled to its last byte.
        let pending_bytes = if self.reserve_bytes == 0 { 0 } else { pending() };
        if left_bytes >= self.reserve_bytes.saturating_add(pending_bytes) {
            return Ok(());
        }
        Err(format!(
            "{left_bytes} bytes are free on the disk of {:?}, {} must stay free, and {pending_bytes} more are reserved for \
             flushes and compaction: free some, or add nodes; reads go on, and writes resume when there is room",
            self.host.incarnation_path().parent(),
            self.reserve_bytes
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::LocalHost;

    #[test]
    fn a_write_into_the_reserve_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let host: Arc<dyn Host> = Arc::new(LocalHost::new(dir.path()));
        assert_eq!(DiskSpace::new(&host, 0).check(|| u64::MAX), Ok(()));
        let refused = DiskSpace::new(&host, u64::MAX).check(|| 0).unwrap_err();
        assert!(refused.contains("must stay free"), "{refused}");
        assert_eq!(DiskSpace::new(&host, 1).check(|| 0), Ok(()));
        assert!(DiskSpace::new(&host, 1).check(|| u64::MAX - 1).is_err());
    }
}
