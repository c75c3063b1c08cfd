//! Scans all records of a version, in the order of partition and hash.
//!
//! A [`ScanPosition`] is a partition and a hash, not a file offset. So it is valid in every version of a store, and a
//! scan that continues in a newer version returns every key that both versions have.

use std::ops::Range;

use fondaco_model::PartitionId;

use super::Version;
use crate::chunk::index::entry_range;
use crate::chunk::reader::Chunk;
use crate::compression::EncodedValue;
use crate::error::FormatError;
use crate::hash::chunk_of_hash;
use crate::record::{RECORD_HEADER_BYTES, RecordHeader, record_is_intact};

/// The position at which a scan continues, at the start of the bucket that contains this hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanPosition {
    /// The partition.
    pub partition: PartitionId,
    /// The hash within the partition.
    pub hash: u64,
}

impl ScanPosition {
    /// Before the first record.
    pub const START: Self = Self {
        partition: PartitionId::new(0),
        hash: 0,
    };
}

/// How much of a file is read at a time: enough for the full throughput of a disk, and little enough that a look-up
/// queued behind it does not wait for long.
const READ_BYTES_MAX: usize = 512 * 1024;

/// How many records an iterator reads at a time, unless they are long.
const RECORDS_AT_ONCE: usize = 1024;

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

