//! A copy of a file that grows in any order: from its start, by a fetch; and piece by piece, by look-ups of a version that
//! is open [while it is fetched](crate::OnDemand).
//!
//! The file has its full length from the beginning, and the file system knows which parts were written: the others are
//! holes. So nothing else has to be remembered, and a process that is killed loses no more than a piece. Pieces that a
//! fetch or an earlier process wrote are *written*; only those whose records were verified may be read by look-ups. No other
//! bytes are ever written into a verified piece.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fondaco_format::{FileEntry, FormatError, PIECE_BYTES, PartialFile, missing_error};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use crate::error::FetchError;
use crate::file::remove;
use crate::pace::{Clock, SystemClock};
use crate::source::SourceError;
use crate::sources::{Choice, Sources};

/// How long a look-up waits for a piece that is not here: less than most clients wait.
const TIME_MAX: Duration = Duration::from_secs(3);

/// The longest block of a file system: what is written in a part of it counts as written.
const BLOCK_BYTES_MAX: u64 = 4096;

/// Counts of the reads of look-ups from sources, which could not wait for the fetch.
#[derive(Debug, Default)]
pub struct OnDemandCounts {
    /// How many reads succeeded.
    pub reads: AtomicU64,
    /// How many bytes they read.
    pub bytes: AtomicU64,
    /// How many failed.
    pub failures: AtomicU64,
}

/// Access to the sources of a file for look-ups.
pub(crate) struct Demand {
    pub(crate) sources: Arc<Sources>,
    pub(crate) counts: Arc<OnDemandCounts>,
}

/// A copy of a file.
pub(crate) struct PartialCopy {
    pub(crate) file: File,
    path: PathBuf,
    entry: FileEntry,
    written: Pieces,
    verified: Pieces,
    writing: Mutex<()>,
    demand: Option<Demand>,
    reads: Mutex<Reads>,
    read_ended: Condvar,
}

/// The reads of look-ups.
#[derive(Default)]
struct Reads {
    under_way: Vec<Range<u64>>,
    /// The last one that failed, and when and why.
    failed: Option<(Range<u64>, Instant, String)>,
}

impl PartialCopy {
    /// The copy at a path: that of an earlier attempt, or a new one.
    pub(crate) fn open(path: PathBuf, entry: &FileEntry, demand: Option<Demand>) -> Result<Self, FetchError> {
        let usable = match fs::symlink_metadata(&path) {
            Ok(found) => found.is_file() && found.nlink() == 1 && found.len() <= entry.bytes,
            Err(_) => false,
        };
        if !usable {
            remove(&path)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(FetchError::io("create", &path))?;
        let length = file.metadata().map_err(FetchError::io("look at", &path))?.len();
        if entry.bytes > 0 {
            // Reserved space that was not written counts as holes.
            match fallocate(file.as_fd(), FallocateFlags::KEEP_SIZE, 0, entry.bytes) {
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
                Err(e) => return Err(FetchError::io("reserve space for", &path)(e.into())),
            }
        }
        file.set_len(entry.bytes).map_err(FetchError::io("lengthen", &path))?;
        let written = Pieces::new(entry.bytes);
        let mut at = 0;
        // A file system that does not know its holes calls everything data.
        while length > 0
            && let Ok(start) = seek(&file, SeekFrom::Data(at))
        {
            at = seek(&file, SeekFrom::Hole(start)).map_or(entry.bytes, |end| end.max(start + 1));
            let whole = if at >= entry.bytes {
                at.div_ceil(PIECE_BYTES)
            } else {
                at / PIECE_BYTES
            };
            written.set(start.div_ceil(PIECE_BYTES)..whole);
        }
        Ok(Self {
            file,
            path,
            entry: entry.clone(),
            written,
            verified: Pieces::new(entry.bytes),
            writing: Mutex::new(()),
            demand,
            reads: Mutex::default(),
            read_ended: Condvar::new(),
        })
    }

    /// Whether the file at its path is this one: another may have replaced it.
    pub(crate) fn is_in_place(&self) -> bool {
        match (self.file.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(own), Ok(there)) => (own.dev(), own.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    /// The end of what was written from an offset on, without a hole.
    pub(crate) fn written_until(&self, offset: u64) -> u64 {
        let mut piece = offset / PIECE_BYTES;
        while piece * PIECE_BYTES < self.entry.bytes && self.written.has(piece..piece + 1) {
            piece += 1;
        }
        (piece * PIECE_BYTES).min(self.entry.bytes).max(offset)
    }

    /// Writes the next bytes of a fetch, all within a piece whose start it has written; not if look-ups have read the piece
    /// already. Returns whether it has written them.
    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let piece = offset / PIECE_BYTES;
        let _writing = self.writing.lock();
        if self.verified.has(piece..piece + 1) {
            return Ok(false);
        }
        self.file.write_all_at(bytes, offset)?;
        if offset + bytes.len() as u64 == self.entry.bytes.min((piece + 1) * PIECE_BYTES) {
            self.written.set(piece..piece + 1);
        }
        Ok(true)
    }

    pub(crate) fn read(&self, range: &Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.file.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes)
    }

    /// Reads the first byte from a source, to see whether one can be read.
    pub(crate) fn try_source(&self) -> Result<(), FormatError> {
        let Some(demand) = self.demand.as_ref().filter(|_| self.entry.bytes > 0) else {
            return Ok(());
        };
        let read = demand.read(&self.entry.name, &(0..1), &|_| true, Instant::now() + TIME_MAX);
        read.map(drop).map_err(|source| FormatError::Io {
            action: "read",
            path: self.path.clone(),
            source,
        })
    }

    fn bring_now(
        &self,
        pieces: &Range<u64>,
        around: Range<u64>,
        is_intact: &dyn Fn(&[u8]) -> bool,
        deadline: Instant,
    ) -> io::Result<()> {
        let numbers = numbers(pieces);
        let is_written = self.written.has(numbers.clone());
        if is_written && self.read(&around).is_ok_and(|bytes| is_intact(&bytes)) {
            self.verified.set(numbers);
            return Ok(());
        }
        let Some(demand) = &self.demand else {
            return Err(missing_error("it is only fetched as a whole".to_owned()));
        };
        let bytes = demand.read(&self.entry.name, &around, is_intact, deadline)?;
        if around.start > pieces.start || around.end < pieces.end {
            return Err(missing_error("the index leaves a part of it out".to_owned()));
        }
        // Another process can verify the pieces again if it finds whole records. A short piece at the end would seem written.
        let is_end_short = self.entry.bytes - pieces.end <= BLOCK_BYTES_MAX;
        let end = if is_end_short { pieces.end } else { around.end };
        let bytes = &bytes[..(end - around.start) as usize];
        let _writing = self.writing.lock();
        self.file.write_all_at(bytes, around.start)?;
        self.written.set(numbers.clone());
        self.verified.set(numbers);
        Ok(())
    }
}

impl PartialFile for PartialCopy {
    fn path(&self) -> &Path {
        &self.path
    }

