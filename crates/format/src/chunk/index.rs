//! The index file of a chunk: the offset of each bucket of records in the data file.
//!
//! The hash range of a chunk is divided into equal *buckets*. The hash of a key determines its bucket; the index gives
//! the byte range of that bucket in the data file, which is then read and searched. The index contains no keys and no
//! hashes, and is not searched.
//!
//! The file is a sequence of blocks of 4096 bytes, each with its own checksum, so that one block can be read and
//! verified without the others:
//!
//! ```text
//! block 0      bytes  field
//!      0           8  "FONDINDX"
//!      8           4  format version
//!     12          12  partition, chunk, count of chunks in the partition (4 bytes each)
//!     24           4  count of buckets, at least 1
//!     28           4  zero
//!     32           8  count of records
//!     40           8  length of the data file, in bytes
//!     48        4044  zero
//!   4092           4  checksum: low half of XXH3-64 of the bytes before
//!
//! block 1 …    bytes  field
//!      0        4088  where 1022 buckets begin in the data file, 4 bytes each
//!   4088           4  where the last of them ends
//!   4092           4  checksum: low half of XXH3-64 of the bytes before
//! ```
//!
//! Format versions 1 and 2 have this layout. All numbers are little-endian. In the last block, the unused entries hold
//! the length of the data file. Buckets follow each other without gaps: one ends where the next begins.

use std::io;
use std::iter::Peekable;
use std::ops::Range;

use super::data::{HeaderError, check_start};
use super::{ChunkIdentity, u32_at, u64_at};
use crate::checksum::short_checksum;
use crate::format_version;

pub(crate) const BLOCK_BYTES: usize = 4096;
pub(crate) const BUCKETS_PER_BLOCK: u32 = 1022;

const MAGIC: &[u8; 8] = b"FONDINDX";
const CHECKSUM_AT: usize = BLOCK_BYTES - 4;

/// The average number of records per bucket: as many as fit into two cache lines, at least one and at most four.
///
/// The cost of a look-up in memory is the number of cache lines that it touches, and a bucket is searched from its
/// start. So buckets are short: one record on average from 64 bytes on, which costs 4 bytes of index per key. For tiny
/// records 4 bytes per key would be too much, so several share a bucket.
const RECORDS_PER_BUCKET_MAX: u64 = 4;
const BUCKET_BYTES_TARGET: u64 = 128;

/// The target number of buckets of a chunk.
pub(crate) fn bucket_count(records: u64, bytes: u64) -> u32 {
    let record_bytes = (bytes / records.max(1)).max(1);
    let records_per_bucket = (BUCKET_BYTES_TARGET / record_bytes).clamp(1, RECORDS_PER_BUCKET_MAX);
    records.div_ceil(records_per_bucket).clamp(1, u64::from(u32::MAX)) as u32
}

/// The first block of an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexHeader {
    pub(crate) identity: ChunkIdentity,
    pub(crate) bucket_count: u32,
    pub(crate) records: u64,
    pub(crate) data_bytes: u64,
}

impl IndexHeader {
    pub(crate) fn to_block(self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&format_version().to_le_bytes());
        block[12..24].copy_from_slice(&self.identity.to_bytes());
        block[24..28].copy_from_slice(&self.bucket_count.to_le_bytes());
        block[32..40].copy_from_slice(&self.records.to_le_bytes());
        block[40..48].copy_from_slice(&self.data_bytes.to_le_bytes());
        seal(&mut block);
        block
    }

    pub(crate) fn from_block(block: &[u8]) -> Result<Self, HeaderError> {
        let Some(block) = block.first_chunk::<BLOCK_BYTES>() else {
            return Err(HeaderError::Damaged("it is shorter than its header"));
        };
        check_start(block, MAGIC, CHECKSUM_AT)?;
        let mut identity = [0; 12];
        identity.copy_from_slice(&block[12..24]);
        let header = Self {
            identity: ChunkIdentity::from_bytes(identity),
            bucket_count: u32_at(block, 24),
            records: u64_at(block, 32),
            data_bytes: u64_at(block, 40),
        };
        if header.bucket_count == 0 {
            return Err(HeaderError::Damaged("it has no buckets"));
        }
        Ok(header)
    }

    /// The length of the index file.
    pub(crate) fn file_bytes(self) -> u64 {
        (1 + u64::from(self.bucket_count.div_ceil(BUCKETS_PER_BLOCK))) * BLOCK_BYTES as u64
    }
}

/// The block with the entry of a bucket, counted from the start of the file.
#[inline]
pub(crate) fn block_of(bucket: u32) -> usize {
    (bucket / BUCKETS_PER_BLOCK) as usize + 1
}

/// The byte range of a block in the file.
#[inline]
pub(crate) fn block_range(block: usize) -> Range<usize> {
    block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES
}

/// The byte range of a bucket in the data file, read from its block.
#[inline]
pub(crate) fn bucket_range(block: &[u8], bucket: u32) -> Range<u32> {
    let at = (bucket % BUCKETS_PER_BLOCK) as usize * 4;
    entry_range(&block[at..])
}

