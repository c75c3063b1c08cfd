//! A location: one directory, named by a URL or a path.
//!
//! Parsing it is the border at which kinds of storage that this build lacks are refused. File names
//! below it are single path components, so that nothing it is told can lead out of the directory.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use url::Url;

use crate::error::StorageError;
use crate::writer::{self, FileWriter};

/// A directory of files, on some kind of storage. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// Absolute, or relative to the working directory, as it was given.
    path: Arc<Path>,
}

/// A file in a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Location {
    /// The location of a local directory, which need not exist yet.
    pub fn local(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into().into(),
        }
    }

    /// The directory, if it is on a file system of this machine: then its files can be mapped and
    /// hard-linked.
    pub fn local_path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    /// The location of a directory in this one.
    ///
    /// # Errors
    /// [`StorageError::InvalidName`] unless `name` is a single path component.
    pub fn join(&self, name: &str) -> Result<Self, StorageError> {
        Ok(Self::local(self.file_path(name)?))
    }

    /// Makes the directory and those above it, durably; it may exist already.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn create_directory(&self) -> Result<(), StorageError> {
        let missing: Vec<&Path> = self
            .path
            .ancestors()
            .take_while(|directory| !directory.as_os_str().is_empty() && !directory.exists())
            .collect();
        fs::create_dir_all(&self.path).map_err(|e| StorageError::io("create the directory", &*self.path, e))?;
        for directory in missing {
            writer::sync_directory(writer::parent(directory))?;
        }
        Ok(())
    }

    /// Creates a file to be written from start to end.
    ///
    /// # Errors
    /// [`StorageError::Io`] if it exists, or what else the operating system says.
    pub fn create_file(&self, name: &str) -> Result<FileWriter, StorageError> {
        FileWriter::create(self.file_path(name)?)
    }

    /// Writes a small file so that it is durably there whole, with all files of this location that
    /// were finished before it, or not at all. Replaces a file of the same name.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write_atomically(&self, name: &str, content: &[u8]) -> Result<(), StorageError> {
        let path = self.file_path(name)?;
        let temporary = self.path.join(format!(".{name}.partial"));
        writer::write_atomically(&path, &temporary, content)
    }

    /// Whether there is nothing here: no directory, or an empty one.
    ///
    /// # Errors
    /// What the operating system says, for instance that it is not a directory.
    pub fn is_vacant(&self) -> Result<bool, StorageError> {
        match fs::read_dir(&self.path) {
            Ok(mut entries) => Ok(entries.next().is_none()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(e) => Err(StorageError::io("list", &*self.path, e)),
        }
    }

    /// Deletes a file; there need be none.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn delete_file(&self, name: &str) -> Result<(), StorageError> {
        let path = self.file_path(name)?;
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StorageError::io("delete", path, e)),
            _ => Ok(()),
        }
    }

    /// Deletes the directory and all that is in it; there need be none.
    ///
    /// # Errors
    /// What the operating system says; part may then be deleted.
    pub fn delete_tree(&self) -> Result<(), StorageError> {
        match fs::remove_dir_all(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(StorageError::io("delete the directory", &*self.path, e))
            }
            _ => Ok(()),
        }
    }

    /// How many bytes can still be written here; `None` if the storage does not know. The
    /// directory need not exist yet.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn free_bytes(&self) -> Result<Option<u64>, StorageError> {
        let existing = self
            .path
            .ancestors()
            .map(|directory| {
                if directory.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    directory
                }
            })
            .find(|directory| directory.exists())
            .unwrap_or(Path::new("."));
        let stat = rustix::fs::statvfs(existing)
            .map_err(|e| StorageError::io("find the free space of", existing, e.into()))?;
        Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize)))
    }

    /// Makes all that was written here durable at once. For thousands of small files this is much
    /// cheaper than finishing each: close those with [`FileWriter::finish_later`].
    ///
    /// # Errors
    /// What the operating system says; then nothing written here may be relied upon.
    pub fn sync_all(&self) -> Result<(), StorageError> {
        let directory = fs::File::open(&self.path).map_err(|e| StorageError::io("open", &*self.path, e))?;
        rustix::fs::syncfs(&directory)
            .map_err(|e| StorageError::io("write back the file system of", &*self.path, e.into()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file here.
    pub(crate) fn file_path(&self, name: &str) -> Result<PathBuf, StorageError> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(StorageError::InvalidName {
                name: name.chars().take(200).collect(),
            });
        }
        Ok(self.path.join(name))
    }
}

impl FromStr for Location {
    type Err = StorageError;

    /// Takes `/a/b`, `a/b` and `file:///a/b`.
    fn from_str(text: &str) -> Result<Self, StorageError> {
        let invalid = |reason| StorageError::InvalidLocation {
            url: text.to_owned(),
            reason,
        };
        if text.is_empty() {
            return Err(invalid("it is empty"));
        }
        if !text.contains("://") {
            return Ok(Self::local(text));
        }
        let url = Url::parse(text).map_err(|_| invalid("it is not a valid URL"))?;
        if url.scheme() != "file" {
            return Err(StorageError::UnsupportedScheme {
                url: text.to_owned(),
                scheme: url.scheme().to_owned(),
            });
        }
        match url.to_file_path() {
            Ok(path) => Ok(Self::local(path)),
            Err(()) => Err(invalid("a file URL has no host: write file:///path")),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.path, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_file_urls_are_local() {
        for (text, path) in [
            ("/data/v1", "/data/v1"),
            ("data/v1", "data/v1"),
            ("file:///data/v%201", "/data/v 1"),
        ] {
            let location: Location = text.parse().unwrap();
            assert_eq!(location.local_path(), Some(Path::new(path)), "{text}");
        }
    }

    #[test]
    fn storage_that_this_build_lacks_is_named() {
        for text in ["s3://bucket/v1", "hdfs://name:9000/v1", "https://example.org/v1"] {
            let error = text.parse::<Location>().unwrap_err();
            assert!(matches!(error, StorageError::UnsupportedScheme { .. }), "{error}");
            assert!(error.to_string().contains("supports local paths only"), "{error}");
        }
    }

    #[test]
    fn what_is_no_location_is_refused() {
        for text in ["", "file://host/v1", "://x"] {
            let error = text.parse::<Location>().unwrap_err();
            assert!(matches!(error, StorageError::InvalidLocation { .. }), "{error}");
        }
    }

    #[test]
    fn a_name_cannot_lead_out_of_its_directory() {
        let location = Location::local("/data");
        for name in ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"] {
            assert!(
                matches!(location.file_path(name), Err(StorageError::InvalidName { .. })),
                "{name:?}"
            );
        }
    }
}
