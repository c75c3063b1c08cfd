//! A read-only mapped file that tracks which parts of it are resident.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use fondaco_model::PartitionId;
use memmap2::{Advice, Mmap, UncheckedAdvice};

use crate::admission;
use crate::chunk::reader::CACHE_LINE_BYTES;
use crate::direct::{self, DirectFile};
use crate::error::{FileDefect, FormatError};
use crate::fault::Guard;
use crate::partial::{FilePlace, PartialFile};
use crate::residency::{self, UNIT_BYTES};
use crate::room::Taken;
use crate::version::prefetch;

/// From this length on, the C library allocates memory with a mapping of its own.
const OWN_MAPPING_BYTES: usize = 128 << 10;

/// How much one system call unmaps.
const UNMAP_STEP_BYTES: usize = 4 << 20;

/// A mapped file of a chunk.
///
/// The files of a version are never written, but for the [missing pieces](crate::partial) of one that is not here as a whole:
/// these are not touched before they are complete. If a file is truncated all the same, or the disk cannot read
/// a page, the page is replaced with zeros, and the mapping is not trusted any more: see [`crate::fault`].
pub(crate) struct Mapping {
    /// The first field, so that it is dropped before the mapping that it guards.
    guard: Guard,
    path: PathBuf,
    file: File,
    map: Mmap,
    stamps: Box<[AtomicU16]>,
    /// The file for reads past the page cache, once one was needed; `None` if it cannot be read so.
    direct: OnceLock<Option<DirectFile>>,
    /// `mincore` is reliable only for files that the process owns or may write.
    mincore_is_truthful: bool,
    /// Set while the file is not here as a whole.
    partial: Option<Arc<dyn PartialFile>>,
    _room: Taken,
}

