//! Writes one chunk, record by record, to any two writers.
//!
//! The data file is written in one pass, and the index after it, so that both can be streamed to a remote store. Only
//! the index is kept in memory: 4 bytes per bucket, or a part of it if the rest is in a temporary file.

use std::fs::File;
use std::io::Write;

use fondaco_model::{KEY_BYTES_MAX, PartitionId};

use super::ChunkIdentity;
use super::data::{DATA_HEADER_BYTES, DataHeader};
use super::index::{IndexHeader, blocks, bucket_count};
use super::sink::{BUFFER_BYTES, Sink};
use super::starts::Starts;
use crate::compression::EncodedValue;
use crate::error::FormatError;
use crate::hash::{bucket_of_hash, chunk_of_hash};
use crate::manifest::ChunkEntry;
use crate::names::{DATA_KIND, INDEX_KIND};
use crate::record::{RECORD_BYTES_MAX, write_record};

/// The properties of a chunk that must be known before its first record.
#[derive(Debug, Clone, Copy)]
pub struct ChunkPlan {
    /// Its partition.
    pub partition: PartitionId,
    /// Its number in the partition, from 0.
    pub chunk: u32,
    /// The number of chunks of the partition, at least 1.
    pub chunk_count: u32,
    /// The approximate number of records: this and the next field determine the size of the index. If there are far
    /// fewer records in the end, the index becomes smaller.
    pub records_expected: u64,
    /// The approximate size of its keys and values, in bytes, uncompressed.
    pub bytes_expected: u64,
}

impl ChunkPlan {
    pub(crate) fn identity(&self) -> ChunkIdentity {
        ChunkIdentity {
            partition: self.partition,
            chunk: self.chunk,
            chunk_count: self.chunk_count,
        }
    }
}

/// Writes one chunk.
pub struct ChunkWriter<W: Write> {
    plan: ChunkPlan,
    identity: ChunkIdentity,
    bucket_count: u32,
    /// The offset of each bucket, up to that of the last record.
    starts: Starts,
    data: Sink<W>,
    records: u64,
    last_hash: u64,
}

impl<W: Write> ChunkWriter<W> {
    /// Starts a chunk whose data goes to `data`. Writes are few and large: no buffering is needed.
    pub fn new(plan: ChunkPlan, data: W) -> Result<Self, FormatError> {
        let identity = plan.identity();
        assert!(
            plan.chunk < plan.chunk_count,
            "chunk {} of {}",
            plan.chunk,
            plan.chunk_count
        );
        let mut data = Sink::new(data);
        data.buffer.extend_from_slice(&DataHeader { identity }.to_bytes());
        let bucket_count = divisible(bucket_count(plan.records_expected, plan.bytes_expected));
        Ok(Self {
            plan,
            identity,
            bucket_count,
            starts: Starts::default(),
            data,
            records: 0,
            last_hash: 0,
        })
    }

    /// Stores the unwritten part of the index in this empty file. Then memory does not grow with the number of records.
    #[must_use]
    pub fn with_table_in(mut self, file: File) -> Self {
        self.starts.keep_in(file);
        self
    }

    /// Adds a record. Records must come in ascending order of their hashes, in any order among equal hashes, and
    /// without duplicate keys.
    ///
    /// # Errors
    /// An empty or too long key, a chunk of 4 GiB or more, or a failed write.
    ///
    /// # Panics
    /// If the hash is lower than the previous one, or belongs to another chunk: the chunk would be unreadable.
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
        let filled = self.starts.fill(bucket as usize + 1, start as u32);
        filled.map_err(FormatError::Table)?;
        write_record(&mut self.data.buffer, key, value.bytes, value.stored_as_is);
        self.records += 1;
        self.last_hash = hash;
        if self.data.buffer.len() >= BUFFER_BYTES {
            self.data.write_buffer().map_err(FormatError::Write)?;
        }
        Ok(())
    }

    /// Finishes the chunk: writes the rest of the data, then the index to `index`. Returns the chunk's entry for the
    /// manifest, and both writers for the caller to sync and close. The caller renames the files to the names in the
    /// entry, which are derived from their contents.
    pub fn finish<I: Write>(mut self, index: I) -> Result<(ChunkEntry, W, I), FormatError> {
        let data_bytes = self.data.position();
        let filled = self.starts.fill(self.bucket_count as usize, data_bytes as u32);
        filled.map_err(FormatError::Table)?;
        let joined = self.joined_buckets();
        let ChunkIdentity { partition, chunk, .. } = self.identity;
        let (data_entry, data) = self.data.finish(&self.plan, DATA_KIND)?;
        debug_assert!(data_entry.bytes == data_bytes && data_bytes >= DATA_HEADER_BYTES as u64);
        let header = IndexHeader {
            identity: self.identity,
            bucket_count: self.bucket_count / joined,
            records: self.records,
            data_bytes,
        };
        let mut sink = Sink::new(index);
        let starts = self.starts.every(joined as usize).map_err(FormatError::Table)?;
        for block in blocks(header, starts) {
            sink.buffer.extend_from_slice(&block.map_err(FormatError::Table)?);
            if sink.buffer.len() >= BUFFER_BYTES {
                sink.write_buffer().map_err(FormatError::Write)?;
            }
        }
        let (index_entry, index) = sink.finish(&self.plan, INDEX_KIND)?;
        let entry = ChunkEntry {
            partition,
            chunk,
            records: self.records,
            data: data_entry,
            index: index_entry,
            further: Vec::new(),
        };
        Ok((entry, data, index))
    }

    /// The number of neighbouring buckets that are merged into one. It is more than one if there are at least twice
    /// as many buckets as the records need, since dropped duplicates had been counted, too. A bucket is a range of
    /// hashes, so merged buckets are one range.
    fn joined_buckets(&self) -> u32 {
        let ChunkPlan {
            records_expected,
            bytes_expected,
            ..
        } = self.plan;
        let bytes = u128::from(bytes_expected) * u128::from(self.records) / u128::from(records_expected.max(1));
        let needed = bucket_count(self.records, bytes.min(u128::from(u64::MAX)) as u64);
        floor_power_of_two(self.bucket_count / needed).min(divisor(self.bucket_count))
    }
}

/// The least number of buckets after merging those of a chunk with many.
const BUCKETS_JOINED_MIN: u32 = 256;

/// A number of buckets, at least as large, that allows many of them to be merged.
fn divisible(buckets: u32) -> u32 {
    let rounded = buckets.checked_next_multiple_of(divisor(buckets));
    rounded.unwrap_or(buckets)
}

/// How many buckets can be merged into one: a power of two that is far smaller than their number.
fn divisor(buckets: u32) -> u32 {
    floor_power_of_two(buckets / BUCKETS_JOINED_MIN)
}

fn floor_power_of_two(n: u32) -> u32 {
    1 << n.max(1).ilog2()
}
