//! Writes one chunk, record by record, to any two writers.
//!
//! The data file is written in one pass and the index after it, so that both may stream to a remote
//! store. What is held in memory is the index: 4 bytes a bucket.

use std::io::Write;

use fondaco_model::{KEY_BYTES_MAX, PartitionId};

use super::ChunkIdentity;
use super::data::{DATA_HEADER_BYTES, DataHeader};
use super::index::{IndexHeader, blocks, bucket_count};
use crate::checksum::Checksummer;
use crate::compression::EncodedValue;
use crate::error::FormatError;
use crate::hash::{bucket_of_hash, chunk_of_hash};
use crate::manifest::{ChunkEntry, FileEntry, data_file_name, index_file_name};
use crate::record::{RECORD_BYTES_MAX, write_record};

const BUFFER_BYTES: usize = 1024 * 1024;

/// What is known of a chunk before its first record.
#[derive(Debug, Clone, Copy)]
pub struct ChunkPlan {
    /// Its partition.
    pub partition: PartitionId,
    /// Its number in the partition, from 0.
    pub chunk: u32,
    /// How many chunks the partition has, at least 1.
    pub chunk_count: u32,
    /// How many records it will have, about: this and the next decide how large the index is.
    pub records_expected: u64,
    /// How many bytes its keys and values have together, uncompressed, about.
    pub bytes_expected: u64,
}

/// Writes one chunk.
pub struct ChunkWriter<W: Write> {
    identity: ChunkIdentity,
    bucket_count: u32,
    /// Where each bucket begins, up to that of the last record.
    starts: Vec<u32>,
    data: Sink<W>,
    records: u64,
    last_hash: u64,
}

/// A writer that counts and checksums what passes, in large pieces.
struct Sink<W> {
    writer: W,
    buffer: Vec<u8>,
    bytes_flushed: u64,
    checksum: Checksummer,
}

impl<W: Write> Sink<W> {
    fn new(writer: W) -> Self {
        Self {
            writer,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            bytes_flushed: 0,
            checksum: Checksummer::new(),
        }
    }

    fn position(&self) -> u64 {
        self.bytes_flushed + self.buffer.len() as u64
    }

    fn flush(&mut self) -> Result<(), FormatError> {
        self.checksum.update(&self.buffer);
        self.writer.write_all(&self.buffer).map_err(FormatError::Write)?;
        self.bytes_flushed += self.buffer.len() as u64;
        self.buffer.clear();
        // A single huge record must not keep its memory.
        self.buffer.shrink_to(BUFFER_BYTES);
        Ok(())
    }

    fn finish(mut self, name: String) -> Result<(FileEntry, W), FormatError> {
        self.flush()?;
        self.writer.flush().map_err(FormatError::Write)?;
        let entry = FileEntry {
            name,
            bytes: self.bytes_flushed,
            checksum: self.checksum.finish(),
        };
        Ok((entry, self.writer))
    }
}

impl<W: Write> ChunkWriter<W> {
    /// Begins a chunk whose data goes to `data`. Writes are few and large: no buffering is needed.
    pub fn new(plan: ChunkPlan, data: W) -> Result<Self, FormatError> {
        let identity = ChunkIdentity {
            partition: plan.partition,
            chunk: plan.chunk,
            chunk_count: plan.chunk_count,
        };
        assert!(
            plan.chunk < plan.chunk_count,
            "chunk {} of {}",
            plan.chunk,
            plan.chunk_count
        );
        let mut data = Sink::new(data);
        data.buffer.extend_from_slice(&DataHeader { identity }.to_bytes());
        let bucket_count = bucket_count(plan.records_expected, plan.bytes_expected);
        Ok(Self {
            identity,
            bucket_count,
            starts: Vec::with_capacity(bucket_count as usize),
            data,
            records: 0,
            last_hash: 0,
        })
    }

    /// Adds a record. Records come in ascending order of their hashes, and in any order among equal
    /// hashes; the caller has made sure that no key comes twice.
    ///
    /// # Errors
    /// A key of no or too many bytes, a chunk of 4 GiB or more, or a failed write.
    ///
    /// # Panics
    /// If the hash is less than the one before it, or belongs to another chunk: the chunk would be
    /// unreadable.
    pub fn append(&mut self, hash: u64, key: &[u8], value: EncodedValue<'_>) -> Result<(), FormatError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(FormatError::KeyLength { bytes: key.len() });
        }
        debug_assert_eq!(hash, crate::key_hash(key));
        assert!(hash >= self.last_hash, "records must come in the order of their hashes");
        assert_eq!(chunk_of_hash(hash, self.identity.chunk_count), self.identity.chunk);
        let start = self.data.position();
        if start + RECORD_BYTES_MAX as u64 > u64::from(u32::MAX) {
            return Err(FormatError::ChunkTooLarge {
                partition: self.identity.partition.get(),
                chunk: self.identity.chunk,
            });
        }
        let bucket = bucket_of_hash(hash, self.identity.chunk_count, self.bucket_count);
        if self.starts.len() <= bucket as usize {
            self.starts.resize(bucket as usize + 1, start as u32);
        }
        write_record(&mut self.data.buffer, key, value.bytes, value.stored_as_is);
        self.records += 1;
        self.last_hash = hash;
        if self.data.buffer.len() >= BUFFER_BYTES {
            self.data.flush()?;
        }
        Ok(())
    }

    /// Ends the chunk: the rest of the data is written, then the index to `index`. Returns the
    /// chunk's entry for the manifest, and both writers for the caller to sync and close.
    pub fn finish<I: Write>(mut self, index: I) -> Result<(ChunkEntry, W, I), FormatError> {
        let data_bytes = self.data.position();
        self.starts.resize(self.bucket_count as usize, data_bytes as u32);
        let ChunkIdentity { partition, chunk, .. } = self.identity;
        let (data_entry, data) = self.data.finish(data_file_name(partition, chunk))?;
        debug_assert!(data_entry.bytes == data_bytes && data_bytes >= DATA_HEADER_BYTES as u64);
        let header = IndexHeader {
            identity: self.identity,
            bucket_count: self.bucket_count,
            records: self.records,
            data_bytes,
        };
        let mut sink = Sink::new(index);
        for block in blocks(header, &self.starts) {
            sink.buffer.extend_from_slice(&block);
            if sink.buffer.len() >= BUFFER_BYTES {
                sink.flush()?;
            }
        }
        let (index_entry, index) = sink.finish(index_file_name(partition, chunk))?;
        let entry = ChunkEntry {
            partition,
            chunk,
            records: self.records,
            data: data_entry,
            index: index_entry,
        };
        Ok((entry, data, index))
    }
}
