//! An open chunk: both files are mapped and their headers checked; nothing else is read.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use fondaco_model::PartitionId;

use super::ChunkIdentity;
use super::data::{DATA_HEADER_BYTES, DataHeader, HeaderError};
use super::index::{BLOCK_BYTES, BUCKETS_PER_BLOCK, IndexHeader, block_is_intact, block_of, block_range, bucket_range};
use crate::error::FormatError;
use crate::hash::bucket_of_hash;
use crate::manifest::{ChunkEntry, FileEntry};
use crate::mapping::Mapping;
use crate::partial::{FilePlace, bring_blocks, missing};
use crate::record::{RECORD_HEADER_BYTES, RecordHeader, record_is_intact, records_are_intact};
use crate::version::prefetch;

pub(crate) const CACHE_LINE_BYTES: usize = 64;
/// How many lines of a bucket are loaded ahead at least.
const PREFETCHED_LINES_MIN: usize = 5;
/// And at most: the processor itself loads the rest of a longer record ahead, once it sees a sequence.
const PREFETCHED_LINES_MAX: usize = 20;

/// An open chunk.
pub(crate) struct Chunk {
    identity: ChunkIdentity,
    bucket_count: u32,
    records: u64,
    /// How many cache lines of a bucket are loaded ahead.
    prefetched_lines: usize,
    data: Mapping,
    index_path: PathBuf,
    /// `None` once the whole index is loaded into anonymous memory.
    index: Option<Mapping>,
}

impl Chunk {
    /// Opens the chunk of an entry, whose files are at these places. Reads only the two headers; that of a data file only if it
    /// is here.
    pub(crate) fn open(
        place: impl Fn(&FileEntry) -> FilePlace,
        entry: &ChunkEntry,
        chunk_count: u32,
    ) -> Result<Self, FormatError> {
        let identity = ChunkIdentity {
            partition: entry.partition,
            chunk: entry.chunk,
            chunk_count,
        };
        let data = Mapping::open(place(&entry.data), entry.data.bytes, entry.partition)?;
        let header = match data.is_here(&(0..DATA_HEADER_BYTES as u64)) {
            true => read_header(&data, DATA_HEADER_BYTES, DataHeader::from_bytes)?,
            // It is checked when it is brought here.
            false => DataHeader { identity },
        };
        let index = Mapping::open(place(&entry.index), entry.index.bytes, entry.partition)?;
        bring_index(&index, &(0..BLOCK_BYTES as u64))?;
        let index_header = read_header(&index, BLOCK_BYTES, IndexHeader::from_block)?;
        for (mapping, found) in [(&data, header.identity), (&index, index_header.identity)] {
            if found != identity {
                let reason = format!("it is chunk {found:?}, but the manifest says {identity:?}");
                return Err(FormatError::corrupt(mapping.path(), reason));
            }
        }
        let fits = index_header.data_bytes == entry.data.bytes
            && index_header.records == entry.records
            && index_header.file_bytes() == entry.index.bytes
            && entry.data.bytes >= DATA_HEADER_BYTES as u64;
        if !fits {
            return Err(FormatError::corrupt(
                index.path(),
                "its header contradicts the manifest",
            ));
        }
        Ok(Self {
            identity,
            bucket_count: index_header.bucket_count,
            records: index_header.records,
            prefetched_lines: prefetched_lines(entry.data.bytes, index_header.records),
            data,
            index_path: index.path().to_owned(),
            index: Some(index),
        })
    }

    pub(crate) fn partition(&self) -> PartitionId {
        self.identity.partition
    }

    pub(crate) fn data(&self) -> &Mapping {
        &self.data
    }

    /// The index file, unless it was closed.
    pub(crate) fn index(&self) -> Option<&Mapping> {
        self.index.as_ref()
    }

    pub(crate) fn index_path(&self) -> &Path {
        &self.index_path
    }

    /// Closes the index file, which is not read any more.
    pub(crate) fn close_index(&mut self) {
        self.index = None;
    }

    /// The average length of a record, in bytes.
    pub(crate) fn record_bytes(&self) -> usize {
        self.data.bytes().len() / self.records.max(1) as usize + 1
    }

    pub(crate) fn bucket_count(&self) -> u32 {
        self.bucket_count
    }

