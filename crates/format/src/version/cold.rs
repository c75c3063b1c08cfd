//! Look-ups that must read the disk: the byte ranges to read, and how to continue with the bytes.
//!
//! A look-up whose index is in memory needs one read, of exactly the bytes of its bucket. Two other cases are rare: an
//! evicted index block costs an extra read, and a bucket with values of many kilobytes is searched record by record.
//!
//! A bucket may be read past the page cache: [`crate::admission`] decides. Only io_uring does this; the blocking reads of
//! this module go through the page cache.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use super::lookup::BUCKET_READ_BYTES_MAX;
use super::{Value, Version};
use crate::chunk::reader::Chunk;
use crate::direct::DirectRead;
use crate::error::FormatError;
use crate::record::{RECORD_HEADER_BYTES, RecordHeader, RecordSearch, search_records};

/// A read that a look-up waits for.
#[derive(Debug, Clone)]
pub struct ColdRead {
    chunk: u32,
    bucket: u32,
    target: Target,
    /// The alignment of a read past the page cache, in bytes; `None` if it goes through it.
    direct: Option<u32>,
}

#[derive(Debug, Clone)]
enum Target {
    Index,
    Bucket(Range<usize>),
    Large(Range<usize>),
}

/// The result of a completed [`ColdRead`].
#[derive(Debug)]
pub enum ColdStep {
    /// The value.
    Found(Value<'static>),
    /// The version does not have the key.
    Absent,
    /// Another read is needed.
    Read(ColdRead),
}

impl ColdRead {
    pub(super) fn index(chunk: u32, bucket: u32) -> Self {
        Self {
            chunk,
            bucket,
            target: Target::Index,
            direct: None,
        }
    }

    pub(super) fn bucket(chunk: u32, bucket: u32, range: Range<usize>) -> Self {
        Self {
            chunk,
            bucket,
            target: Target::Bucket(range),
            direct: None,
        }
    }

    /// The same read, through the page cache.
    pub fn buffered(self) -> Self {
        Self { direct: None, ..self }
    }

    pub(super) fn large(chunk: u32, bucket: u32, range: Range<usize>) -> Self {
        Self {
            chunk,
            bucket,
            target: Target::Large(range),
            direct: None,
        }
    }

    pub(super) fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Its place in the version: reads in this order go through each file once, from its start to its end.
    pub(super) fn place(&self) -> (u32, bool, u64) {
        let (is_data, start) = match &self.target {
            Target::Index => (false, Chunk::block_range(self.bucket).start),
            Target::Bucket(range) | Target::Large(range) => (true, range.start as u64),
        };
        (self.chunk, is_data, start)
    }

    /// The range of [`Version::cold_file`] to read. It is empty if [`Version::complete`] reads by itself, and must be
    /// called where blocking is allowed.
    pub fn range(&self) -> Range<u64> {
        match &self.target {
            Target::Index => Chunk::block_range(self.bucket),
            Target::Bucket(range) => range.start as u64..range.end as u64,
            Target::Large(_) => 0..0,
        }
    }

    /// The most bytes that it reads, in either way, with what alignment adds.
    pub fn bytes(&self) -> usize {
        let bytes = match &self.target {
            Target::Index => {
                let block = Chunk::block_range(self.bucket);
                (block.end - block.start) as usize
            }
            Target::Bucket(range) | Target::Large(range) => range.len(),
        };
        // At both ends, and in memory.
        bytes + 3 * self.direct.unwrap_or(0) as usize
    }

    /// Whether [`Version::complete`] waits for the disk itself.
    pub fn is_large(&self) -> bool {
        matches!(self.target, Target::Large(_))
    }
}

impl Version {
    /// The file to read from.
    pub fn cold_file(&self, read: &ColdRead) -> &File {
        self.mapping(read.chunk, matches!(read.target, Target::Index)).file()
    }

    /// How to read past the page cache, if this read is to. If the read fails, or ends too early,
    /// [`Version::cold_file`] has to be read instead.
    pub fn direct_read(&self, read: &ColdRead) -> Option<DirectRead<'_>> {
        read.direct?;
        Some(self.mapping(read.chunk, false).direct()?.read(&read.range()))
    }

    /// Reads no more of this file past the page cache: such a read of it has failed.
    pub fn give_up_direct(&self, read: &ColdRead) {
        if let Some(direct) = self.mapping(read.chunk, false).direct() {
            direct.give_up();
        }
    }

    /// The same read past the page cache, if that is possible for its file.
    pub fn directly(&self, read: ColdRead) -> ColdRead {
        let is_bucket = matches!(read.target, Target::Bucket(_));
        let file = self.mapping(read.chunk, false).direct().filter(|_| is_bucket);
        let direct = file.and_then(|file| file.alignment());
        ColdRead { direct, ..read }
    }

