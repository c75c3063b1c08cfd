//! Where a fetch reads from: a thin seam over storage and peers, so that a test can put something else in
//! its place.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fondaco_storage::Location;
use rustix::fs::{Advice, OFlags, fadvise};

/// How much is read before its pages are given back.
const DROP_BEHIND_BYTES: u64 = 8 << 20;

/// How many pages' bytes are given back by one system call, which nothing interrupts on many kernels.
const DROP_STEP_BYTES: u64 = 1 << 20;

/// What becomes of the page cache as a fetch goes through data files.
///
/// Measured under a memory limit of 600 MiB, with 200 MiB of hot pages, fetching 1.5 GB: copied with
/// its pages kept, a fetch pushes out all of the hot pages; dropping behind, none, and takes as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCache {
    /// Pages stay: the new version fits into memory besides what is served, and will be hot at once.
    Keep,
    /// Pages are given back at once: they would push out those that live traffic uses.
    DropBehind,
}

/// A place with the files of one version.
pub trait FetchSource: Send + Sync {
    /// What to call it in messages.
    fn name(&self) -> String;

    /// Its directory, if it is one of this machine.
    fn local_dir(&self) -> Option<&Path>;

    /// A small file, whole.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn read_whole(&self, file: &str, bytes_max: u64) -> Result<Vec<u8>, SourceError>;

    /// A file from some offset to its end. Reads wait; their errors may be [`SourceError`]s in disguise.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn open(&self, file: &str, offset: u64, cache: PageCache) -> Result<Box<dyn Read + Send>, SourceError>;
}

impl<S: FetchSource + ?Sized> FetchSource for std::sync::Arc<S> {
    fn name(&self) -> String {
        (**self).name()
    }

    fn local_dir(&self) -> Option<&Path> {
        (**self).local_dir()
    }

    fn read_whole(&self, file: &str, bytes_max: u64) -> Result<Vec<u8>, SourceError> {
        (**self).read_whole(file, bytes_max)
    }

    fn open(&self, file: &str, offset: u64, cache: PageCache) -> Result<Box<dyn Read + Send>, SourceError> {
        (**self).open(file, offset, cache)
    }
}

/// Why a source does not give a file.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It does not have the file: another source may.
    #[error("it is not there")]
    Missing,
    /// It has no time.
    #[error("it is busy, and asks to be left alone for {retry_after:?}")]
    Busy {
        /// When to ask again.
        retry_after: Duration,
    },
    /// It failed, or cannot be reached; it may be there again soon.
    #[error(transparent)]
    Failed(io::Error),
}

impl From<io::Error> for SourceError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => error,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            Err(error) => Self::Failed(error),
        }
    }
}

impl From<SourceError> for io::Error {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Failed(error) => error,
            SourceError::Missing => Self::new(io::ErrorKind::NotFound, error),
            SourceError::Busy { .. } => Self::new(io::ErrorKind::ResourceBusy, error),
        }
    }
}

/// The files of a [`Location`].
pub struct LocationSource(Location);

impl LocationSource {
    /// The files of this location.
    pub fn new(location: Location) -> Self {
        Self(location)
    }

    fn path_of(&self, file: &str) -> Option<PathBuf> {
        self.0.local_path().map(|dir| dir.join(file))
    }
}

impl FetchSource for LocationSource {
    fn name(&self) -> String {
        self.0.to_string()
    }

    fn local_dir(&self) -> Option<&Path> {
        self.0.local_path()
    }

    fn read_whole(&self, file: &str, bytes_max: u64) -> Result<Vec<u8>, SourceError> {
        let read = self.0.read_whole(file, bytes_max);
        read.map_err(|error| io::Error::from(error).into())
    }

    fn open(&self, file: &str, offset: u64, cache: PageCache) -> Result<Box<dyn Read + Send>, SourceError> {
        Ok(match self.path_of(file) {
            Some(path) => Box::new(LocalReader::open(&path, offset, cache)?),
            None => Box::new(self.0.open(file, offset).map_err(io::Error::from)?),
        })
    }
}

/// A local file, read from start to end, without filling the page cache if so told.
pub(crate) struct LocalReader {
    file: File,
    offset: u64,
    dropped: u64,
    cache: PageCache,
}

impl LocalReader {
    pub(crate) fn open(path: &Path, offset: u64, cache: PageCache) -> io::Result<Self> {
        use std::io::Seek;
        let mut file = open_file(path)?;
        file.seek(io::SeekFrom::Start(offset))?;
        // Advice is a hint: where it is not taken, reading is right all the same.
        let _ = fadvise(file.as_fd(), 0, None, Advice::Sequential);
        Ok(Self {
            file,
            offset,
            dropped: offset,
            cache,
        })
    }
}

impl Read for LocalReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.offset += count as u64;
        let behind = self.offset - self.dropped;
        if self.cache == PageCache::DropBehind && (behind >= DROP_BEHIND_BYTES || count == 0) {
            drop_pages(&self.file, self.dropped, behind);
            self.dropped = self.offset;
        }
        Ok(count)
    }
}

/// Opens a file for reading, through symbolic links. What is no file is refused: a pipe would wait for a
/// writer for ever.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let no_wait = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(no_wait).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")),
    }
}

/// Gives back the clean pages of a range of a file, step by step: see `DROP_STEP_BYTES`.
pub(crate) fn drop_pages(file: &File, offset: u64, bytes: u64) {
    let end = offset + bytes;
    let mut from = offset;
    while let Some(step) = NonZeroU64::new((end - from).min(DROP_STEP_BYTES)) {
        // Advice is a hint: the pages go later where it is not taken.
        let _ = fadvise(file.as_fd(), from, Some(step), Advice::DontNeed);
        from += step.get();
    }
}

/// Tells the disk to write a range of a file, and does not wait for it.
pub(crate) fn begin_write_back(file: &File, offset: u64, bytes: u64) {
    // SAFETY: it takes numbers and an open file, and touches no memory of ours. It is a hint: what it
    // does not write is written when the file is synced.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            offset as libc::off64_t,
            bytes as libc::off64_t,
            libc::SYNC_FILE_RANGE_WRITE,
        );
    }
}