impl Mapping {
    /// Maps a file of a partition, which must have exactly `bytes` bytes.
    pub(crate) fn open(place: FilePlace, bytes: u64, partition: PartitionId) -> Result<Self, FormatError> {
        let (path, partial) = match place {
            FilePlace::Whole(path) => (path, None),
            FilePlace::Partial(partial) => (partial.path().to_owned(), Some(partial)),
        };
        residency::start_clock();
        let missing = |path, defect| FormatError::MissingFile {
            partition,
            path,
            defect,
        };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(missing(path, FileDefect::Absent)),
            Err(e) if e.raw_os_error() == Some(libc::EMFILE) => return Err(FormatError::TooManyOpenFiles { path }),
            Err(e) => return Err(FormatError::io("open", path)(e)),
        };
        let metadata = file.metadata().map_err(FormatError::io("inspect", &path))?;
        if metadata.len() != bytes {
            let defect = FileDefect::Length {
                found_bytes: metadata.len(),
                expected_bytes: bytes,
            };
            return Err(missing(path, defect));
        }
        let units = (bytes as usize).div_ceil(UNIT_BYTES);
        let mappings = 1 + u64::from(units * size_of::<AtomicU16>() >= OWN_MAPPING_BYTES);
        let room = match Taken::new(mappings) {
            Ok(room) => room,
            Err((mappings, mappings_max)) => {
                return Err(FormatError::TooManyMappings {
                    path,
                    mappings,
                    mappings_max,
                });
            }
        };
        // Each look-up reads exactly the bytes that it needs: readahead would fill memory with others.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        // SAFETY: what is touched of the files of a version is never written any more, as the documentation of the type
        // says; a checksum would detect a changed byte.
        let map = unsafe { Mmap::map(&file) }.map_err(FormatError::io("map", &path))?;
        let _ = map.advise(Advice::Random);
        let mincore_is_truthful = rustix::process::geteuid().is_root()
            || metadata.uid() == rustix::process::geteuid().as_raw()
            || rustix::fs::access(&path, rustix::fs::Access::WRITE_OK).is_ok();
        let stamps = unseen(units);
        let start = map.as_ptr() as usize;
        Ok(Self {
            guard: Guard::new(start..start + map.len(), &stamps),
            path,
            file,
            map,
            stamps,
            direct: OnceLock::new(),
            mincore_is_truthful,
            partial,
            _room: room,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The file, while it is not here as a whole.
    pub(crate) fn partial(&self) -> Option<&dyn PartialFile> {
        self.partial.as_deref()
    }

    /// Whether a range is here: always, once the file is.
    pub(crate) fn is_here(&self, range: &Range<u64>) -> bool {
        self.partial.as_ref().is_none_or(|partial| partial.has(range))
    }

    fn has(&self, range: &Range<usize>) -> bool {
        self.is_here(&(range.start as u64..range.end.min(self.map.len()) as u64))
    }

    /// Whether it had an unreadable page.
    pub(crate) fn is_damaged(&self) -> bool {
        self.guard.is_damaged()
    }

    /// The mapped bytes. Touching bytes that are not resident blocks the thread on the disk. Bytes read are valid only
    /// if a [`Watch`](crate::fault::Watch) taken before is clean afterwards.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Loads cache lines from an offset on into the processor's cache, and the stamp of the first.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize, lines: usize) {
        prefetch(self.stamps.as_ptr().wrapping_add(at / UNIT_BYTES));
        for line in 0..lines {
            prefetch(self.map.as_ptr().wrapping_add(at + line * CACHE_LINE_BYTES));
        }
    }

    /// Whether this range, which must be within the file, can be touched without waiting for the disk.
    #[inline]
    pub(crate) fn is_resident(&self, range: Range<usize>) -> bool {
        units(&range).all(|unit| residency::is_fresh(self.stamps[unit].load(Relaxed))) || self.ask_kernel(range)
    }

    /// Whether the stamp of a unit was ever set.
    #[inline]
    pub(crate) fn was_seen(&self, unit: usize) -> bool {
        self.stamps[unit].load(Relaxed) != 0
    }

    /// The ages of the stamps of units that were ever seen and are not gone, in ticks.
    pub(crate) fn ages(&self) -> impl Iterator<Item = u16> {
        self.stamps
            .iter()
            .filter_map(|stamp| residency::age(stamp.load(Relaxed)))
    }

    /// The ranges of units that were last seen resident less than this many ticks ago and are not gone, in order.
    pub(crate) fn seen_within(&self, ticks: u16) -> impl Iterator<Item = Range<usize>> {
        let mut units = self.stamps.iter().enumerate().peekable();
        let is_seen = move |stamp: &AtomicU16| residency::age(stamp.load(Relaxed)).is_some_and(|age| age < ticks);
        std::iter::from_fn(move || {
            let (first, _) = units.by_ref().find(|(_, stamp)| is_seen(stamp))?;
            let mut end = first + 1;
            while units.next_if(|(_, stamp)| is_seen(stamp)).is_some() {
                end += 1;
            }
            Some(first * UNIT_BYTES..(end * UNIT_BYTES).min(self.map.len()))
        })
    }

    /// Whether a range is in memory, as far as the kernel tells, also if another process read it. The range is at most 256 KiB long.
    pub(crate) fn is_in_memory(&self, range: &Range<usize>) -> bool {
        self.mincore_is_truthful && self.has(range) && self.mincore(range)
    }

    /// Records that a range has just been read, and so is in memory.
    pub(crate) fn note_resident(&self, range: Range<usize>) {
        if self.is_damaged() {
            // The bytes read may differ from the mapped ones.
            return;
        }
        let now = residency::stamp_now();
        units(&range).for_each(|unit| self.stamps[unit].store(now, Relaxed));
    }

    /// Records that a range has just been read past the page cache.
    pub(crate) fn note_direct(&self, range: Range<usize>) {
        direct::count_read();
        let now = residency::gone(residency::stamp_now());
        for stamp in &self.stamps[units(&range)] {
            // A unit at its edge may be in memory, for the records of another bucket.
            if !residency::is_of_resident(stamp.load(Relaxed)) {
                stamp.store(now, Relaxed);
            }
        }
    }

    /// The file for reads past the page cache, and how they are aligned, if it can be read so.
    pub(crate) fn direct(&self) -> Option<&DirectFile> {
        let direct = self.direct.get_or_init(|| DirectFile::open(&self.file));
        direct.as_ref().filter(|direct| direct.alignment().is_some())
    }

    /// Whether a range that is not resident is to be read through the page cache.
    pub(crate) fn admits(&self, range: &Range<usize>) -> bool {
        let stamps = self.stamps[units(range)].iter().map(|stamp| stamp.load(Relaxed));
        let mut missing = stamps.filter(|&stamp| !residency::is_of_resident(stamp));
        let oldest = missing.try_fold(0, |oldest, stamp| {
            let ticks = residency::ticks_since_read(stamp)?;
            Some(ticks.max(oldest))
        });
        self.partial.is_some() || self.is_damaged() || admission::admits(oldest)
    }

    #[cold]
    #[inline(never)]
    fn ask_kernel(&self, range: Range<usize>) -> bool {
        let stamps = || self.stamps[units(&range)].iter().map(|stamp| stamp.load(Relaxed));
        let known = stamps().any(|stamp| stamp != 0);
        // Nothing has brought it back, unless another program has: this is noticed once it is admitted.
        let is_gone = admission::is_selective() && stamps().all(residency::is_gone);
        let resident =
            !is_gone && self.mincore_is_truthful && !self.is_damaged() && self.has(&range) && self.mincore(&range);
        if known {
            residency::observe_stale(resident);
        }
        if resident {
            self.note_resident(range);
        }
        resident
    }

    /// Asks the kernel whether a range is resident, and marks units that are gone.
    fn mincore(&self, range: &Range<usize>) -> bool {
        const PAGES_MAX: usize = 64;
        let page_bytes = page_bytes();
        let start = range.start / page_bytes * page_bytes;
        let mut resident = [0u8; PAGES_MAX];
        let pages = (range.end - start).div_ceil(page_bytes);
        if pages > PAGES_MAX || range.end > self.map.len() {
            return false;
        }
        // SAFETY: the range is within the mapping and page-aligned; `resident` has a byte for each of its pages.
        let answered = unsafe {
            libc::mincore(
                self.map.as_ptr().add(start).cast_mut().cast(),
                range.end - start,
                resident.as_mut_ptr(),
            )
        };
        if answered != 0 {
            return false;
        }
        let is_resident = |page: usize| resident[page] & 1 != 0;
        let are_all = (0..pages).all(is_resident);
        for unit in units(range).filter(|_| !are_all) {
            let stamp = self.stamps[unit].load(Relaxed);
            if stamp != 0 && !is_resident((unit * UNIT_BYTES - start) / page_bytes) {
                self.stamps[unit].store(residency::gone(stamp), Relaxed);
            }
        }
        are_all
    }

    /// Reads a range that is here by a system call, which waits for the disk if necessary and reports a failed read as an
    /// error, unlike a mapping.
    pub(crate) fn read(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.file.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes)
    }

