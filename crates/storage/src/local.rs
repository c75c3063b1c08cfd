//! A directory of this machine, and durable writes of files there.
//!
//! A file is written once, from start to end. Writeback to the disk starts while the file grows, so that the final sync
//! is short. Nothing here buffers: writers pass large pieces.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::error::StorageError;
use crate::location::FileInfo;

/// The number of bytes written before the kernel is asked to start writeback: large enough for long sequential
/// requests, small enough that the last one takes a fraction of a second.
const WRITE_BACK_BYTES: u64 = 512 << 10;

/// A file being written. Dropped without [`finish`](Self::finish), it stays behind incomplete.
pub(crate) struct LocalFile {
    file: File,
    path: PathBuf,
    bytes: u64,
    bytes_sent_to_disk: u64,
}

impl LocalFile {
    pub(crate) fn create(path: PathBuf) -> Result<Self, StorageError> {
        let file = File::create_new(&path).map_err(|e| StorageError::io("create", &path, e))?;
        Ok(Self {
            file,
            path,
            bytes: 0,
            bytes_sent_to_disk: 0,
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Renames the file within its directory.
    pub(crate) fn rename(&mut self, name: &str) -> Result<(), StorageError> {
        let path = self.path.with_file_name(name);
        fs::rename(&self.path, &path).map_err(|e| StorageError::io("rename", &self.path, e))?;
        self.path = path;
        Ok(())
    }

    /// Waits until everything is on the disk, and closes the file.
    pub(crate) fn finish(self) -> Result<(), StorageError> {
        let written = self
            .file
            .sync_all()
            .and_then(|()| fondaco_durable::sync_parent(&self.path));
        written.map_err(|e| StorageError::io("write to the disk", self.path, e))
    }

    fn begin_write_back(&mut self) {
        let length = self.bytes - self.bytes_sent_to_disk;
        // SAFETY: the descriptor is open for as long as `file` lives, and the call touches no memory. Its result can be
        // ignored: the call is advice, and `finish` reports write errors.
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

impl Write for LocalFile {
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

/// Creates a directory and its parents, durably; it may exist already.
pub(crate) fn create_directory(path: &Path) -> Result<(), StorageError> {
    fondaco_durable::create_directory(path).map_err(|e| StorageError::io("create the directory", path, e))
}

/// Whether the directory does not exist or is empty.
pub(crate) fn is_vacant(path: &Path) -> Result<bool, StorageError> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(StorageError::io("list", path, e)),
    }
}

/// The files of a directory, unsorted.
pub(crate) fn list(path: &Path) -> Result<Vec<FileInfo>, StorageError> {
    let failed = |e| StorageError::io("list", path, e);
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let metadata = match fs::metadata(entry.path()) {
            Ok(metadata) => metadata,
            // The file was deleted in the meantime, or it is a dangling link.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(failed(e)),
        };
        if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
            let bytes = metadata.len();
            files.push(FileInfo { name, bytes });
        }
    }
    Ok(files)
}

/// Deletes a file, if it exists.
pub(crate) fn delete_file(path: &Path) -> Result<(), StorageError> {
    let removed = fondaco_durable::remove_file(path);
    removed.map(drop).map_err(|e| StorageError::io("delete", path, e))
}

/// Deletes a directory with its content, if it exists.
pub(crate) fn delete_tree(path: &Path) -> Result<(), StorageError> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StorageError::io("delete the directory", path, e)),
        _ => Ok(()),
    }
}

/// The free space of the disk of a path, in bytes. The path need not exist yet.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, StorageError> {
    let existing = path
        .ancestors()
        .map(|directory| match directory.as_os_str().is_empty() {
            true => Path::new("."),
            false => directory,
        })
        .find(|directory| directory.exists())
        .unwrap_or(Path::new("."));
    let stat =
        rustix::fs::statvfs(existing).map_err(|e| StorageError::io("find the free space of", existing, e.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Makes all writes to the file system of a directory durable.
pub(crate) fn sync_all(path: &Path) -> Result<(), StorageError> {
    let directory = File::open(path).map_err(|e| StorageError::io("open", path, e))?;
    rustix::fs::syncfs(&directory).map_err(|e| StorageError::io("write back the file system of", path, e.into()))
}

/// Writes `path` atomically, through the file `temporary` in the same directory.
pub(crate) fn write_atomically(path: &Path, temporary: &Path, content: &[u8]) -> Result<(), StorageError> {
    let written = fondaco_durable::replace_file(path, temporary, content);
    written.map_err(|e| StorageError::io("write", path, e))
}
