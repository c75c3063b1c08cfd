//! The records of a version, partition by partition.

use std::collections::VecDeque;

use fondaco_format::{FormatError, ScanPosition, Version};
use fondaco_model::PartitionId;
use fondaco_push::VersionCopy;

use crate::error::ExportError;
use crate::rows::{BATCH_BYTES, BATCH_ROWS, Batch};
use crate::selection::Selection;

/// The records that are still to be read.
pub(crate) struct VersionRecords {
    /// Dropped before the files.
    version: Version,
    partitions: VecDeque<PartitionId>,
    /// The position in the first of the partitions.
    hash: u64,
    _files: VersionCopy,
}

impl VersionRecords {
    pub(crate) fn new(selection: &Selection, files: VersionCopy) -> Result<Self, ExportError> {
        let version = Version::open(files.dir())?;
        let count = version.manifest().partitions;
        selection.check(count.get())?;
        let is_wanted =
            |partition: &PartitionId| selection.partitions.as_ref().is_none_or(|set| set.contains(*partition));
        let partitions: VecDeque<PartitionId> = count.partitions().filter(is_wanted).collect();
        // Before anything is written.
        if let Some(&partition) = partitions.iter().find(|&&partition| !version.holds(partition)) {
            return Err(FormatError::NotHeld { partition }.into());
        }
        Ok(Self {
            version,
            partitions,
            hash: 0,
            _files: files,
        })
    }

    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// The number of records in the partitions.
    pub(crate) fn total(&self) -> u64 {
        let chunks = self.version.manifest().chunks.iter();
        let wanted = chunks.filter(|chunk| self.partitions.contains(&chunk.partition));
        wanted.map(|chunk| chunk.records).sum()
    }

    pub(crate) fn next(&mut self) -> Result<Batch, ExportError> {
        let mut batch = Batch::default();
        while batch.keys.len() < BATCH_ROWS && batch.bytes < BATCH_BYTES {
            let Some(&partition) = self.partitions.front() else {
                break;
            };
            let position = ScanPosition {
                partition,
                hash: self.hash,
            };
            let missing = BATCH_ROWS - batch.keys.len();
            let (records, next) = self.version.scan_partition(position, missing)?;
            for (key, value) in records {
                batch.add(key, value);
            }
            match next {
                Some(next) => self.hash = next.hash,
                None => {
                    self.partitions.pop_front();
                    self.hash = 0;
                }
            }
        }
        Ok(batch)
    }
}