    pub(super) fn cold_path(&self, read: &ColdRead) -> &Path {
        self.mapping(read.chunk, matches!(read.target, Target::Index)).path()
    }

    /// Asks the kernel to begin a read. It does not wait.
    pub(super) fn read_ahead(&self, read: &ColdRead) {
        let range = match &read.target {
            // It is read record by record, and most of it is not needed.
            Target::Large(range) => range.start..range.start + RECORD_HEADER_BYTES,
            _ => {
                let range = read.range();
                range.start as usize..range.end as usize
            }
        };
        self.mapping(read.chunk, matches!(read.target, Target::Index))
            .read_ahead(range);
    }

    /// Whether [`Version::cold_file`] has the bytes: always, unless the version is open while it is fetched. Otherwise
    /// [`Version::read_blocking`] has to read them.
    pub fn is_here(&self, read: &ColdRead) -> bool {
        let of_index = matches!(read.target, Target::Index);
        self.mapping(read.chunk, of_index).is_here(&read.range())
    }

    /// Performs a read: waits for the disk, and for a source if the bytes are not here yet.
    ///
    /// # Errors
    /// A failed read.
    pub fn read_blocking(&self, read: &ColdRead) -> Result<Vec<u8>, FormatError> {
        let chunk = &self.chunks[read.chunk as usize];
        let bytes = match read.target {
            Target::Index => chunk.read_index(read.range()),
            Target::Bucket(_) | Target::Large(_) => chunk.read_data(read.bucket, read.range()),
        };
        bytes.inspect_err(|error| self.note(read.chunk, error))
    }

    /// Continues a look-up after its cold read; `bytes` is the content of [`ColdRead::range`].
    ///
    /// # Errors
    /// Corruption, with the file's name; too few bytes count as corruption. For a large read also a failed read.
    pub fn complete(&self, read: ColdRead, key: &[u8], bytes: Vec<u8>) -> Result<ColdStep, FormatError> {
        match self.complete_any(read, key, bytes)? {
            ColdStep::Found(value) if self.is_over(value.time_ms()) => Ok(ColdStep::Absent),
            step => Ok(step),
        }
    }

    /// Whether or not the record has expired.
    pub(super) fn complete_any(&self, read: ColdRead, key: &[u8], bytes: Vec<u8>) -> Result<ColdStep, FormatError> {
        let number = read.chunk;
        let step = self.go_on(read, key, bytes);
        step.inspect_err(|error| self.note(number, error))
    }

    fn go_on(&self, read: ColdRead, key: &[u8], bytes: Vec<u8>) -> Result<ColdStep, FormatError> {
        let number = read.chunk;
        let chunk = &self.chunks[number as usize];
        let (asked, bucket, is_direct) = (read.range(), read.bucket, read.direct.is_some());
        if bytes.len() as u64 != asked.end - asked.start {
            return Err(chunk.corrupt_data("it is shorter than its manifest says"));
        }
        match read.target {
            Target::Index => {
                chunk.accept_block(bucket, &bytes)?;
                let range = chunk.bucket_range(&bytes, bucket)?;
                Ok(if range.is_empty() {
                    ColdStep::Absent
                } else if range.len() > BUCKET_READ_BYTES_MAX {
                    ColdStep::Read(ColdRead::large(number, bucket, range))
                } else {
                    ColdStep::Read(ColdRead::bucket(number, bucket, range))
                })
            }
            Target::Bucket(range) => {
                match is_direct {
                    true => chunk.data().note_direct(range),
                    false => chunk.data().note_resident(range),
                }
                match search_records(&bytes, key) {
                    RecordSearch::Found {
                        value,
                        stored_as_is,
                        time_ms,
                    } => self
                        .found(chunk, bytes, (value, stored_as_is, time_ms))
                        .map(ColdStep::Found),
                    RecordSearch::Absent => Ok(ColdStep::Absent),
                    RecordSearch::Corrupt(reason) => Err(chunk.corrupt_data(reason)),
                }
            }
            Target::Large(range) => match chunk.search_large(bucket, range, key)? {
                Some(record) => {
                    let header = RecordHeader::parse(&record)
                        .ok_or_else(|| chunk.corrupt_data("a record's header is damaged"))?;
                    let value = header.value_start()..record.len();
                    let time_ms = header.time_ms(&record);
                    self.found(chunk, record, (value, header.stored_as_is, time_ms))
                        .map(ColdStep::Found)
                }
                None => Ok(ColdStep::Absent),
            },
        }
    }

    fn found(
        &self,
        chunk: &Chunk,
        bytes: Vec<u8>,
        (value, stored_as_is, time_ms): (Range<usize>, bool, Option<u64>),
    ) -> Result<Value<'static>, FormatError> {
        Ok(match self.decode(chunk, &bytes[value.clone()], stored_as_is)? {
            Some(decoded) => Value::owned_whole(decoded, time_ms),
            None => Value::owned(bytes, value, time_ms),
        })
    }
}
