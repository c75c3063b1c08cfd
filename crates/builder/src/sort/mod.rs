//! The external sort: records in, in any order and from many threads; out in the order of (partition, hash, key), with
//! bounded memory for any size of input.
//!
//! It is a radix sort by the leading bits of a record's *position* in the output. Every reading thread has an
//! [`Appender`], which copies each record once, into the thread's open block for the record's bucket; only full blocks
//! are shared. While all blocks fit into the budget, nothing touches the disk; beyond it, whole buckets are spilled to
//! nameless temporary files. Then buckets, which are contiguous ranges of the output, are sorted one by one
//! ([`drain`]), in any number of threads.
//!
//! Unlike a merge sort of runs, it compares nothing while reading, merges nothing, and sorts pieces that fit into the
//! CPU caches.

mod appender;
mod bucket;
mod drain;
mod layout;
mod parts;
mod record;
mod spill;
mod tally;

use std::path::PathBuf;

use fondaco_model::{PartitionCount, StoreName};

pub(crate) use appender::Appender;
pub(crate) use bucket::Part;
pub(crate) use drain::{Drain, PartWriter, Scratch, Winner};
pub(crate) use layout::{Layout, MEMORY_BYTES_MIN};
pub(crate) use parts::in_threads;
pub(crate) use record::{Positions, Record, RowId};
pub(crate) use spill::{SpillFile, temporary_file};
pub(crate) use tally::{PartitionTally, SAMPLE_BYTES};

use bucket::Buckets;

use crate::error::BuildError;

/// The options of a sort.
pub(crate) struct SortOptions {
    pub(crate) store: StoreName,
    pub(crate) partitions: PartitionCount,
    pub(crate) memory_bytes: u64,
    pub(crate) threads: usize,
    /// The directory of temporary files.
    pub(crate) temporary: PathBuf,
    /// Keep only the length of each value: to check the input without writing it.
    pub(crate) keys_only: bool,
}

/// A sort that receives records.
pub(crate) struct Sorter {
    options: SortOptions,
    layout: Layout,
    positions: Positions,
    buckets: Buckets,
}

/// A sort that has received all records.
pub(crate) struct Sorted {
    pub(crate) layout: Layout,
    pub(crate) positions: Positions,
    /// One per bucket, in the order of the output; taken one by one.
    pub(crate) parts: Vec<Part>,
    /// One per partition.
    pub(crate) tallies: Vec<PartitionTally>,
    /// The number of bytes written to temporary files.
    pub(crate) spilled_bytes: u64,
}

impl Sorter {
    pub(crate) fn new(options: SortOptions) -> Self {
        let layout = Layout::new(options.memory_bytes, options.threads);
        Self {
            layout,
            positions: Positions::new(options.partitions),
            buckets: Buckets::new(layout, options.temporary.clone()),
            options,
        }
    }

    /// An appender for one thread.
    pub(crate) fn appender(&self) -> Appender<'_> {
        Appender::new(self)
    }

    /// Lends a part of its memory. The caller may return it before this call returns.
    pub(crate) fn lend(&self, bytes: u64) -> Result<(), BuildError> {
        self.buckets.lend(bytes)
    }

    /// Takes back lent memory.
    pub(crate) fn take_back(&self, bytes: u64) {
        self.buckets.take_back(bytes);
    }

    /// Ends the input. The tallies are those of all appenders, which must be closed.
    pub(crate) fn finish(self, appenders: impl IntoIterator<Item = Vec<PartitionTally>>) -> Result<Sorted, BuildError> {
        let mut tallies = vec![PartitionTally::default(); self.options.partitions.get() as usize];
        for appender in appenders {
            for (sum, tally) in tallies.iter_mut().zip(appender) {
                sum.add(tally);
            }
        }
        let spilled_bytes = self.buckets.make_room_for_loading()?;
        Ok(Sorted {
            layout: self.layout,
            positions: self.positions,
            parts: self.buckets.into_parts(),
            tallies,
            spilled_bytes,
        })
    }
}
