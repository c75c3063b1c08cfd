//! A copy of a file in progress: it grows from its start, piece by piece, from one source or several in turn, and takes over
//! what is there already.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use fondaco_format::{Checksummer, PIECE_BYTES};

use crate::error::FetchError;
use crate::file::{FileFetch, READ_BYTES, Seen, StreamError};
use crate::partial::PartialCopy;
use crate::source::{PageCache, SourceError, begin_write_back, drop_pages};

/// How much is written before the disk is told to begin writing, so that write-back never has much to do at once.
const BEGIN_WRITE_BACK_BYTES: u64 = 512 << 10;

/// How much is written before it is made durable, so that the end does not wait for gigabytes.
const WRITE_BACK_BYTES: u64 = 32 << 20;

/// From this length on, what is there already is not read from the source again. To begin behind it costs a request or two.
const SKIP_BYTES_MIN: u64 = 4 << 20;

/// The origin of a copy's bytes: the source to blame if they are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// There are no bytes yet.
    Nothing,
    /// All from the source with this number.
    Source(usize),
    /// From several sources, from an earlier attempt, or from look-ups.
    Several,
}

/// A copy in progress.
pub(crate) struct Copy {
    partial: Arc<PartialCopy>,
    bytes: u64,
    /// How many of them this copy has read from sources.
    streamed: u64,
    /// Up to which offset the disk was told to write.
    begun: u64,
    synced: u64,
    checksum: Checksummer,
    origin: Origin,
}

impl Copy {
    /// Continues the copy of an earlier attempt, or begins a new one.
    pub(crate) fn open(fetch: &FileFetch<'_>) -> Result<Self, FetchError> {
        let shared = fetch.partial.filter(|partial| partial.is_in_place());
        let partial = match shared {
            Some(partial) => Arc::clone(partial),
            None => Arc::new(PartialCopy::open(fetch.part(), fetch.entry, None)?),
        };
        let mut copy = Self {
            partial,
            bytes: 0,
            streamed: 0,
            begun: 0,
            synced: 0,
            checksum: Checksummer::new(),
            origin: Origin::Nothing,
        };
        copy.take_over(fetch)?;
        Ok(copy)
    }

    /// Goes over what is there already.
    fn take_over(&mut self, fetch: &FileFetch<'_>) -> Result<(), FetchError> {
        let end = self.partial.written_until(self.bytes);
        while self.bytes < end {
            self.take_over_some(READ_BYTES.min((end - self.bytes) as usize), fetch)?;
        }
        Ok(())
    }

    fn take_over_some(&mut self, bytes: usize, fetch: &FileFetch<'_>) -> Result<(), FetchError> {
        let read = self.partial.read(&(self.bytes..self.bytes + bytes as u64));
        let piece = read.map_err(|error| FetchError::io("read", fetch.part())(error))?;
        self.origin = Origin::Several;
        self.took(&piece, fetch)
    }

    /// How many bytes have been copied so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many of them came from sources, and not from an earlier attempt.
    pub(crate) fn streamed(&self) -> u64 {
        self.streamed
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Streams from the end of the copy to the end of the source, or beyond the expected length: that is enough to know
    /// a mismatch.
    pub(crate) fn stream(&mut self, fetch: &FileFetch<'_>, source: usize) -> Result<(), StreamError> {
        loop {
            let opened = fetch
                .sources
                .get(source)
                .open(&fetch.entry.name, self.bytes, fetch.cache);
            if self.stream_from(fetch, source, opened?)? || self.bytes == fetch.entry.bytes {
                return Ok(());
            }
        }
    }

    /// Returns whether the source is at its end; otherwise the copy has come to a part that is there already, and is behind it.
    fn stream_from(
        &mut self,
        fetch: &FileFetch<'_>,
        source: usize,
        mut reader: Box<dyn Read + Send>,
    ) -> Result<bool, StreamError> {
        self.origin = match self.origin {
            Origin::Nothing => Origin::Source(source),
            Origin::Source(other) if other == source => self.origin,
            Origin::Source(_) | Origin::Several => Origin::Several,
        };
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => return Ok(true),
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(SourceError::from(e).into()),
            };
            let piece = &buffer[..count];
            self.streamed += count as u64;
            if self.bytes + count as u64 > fetch.entry.bytes {
                self.took(piece, fetch)?;
                return Ok(true);
            }
            self.add(piece, fetch)?;
            if self.partial.written_until(self.bytes) - self.bytes >= SKIP_BYTES_MIN {
                self.take_over(fetch)?;
                return Ok(false);
            }
        }
    }

    /// Writes the next bytes.
    pub(crate) fn add(&mut self, mut bytes: &[u8], fetch: &FileFetch<'_>) -> Result<(), FetchError> {
        let part = || fetch.part();
        while !bytes.is_empty() {
            let room = PIECE_BYTES - self.bytes % PIECE_BYTES;
            let (now, rest) = bytes.split_at(bytes.len().min(room as usize));
            let put = self.partial.put(self.bytes, now);
            match put.map_err(|error| FetchError::io("write", part())(error))? {
                true => self.took(now, fetch)?,
                false => self.take_over_some(now.len(), fetch)?,
            }
            bytes = rest;
        }
        if self.bytes - self.begun >= BEGIN_WRITE_BACK_BYTES {
            begin_write_back(&self.partial.file, self.begun, self.bytes - self.begun);
            self.begun = self.bytes;
        }
        if self.bytes - self.synced >= WRITE_BACK_BYTES {
            let synced = self.partial.file.sync_data();
            synced.map_err(|error| FetchError::io("write back", part())(error))?;
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
    pub(crate) fn into_file(self, cache: PageCache) -> io::Result<(File, Option<(u64, u64)>)> {
        let rest = (self.synced, self.bytes - self.synced);
        let drops = (cache == PageCache::DropBehind).then_some(rest);
        Ok((self.partial.file.try_clone()?, drops))
    }

    fn took(&mut self, piece: &[u8], fetch: &FileFetch<'_>) -> Result<(), FetchError> {
        self.checksum.update(piece);
        self.bytes += piece.len() as u64;
        fetch.control.passed(piece.len() as u64)
    }

    fn drop_written(&self, cache: PageCache) {
        if cache == PageCache::DropBehind {
            drop_pages(&self.partial.file, self.synced, self.bytes - self.synced);
        }
    }
}
