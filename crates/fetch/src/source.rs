//! The sources that a fetch reads from: a thin interface over storage and peers, which tests can replace.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fondaco_storage::Location;
use rustix::fs::{Advice, OFlags, fadvise};

/// How many bytes are read before their pages are given back.
const DROP_BEHIND_BYTES: u64 = 8 << 20;

/// How many bytes of pages are given back by one system call, which many kernels do not interrupt.
const DROP_STEP_BYTES: u64 = 1 << 20;

/// How a fetch uses the page cache for data files.
///
/// Measured under a memory limit of 600 MiB, with 200 MiB of hot pages, fetching 1.5 GB. A fetch that keeps its pages
/// evicts all hot pages. One that drops them behind it evicts none, and takes equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCache {
    /// Pages stay: the new version fits into memory besides the served ones, and will be hot at once.
    Keep,
    /// Pages are given back at once: they would evict pages that live traffic uses.
    DropBehind,
}

/// A place with the files of one version.
pub trait FetchSource: Send + Sync {
    /// Its name in messages.
    fn name(&self) -> String;

    /// Its directory, if it is on this machine.
    fn local_dir(&self) -> Option<&Path>;

    /// Reads a small file as a whole.
    ///
    /// # Errors
    /// Why the file cannot be read.
    fn read_whole(&self, file: &str, bytes_max: u64) -> Result<Vec<u8>, SourceError>;

    /// Opens a file from some offset to its end. Reads block; their errors may contain a [`SourceError`].
    ///
    /// # Errors
    /// Why the file cannot be read.
    fn open(&self, file: &str, offset: u64, cache: PageCache) -> Result<Box<dyn Read + Send>, SourceError>;

    /// Reads a range of a file, by one request where that is possible, which may take this long.
    ///
    /// # Errors
    /// Why the range cannot be read.
    fn read_range(&self, file: &str, range: Range<u64>, time_max: Duration) -> Result<Vec<u8>, SourceError> {
        let _ = time_max;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.open(file, range.start, PageCache::Keep)?.read_exact(&mut bytes)?;
        Ok(bytes)
    }
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

    fn read_range(&self, file: &str, range: Range<u64>, time_max: Duration) -> Result<Vec<u8>, SourceError> {
        (**self).read_range(file, range, time_max)
    }
}

/// Why a source does not give a file.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It does not have the file: another source may.
    #[error("it is not there")]
    Missing,
    /// It is busy.
    #[error("it is busy, and asks to be left alone for {retry_after:?}")]
    Busy {
        /// How long to wait before asking again.
        retry_after: Duration,
    },
    /// It failed, or cannot be reached; it may be back soon.
    #[error(transparent)]
    Failed(io::Error),
    /// It does not have the file as it should be, and never will: another source may.
    #[error("{reason}")]
    Unusable {
        /// Why.
        reason: String,
    },
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
            SourceError::Unusable { .. } => Self::new(io::ErrorKind::InvalidData, error),
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

    fn read_range(&self, file: &str, range: Range<u64>, time_max: Duration) -> Result<Vec<u8>, SourceError> {
        let read = self.0.read_range(file, range, time_max);
        read.map_err(|error| io::Error::from(error).into())
    }
}

/// Reads a local file from start to end, without filling the page cache if so configured.
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
        // Advice is a hint: if it is ignored, reading is still correct.
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

/// Opens a file for reading, through symbolic links. Anything but a file is refused: a pipe would wait for a writer for
/// ever.
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
        // Advice is a hint: if it is ignored, the pages are dropped later.
        let _ = fadvise(file.as_fd(), from, Some(step), Advice::DontNeed);
        from += step.get();
    }
}

/// Tells the disk to write a range of a file, without waiting for it.
pub(crate) fn begin_write_back(file: &File, offset: u64, bytes: u64) {
    // SAFETY: it takes numbers and an open file, and touches no memory of this program. It is a hint: the rest is
    // written when the file is synced.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            offset as libc::off64_t,
            bytes as libc::off64_t,
            libc::SYNC_FILE_RANGE_WRITE,
        );
    }
}
