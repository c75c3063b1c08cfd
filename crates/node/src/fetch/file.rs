//! One file of a version: linked or copied into place, verified as it streams, resumed where an
//! earlier try stopped.
//!
//! A copy grows under the name `NAME.part`, and gets its own name once its length and checksum are
//! those of the manifest. A link gets its own name at once and is read back. Invariant: nothing is
//! ever written through a name that may be a link, since that would change the source.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fondaco_format::{Checksum, Checksummer, FileEntry};
use rustix::fs::{FallocateFlags, fallocate};

use super::error::FetchError;
use super::pace::FetchControl;
use super::source::{FetchSource, LocalReader, PageCache, begin_write_back, drop_pages};

/// How much is read, checked and written at a time. Many kernels do not interrupt a system call for
/// an event loop that wakes up, and one over a megabyte can take milliseconds.
const PIECE_BYTES: usize = 16 << 10;

/// How much is written before the disk begins to write it, so that there is never much to begin with.
const BEGIN_WRITE_BACK_BYTES: u64 = 512 << 10;

/// How much is written before it is made durable, so that the end does not wait for gigabytes.
const WRITE_BACK_BYTES: u64 = 32 << 20;

/// How often a read that failed is tried again.
const RETRIES_MAX: u32 = 5;

/// The wait before the first retry; each further one doubles it.
const RETRY_WAIT: Duration = Duration::from_millis(100);

/// The suffix of a copy that is not complete.
const PARTIAL_SUFFIX: &str = ".part";

/// A file to be fetched.
pub(super) struct FileFetch<'a> {
    pub(super) source: &'a dyn FetchSource,
    pub(super) entry: &'a FileEntry,
    pub(super) dir: &'a Path,
    pub(super) control: &'a FetchControl,
    pub(super) cache: PageCache,
}

/// What was read.
struct Seen {
    bytes: u64,
    checksum: Checksum,
}