impl Version {
    /// Iterates over all records. It waits for the disk, and is meant for tools and tests.
    pub fn scan(&self) -> Scan<'_> {
        Scan {
            version: self,
            position: Some(ScanPosition::START),
            records: Vec::new().into_iter(),
        }
    }

    /// The records from a position on, and the next position, `None` at the end. It reads at least `records_min`
    /// records unless the version ends before, at most a bucket more, and at most about 4 MiB.
    ///
    /// It waits for the disk, which it reads in the order of the file, in pieces of some hundred kilobytes, with
    /// readahead of the next piece.
    ///
    /// # Errors
    /// Corruption, or a failed read.
    pub fn scan_from(
        &self,
        position: ScanPosition,
        records_min: usize,
    ) -> Result<(Vec<Record>, Option<ScanPosition>), FormatError> {
        self.records_within(position, self.manifest.partitions.get(), records_min)
    }

    /// The records from a position on, in partitions before `end`.
    fn records_within(
        &self,
        position: ScanPosition,
        end: u32,
        records_min: usize,
    ) -> Result<(Vec<Record>, Option<ScanPosition>), FormatError> {
        let mut records = Vec::new();
        let next = self.walk(position, end, records_min, |chunk, key, stored| {
            if self.is_over(stored.time_ms) {
                return Ok(());
            }
            let value = match self.decode(chunk, stored.bytes, stored.stored_as_is)? {
                Some(decoded) => decoded,
                None => stored.bytes.to_vec(),
            };
            records.push((key.to_vec(), value));
            Ok(())
        })?;
        Ok((records, next))
    }

    /// The records of a partition from a position in it on, like [`Version::scan_from`], and the next position, `None` at
    /// the end of the partition.
    ///
    /// # Errors
    /// As [`Version::scan_from`], and [`FormatError::NotHeld`] or [`FormatError::NoPartition`].
    pub fn scan_partition(
        &self,
        position: ScanPosition,
        records_min: usize,
    ) -> Result<(Vec<Record>, Option<ScanPosition>), FormatError> {
        let partition = position.partition;
        if partition.get() >= self.manifest.partitions.get() {
            return Err(FormatError::NoPartition {
                partition,
                partitions: self.manifest.partitions,
                path: self.dir.clone(),
            });
        }
        if !self.holds(partition) {
            return Err(FormatError::NotHeld { partition });
        }
        self.records_within(position, partition.get() + 1, records_min)
    }

    /// The keys from a position on, like the records of [`Version::scan_from`].
    ///
    /// # Errors
    /// As [`Version::scan_from`].
    pub fn keys_from(
        &self,
        position: ScanPosition,
        keys_min: usize,
    ) -> Result<(Vec<Vec<u8>>, Option<ScanPosition>), FormatError> {
        let mut keys = Vec::new();
        let end = self.manifest.partitions.get();
        let next = self.walk(position, end, keys_min, |_, key, stored| {
            if !self.is_over(stored.time_ms) {
                keys.push(key.to_vec());
            }
            Ok(())
        })?;
        Ok((keys, next))
    }

    /// The keys of one partition that have expired at a time, in milliseconds since 1970, from a hash on; and the hash of
    /// the next page, `None` at the end of the partition. It reads at most `records_min` records and a bucket more.
    ///
    /// # Errors
    /// As [`Version::scan_from`].
    pub fn expired_from(
        &self,
        position: ScanPosition,
        at_unix_ms: u64,
        records_min: usize,
    ) -> Result<(Vec<Vec<u8>>, Option<u64>), FormatError> {
        let Some(lifetimes) = self.lifetimes() else {
            return Ok((Vec::new(), None));
        };
        let mut keys = Vec::new();
        let end = position.partition.get() + 1;
        let next = self.walk(position, end, records_min, |_, key, stored| {
            if lifetimes.expires_unix_ms(stored.time_ms) <= at_unix_ms {
                keys.push(key.to_vec());
            }
            Ok(())
        })?;
        Ok((keys, next.map(|next| next.hash)))
    }

    /// Calls `each` with the key and the stored value of each record; returns the next position. It stops before partition
    /// `end`.
    fn walk(
        &self,
        position: ScanPosition,
        end: u32,
        records_min: usize,
        mut each: impl FnMut(&Chunk, &[u8], EncodedValue<'_>) -> Result<(), FormatError>,
    ) -> Result<Option<ScanPosition>, FormatError> {
        const BYTES_MAX: usize = 4 * 1024 * 1024;
        let mut met = Met::default();
        let mut next = self.cursor(position, end);
        while let Some((partition, within, bucket)) = next {
            if met.records >= records_min || met.bytes >= BYTES_MAX {
                break;
            }
            let (start, count) = self.chunks_of(partition);
            let number = start + within;
            let chunk = &self.chunks[number as usize];
            let wanted = records_min - met.records;
            let walked = self.walk_buckets(number, bucket, wanted, &mut met, |key, stored| each(chunk, key, stored));
            let bucket = walked.inspect_err(|error| self.note(number, error))?;
            next = if bucket < chunk.bucket_count() {
                Some((partition, within, bucket))
            } else if within + 1 < count {
                Some((partition, within + 1, 0))
            } else {
                self.first_bucket_in(partition + 1..end)
            };
        }
        Ok(next.map(|next| self.position_of(next)))
    }

    /// Reads, up to a limit, as many buckets of a chunk at once as should contain the wanted records. Returns the first
    /// bucket that was not scanned.
    pub(super) fn walk_buckets(
        &self,
        number: u32,
        first: u32,
        wanted: usize,
        met: &mut Met,
        mut each: impl FnMut(&[u8], EncodedValue<'_>) -> Result<(), FormatError>,
    ) -> Result<u32, FormatError> {
        let chunk = &self.chunks[number as usize];
        let range = self.bucket_range(number, first)?;
        let target = wanted.saturating_mul(chunk.record_bytes()).min(READ_BYTES_MAX);
        let mut ends = vec![range.end];
        let mut end = range.end;
        for bucket in first + 1..chunk.bucket_count() {
            if end - range.start >= target {
                break;
            }
            let next = self.bucket_range(number, bucket)?;
            if next.start != end {
                let reason = format!("bucket {bucket} begins at {}, not at {end}", next.start);
                return Err(FormatError::corrupt(chunk.index_path(), reason));
            }
            end = next.end;
            ends.push(end);
        }
        let bytes = chunk.read_data(first, range.start as u64..end as u64)?;
        chunk.data().read_ahead(end..end + bytes.len());
        let (mut rest, mut at, enough) = (&bytes[..], range.start, met.records + wanted);
        let mut bucket = first;
        for end in ends {
            if met.records >= enough {
                break;
            }
            bucket += 1;
            let (mut records, after) = rest.split_at(end - at);
            (rest, at) = (after, end);
            met.bytes += records.len();
            while !records.is_empty() {
                let header =
                    RecordHeader::parse(records).ok_or_else(|| chunk.corrupt_data("a record's header is damaged"))?;
                let (record, after) = records
                    .split_at_checked(header.record_bytes())
                    .filter(|(record, _)| record_is_intact(record))
                    .ok_or_else(|| chunk.corrupt_data("a record's checksum does not match"))?;
                let stored = EncodedValue {
                    bytes: &record[header.value_start()..],
                    stored_as_is: header.stored_as_is,
                    time_ms: header.time_ms(record),
                };
                each(&record[RECORD_HEADER_BYTES..][..header.key_bytes], stored)?;
                met.records += 1;
                records = after;
            }
        }
        Ok(bucket)
    }

    /// The range of a bucket's records; reads the index from disk if necessary.
    fn bucket_range(&self, number: u32, bucket: u32) -> Result<Range<usize>, FormatError> {
        let chunk = &self.chunks[number as usize];
        match self.resident.get() {
            Some(resident) => chunk.checked(entry_range(resident.entry(number, bucket))),
            None => chunk.read_bucket_range(bucket),
        }
    }

    pub(super) fn chunks_of(&self, partition: u32) -> (u32, u32) {
        let start = self.partition_starts[partition as usize];
        (start, self.partition_starts[partition as usize + 1] - start)
    }

    /// The bucket (partition, chunk in it, bucket in that) of a position.
    fn cursor(&self, position: ScanPosition, end: u32) -> Option<(u32, u32, u32)> {
        let partition = position.partition.get();
        if partition >= end {
            return None;
        }
        match self.chunks_of(partition) {
            (_, 0) => self.first_bucket_in(partition + 1..end),
            (start, count) => {
                let within = chunk_of_hash(position.hash, count);
                let bucket = self.chunks[(start + within) as usize].bucket_of(position.hash);
                Some((partition, within, bucket))
            }
        }
    }

    fn first_bucket_in(&self, mut partitions: Range<u32>) -> Option<(u32, u32, u32)> {
        partitions
            .find(|&partition| self.chunks_of(partition).1 > 0)
            .map(|partition| (partition, 0, 0))
    }

    /// The lowest hash of a bucket.
    fn position_of(&self, (partition, within, bucket): (u32, u32, u32)) -> ScanPosition {
        let (start, count) = self.chunks_of(partition);
        let buckets = self.chunks[(start + within) as usize].bucket_count();
        // The lowest fraction that scales to `bucket`, then the lowest hash that scales to both.
        let ceil_div =
            |high: u32, low: u64, by: u32| ((u128::from(high) << 64 | u128::from(low)).div_ceil(u128::from(by))) as u64;
        let fraction = ceil_div(bucket, 0, buckets);
        let hash = ceil_div(within, fraction, count);
        ScanPosition {
            partition: PartitionId::new(partition),
            hash,
        }
    }
}

/// The progress of a scan.
#[derive(Default)]
pub(super) struct Met {
    records: usize,
    bytes: usize,
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
            match self.version.scan_from(self.position.take()?, RECORDS_AT_ONCE) {
                Ok((records, next)) => {
                    self.records = records.into_iter();
                    self.position = next;
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
