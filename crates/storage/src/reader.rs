//! Reading and listing, asynchronously, over [`object_store`].
//!
//! A file is read as a stream of pieces from an offset, so that a fetch can resume, be throttled
//! between two pieces, and never holds more than one of them.

use std::fs::File;
use std::future::poll_fn;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectStore, path::Path as ObjectPath};

use crate::error::StorageError;
use crate::location::{FileInfo, Location};

/// The largest piece that [`FileReader::next`] reads from a local file, in bytes. `object_store`'s
/// own stream hands a task to the blocking pool every 8 KiB, which costs more than the reading.
const PIECE_BYTES: u64 = 1 << 20;

/// A file being read from some offset to its end.
pub struct FileReader {
    path: PathBuf,
    source: Source,
    /// Where the next piece begins, in bytes.
    offset: u64,
    /// The length of the file when it was opened, in bytes.
    end: u64,
}

enum Source {
    Local(Arc<File>),
    Remote(BoxStream<'static, object_store::Result<Bytes>>),
}

impl FileReader {
    /// The length of the whole file when it was opened, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.end
    }

    /// Where the next piece begins, in bytes from the start of the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece, never empty; `None` at the end of the file.
    ///
    /// # Errors
    /// [`StorageError::Shortened`] if the file ends early, or what the storage says.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StorageError> {
        if self.offset == self.end {
            return Ok(None);
        }
        let piece = match &mut self.source {
            Source::Local(file) => {
                let length = (self.end - self.offset).min(PIECE_BYTES);
                let (file, offset) = (Arc::clone(file), self.offset);
                read_at(file, offset, length as usize, &self.path).await?
            }
            Source::Remote(stream) => next_of(stream, &self.path).await?,
        };
        let remaining = self.end - self.offset;
        if piece.is_empty() || piece.len() as u64 > remaining {
            return Err(StorageError::Shortened {
                path: self.path.clone(),
                offset: self.offset,
                missing_bytes: remaining,
            });
        }
        self.offset += piece.len() as u64;
        Ok(Some(piece))
    }
}

async fn read_at(file: Arc<File>, offset: u64, length: usize, path: &Path) -> Result<Bytes, StorageError> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut piece = vec![0; length];
        let read = file.read_at(&mut piece, offset)?;
        piece.truncate(read);
        Ok(Bytes::from(piece))
    });
    // The closure does not panic, so that the join only fails when the runtime is shut down.
    reading
        .await
        .unwrap_or_else(|e| Err(std::io::Error::other(e)))
        .map_err(|e| StorageError::io("read", path, e))
}

async fn next_of(
    stream: &mut BoxStream<'static, object_store::Result<Bytes>>,
    path: &Path,
) -> Result<Bytes, StorageError> {
    loop {
        match poll_fn(|context| Pin::as_mut(stream).poll_next(context)).await {
            None => return Ok(Bytes::new()),
            Some(Ok(piece)) if piece.is_empty() => {}
            Some(Ok(piece)) => return Ok(piece),
            Some(Err(e)) => return Err(StorageError::object_store("read", path, e)),
        }
    }
}

impl Location {
    /// Opens a file for reading from byte `offset` to its end. An offset at or past the end gives
    /// a reader that has nothing to read.
    ///
    /// # Errors
    /// [`StorageError::NotFound`], or what the storage says.
    pub async fn read_from(&self, name: &str, offset: u64) -> Result<FileReader, StorageError> {
        let path = self.file_path(name)?;
        let (store, object) = self.object(name)?;
        let failed = |e| StorageError::object_store("open", &path, e);
        let end = store.get_opts(
            &object,
            GetOptions {
                head: true,
                ..GetOptions::default()
            },
        );
        let end = end.await.map_err(failed)?.meta.size;
        let offset = offset.min(end);
        let range = (offset < end).then_some(GetRange::Bounded(offset..end));
        let options = GetOptions {
            range,
            ..GetOptions::default()
        };
        let result = store.get_opts(&object, options).await.map_err(failed)?;
        let source = match result.payload {
            GetResultPayload::File(file, _) => Source::Local(Arc::new(file)),
            GetResultPayload::Stream(stream) => Source::Remote(stream),
        };
        Ok(FileReader {
            path,
            source,
            offset,
            end,
        })
    }

    /// A small file whole.
    ///
    /// # Errors
    /// [`StorageError::NotFound`], [`StorageError::Io`] if it is longer than `bytes_max`, or what
    /// the storage says.
    pub async fn read_whole(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>, StorageError> {
        let mut reader = self.read_from(name, 0).await?;
        if reader.file_bytes() > bytes_max {
            let e = std::io::Error::other(format!(
                "it has {} bytes, more than the {bytes_max} allowed",
                reader.file_bytes()
            ));
            return Err(StorageError::io("read", self.file_path(name)?, e));
        }
        let mut content = Vec::with_capacity(reader.file_bytes() as usize);
        while let Some(piece) = reader.next().await? {
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }

    /// Whether there is a file of this name.
    ///
    /// # Errors
    /// What the storage says.
    pub async fn exists(&self, name: &str) -> Result<bool, StorageError> {
        let (store, object) = match self.object(name) {
            Err(StorageError::NotFound { .. }) => return Ok(false),
            other => other?,
        };
        match store
            .get_opts(
                &object,
                GetOptions {
                    head: true,
                    ..GetOptions::default()
                },
            )
            .await
        {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(StorageError::object_store("look for", self.file_path(name)?, e)),
        }
    }

    /// The files here, in the order of their names. Directories are left out.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] if there is no such directory, or what the storage says.
    pub async fn list(&self) -> Result<Vec<FileInfo>, StorageError> {
        let store = self.store()?;
        let listed = store.list_with_delimiter(None).await;
        let listed = listed.map_err(|e| StorageError::object_store("list", self.path(), e))?;
        let mut files: Vec<FileInfo> = listed
            .objects
            .into_iter()
            .filter_map(|object| {
                let name = object.location.filename()?.to_owned();
                Some(FileInfo {
                    name,
                    bytes: object.size,
                })
            })
            .collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    fn object(&self, name: &str) -> Result<(LocalFileSystem, ObjectPath), StorageError> {
        let object = ObjectPath::parse(name).map_err(|_| StorageError::InvalidName { name: name.to_owned() })?;
        self.file_path(name)?;
        Ok((self.store()?, object))
    }

    fn store(&self) -> Result<LocalFileSystem, StorageError> {
        let path = self.path();
        if !path.is_dir() {
            return Err(StorageError::NotFound { path: path.into() });
        }
        LocalFileSystem::new_with_prefix(path).map_err(|e| StorageError::object_store("open the directory", path, e))
    }
}
