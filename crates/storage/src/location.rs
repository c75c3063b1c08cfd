//! A location: one directory, named by a URL or a path.
//!
//! Unknown kinds of storage are refused when a location is parsed. File names below it are single path components, so
//! that no name can lead out of the directory.

use std::fmt;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use crate::error::StorageError;
use crate::local::{self, LocalFile};
use crate::options::StorageOptions;
use crate::reader::FileReader;
use crate::remote::Remote;
use crate::writer::FileWriter;

/// A directory of files, on some kind of storage. Cheap to clone.
#[derive(Clone)]
pub struct Location(Place);

#[derive(Clone)]
enum Place {
    /// Absolute, or relative to the working directory, as given.
    Local(Arc<Path>),
    Remote(Arc<Remote>),
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
        Self(Place::Local(path.into().into()))
    }

    pub(crate) fn parse(text: &str, options: &StorageOptions) -> Result<Self, StorageError> {
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
        if let Some(remote) = Remote::parse(&url, options)? {
            return Ok(Self(Place::Remote(Arc::new(remote))));
        }
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

    /// The directory, if it is on a file system of this machine: then its files can be mapped and
    /// hard-linked.
    pub fn local_path(&self) -> Option<&Path> {
        match &self.0 {
            Place::Local(path) => Some(path),
            Place::Remote(_) => None,
        }
    }

    /// The location of a directory in this one.
    ///
    /// # Errors
    /// [`StorageError::InvalidName`] unless `name` is a single path component.
    pub fn join(&self, name: &str) -> Result<Self, StorageError> {
        check_name(name)?;
        Ok(match &self.0 {
            Place::Local(path) => Self::local(path.join(name)),
            Place::Remote(remote) => Self(Place::Remote(Arc::new(remote.join(name)?))),
        })
    }

    /// Creates the directory and its parents, durably; it may exist already. Does nothing on a storage without
    /// directories, which only has files with common prefixes.
    ///
    /// # Errors
    /// An error of the storage.
    pub fn create_directory(&self) -> Result<(), StorageError> {
        match &self.0 {
            Place::Local(path) => local::create_directory(path),
            Place::Remote(remote) => remote.create_directory(),
        }
    }

    /// Creates a file to be written from start to end.
    ///
    /// # Errors
    /// [`StorageError::AlreadyExists`], or another error of the storage.
    pub fn create_file(&self, name: &str) -> Result<FileWriter, StorageError> {
        check_name(name)?;
        match &self.0 {
            Place::Local(path) => Ok(LocalFile::create(path.join(name))?.into()),
            Place::Remote(remote) => Ok(remote.create_file(name)?.into()),
        }
    }

    /// Writes a small file durably: either it exists completely, together with all files of this location that were
    /// finished before, or not at all. Replaces a file of the same name.
    ///
    /// # Errors
    /// An error of the storage.
    pub fn write_atomically(&self, name: &str, content: &[u8]) -> Result<(), StorageError> {
        check_name(name)?;
        match &self.0 {
            Place::Local(path) => {
                let temporary = path.join(format!(".{name}.partial"));
                local::write_atomically(&path.join(name), &temporary, content)
            }
            Place::Remote(remote) => remote.write_atomically(name, content),
        }
    }

    /// Opens a file for reading from byte `offset` to its end. With an offset at or past the end, the reader has
    /// nothing to read.
    ///
    /// # Errors
    /// [`StorageError::NotFound`], or another error of the storage.
    pub fn open(&self, name: &str, offset: u64) -> Result<FileReader, StorageError> {
        check_name(name)?;
        match &self.0 {
            Place::Local(path) => {
                let path = path.join(name);
                let file = File::open(&path).map_err(|e| StorageError::io("open", &path, e))?;
                FileReader::local(path, file, offset)
            }
            Place::Remote(remote) => Ok(FileReader::remote(remote.path_of(name), remote.open(name)?, offset)),
        }
    }

    /// Reads a range of a file by one request, which may take this long.
    ///
    /// # Errors
    /// [`StorageError::NotFound`], [`StorageError::Shortened`] if the file has fewer bytes, or another error of the storage.
    pub fn read_range(&self, name: &str, range: Range<u64>, time_max: Duration) -> Result<Vec<u8>, StorageError> {
        check_name(name)?;
        match &self.0 {
            Place::Local(path) => {
                let path = path.join(name);
                let mut bytes = vec![0; (range.end - range.start) as usize];
                let file = File::open(&path).map_err(|e| StorageError::io("open", &path, e))?;
                let read = file.read_exact_at(&mut bytes, range.start);
                read.map_err(|e| StorageError::io("read", &path, e)).map(|()| bytes)
            }
            Place::Remote(remote) => remote.read_range(name, range, time_max),
        }
    }

    /// Reads a whole small file.
    ///
    /// # Errors
    /// [`StorageError::NotFound`], [`StorageError::TooLong`] if it is longer than `bytes_max`, or another error of the
    /// storage.
    pub fn read_whole(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>, StorageError> {
        let mut reader = self.open(name, 0)?;
        let bytes = reader.file_bytes();
        if bytes > bytes_max {
            return Err(StorageError::TooLong {
                path: self.path_of(name),
                bytes,
                bytes_max,
            });
        }
        let mut content = Vec::with_capacity(bytes as usize);
        while let Some(piece) = reader.next_piece()? {
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }

    /// Whether a file of this name exists.
    ///
    /// # Errors
    /// An error of the storage.
    pub fn exists(&self, name: &str) -> Result<bool, StorageError> {
        check_name(name)?;
        match &self.0 {
            Place::Local(path) => {
                let path = path.join(name);
                path.try_exists().map_err(|e| StorageError::io("look for", path, e))
            }
            Place::Remote(remote) => remote.exists(name),
        }
    }

    /// The files here, sorted by name. Directories are left out.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] if there is no such directory, or no file in a remote one, or another error of the
    /// storage.
    pub fn list(&self) -> Result<Vec<FileInfo>, StorageError> {
        let mut files = match &self.0 {
            Place::Local(path) => local::list(path)?,
            Place::Remote(remote) => remote.list()?,
        };
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    /// Whether the directory does not exist or is empty.
    ///
    /// # Errors
    /// An error of the storage, for example that it is not a directory.
    pub fn is_vacant(&self) -> Result<bool, StorageError> {
        match &self.0 {
            Place::Local(path) => local::is_vacant(path),
            Place::Remote(remote) => remote.is_vacant(),
        }
    }

    /// Deletes a file, if it exists.
    ///
    /// # Errors
    /// An error of the storage.
    pub fn delete_file(&self, name: &str) -> Result<(), StorageError> {
        check_name(name)?;
        match &self.0 {
            Place::Local(path) => local::delete_file(&path.join(name)),
            Place::Remote(remote) => remote.delete_file(name),
        }
    }

    /// Deletes the directory and its content, if it exists.
    ///
    /// # Errors
    /// An error of the storage; a part may then be deleted.
    pub fn delete_tree(&self) -> Result<(), StorageError> {
        match &self.0 {
            Place::Local(path) => local::delete_tree(path),
            Place::Remote(remote) => remote.delete_tree(),
        }
    }

    /// How many bytes can still be written here; `None` if the storage does not know. The directory need not exist yet.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn free_bytes(&self) -> Result<Option<u64>, StorageError> {
        match &self.0 {
            Place::Local(path) => local::free_bytes(path).map(Some),
            Place::Remote(_) => Ok(None),
        }
    }

    /// Makes everything that was written here durable at once. For thousands of small files this is much cheaper than
    /// finishing each file: close those with [`FileWriter::finish_later`].
    ///
    /// # Errors
    /// An error of the operating system; nothing that was written here is then guaranteed.
    pub fn sync_all(&self) -> Result<(), StorageError> {
        match &self.0 {
            Place::Local(path) => local::sync_all(path),
            // Finished files are durable.
            Place::Remote(_) => Ok(()),
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        match &self.0 {
            Place::Local(path) => path.join(name),
            Place::Remote(remote) => remote.path_of(name),
        }
    }
}

/// Checks that a name is a single path component, which cannot lead out of its directory.
pub(crate) fn check_name(name: &str) -> Result<(), StorageError> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(StorageError::InvalidName {
            name: name.chars().take(200).collect(),
        });
    }
    Ok(())
}

impl FromStr for Location {
    type Err = StorageError;

    /// [`StorageOptions::locate`] with the settings of the environment only.
    fn from_str(text: &str) -> Result<Self, StorageError> {
        StorageOptions::default().locate(text)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Local(path) => path.display().fmt(f),
            Place::Remote(remote) => remote.url().fmt(f),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

/// Two locations are equal if they are written the same way.
impl PartialEq for Location {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Place::Local(one), Place::Local(other)) => one == other,
            (Place::Remote(one), Place::Remote(other)) => one.url() == other.url(),
            _ => false,
        }
    }
}