    /// Loads the beginning of a bucket, whose range need not be checked, into the processor's cache: one record of average length,
    /// mostly.
    #[inline]
    pub(crate) fn prefetch_range(&self, bucket: Range<u32>) {
        let line = |at: u32| at as usize / CACHE_LINE_BYTES;
        if bucket.is_empty() {
            return;
        }
        let lines = line(bucket.end - 1) - line(bucket.start) + 1;
        self.data
            .prefetch(line(bucket.start) * CACHE_LINE_BYTES, lines.min(self.prefetched_lines));
    }

    /// The position of a bucket among all hashes, from 0 to 2^64.
    pub(crate) fn position_of(&self, bucket: u32) -> u128 {
        let within = (u128::from(bucket) << 64) / u128::from(self.bucket_count);
        ((u128::from(self.identity.chunk) << 64) + within) / u128::from(self.identity.chunk_count)
    }

    /// The buckets of this chunk between two such positions, the first one included.
    pub(crate) fn buckets_between(&self, positions: &Range<u128>) -> Range<u32> {
        let bucket = |position: u128, round_up: u128| {
            let within = position * u128::from(self.identity.chunk_count);
            let within = within
                .saturating_sub(u128::from(self.identity.chunk) << 64)
                .min(1 << 64);
            ((within * u128::from(self.bucket_count) + round_up) >> 64) as u32
        };
        bucket(positions.start, 0)..bucket(positions.end, (1 << 64) - 1)
    }

    #[inline]
    pub(crate) fn bucket_of(&self, hash: u64) -> u32 {
        bucket_of_hash(hash, self.identity.chunk_count, self.bucket_count)
    }

    /// The index block of a bucket, if it is resident and verified; `None` if it must be read.
    #[inline]
    pub(crate) fn hot_block(&self, bucket: u32) -> Option<&[u8]> {
        let index = self.index.as_ref()?;
        let block = block_of(bucket);
        let range = block_range(block);
        // A block gets its first stamp when it is verified. The unit of residency is the block.
        (index.was_seen(block) && index.is_resident(range.clone())).then(|| &index.bytes()[range])
    }

    /// Prefetches the index entry of a bucket.
    #[inline]
    pub(crate) fn prefetch_entry(&self, bucket: u32) {
        let at = block_range(block_of(bucket)).start + (bucket % BUCKETS_PER_BLOCK) as usize * 4;
        if let Some(entry) = self.index.as_ref().and_then(|index| index.bytes().get(at..)) {
            prefetch(entry.as_ptr());
        }
    }

    /// The byte range of the index block of a bucket.
    pub(crate) fn block_range(bucket: u32) -> Range<u64> {
        let range = block_range(block_of(bucket));
        range.start as u64..range.end as u64
    }

    /// Verifies a block that was read from the file, and allows the use of the mapping from now on.
    pub(crate) fn accept_block(&self, bucket: u32, block: &[u8]) -> Result<(), FormatError> {
        let number = block_of(bucket);
        if !block_is_intact(block) {
            let reason = format!("the checksum of block {number} does not match");
            return Err(FormatError::corrupt(&self.index_path, reason));
        }
        if let Some(index) = &self.index {
            index.note_resident(block_range(number));
        }
        Ok(())
    }

    /// The byte range of a bucket in the data file, from its verified block.
    #[inline]
    pub(crate) fn bucket_range(&self, block: &[u8], bucket: u32) -> Result<Range<usize>, FormatError> {
        self.checked(bucket_range(block, bucket))
    }

    /// Checks that a range from the index is within the data file.
    #[inline]
    pub(crate) fn checked(&self, Range { start, end }: Range<u32>) -> Result<Range<usize>, FormatError> {
        let range = start as usize..end as usize;
        if range.start < DATA_HEADER_BYTES || range.start > range.end || range.end > self.data.bytes().len() {
            return Err(self.bad_range(&range));
        }
        Ok(range)
    }

    #[cold]
    fn bad_range(&self, range: &Range<usize>) -> FormatError {
        FormatError::corrupt(&self.index_path, format!("a bucket lies at {range:?}"))
    }

    /// The byte range of a bucket in the data file; reads the index from disk if necessary.
    pub(crate) fn read_bucket_range(&self, bucket: u32) -> Result<Range<usize>, FormatError> {
        if let Some(block) = self.hot_block(bucket) {
            return self.bucket_range(block, bucket);
        }
        let range = Self::block_range(bucket);
        let block = self.read_index(range)?;
        self.accept_block(bucket, &block)?;
        self.bucket_range(&block, bucket)
    }

