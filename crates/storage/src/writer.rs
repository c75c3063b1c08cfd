//! Writing local files durably.
//!
//! A file is written once, from start to end. Its pages are sent to the disk while it grows, so
//! that the sync at the end has little left to wait for. Nothing here buffers: writers hand over
//! large pieces.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::error::StorageError;

/// How much is written before the kernel is asked to begin writing it back, in bytes: large enough
/// for long sequential requests, small enough that the last one is a fraction of a second.
const WRITE_BACK_BYTES: u64 = 8 << 20;

/// A file being written. Dropped without [`finish`](Self::finish), it stays behind incomplete.
#[derive(Debug)]
pub struct FileWriter {
    file: File,
    path: PathBuf,
    bytes: u64,
    bytes_sent_to_disk: u64,
}

impl FileWriter {
    pub(crate) fn create(path: PathBuf) -> Result<Self, StorageError> {
        let file = File::create_new(&path).map_err(|e| StorageError::io("create", &path, e))?;
        Ok(Self {
            file,
            path,
            bytes: 0,
            bytes_sent_to_disk: 0,
        })
    }

    /// How many bytes were written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until all is on the disk, and closes the file.
    ///
    /// # Errors
    /// What the operating system says; the content may then be lost.
    pub fn finish(self) -> Result<(), StorageError> {
        self.file
            .sync_all()
            .map_err(|e| StorageError::io("write to the disk", self.path, e))
    }

    /// Closes the file without waiting: the caller makes it durable with
    /// [`Location::sync_all`](crate::Location::sync_all).
    pub fn finish_later(self) {}

    fn begin_write_back(&mut self) {
        let length = self.bytes - self.bytes_sent_to_disk;
        // SAFETY: the descriptor is open for as long as `file` lives, and the call touches no
        // memory. Its result is of no matter: it is advice, and `finish` reports write errors.
        unsafe {
            libc::sync_file_range(
                self.file.as_raw_fd(),
                self.bytes_sent_to_disk.cast_signed(),
                length.cast_signed(),
                libc::SYNC_FILE_RANGE_WRITE,
            );
        }
        self.bytes_sent_to_disk = self.bytes;
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        if self.bytes - self.bytes_sent_to_disk >= WRITE_BACK_BYTES {
            self.begin_write_back();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes `path` by way of `temporary`, in the same directory.
pub(crate) fn write_atomically(path: &Path, temporary: &Path, content: &[u8]) -> Result<(), StorageError> {
    let written = File::create(temporary).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(temporary, path));
    if let Err(e) = renamed {
        // It is in nobody's way, and the first error says more than a second one would.
        let _ = fs::remove_file(temporary);
        return Err(StorageError::io("write", path, e));
    }
    sync_directory(parent(path))
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), StorageError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|e| StorageError::io("write the directory", path, e))
}

/// The directory that a path lies in.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