    fn has(&self, range: &Range<u64>) -> bool {
        self.verified.has(numbers(range))
    }

    fn bring(&self, pieces: Range<u64>, around: Range<u64>, is_intact: &dyn Fn(&[u8]) -> bool) -> io::Result<()> {
        let began = Instant::now();
        let overlaps = |other: &Range<u64>| other.start < pieces.end && pieces.start < other.end;
        let mut reads = self.reads.lock();
        loop {
            if self.has(&pieces) {
                return Ok(());
            }
            // A read that many wait for fails for all of them.
            if let Some((_, _, reason)) = reads.failed.as_ref().filter(|(of, at, _)| *at >= began && overlaps(of)) {
                return Err(missing_error(reason.clone()));
            }
            if !reads.under_way.iter().any(overlaps) {
                break;
            }
            if self.read_ended.wait_until(&mut reads, began + TIME_MAX).timed_out() {
                return Err(missing_error(format!(
                    "another request has waited for it for {TIME_MAX:?}"
                )));
            }
        }
        reads.under_way.push(pieces.clone());
        drop(reads);
        let brought = self.bring_now(&pieces, around, is_intact, began + TIME_MAX);
        let mut reads = self.reads.lock();
        reads.under_way.retain(|other| *other != pieces);
        if let Err(error) = &brought {
            reads.failed = Some((pieces, Instant::now(), error.to_string()));
        }
        self.read_ended.notify_all();
        brought
    }
}

impl Demand {
    /// Reads a range from the first source that has intact bytes for it.
    fn read(
        &self,
        file: &str,
        range: &Range<u64>,
        is_intact: &dyn Fn(&[u8]) -> bool,
        deadline: Instant,
    ) -> io::Result<Vec<u8>> {
        let mut given_up = vec![false; self.sources.len()];
        let mut last_error = "no source has it".to_owned();
        loop {
            let now = SystemClock.now();
            let left = deadline.saturating_duration_since(Instant::now());
            let number = match self.sources.choose(&given_up, now) {
                _ if left.is_zero() => break,
                Choice::Nothing => break,
                Choice::Wait(until) => {
                    SystemClock.sleep(until.saturating_sub(now).min(left));
                    continue;
                }
                Choice::Ask(number) => number,
            };
            let source = self.sources.get(number);
            let error = match source.read_range(file, range.clone(), left) {
                Ok(bytes) if is_intact(&bytes) => {
                    self.sources.gave(number, bytes.len() as u64);
                    self.counts.reads.fetch_add(1, Ordering::Relaxed);
                    self.counts.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    return Ok(bytes);
                }
                Ok(_) => {
                    given_up[number] = true;
                    "its bytes are corrupt".to_owned()
                }
                Err(error) => {
                    match &error {
                        SourceError::Missing | SourceError::Unusable { .. } => given_up[number] = true,
                        SourceError::Busy { retry_after } => self.sources.busy(number, *retry_after, now),
                        SourceError::Failed(_) => self.sources.failed(number, now),
                    }
                    error.to_string()
                }
            };
            last_error = format!("{}: {error}", source.name());
        }
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        Err(missing_error(format!(
            "it is still being fetched, and these bytes cannot be read ahead of the rest: {last_error}"
        )))
    }
}

/// A set of pieces of a file.
struct Pieces(Box<[AtomicU64]>);

impl Pieces {
    fn new(file_bytes: u64) -> Self {
        let words = file_bytes.div_ceil(PIECE_BYTES).div_ceil(64);
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn has(&self, mut pieces: Range<u64>) -> bool {
        // A thread that sees a bit also sees the bytes that were written before it was set.
        pieces.all(|piece| self.0[(piece / 64) as usize].load(Ordering::Acquire) >> (piece % 64) & 1 != 0)
    }

    fn set(&self, pieces: Range<u64>) {
        for piece in pieces {
            self.0[(piece / 64) as usize].fetch_or(1 << (piece % 64), Ordering::Release);
        }
    }
}

/// The numbers of the pieces that a range lies in.
fn numbers(range: &Range<u64>) -> Range<u64> {
    match range.is_empty() {
        true => 0..0,
        false => range.start / PIECE_BYTES..range.end.div_ceil(PIECE_BYTES),
    }
}