    /// Reads and verifies the whole index: the offset of each bucket, and the end of the last one.
    pub(crate) fn load_places(&self, places: &mut [u8]) -> Result<(), FormatError> {
        const BLOCKS_PER_READ: u64 = 256;
        debug_assert_eq!(places.len(), (self.bucket_count as usize + 1) * 4);
        let Some(index) = &self.index else {
            return Err(self.closed_index());
        };
        index.read_ahead(0..index.bytes().len());
        let file_bytes = index.bytes().len() as u64;
        let mut at = BLOCK_BYTES as u64;
        let mut rest = places;
        while at < file_bytes {
            let end = file_bytes.min(at + BLOCKS_PER_READ * BLOCK_BYTES as u64);
            for block in self.read_index(at..end)?.chunks(BLOCK_BYTES) {
                if !block_is_intact(block) {
                    return Err(FormatError::corrupt(
                        &self.index_path,
                        "the checksum of a block does not match",
                    ));
                }
                // The last entry of a block is the first one of the next: it is written twice.
                let entries = rest.len().min((BUCKETS_PER_BLOCK as usize + 1) * 4);
                rest[..entries].copy_from_slice(&block[..entries]);
                rest = &mut rest[entries.min(BUCKETS_PER_BLOCK as usize * 4)..];
            }
            at = end;
        }
        index.forget();
        Ok(())
    }

    /// Reads blocks of the index, which are not verified yet.
    pub(crate) fn read_index(&self, range: Range<u64>) -> Result<Vec<u8>, FormatError> {
        match &self.index {
            Some(index) => {
                bring_index(index, &range)?;
                index.read(range).map_err(FormatError::io("read", &self.index_path))
            }
            None => Err(self.closed_index()),
        }
    }

    /// Reads a range of the data, with this bucket at its start or before it.
    pub(crate) fn read_data(&self, bucket: u32, range: Range<u64>) -> Result<Vec<u8>, FormatError> {
        self.bring_data(bucket, &range)?;
        self.data.read(range).map_err(FormatError::io("read", self.data.path()))
    }

    /// Brings the missing parts of a range of the data here, each with the whole records around it.
    fn bring_data(&self, bucket: u32, range: &Range<u64>) -> Result<(), FormatError> {
        let Some(partial) = self.data.partial() else {
            return Ok(());
        };
        for pieces in missing(partial, range, self.data.bytes().len() as u64) {
            let around = self.records_around(bucket, &pieces)?;
            let is_intact = |bytes: &[u8]| match bytes.split_at_checked(DATA_HEADER_BYTES) {
                Some((header, records)) if around.start == 0 => {
                    let header = DataHeader::from_bytes(header);
                    header.is_ok_and(|header| header.identity == self.identity) && records_are_intact(records)
                }
                _ => around.start > 0 && records_are_intact(bytes),
            };
            let brought = partial.bring(pieces, around.clone(), &is_intact);
            brought.map_err(FormatError::io("fetch a part of", self.data.path()))?;
        }
        Ok(())
    }

    /// The range of the whole buckets that pieces of the data lie in, with the header if they begin with it. The bucket begins
    /// before their end.
    fn records_around(&self, bucket: u32, pieces: &Range<u64>) -> Result<Range<u64>, FormatError> {
        let (mut first, mut range) = (bucket, self.read_bucket_range(bucket)?);
        while range.end as u64 <= pieces.start && first + 1 < self.bucket_count {
            first += 1;
            range = self.read_bucket_range(first)?;
        }
        let (mut last, mut end) = (first, range.end as u64);
        while end < pieces.end && last + 1 < self.bucket_count {
            last += 1;
            end = self.read_bucket_range(last)?.end as u64;
        }
        while range.start as u64 > pieces.start && first > 0 {
            first -= 1;
            range = self.read_bucket_range(first)?;
        }
        let start = if first == 0 { 0 } else { range.start as u64 };
        Ok(start..end)
    }

    /// The error for a read of a closed index, which does not happen: the whole index is in memory then.
    #[cold]
    fn closed_index(&self) -> FormatError {
        FormatError::io("read", &self.index_path)(io::Error::other("it was closed"))
    }

    pub(crate) fn corrupt_data(&self, reason: &str) -> FormatError {
        FormatError::corrupt(self.data.path(), reason)
    }