    /// Drops the file from the page cache.
    pub(crate) fn forget(&self) {
        let _ = rustix::fs::fadvise(self.file.as_fd(), 0, None, rustix::fs::Advice::DontNeed);
        self.stamps.iter().for_each(|stamp| stamp.store(0, Relaxed));
    }

    /// Asks the kernel to read a range ahead; it may extend past the end of the file.
    pub(crate) fn read_ahead(&self, range: Range<usize>) {
        let bytes = NonZeroU64::new(range.end.min(self.map.len()).saturating_sub(range.start) as u64);
        if bytes.is_some() && self.has(&range) {
            let _ = rustix::fs::fadvise(
                self.file.as_fd(),
                range.start as u64,
                bytes,
                rustix::fs::Advice::WillNeed,
            );
        }
    }
}

/// Stamps of units that were never seen. The kernel zeroes their memory, which is used only where a stamp is set:
/// opening a terabyte touches none of its half gigabyte of stamps.
fn unseen(units: usize) -> Box<[AtomicU16]> {
    let stamps = Box::<[AtomicU16]>::new_zeroed_slice(units);
    // SAFETY: an atomic integer has the representation of the integer, for which zero is valid.
    unsafe { stamps.assume_init() }
}

impl Drop for Mapping {
    /// Unmaps the pages in steps: unmapping gigabytes at once is one long system call, and many kernels let no other
    /// thread run on that CPU until it ends.
    fn drop(&mut self) {
        for start in (0..self.map.len()).step_by(UNMAP_STEP_BYTES) {
            let bytes = UNMAP_STEP_BYTES.min(self.map.len() - start);
            // SAFETY: nothing borrows the mapping any more, and a page that is touched again would be read from the
            // file again: the mapping is private and never written.
            let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, bytes) };
        }
    }
}

#[inline]
fn units(range: &Range<usize>) -> Range<usize> {
    range.start / UNIT_BYTES..range.end.div_ceil(UNIT_BYTES)
}

fn page_bytes() -> usize {
    static PAGE_BYTES: OnceLock<usize> = OnceLock::new();
    *PAGE_BYTES.get_or_init(rustix::param::page_size)
}