impl Eq for Location {}

impl Hash for Location {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Place::Local(path) => path.hash(state),
            Place::Remote(remote) => remote.url().hash(state),
        }
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
    fn remote_urls_are_kept_as_written_without_a_trailing_slash() {
        for (text, shown, joined) in [
            ("s3://bucket/a/b/", "s3://bucket/a/b", "s3://bucket/a/b/v%201"),
            ("s3://bucket", "s3://bucket", "s3://bucket/v%201"),
            ("s3://bucket/", "s3://bucket", "s3://bucket/v%201"),
            ("s3://bucket/a%20b", "s3://bucket/a%20b", "s3://bucket/a%20b/v%201"),
            (
                "hdfs://name:9000/v1",
                "hdfs://name:9000/v1",
                "hdfs://name:9000/v1/v%201",
            ),
        ] {
            let location: Location = text.parse().unwrap();
            assert_eq!(location.local_path(), None, "{text}");
            assert_eq!(location.to_string(), shown);
            assert_eq!(location, shown.parse().unwrap());
            let inner = location.join("v 1").unwrap();
            assert_eq!(inner.to_string(), joined);
            assert_eq!(inner, joined.parse().unwrap());
        }
    }

    #[test]
    fn unsupported_schemes_are_named() {
        for text in ["https://example.org/v1", "gs://bucket/v1", "s3a://bucket/v1"] {
            let error = text.parse::<Location>().unwrap_err();
            assert!(matches!(error, StorageError::UnsupportedScheme { .. }), "{error}");
        }
    }

    #[test]
    fn an_invalid_location_is_refused() {
        for text in [
            "",
            "file://host/v1",
            "://x",
            "s3:///prefix",
            "s3://bucket:9000/prefix",
            "s3://key:secret@bucket/prefix",
            "s3://bucket/a//b",
            "s3://bucket/a?b",
            "hdfs:///v1",
        ] {
            let error = text.parse::<Location>().unwrap_err();
            assert!(matches!(error, StorageError::InvalidLocation { .. }), "{text}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_name_cannot_lead_out_of_its_directory() {
        for text in ["/data", "s3://bucket/data"] {
            let location: Location = text.parse().unwrap();
            for name in ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"] {
                for refused in [location.join(name).err(), location.open(name, 0).err()] {
                    assert!(matches!(refused, Some(StorageError::InvalidName { .. })), "{name:?}");
                }
            }
        }
    }
}