/// The byte range of a bucket in the data file, read from its entry and the next one.
#[inline]
pub(crate) fn entry_range(entries: &[u8]) -> Range<u32> {
    u32_at(entries, 0)..u32_at(entries, 4)
}

/// Whether the checksum of a block matches.
pub(crate) fn block_is_intact(block: &[u8]) -> bool {
    block.len() == BLOCK_BYTES && u32_at(block, CHECKSUM_AT) == short_checksum(&block[..CHECKSUM_AT])
}

fn seal(block: &mut [u8; BLOCK_BYTES]) {
    let checksum = short_checksum(&block[..CHECKSUM_AT]);
    block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
}

/// Makes the blocks of an index file, header first, from the offsets of the buckets.
pub(crate) fn blocks(
    header: IndexHeader,
    starts: impl Iterator<Item = io::Result<u32>>,
) -> impl Iterator<Item = io::Result<[u8; BLOCK_BYTES]>> {
    let mut starts = starts.peekable();
    let places = std::iter::from_fn(move || {
        starts.peek()?;
        Some(next_block(&mut starts, header.data_bytes as u32))
    });
    std::iter::once(Ok(header.to_block())).chain(places)
}

fn next_block(starts: &mut Peekable<impl Iterator<Item = io::Result<u32>>>, end: u32) -> io::Result<[u8; BLOCK_BYTES]> {
    let mut block = [0; BLOCK_BYTES];
    let (places, after) = block[..CHECKSUM_AT].split_at_mut(4 * BUCKETS_PER_BLOCK as usize);
    for place in places.chunks_exact_mut(4) {
        let start = starts.next().transpose()?.unwrap_or(end);
        place.copy_from_slice(&start.to_le_bytes());
    }
    // An error is returned again with the next block.
    let next = starts.peek().and_then(|start| start.as_ref().ok()).copied();
    after.copy_from_slice(&next.unwrap_or(end).to_le_bytes());
    seal(&mut block);
    Ok(block)
}

/// Checks the bytes of a whole index file: its header, the checksum of each block, and that buckets follow each other
/// from the first record to the end of the data file. The error is text.
pub fn check_index(file: &[u8]) -> Result<IndexHeader, String> {
    let header = IndexHeader::from_block(file).map_err(|e| format!("{e:?}"))?;
    if file.len() as u64 != header.file_bytes() {
        return Err(format!(
            "it has {} bytes, but its header requires {}",
            file.len(),
            header.file_bytes()
        ));
    }
    let mut end = super::data::DATA_HEADER_BYTES as u32;
    for bucket in 0..header.bucket_count {
        let block = &file[block_range(block_of(bucket))];
        if bucket % BUCKETS_PER_BLOCK == 0 && !block_is_intact(block) {
            return Err(format!("the checksum of block {} does not match", block_of(bucket)));
        }
        let range = bucket_range(block, bucket);
        if range.start != end || range.end < range.start {
            return Err(format!("bucket {bucket} begins at {}, not at {end}", range.start));
        }
        end = range.end;
    }
    if u64::from(end) != header.data_bytes {
        return Err(format!("the last bucket ends at {end}, not at {}", header.data_bytes));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use fondaco_model::PartitionId;

    fn index_file(lengths: &[u32]) -> Vec<u8> {
        let mut end = 64;
        let starts: Vec<u32> = lengths
            .iter()
            .map(|length| {
                let start = end;
                end += length;
                start
            })
            .collect();
        let header = IndexHeader {
            identity: ChunkIdentity {
                partition: PartitionId::new(3),
                chunk: 1,
                chunk_count: 2,
            },
            bucket_count: lengths.len() as u32,
            records: 7,
            data_bytes: u64::from(end),
        };
        let starts = starts.into_iter().map(Ok);
        blocks(header, starts).flat_map(Result::unwrap).collect()
    }

    proptest! {
        #[test]
        fn every_bucket_is_found_at_its_offset(lengths in prop::collection::vec(0..500u32, 1..3000)) {
            let file = index_file(&lengths);
            let header = check_index(&file).unwrap();
            prop_assert_eq!(header.file_bytes(), file.len() as u64);
            let mut end = 64;
            for (bucket, length) in lengths.iter().enumerate() {
                let block = &file[block_range(block_of(bucket as u32))];
                prop_assert_eq!(bucket_range(block, bucket as u32), end..end + length);
                end += length;
            }
        }

        #[test]
        fn any_flipped_bit_is_detected(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let mut file = index_file(&[10; 2500]);
            let at = at.index(file.len());
            file[at] ^= 1 << bit;
            prop_assert!(check_index(&file).is_err());
        }
    }

    #[test]
    fn the_index_takes_four_bytes_per_key_or_less() {
        assert_eq!(bucket_count(1_000_000, 1_000_000 * 1050), 1_000_000);
        assert_eq!(bucket_count(1_000_000, 1_000_000 * 118), 1_000_000);
        assert_eq!(bucket_count(1_000_000, 1_000_000 * 16), 250_000);
        assert_eq!(bucket_count(0, 0), 1);
    }
}
