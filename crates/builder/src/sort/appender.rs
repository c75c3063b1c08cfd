//! The part of the sort that belongs to one reading thread: an open block per bucket, and its own tallies.
//!
//! Adding a row takes no lock and allocates nothing; both happen once per block.

use fondaco_format::key_hash;
use fondaco_model::SlotPrefix;

use super::Sorter;
use super::bucket::Block;
use super::record::{RECORD_HEADER_BYTES, Record, RowId};
use super::tally::PartitionTally;
use crate::error::BuildError;

/// Appends the records of one thread.
pub(crate) struct Appender<'a> {
    sorter: &'a Sorter,
    slots: SlotPrefix,
    open: Vec<Block>,
    records: Vec<u64>,
    tallies: Vec<PartitionTally>,
}

impl<'a> Appender<'a> {
    pub(super) fn new(sorter: &'a Sorter) -> Self {
        let buckets = 1 << sorter.layout.bucket_bits;
        Self {
            sorter,
            slots: SlotPrefix::of(&sorter.options.store),
            open: vec![Block::new(); buckets],
            records: vec![0; buckets],
            tallies: vec![PartitionTally::default(); sorter.options.partitions.get() as usize],
        }
    }

    /// Appends a record and returns the hash of its key, which must have 1 to 65536 bytes.
    pub(crate) fn append(&mut self, row: RowId, key: &[u8], value: &[u8]) -> Result<u64, BuildError> {
        let sorter = self.sorter;
        let partition = sorter.options.partitions.partition_of(self.slots.slot(key)).get();
        let value_length = (value.len() as u32).to_le_bytes();
        let hash = key_hash(key);
        self.tallies[partition as usize].count(hash, (key.len() + value.len()) as u64);
        let value = if sorter.options.keys_only { &value_length } else { value };
        let record = Record {
            row,
            hash,
            partition,
            key,
            value,
        };
        // There are at least four buckets, so the shift is less than 64.
        let bucket = (sorter.positions.of(&record) >> (64 - sorter.layout.bucket_bits)) as usize;
        self.records[bucket] += 1;
        let bytes = record.stored_bytes();
        if self.open[bucket].capacity() - self.open[bucket].len() < bytes {
            self.make_room(bucket, bytes, &record)?;
        } else {
            record.write_to(&mut self.open[bucket]);
        }
        Ok(record.hash)
    }

    /// Writes a record that does not fit into the open block of its bucket.
    #[cold]
    fn make_room(&mut self, bucket: usize, bytes: usize, record: &Record<'_>) -> Result<(), BuildError> {
        let buckets = &self.sorter.buckets;
        // A large record gets its own block, so that no block is closed half empty.
        if bytes > self.sorter.layout.block_bytes / 4 {
            let mut block = buckets.allocate(bytes)?;
            record.write_to(&mut block);
            buckets.push(bucket, block);
            return Ok(());
        }
        let full = std::mem::take(&mut self.open[bucket]);
        if !full.is_empty() {
            buckets.push(bucket, full);
        }
        self.open[bucket] = buckets.allocate(bytes)?;
        record.write_to(&mut self.open[bucket]);
        Ok(())
    }

    /// Hands over the open blocks. Returns the tallies of each partition.
    pub(crate) fn close(self) -> Vec<PartitionTally> {
        for (bucket, (block, records)) in self.open.into_iter().zip(self.records).enumerate() {
            self.sorter.buckets.count(bucket, records);
            if block.capacity() > 0 {
                self.sorter.buckets.push(bucket, block);
            }
        }
        self.tallies
    }
}

const _: () = assert!(RECORD_HEADER_BYTES < 4096 / 4, "the smallest block holds small records");
