//! Reads a file from an offset to its end, in bounded pieces.
//!
//! A remote file is read by ranges, each a separate request, with one range prefetched. All ranges are of the file that
//! was opened: if it is replaced meanwhile, that is an error.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bytes::{Buf, Bytes};

use crate::error::StorageError;
use crate::remote::RemoteFile;
use crate::runtime::Pending;

/// The largest piece of a local file, in bytes.
const LOCAL_PIECE_BYTES: u64 = 1 << 20;

/// The largest piece of a remote file, in bytes: a request costs some milliseconds, and two pieces are in memory.
const REMOTE_PIECE_BYTES: u64 = 8 << 20;

/// A file being read from an offset to its end.
pub struct FileReader {
    path: PathBuf,
    source: Source,
    /// Where the next piece begins, in bytes.
    offset: u64,
    /// The length of the file when it was opened, in bytes.
    end: u64,
    /// The part of the last piece that [`Read`] has not consumed.
    rest: Bytes,
}

enum Source {
    Local(File),
    Remote {
        file: RemoteFile,
        ahead: Option<Pending<Bytes>>,
    },
}

impl FileReader {
    pub(crate) fn local(path: PathBuf, file: File, offset: u64) -> Result<Self, StorageError> {
        let metadata = file.metadata().map_err(|e| StorageError::io("inspect", &path, e))?;
        if !metadata.is_file() {
            return Err(StorageError::NotFound { path });
        }
        Ok(Self::new(path, Source::Local(file), offset, metadata.len()))
    }

    pub(crate) fn remote(path: PathBuf, file: RemoteFile, offset: u64) -> Self {
        let end = file.bytes();
        Self::new(path, Source::Remote { file, ahead: None }, offset, end)
    }

    fn new(path: PathBuf, source: Source, offset: u64, end: u64) -> Self {
        Self {
            path,
            source,
            offset: offset.min(end),
            end,
            rest: Bytes::new(),
        }
    }

    /// The length of the whole file when it was opened, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.end
    }

    /// The next piece, never empty; `None` at the end of the file.
    ///
    /// # Errors
    /// [`StorageError::Shortened`] if the file ends early, [`StorageError::Replaced`] if it is another file now, or
    /// another error of the storage.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, StorageError> {
        if self.offset == self.end {
            return Ok(None);
        }
        let remaining = self.end - self.offset;
        let piece = match &mut self.source {
            Source::Local(file) => {
                let mut piece = vec![0; remaining.min(LOCAL_PIECE_BYTES) as usize];
                let read = file
                    .read_at(&mut piece, self.offset)
                    .map_err(|e| StorageError::io("read", &self.path, e))?;
                piece.truncate(read);
                Bytes::from(piece)
            }
            Source::Remote { file, ahead } => {
                let piece_end = |start: u64| self.end.min(start + REMOTE_PIECE_BYTES);
                let end = piece_end(self.offset);
                let pending = match ahead.take() {
                    Some(pending) => pending,
                    None => file.read(self.offset..end)?,
                };
                let piece = pending.wait()?;
                // A short piece ends the reading, so that the prefetched range is always the next one.
                if end < self.end && piece.len() as u64 == end - self.offset {
                    *ahead = Some(file.read(end..piece_end(end))?);
                }
                piece
            }
        };
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

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            match self.next_piece()? {
                Some(piece) => self.rest = piece,
                None => return Ok(0),
            }
        }
        let count = self.rest.len().min(buffer.len());
        self.rest.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