impl FileFetch<'_> {
    /// Links the file into place and verifies it. `false` if it cannot be linked.
    pub(super) fn link(&self) -> Result<bool, FetchError> {
        if self.keep_complete()? {
            return Ok(true);
        }
        let Some(source_dir) = self.source.local_dir() else {
            return Ok(false);
        };
        let path = self.path();
        if fs::hard_link(source_dir.join(&self.entry.name), &path).is_err() {
            // Another file system, too many links, a protected file: a copy says what is wrong.
            return Ok(false);
        }
        for last_try in [false, true] {
            let seen = self.read_back(&path)?;
            if self.matches(&seen) {
                self.sync(&path)?;
                self.control.file_done();
                return Ok(true);
            }
            self.control.forget(seen.bytes);
            if last_try {
                self.remove(&path)?;
                return Err(self.mismatch(seen));
            }
        }
        Ok(true)
    }

    /// Copies the file into place, verifying it as it streams.
    pub(super) fn copy(&self) -> Result<(), FetchError> {
        if self.keep_complete()? {
            return Ok(());
        }
        let part = self.part();
        for last_try in [false, true] {
            let seen = self.copy_once(&part)?;
            if self.matches(&seen) {
                let path = self.path();
                fs::rename(&part, &path).map_err(FetchError::io("rename", &part))?;
                self.control.file_done();
                return Ok(());
            }
            self.control.forget(seen.bytes);
            self.remove(&part)?;
            if last_try {
                return Err(self.mismatch(seen));
            }
            tracing::warn!(file = %self.entry.name, "checksum mismatch, reading the file once more");
        }
        Ok(())
    }

    /// Whether the file is already there, complete: from an earlier try.
    fn keep_complete(&self) -> Result<bool, FetchError> {
        let path = self.path();
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() && found.len() == self.entry.bytes => {
                let seen = self.read_back(&path)?;
                if self.matches(&seen) {
                    self.sync(&path)?;
                    self.control.file_done();
                    return Ok(true);
                }
                self.control.forget(seen.bytes);
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(FetchError::io("look at", path)(e)),
        }
        self.remove(&path)?;
        Ok(false)
    }

    /// Brings the partial copy to its full length, whatever it takes in retries.
    fn copy_once(&self, part: &Path) -> Result<Seen, FetchError> {
        let mut copy = self.open_part(part)?;
        let mut retries = 0;
        loop {
            let before = copy.written;
            match self.stream(&mut copy, part) {
                Ok(()) => break,
                Err(StreamError::Fetch(error)) => return Err(error),
                Err(StreamError::Read(error)) => {
                    // What made progress may fail again as often as at first.
                    retries = if copy.written > before { 1 } else { retries + 1 };
                    if retries > RETRIES_MAX || error.kind() == io::ErrorKind::NotFound {
                        return Err(self.source_error(error));
                    }
                    tracing::warn!(file = %self.entry.name, offset = copy.written, %error, retries, "reading failed, trying again");
                    self.control.back_off(RETRY_WAIT * 2u32.pow(retries - 1))?;
                }
            }
        }
        copy.file.sync_all().map_err(FetchError::io("write back", part))?;
        self.drop_written(&copy);
        Ok(Seen {
            bytes: copy.written,
            checksum: copy.checksum.finish(),
        })
    }

    /// Opens the partial copy and hashes what is in it.
    fn open_part(&self, part: &Path) -> Result<PartialCopy, FetchError> {
        let usable = match fs::symlink_metadata(part) {
            Ok(found) => found.is_file() && found.nlink() == 1 && found.len() <= self.entry.bytes,
            Err(_) => false,
        };
        if !usable {
            self.remove(part)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let file = options.open(part).map_err(FetchError::io("create", part))?;
        if self.entry.bytes > 0 {
            // Keeps the length as it is: it says how far the copy is.
            match fallocate(file.as_fd(), FallocateFlags::KEEP_SIZE, 0, self.entry.bytes) {
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
                Err(e) => return Err(FetchError::io("reserve space for", part)(e.into())),
            }
        }
        let mut copy = PartialCopy {
            file,
            written: 0,
            begun: 0,
            synced: 0,
            checksum: Checksummer::new(),
        };
        let mut reader = LocalReader::open(part, 0, PageCache::Keep).map_err(FetchError::io("open", part))?;
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let count = reader.read(&mut buffer).map_err(FetchError::io("read", part))?;
            if count == 0 {
                return Ok(copy);
            }
            copy.checksum.update(&buffer[..count]);
            copy.written += count as u64;
            self.control.passed(count as u64)?;
        }
    }

    /// Streams from where the copy stands to the end of the source, or one byte beyond what is
    /// expected: that is enough to know a mismatch.
    fn stream(&self, copy: &mut PartialCopy, part: &Path) -> Result<(), StreamError> {
        let name = &self.entry.name;
        let mut reader = self
            .source
            .open(name, copy.written, self.cache)
            .map_err(StreamError::Read)?;
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(StreamError::Read(e)),
            };
            if copy.written + count as u64 > self.entry.bytes {
                copy.written += count as u64;
                copy.checksum.update(&buffer[..count]);
                self.control.passed(count as u64)?;
                return Ok(());
            }
            copy.file
                .write_all(&buffer[..count])
                .map_err(FetchError::io("write", part))?;
            copy.checksum.update(&buffer[..count]);
            copy.written += count as u64;
            if copy.written - copy.begun >= BEGIN_WRITE_BACK_BYTES {
                begin_write_back(&copy.file, copy.begun, copy.written - copy.begun);
                copy.begun = copy.written;
            }
            if copy.written - copy.synced >= WRITE_BACK_BYTES {
                copy.file.sync_data().map_err(FetchError::io("write back", part))?;
                self.drop_written(copy);
                copy.synced = copy.written;
            }
            self.control.passed(count as u64)?;
        }
    }

    fn drop_written(&self, copy: &PartialCopy) {
        if self.cache == PageCache::DropBehind {
            drop_pages(&copy.file, copy.synced, copy.written - copy.synced);
        }
    }

    fn read_back(&self, path: &Path) -> Result<Seen, FetchError> {
        let mut reader = LocalReader::open(path, 0, self.cache).map_err(FetchError::io("open", path))?;
        let mut checksum = Checksummer::new();
        let mut bytes = 0;
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let count = reader.read(&mut buffer).map_err(FetchError::io("read", path))?;
            if count == 0 {
                let checksum = checksum.finish();
                return Ok(Seen { bytes, checksum });
            }
            checksum.update(&buffer[..count]);
            bytes += count as u64;
            self.control.passed(count as u64)?;
        }
    }

    fn sync(&self, path: &Path) -> Result<(), FetchError> {
        let file = File::open(path).map_err(FetchError::io("open", path))?;
        file.sync_all().map_err(FetchError::io("write back", path))
    }

    fn remove(&self, path: &Path) -> Result<(), FetchError> {
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FetchError::io("delete", path)(e)),
            _ => Ok(()),
        }
    }

    fn matches(&self, seen: &Seen) -> bool {
        seen.bytes == self.entry.bytes && seen.checksum == self.entry.checksum
    }

    fn mismatch(&self, seen: Seen) -> FetchError {
        FetchError::Mismatch {
            file: self.entry.name.clone(),
            location: self.source.name(),
            expected_bytes: self.entry.bytes,
            expected: self.entry.checksum,
            found_bytes: seen.bytes,
            found: seen.checksum,
        }
    }

    fn source_error(&self, source: io::Error) -> FetchError {
        FetchError::Source {
            file: self.entry.name.clone(),
            location: self.source.name(),
            source,
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.join(&self.entry.name)
    }

    fn part(&self) -> PathBuf {
        self.dir.join(format!("{}{PARTIAL_SUFFIX}", self.entry.name))
    }
}

/// A copy under way.
struct PartialCopy {
    file: File,
    written: u64,
    /// How much of it the disk was told to write.
    begun: u64,
    synced: u64,
    checksum: Checksummer,
}

/// What can be tried again, and what cannot.
enum StreamError {
    Read(io::Error),
    Fetch(FetchError),
}

impl From<FetchError> for StreamError {
    fn from(error: FetchError) -> Self {
        Self::Fetch(error)
    }
}
