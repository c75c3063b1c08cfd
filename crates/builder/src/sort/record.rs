//! A row in the sort, and its position in the order of the output.
//!
//! ```text
//! offset  bytes  field, little-endian
//!      0      8  row: file number << 40 | row number in the file
//!      8      8  hash of the key
//!     16      4  length of the value
//!     20      2  length of the key - 1
//!     22      2  partition
//!     24         key, then value
//! ```
//!
//! Records are stored back to back in memory blocks and in temporary files, never across two blocks. Sorting moves only
//! their positions, never the records.

use fondaco_model::PartitionCount;

/// The bytes of a record before its key.
pub(crate) const RECORD_HEADER_BYTES: usize = 24;

/// How many bits of a row id number the row within its file.
const ROW_BITS: u32 = 40;

/// The file and row number in one integer, which orders rows as the input does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowId(u64);

impl RowId {
    /// The most files that a build can read.
    pub(crate) const FILES_MAX: usize = 1 << (64 - ROW_BITS);
    /// The highest row number of a file.
    pub(crate) const ROW_MAX: u64 = (1 << ROW_BITS) - 1;

    /// Row `row`, counted from 1, of file `file`.
    pub(crate) fn new(file: u32, row: u64) -> Self {
        debug_assert!((file as usize) < Self::FILES_MAX && row <= Self::ROW_MAX);
        Self(u64::from(file) << ROW_BITS | row)
    }

    /// The same row, if this many files come before its own.
    pub(crate) fn after(self, files: u32) -> Self {
        Self::new(self.file() + files, self.row())
    }

    pub(crate) fn file(self) -> u32 {
        (self.0 >> ROW_BITS) as u32
    }

    /// Both numbers in one; it rises with them.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn row(self) -> u64 {
        self.0 & Self::ROW_MAX
    }
}

/// A record in its place in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) row: RowId,
    pub(crate) hash: u64,
    pub(crate) partition: u32,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Its stored size.
    #[inline]
    pub(crate) fn stored_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.key.len() + self.value.len()
    }

    /// The size of its value: in a dry run, the stored value is the length of the real one.
    pub(crate) fn value_bytes(&self, dry_run: bool) -> u64 {
        match dry_run {
            true => self
                .value
                .first_chunk()
                .map_or(0, |bytes| u32::from_le_bytes(*bytes).into()),
            false => self.value.len() as u64,
        }
    }

    /// Appends it. The key must have 1 to 65536 bytes, and there are at most 65536 partitions.
    #[inline]
    pub(crate) fn write_to(&self, block: &mut Vec<u8>) {
        debug_assert!((1..=1 << 16).contains(&self.key.len()) && self.partition < 1 << 16);
        let mut header = [0; RECORD_HEADER_BYTES];
        header[0..8].copy_from_slice(&self.row.0.to_le_bytes());
        header[8..16].copy_from_slice(&self.hash.to_le_bytes());
        header[16..20].copy_from_slice(&(self.value.len() as u32).to_le_bytes());
        header[20..22].copy_from_slice(&((self.key.len() - 1) as u16).to_le_bytes());
        header[22..24].copy_from_slice(&(self.partition as u16).to_le_bytes());
        block.extend_from_slice(&header);
        block.extend_from_slice(self.key);
        block.extend_from_slice(self.value);
    }

    /// The length of the record with this header.
    pub(crate) fn length_of(header: &[u8; RECORD_HEADER_BYTES]) -> usize {
        let lengths = u64_at(header, 16);
        RECORD_HEADER_BYTES + (lengths >> 32) as u16 as usize + 1 + lengths as u32 as usize
    }

    /// Reads the record at the beginning of `bytes`; `None` if it is incomplete.
    #[inline]
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let (row, hash) = (u64_at(header, 0), u64_at(header, 8));
        let lengths = u64_at(header, 16);
        let value_length = lengths as u32 as usize;
        let key_length = (lengths >> 32) as u16 as usize + 1;
        let partition = (lengths >> 48) as u32;
        let (key, rest) = rest.split_at_checked(key_length)?;
        let value = rest.get(..value_length)?;
        Some(Self {
            row: RowId(row),
            hash,
            partition,
            key,
            value,
        })
    }
}

#[inline]
fn u64_at(header: &[u8; RECORD_HEADER_BYTES], offset: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[offset..offset + 8]);
    u64::from_le_bytes(bytes)
}

/// The positions of records in the output, which is in the order of (partition, hash): as a fraction of the whole, so
/// that the leading bits number the buckets of a radix sort.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Positions {
    partition_bits: u32,
}

impl Positions {
    pub(crate) fn new(partitions: PartitionCount) -> Self {
        Self {
            partition_bits: partitions.get().trailing_zeros(),
        }
    }

    /// The position of a record: it rises with (partition, hash). Records with the same position may differ in the
    /// lowest bits of their hashes.
    #[inline]
    pub(crate) fn of(self, record: &Record<'_>) -> u64 {
        if self.partition_bits == 0 {
            return record.hash;
        }
        u64::from(record.partition) << (64 - self.partition_bits) | record.hash >> self.partition_bits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(
            file in 0..1u32 << 24, row in 0..1u64 << 40, hash: u64, partition in 0..16384u32,
            key in prop::collection::vec(any::<u8>(), 1..50),
            value in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let row = RowId::new(file, row);
            let record = Record { row, hash, partition, key: &key, value: &value };
            let mut block = vec![];
            record.write_to(&mut block);
            prop_assert_eq!(block.len(), record.stored_bytes());
            let read = Record::read(&block).unwrap();
            prop_assert_eq!((read.row, read.hash, read.partition), (row, hash, partition));
            prop_assert_eq!((read.key, read.value), (&key[..], &value[..]));
            prop_assert!(Record::read(&block[..block.len() - 1]).is_none());
        }

        #[test]
        fn positions_rise_with_partition_and_hash(
            bits in 0..15u32, partitions: (u16, u16), hashes: (u64, u64),
        ) {
            let positions = Positions::new(PartitionCount::try_from(1 << bits).unwrap());
            let place = |partition: u16, hash| (u32::from(partition) % (1 << bits), hash);
            let (a, b) = (place(partitions.0, hashes.0), place(partitions.1, hashes.1));
            let position = |(partition, hash)| {
                positions.of(&Record { row: RowId::new(0, 1), hash, partition, key: b"k", value: b"" })
            };
            if a < b {
                prop_assert!(position(a) <= position(b));
            }
        }
    }

    #[test]
    fn the_longest_key_fits() {
        let key = vec![b'k'; 1 << 16];
        let mut block = vec![];
        Record {
            row: RowId::new(0, 1),
            hash: 1,
            partition: 0,
            key: &key,
            value: b"v",
        }
        .write_to(&mut block);
        assert_eq!(Record::read(&block).unwrap().key.len(), 1 << 16);
    }
}
