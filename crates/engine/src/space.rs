//! The free space of the disk. Writes stop before the disk is full: a tree that cannot flush its memory would have to
//! stop completely, and could not even free space by merging. So writes stop while the free space is below the reserve
//! plus the space that flushes and compaction may need for a while.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::batch::WriteBatch;
use crate::error::EngineError;

/// Other programs use the disk too, so the free space is measured again after this time,
const MEASURE_AGAIN: Duration = Duration::from_millis(100);
/// or after this number of written bytes.
const MEASURE_AGAIN_BYTES: u64 = 4 << 20;
/// The part of the reserve that deletions may not use either: one sixteenth.
const DELETIONS_SHARE: u64 = 16;
/// With less free space than this, or than twice the reserve, flushes and compaction may find the disk full.
const PLENTY_BYTES: u64 = 256 << 20;

pub(crate) struct Space {
    dir: PathBuf,
    reserve_bytes: u64,
    measured: Option<Measurement>,
    /// Whether the free space was scarce at any time since the last successful batch.
    was_scarce: bool,
}

struct Measurement {
    at: Instant,
    free_bytes: u64,
    /// The part that flushes and compaction may need.
    pending_bytes: u64,
    written_bytes: u64,
}

impl Space {
    pub(crate) fn new(dir: &Path, reserve_bytes: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            reserve_bytes,
            measured: None,
            was_scarce: false,
        }
    }

    /// Fails if the disk would be too full after this batch, given the [space that the engine may need][pending]
    /// besides. A batch that only deletes may use most of the reserve: deletions make room.
    ///
    /// [pending]: crate::engine::Engine::pending_disk_bytes
    pub(crate) fn claim(&mut self, batch: &WriteBatch, pending: impl FnOnce() -> u64) -> Result<(), EngineError> {
        let only_deletes = batch.only_deletes();
        let needed_bytes = |reserve_bytes: u64, pending_bytes: u64| match only_deletes {
            true => reserve_bytes / DELETIONS_SHARE,
            // Without a reserve the disk may be filled to the last byte.
            false if reserve_bytes == 0 => 0,
            false => reserve_bytes.saturating_add(pending_bytes),
        };
        let bytes = batch.bytes() as u64;
        if let Some(measured) = &mut self.measured
            && measured.at.elapsed() < MEASURE_AGAIN
            && measured.written_bytes + bytes < MEASURE_AGAIN_BYTES
            && measured.free_bytes.saturating_sub(measured.written_bytes + bytes)
                >= needed_bytes(self.reserve_bytes, measured.pending_bytes)
        {
            measured.written_bytes += bytes;
            return Ok(());
        }
        self.measured = None;
        let (free_bytes, pending_bytes) = (self.measure(), pending());
        if free_bytes < needed_bytes(self.reserve_bytes, pending_bytes).saturating_add(bytes) {
            return Err(EngineError::DiskFull { dir: self.dir.clone() });
        }
        self.measured = Some(Measurement {
            at: Instant::now(),
            free_bytes,
            pending_bytes,
            written_bytes: bytes,
        });
        Ok(())
    }

    /// Records that a batch succeeded, so nothing has failed until now.
    pub(crate) fn made(&mut self) {
        let scarce = self
            .measured
            .as_ref()
            .map(|measured| self.is_scarce(measured.free_bytes));
        self.was_scarce = scarce.unwrap_or(self.was_scarce);
    }

    /// Records that a batch failed: the disk was full, or a quota was reached.
    pub(crate) fn was_full(&mut self) {
        self.was_scarce = true;
    }

    /// Whether a failure since the last successful batch may be due to a full disk.
    pub(crate) fn may_have_been_full(&mut self) -> bool {
        self.measure();
        self.was_scarce
    }

    /// Measures the free space. If the file system cannot report it, the writes themselves will fail.
    fn measure(&mut self) -> u64 {
        let left = |disk: rustix::fs::StatVfs| disk.f_bavail.saturating_mul(disk.f_frsize);
        let free_bytes = rustix::fs::statvfs(&self.dir).map_or(u64::MAX, left);
        self.was_scarce |= self.is_scarce(free_bytes);
        free_bytes
    }

    fn is_scarce(&self, free_bytes: u64) -> bool {
        free_bytes < self.reserve_bytes.saturating_mul(2).max(PLENTY_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::memory::MemoryEngine;

    fn batch(puts: &[&'static str], deletes: &[&'static str]) -> WriteBatch {
        let table = MemoryEngine::new().open_table("t").unwrap();
        let mut batch = WriteBatch::new();
        puts.iter().for_each(|key| batch.put(&*table, (*key).into(), "".into()));
        deletes.iter().for_each(|key| batch.delete(&*table, (*key).into()));
        batch
    }

    #[test]
    fn a_reserve_larger_than_the_disk_lets_nothing_pass() {
        let dir = tempfile::tempdir().unwrap();
        for batch in [batch(&["a"], &[]), batch(&[], &["a"])] {
            let full = Space::new(dir.path(), u64::MAX).claim(&batch, || 0);
            assert!(matches!(full, Err(EngineError::DiskFull { .. })), "{full:?}");
            assert!(Space::new(dir.path(), 0).claim(&batch, || u64::MAX).is_ok());
        }
    }

    #[test]
    fn writes_but_not_deletions_leave_space_for_flushes_and_compaction() {
        let dir = tempfile::tempdir().unwrap();
        let mut space = Space::new(dir.path(), 1 << 20);
        let free_bytes = space.measure();
        assert!(space.claim(&batch(&["a"], &[]), || free_bytes / 2).is_ok());
        space.measured = None;
        assert!(space.claim(&batch(&["a"], &[]), || free_bytes).is_err());
        assert!(space.claim(&batch(&[], &["a"]), || free_bytes).is_ok());
        // A deletion that passed must not let other batches pass.
        assert!(space.claim(&batch(&["a"], &[]), || free_bytes).is_err());
    }

    #[test]
    fn deletions_may_use_the_reserve_and_admit_no_other_batch() {
        let dir = tempfile::tempdir().unwrap();
        let mut space = Space::new(dir.path(), 0);
        space.reserve_bytes = space.measure() * 4;
        for _ in 0..2 {
            assert!(space.claim(&batch(&[], &["a", "b"]), || 0).is_ok());
            assert!(space.claim(&batch(&["a"], &["b"]), || 0).is_err());
        }
    }

    #[test]
    fn a_full_disk_is_remembered_until_a_batch_finds_space() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Space::new(dir.path(), u64::MAX / 2).may_have_been_full());
        let mut space = Space::new(dir.path(), 0);
        space.was_full();
        assert!(space.may_have_been_full());
        let plenty = Measurement {
            at: Instant::now(),
            free_bytes: PLENTY_BYTES,
            pending_bytes: 0,
            written_bytes: 0,
        };
        space.measured = Some(Measurement {
            free_bytes: PLENTY_BYTES - 1,
            ..plenty
        });
        space.made();
        assert!(space.was_scarce);
        space.measured = Some(plenty);
        space.made();
        assert!(!space.was_scarce);
    }
}
