//! A file being written, on any kind of storage.

use std::io::{self, Write};

use crate::error::StorageError;
use crate::local::LocalFile;
use crate::location::check_name;
use crate::upload::Upload;

/// A file being written, from start to end. Dropped without [`finish`](Self::finish), it is incomplete: a local file
/// stays behind, a remote one never comes into existence.
pub struct FileWriter(Writing);

enum Writing {
    Local(LocalFile),
    Remote(Upload),
}

impl FileWriter {
    /// How many bytes were written.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Writing::Local(file) => file.bytes(),
            Writing::Remote(upload) => upload.bytes(),
        }
    }

    /// Renames the file within its directory. No file may already have that name. On local disks the file has its new
    /// name at once, durably after [`finish`](Self::finish). In S3, a file of one part is stored only under its new
    /// name; a file of several parts is copied there by S3 when it is finished.
    ///
    /// # Errors
    /// [`StorageError::InvalidName`] unless `name` is a single path component, or another error of the storage.
    pub fn rename(&mut self, name: &str) -> Result<(), StorageError> {
        check_name(name)?;
        match &mut self.0 {
            Writing::Local(file) => file.rename(name),
            Writing::Remote(upload) => upload.rename(name),
        }
    }

    /// Waits until the storage has the whole file, durably, and closes it.
    ///
    /// # Errors
    /// An error of the storage; the content may then be lost.
    pub fn finish(self) -> Result<(), StorageError> {
        match self.0 {
            Writing::Local(file) => file.finish(),
            Writing::Remote(upload) => upload.finish(),
        }
    }

    /// Closes the file; the caller makes it durable with [`Location::sync_all`](crate::Location::sync_all). For a
    /// remote file this is the same as [`finish`](Self::finish).
    ///
    /// # Errors
    /// Like [`finish`](Self::finish).
    pub fn finish_later(self) -> Result<(), StorageError> {
        match self.0 {
            Writing::Local(_) => Ok(()),
            Writing::Remote(upload) => upload.finish(),
        }
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Writing::Local(file) => file.write(bytes),
            Writing::Remote(upload) => upload.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<LocalFile> for FileWriter {
    fn from(file: LocalFile) -> Self {
        Self(Writing::Local(file))
    }
}

impl From<Upload> for FileWriter {
    fn from(upload: Upload) -> Self {
        Self(Writing::Remote(upload))
    }
}
