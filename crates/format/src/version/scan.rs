//! All records of a version, in the order of partition and hash.
//!
//! A [`ScanPosition`] is a partition and a hash, not a place in a file: so it means the same in every
//! version of a store, and a scan that goes on in a newer version still meets every key that both
//! have.

use fondaco_model::PartitionId;

use super::Version;
use crate::chunk::reader::Chunk;
use crate::error::FormatError;
use crate::hash::chunk_of_hash;
use crate::record::{RECORD_HEADER_BYTES, RecordHeader, record_is_intact};

/// From where a scan goes on: whole buckets, from the one that holds this hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanPosition {
    /// The partition.
    pub partition: PartitionId,
    /// The hash in it.
    pub hash: u64,
}

impl ScanPosition {
    /// Before the first record.
    pub const START: Self = Self {
        partition: PartitionId::new(0),
        hash: 0,
    };
}

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

impl Version {
    /// All records. Waits for the disk; meant for tools and tests.
    pub fn scan(&self) -> Scan<'_> {
        Scan {
            version: self,
            position: Some(ScanPosition::START),
            records: Vec::new().into_iter(),
        }
    }

    /// The records from a position on: at least `records_min` unless they end before, at most a
    /// bucket more, and no more than some 4 MiB; and where to go on, `None` at the end.
    ///
    /// Waits for the disk.
    ///
    /// # Errors
    /// Corruption, or a read that failed.
    pub fn scan_from(
        &self,
        position: ScanPosition,
        records_min: usize,
    ) -> Result<(Vec<Record>, Option<ScanPosition>), FormatError> {
        const BYTES_MAX: usize = 4 * 1024 * 1024;
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut next = self.cursor(position);
        while let Some((partition, within, bucket)) = next {
            if records.len() >= records_min || bytes >= BYTES_MAX {
                break;
            }
            let (start, count) = self.chunks_of(partition);
            let chunk = &self.chunks[(start + within) as usize];
            let read = self.read_bucket(chunk, bucket, &mut records);
            bytes += read.inspect_err(|error| self.note(start + within, error))?;
            next = if bucket + 1 < chunk.bucket_count() {
                Some((partition, within, bucket + 1))
            } else if within + 1 < count {
                Some((partition, within + 1, 0))
            } else {
                self.first_bucket_from(partition + 1)
            };
        }
        Ok((records, next.map(|next| self.position_of(next))))
    }

    fn chunks_of(&self, partition: u32) -> (u32, u32) {
        let start = self.partition_starts[partition as usize];
        (start, self.partition_starts[partition as usize + 1] - start)
    }

    /// The bucket (partition, chunk in it, bucket in that) that holds a position.
    fn cursor(&self, position: ScanPosition) -> Option<(u32, u32, u32)> {
        let partition = position.partition.get();
        if partition >= self.manifest.partitions.get() {
            return None;
        }
        match self.chunks_of(partition) {
            (_, 0) => self.first_bucket_from(partition + 1),
            (start, count) => {
                let within = chunk_of_hash(position.hash, count);
                let bucket = self.chunks[(start + within) as usize].bucket_of(position.hash);
                Some((partition, within, bucket))
            }
        }
    }

    fn first_bucket_from(&self, partition: u32) -> Option<(u32, u32, u32)> {
        (partition..self.manifest.partitions.get())
            .find(|&partition| self.chunks_of(partition).1 > 0)
            .map(|partition| (partition, 0, 0))
    }

    /// The least hash of a bucket.
    fn position_of(&self, (partition, within, bucket): (u32, u32, u32)) -> ScanPosition {
        let (start, count) = self.chunks_of(partition);
        let buckets = self.chunks[(start + within) as usize].bucket_count();
        // The least fraction that scales to `bucket`, then the least hash that scales to both.
        let ceil_div =
            |high: u32, low: u64, by: u32| ((u128::from(high) << 64 | u128::from(low)).div_ceil(u128::from(by))) as u64;
        let fraction = ceil_div(bucket, 0, buckets);
        let hash = ceil_div(within, fraction, count);
        ScanPosition {
            partition: PartitionId::new(partition),
            hash,
        }
    }

    /// Appends the records of a bucket; returns their length in the file.
    fn read_bucket(&self, chunk: &Chunk, bucket: u32, records: &mut Vec<Record>) -> Result<usize, FormatError> {
        let range = chunk.read_bucket_range(bucket)?;
        let io_error = FormatError::io("read", chunk.data().path());
        let bytes = chunk
            .data()
            .read(range.start as u64..range.end as u64)
            .map_err(io_error)?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let header = RecordHeader::parse(rest).ok_or_else(|| chunk.corrupt_data("a record's header is damaged"))?;
            let (record, after) = rest
                .split_at_checked(header.record_bytes())
                .filter(|(record, _)| record_is_intact(record))
                .ok_or_else(|| chunk.corrupt_data("a record's checksum does not match"))?;
            let (key, stored) = record[RECORD_HEADER_BYTES..].split_at(header.key_bytes);
            let value = match self.decode(chunk, stored, header.stored_as_is)? {
                Some(decoded) => decoded,
                None => stored.to_vec(),
            };
            records.push((key.to_vec(), value));
            rest = after;
        }
        Ok(bytes.len())
    }
}

/// An iterator over all records of a version.
pub struct Scan<'v> {
    version: &'v Version,
    position: Option<ScanPosition>,
    records: std::vec::IntoIter<Record>,
}

impl Iterator for Scan<'_> {
    type Item = Result<Record, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.records.next() {
                return Some(Ok(record));
            }
            match self.version.scan_from(self.position.take()?, 256) {
                Ok((records, next)) => {
                    self.records = records.into_iter();
                    self.position = next;
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