    /// Searches a bucket that is too large to be read at once: first by the records' headers. If the key is not
    /// found, it reads and verifies every record, one at a time.
    ///
    /// Returns the verified record of the key.
    pub(crate) fn search_large(
        &self,
        number: u32,
        bucket: Range<usize>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, FormatError> {
        let io_error = |e: io::Error| FormatError::io("read", self.data.path())(e);
        let (mut at, end) = (bucket.start as u64, bucket.end as u64);
        self.bring_data(number, &(at..end))?;
        let prefix_bytes = (RECORD_HEADER_BYTES + key.len()) as u64;
        while at < end {
            let prefix = self.data.read(at..end.min(at + prefix_bytes)).map_err(io_error)?;
            let record = self.large_record(at, end, &prefix)?;
            let header = RecordHeader::parse(&prefix);
            if header.is_some_and(|h| h.key_bytes == key.len()) && prefix.get(RECORD_HEADER_BYTES..) == Some(key) {
                let record = self.data.read(record).map_err(io_error)?;
                return if record_is_intact(&record) {
                    Ok(Some(record))
                } else {
                    Err(self.corrupt_data("a record's checksum does not match"))
                };
            }
            at = record.end;
        }
        at = bucket.start as u64;
        while at < end {
            let prefix = self
                .data
                .read(at..end.min(at + RECORD_HEADER_BYTES as u64))
                .map_err(io_error)?;
            let record = self.large_record(at, end, &prefix)?;
            at = record.end;
            if !record_is_intact(&self.data.read(record).map_err(io_error)?) {
                return Err(self.corrupt_data("a record's checksum does not match"));
            }
        }
        Ok(None)
    }

    fn large_record(&self, at: u64, end: u64, prefix: &[u8]) -> Result<Range<u64>, FormatError> {
        let header = RecordHeader::parse(prefix).ok_or_else(|| self.corrupt_data("a record's header is damaged"))?;
        let record = at..at + header.record_bytes() as u64;
        if record.end > end {
            return Err(self.corrupt_data("a record extends past the end of its bucket"));
        }
        Ok(record)
    }
}

/// How many cache lines of a bucket are loaded ahead, in a data file of this length with this many records.
///
/// A record of average length, which is not aligned. A longer sequence would be loaded for nothing where the bucket has another record
/// behind it; a shorter one would leave the rest of the record to the processor, which begins only after the first misses.
fn prefetched_lines(data_bytes: u64, records: u64) -> usize {
    let lines = (data_bytes / records.max(1)).div_ceil(CACHE_LINE_BYTES as u64) + 1;
    (lines as usize).clamp(PREFETCHED_LINES_MIN, PREFETCHED_LINES_MAX)
}

/// Brings blocks of an index here, if they are missing.
fn bring_index(index: &Mapping, range: &Range<u64>) -> Result<(), FormatError> {
    match index.partial() {
        Some(partial) => bring_blocks(partial, range, index.bytes().len() as u64)
            .map_err(FormatError::io("fetch a part of", index.path())),
        None => Ok(()),
    }
}

fn read_header<H>(
    mapping: &Mapping,
    bytes: usize,
    parse: impl Fn(&[u8]) -> Result<H, HeaderError>,
) -> Result<H, FormatError> {
    let available = bytes.min(mapping.bytes().len()) as u64;
    let header = mapping
        .read(0..available)
        .map_err(FormatError::io("read", mapping.path()))?;
    parse(&header).map_err(|e| header_error(mapping.path(), e))
}

pub(crate) fn header_error(path: &Path, error: HeaderError) -> FormatError {
    match error {
        HeaderError::UnknownFormat(found) => FormatError::UnknownFormat {
            path: path.into(),
            found: u64::from(found),
        },
        HeaderError::Damaged(reason) => FormatError::corrupt(path, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_one_record_is_prefetched_whatever_its_length() {
        let lines = |record_bytes: u64| prefetched_lines(record_bytes * 1000, 1000);
        assert_eq!(lines(122), PREFETCHED_LINES_MIN);
        assert_eq!(lines(1046), 18);
        assert_eq!(lines(1 << 20), PREFETCHED_LINES_MAX);
        assert_eq!(prefetched_lines(64, 0), PREFETCHED_LINES_MIN, "there are no records");
    }
}
