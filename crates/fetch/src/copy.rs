//! A copy of a file in progress: it grows, piece by piece, from one source or several in turn.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use fondaco_format::Checksummer;
use rustix::fs::{FallocateFlags, fallocate};

use crate::error::FetchError;
use crate::file::{FileFetch, PIECE_BYTES, Seen, StreamError, remove};
use crate::source::{LocalReader, PageCache, SourceError, begin_write_back, drop_pages};

/// How much is written before the disk is told to begin writing, so that write-back never has much to do at once.
const BEGIN_WRITE_BACK_BYTES: u64 = 512 << 10;

/// How much is written before it is made durable, so that the end does not wait for gigabytes.
const WRITE_BACK_BYTES: u64 = 32 << 20;

/// The origin of a copy's bytes: the source to blame if they are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// There are no bytes yet.
    Nothing,
    /// All from the source with this number.
    Source(usize),
    /// From several sources, or from an earlier attempt.
    Several,
}

/// A copy in progress.
pub(crate) struct Copy {
    file: File,
    bytes: u64,
    /// Up to which offset the disk was told to write.
    begun: u64,
    synced: u64,
    checksum: Checksummer,
    origin: Origin,
}

impl Copy {
    /// Continues the copy of an earlier attempt, or begins a new one.
    pub(crate) fn open(fetch: &FileFetch<'_>) -> Result<Self, FetchError> {
        let part = fetch.part();
        let usable = match fs::symlink_metadata(&part) {
            Ok(found) => found.is_file() && found.nlink() == 1 && found.len() <= fetch.entry.bytes,
            Err(_) => false,
        };
        if !usable {
            remove(&part)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let file = options.open(&part).map_err(FetchError::io("create", &part))?;
        if fetch.entry.bytes > 0 {
            // The length stays as it is: it says how far the copy is.
            match fallocate(file.as_fd(), FallocateFlags::KEEP_SIZE, 0, fetch.entry.bytes) {
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
                Err(e) => return Err(FetchError::io("reserve space for", &part)(e.into())),
            }
        }
        let mut copy = Self {
            file,
            bytes: 0,
            begun: 0,
            synced: 0,
            checksum: Checksummer::new(),
            origin: Origin::Nothing,
        };
        let mut reader = LocalReader::open(&part, 0, PageCache::Keep).map_err(FetchError::io("open", &part))?;
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let count = reader.read(&mut buffer).map_err(FetchError::io("read", &part))?;
            if count == 0 {
                return Ok(copy);
            }
            copy.origin = Origin::Several;
            copy.took(&buffer[..count], fetch)?;
        }
    }

    /// How many bytes have been copied so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Streams from the end of the copy to the end of the source, or beyond the expected length: that is enough to know
    /// a mismatch.
    pub(crate) fn stream(&mut self, fetch: &FileFetch<'_>, source: usize) -> Result<(), StreamError> {
        let opened = fetch
            .sources
            .get(source)
            .open(&fetch.entry.name, self.bytes, fetch.cache);
        let mut reader = opened?;
        self.origin = match self.origin {
            Origin::Nothing => Origin::Source(source),
            Origin::Source(other) if other == source => self.origin,
            Origin::Source(_) | Origin::Several => Origin::Several,
        };
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(SourceError::from(e).into()),
            };
            let piece = &buffer[..count];
            if self.bytes + count as u64 > fetch.entry.bytes {
                self.took(piece, fetch)?;
                return Ok(());
            }
            self.add(piece, fetch)?;
        }
    }

    /// Writes the next piece.
    pub(crate) fn add(&mut self, piece: &[u8], fetch: &FileFetch<'_>) -> Result<(), FetchError> {
        let part = || fetch.part();
        self.file
            .write_all(piece)
            .map_err(|error| FetchError::io("write", part())(error))?;
        self.took(piece, fetch)?;
        if self.bytes - self.begun >= BEGIN_WRITE_BACK_BYTES {
            begin_write_back(&self.file, self.begun, self.bytes - self.begun);
            self.begun = self.bytes;
        }
        if self.bytes - self.synced >= WRITE_BACK_BYTES {
            self.file
                .sync_data()
                .map_err(|error| FetchError::io("write back", part())(error))?;
            self.drop_written(fetch.cache);
            self.synced = self.bytes;
        }
        Ok(())
    }

    /// The length and checksum so far.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            bytes: self.bytes,
            checksum: self.checksum.finish(),
        }
    }

    /// The file, and the range of its pages that should be given back when it is durable.
    pub(crate) fn into_file(self, cache: PageCache) -> (File, Option<(u64, u64)>) {
        let rest = (self.synced, self.bytes - self.synced);
        (self.file, (cache == PageCache::DropBehind).then_some(rest))
    }

    fn took(&mut self, piece: &[u8], fetch: &FileFetch<'_>) -> Result<(), FetchError> {
        self.checksum.update(piece);
        self.bytes += piece.len() as u64;
        fetch.control.passed(piece.len() as u64)
    }

    fn drop_written(&self, cache: PageCache) {
        if cache == PageCache::DropBehind {
            drop_pages(&self.file, self.synced, self.bytes - self.synced);
        }
    }
}
