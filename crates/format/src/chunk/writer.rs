//! Writes one chunk, record by record, to any two writers.
//!
//! The data file is written in one pass, and the index after it, so that both can be streamed to a remote store. The
//! size of the index follows from the records themselves, so nothing has to be known about them before. Until then the
//! place of each record is noted: 12 bytes, in memory, or mostly in a temporary file.

use std::fs::File;
use std::io::{self, Write};

use fondaco_model::{KEY_BYTES_MAX, PartitionId};

use super::ChunkIdentity;
use super::data::{DATA_HEADER_BYTES, DataHeader};
use super::index::{IndexHeader, blocks, bucket_count};
use super::places::Places;
use super::sink::{BUFFER_BYTES, Sink};
use crate::compression::{Compression, EncodedValue};
use crate::error::FormatError;
use crate::hash::{bucket_of_hash, chunk_of_hash};
use crate::manifest::ChunkEntry;
use crate::names::{DATA_KIND, INDEX_KIND};
use crate::record::{RECORD_BYTES_MAX, write_record};

/// The chunk that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPlan {
    /// Its partition.
    pub partition: PartitionId,
    /// Its number in the partition, from 0.
    pub chunk: u32,
    /// The number of chunks of the partition, at least 1.
    pub chunk_count: u32,
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

/// The two numbers that the size of an index follows from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// The number of records.
    pub records: u64,
    /// The bytes of their keys and values, before compression.
    pub bytes: u64,
}

/// Writes one chunk.
pub struct ChunkWriter<W: Write> {
    plan: ChunkPlan,
    identity: ChunkIdentity,
    compression: Compression,
    places: Places,
    data: Sink<W>,
    counts: ChunkCounts,
    /// The numbers for the size of the index, if they are not those of the records.
    index_for: Option<ChunkCounts>,
    last_hash: u64,
}

impl<W: Write> ChunkWriter<W> {
    /// Starts a chunk whose data goes to `data`. Writes are few and large: no buffering is needed.
    pub fn new(plan: ChunkPlan, compression: Compression, data: W) -> Self {
        let identity = plan.identity();
        assert!(
            plan.chunk < plan.chunk_count,
            "chunk {} of {}",
            plan.chunk,
            plan.chunk_count
        );
        let mut data = Sink::new(data);
        data.buffer.extend_from_slice(&DataHeader { identity }.to_bytes());
        Self {
            plan,
            identity,
            compression,
            places: Places::default(),
            data,
            counts: ChunkCounts::default(),
            index_for: None,
            last_hash: 0,
        }
    }

    /// Stores the places of many records in an empty file that this makes. Then memory does not grow with their number.
    #[must_use]
    pub fn with_places_in(mut self, make_file: impl FnOnce() -> io::Result<File> + Send + 'static) -> Self {
        self.places.keep_in(Box::new(make_file));
        self
    }

    /// Makes an index for these numbers instead of those of the records: for a patch of an earlier release, which took
    /// the averages of all chunks of a partition.
    #[must_use]
    pub(crate) fn with_index_for(mut self, counts: ChunkCounts) -> Self {
        self.index_for = Some(counts);
        self
    }

    /// The records so far.
    pub fn counts(&self) -> ChunkCounts {
        self.counts
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
        self.places.add(hash, start as u32).map_err(FormatError::Table)?;
        write_record(&mut self.data.buffer, key, value);
        self.counts.records += 1;
        self.counts.bytes += key.len() as u64 + value.value_bytes(self.compression);
        self.last_hash = hash;
        if self.data.buffer.len() >= BUFFER_BYTES {
            self.data.write_buffer().map_err(FormatError::Write)?;
        }
        Ok(())
    }

    /// Finishes the chunk: writes the rest of the data, then the index to `index`. Returns the chunk's entry for the
    /// manifest, and both writers for the caller to sync and close. The caller renames the files to the names in the
    /// entry, which are derived from their contents.
    pub fn finish<I: Write>(self, index: I) -> Result<(ChunkEntry, W, I), FormatError> {
        let data_bytes = self.data.position();
        let ChunkIdentity {
            partition,
            chunk,
            chunk_count,
        } = self.identity;
        let (data_entry, data) = self.data.finish(&self.plan, DATA_KIND)?;
        debug_assert!(data_entry.bytes == data_bytes && data_bytes >= DATA_HEADER_BYTES as u64);
        let sized_for = self.index_for.unwrap_or(self.counts);
        let header = IndexHeader {
            identity: self.identity,
            bucket_count: divisible(bucket_count(sized_for.records, sized_for.bytes)),
            records: self.counts.records,
            data_bytes,
        };
        let places = self.places.read().map_err(FormatError::Table)?;
        let starts = starts(places, chunk_count, header.bucket_count, data_bytes as u32);
        let mut sink = Sink::new(index);
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
            records: self.counts.records,
            data: data_entry,
            index: index_entry,
            further: Vec::new(),
        };
        Ok((entry, data, index))
    }
}

/// The offset of each bucket: that of the first record in it or in a later one.
fn starts(
    mut places: impl Iterator<Item = io::Result<(u64, u32)>>,
    chunk_count: u32,
    bucket_count: u32,
    data_bytes: u32,
) -> impl Iterator<Item = io::Result<u32>> {
    // The bucket and the offset of the next record.
    let mut next = None;
    (0..bucket_count).map(move |bucket| {
        loop {
            match next {
                Some((of_next, start)) if of_next >= bucket => return Ok(start),
                _ => match places.next().transpose()? {
                    Some((hash, start)) => next = Some((bucket_of_hash(hash, chunk_count, bucket_count), start)),
                    None => return Ok(data_bytes),
                },
            }
        }
    })
}

/// Numbers of buckets are multiples of a power of two that is far smaller, so that they do not differ from those of
/// earlier releases, which merged neighbouring buckets. Those releases make chunks from patches.
const BUCKETS_JOINED_MIN: u32 = 256;

/// A number of buckets, at least as large, that is such a multiple.
fn divisible(buckets: u32) -> u32 {
    let divisor = 1 << (buckets / BUCKETS_JOINED_MIN).max(1).ilog2();
    buckets.checked_next_multiple_of(divisor).unwrap_or(buckets)
}
