//! A file of a version, opened once more for reads past the page cache (`O_DIRECT`).
//!
//! Position, length and memory of such reads must be aligned. Only files whose file system tells how are read so: of
//! ext4, XFS and others since Linux 6.1, and not of memory file systems. All others are read through the page cache.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, open, statx};

/// How many files are opened once more, at most: descriptors are needed for other things, too.
const FILES_MAX: usize = 1024;
/// Of file systems with a coarser alignment, direct reads would read too much.
const ALIGNMENT_MAX: u32 = 4096;

static FILES: AtomicUsize = AtomicUsize::new(0);
static READS: AtomicU64 = AtomicU64::new(0);

/// The number of reads of files of versions past the page cache, since the process started.
pub fn direct_reads() -> u64 {
    READS.load(Relaxed)
}

pub(crate) fn count_read() {
    READS.fetch_add(1, Relaxed);
}

/// How to read the bytes of a [`ColdRead`](crate::ColdRead) past the page cache.
#[derive(Debug)]
pub struct DirectRead<'v> {
    /// The file to read from.
    pub file: &'v File,
    /// The aligned range around the bytes. It may extend past the end of the file.
    pub range: Range<u64>,
    /// The memory that is read into must begin at a multiple of this many bytes, a power of two.
    pub alignment: usize,
}

/// A file that is open for reads past the page cache.
pub(crate) struct DirectFile {
    file: File,
    alignment: u32,
    has_failed: AtomicBool,
    _place: Place,
}

impl DirectFile {
    /// Opens a file once more; `None` if that is not possible.
    pub(crate) fn open(file: &File) -> Option<Self> {
        let place = Place::take()?;
        // Not by its name, which another file may have by now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = File::from(open(path, flags, Mode::empty()).ok()?);
        let alignment = alignment(&statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?)?;
        Some(Self {
            file,
            alignment,
            has_failed: AtomicBool::new(false),
            _place: place,
        })
    }

    /// The alignment of reads; `None` once one has failed.
    pub(crate) fn alignment(&self) -> Option<u32> {
        (!self.has_failed.load(Relaxed)).then_some(self.alignment)
    }

    /// Ends reads of the file past the page cache: one has failed. A read through it says why, or succeeds.
    pub(crate) fn give_up(&self) {
        self.has_failed.store(true, Relaxed);
    }

    /// How to read these bytes.
    pub(crate) fn read(&self, bytes: &Range<u64>) -> DirectRead<'_> {
        let alignment = u64::from(self.alignment);
        DirectRead {
            file: &self.file,
            range: bytes.start / alignment * alignment..bytes.end.next_multiple_of(alignment),
            alignment: self.alignment as usize,
        }
    }
}

fn alignment(status: &Statx) -> Option<u32> {
    let is_told = status.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let (of_memory, of_offset) = (status.stx_dio_mem_align, status.stx_dio_offset_align);
    let alignment = of_memory.max(of_offset);
    // Zeros say that the file has no such reads.
    let is_usable = of_memory.is_power_of_two() && of_offset.is_power_of_two() && alignment <= ALIGNMENT_MAX;
    (is_told && is_usable).then_some(alignment)
}

/// The place of one of [`FILES_MAX`] files, until it is dropped.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let before = FILES.fetch_add(1, Relaxed);
        let place = Self;
        (before < FILES_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn an_aligned_read_has_the_bytes_wherever_they_are() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..50_001u32).map(|at| (at % 251) as u8).collect();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        let Some(direct) = DirectFile::open(&file) else {
            return println!("this file system does not tell the alignment of direct reads: nothing is tested");
        };
        for wanted in [0..1, 511..513, 4096..8192, 8191..20_000, 49_999..50_001] {
            let read = direct.read(&wanted);
            assert!(read.range.start <= wanted.start && wanted.end <= read.range.end);
            assert!(read.range.start.is_multiple_of(read.alignment as u64));
            let length = (read.range.end - read.range.start) as usize;
            assert!(length.is_multiple_of(read.alignment));
            let mut buffer = vec![0u8; length + read.alignment - 1];
            let address = buffer.as_ptr().addr();
            let at = address.next_multiple_of(read.alignment) - address;
            let count = read
                .file
                .read_at(&mut buffer[at..][..length], read.range.start)
                .unwrap();
            let skipped = (wanted.start - read.range.start) as usize;
            let expected = &content[wanted.start as usize..wanted.end as usize];
            assert!(count >= skipped + expected.len(), "{count} bytes of {wanted:?}");
            assert_eq!(&buffer[at + skipped..][..expected.len()], expected);
        }
        assert!(direct.alignment().is_some());
        direct.give_up();
        assert_eq!(direct.alignment(), None);
    }

    #[test]
    fn files_that_cannot_be_read_directly_are_none() {
        let file = File::open("/proc/self/status").unwrap();
        assert!(DirectFile::open(&file).is_none());
    }
}
