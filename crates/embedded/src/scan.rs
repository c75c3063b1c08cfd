//! A scan of a version: all records of some partitions, piece by piece.

use std::sync::Arc;

use fondaco_format::{Record, ScanPosition};
use fondaco_model::PartitionId;

use crate::error::EmbeddedError;
use crate::snapshot::Open;

/// How many records a piece has, unless they are long.
const PIECE_RECORDS: usize = 4096;

/// An iterator over pieces of some thousand records, in the order of partition and hash of the key. A piece has at most
/// about 4 MiB, or one record.
///
/// It waits for the disk. After an error it ends. It keeps its version open.
pub struct Scan {
    open: Arc<Open>,
    /// The partitions that are left, the next one last.
    rest: Vec<PartitionId>,
    position: Option<ScanPosition>,
}

impl Scan {
    /// Scans these partitions, which are held.
    pub(crate) fn new(open: Arc<Open>, mut partitions: Vec<PartitionId>) -> Self {
        partitions.reverse();
        Self {
            open,
            rest: partitions,
            position: None,
        }
    }
}

impl Iterator for Scan {
    type Item = Result<Vec<Record>, EmbeddedError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let position = match self.position.take() {
                Some(position) => position,
                None => ScanPosition {
                    partition: self.rest.pop()?,
                    hash: 0,
                },
            };
            match self.open.version.scan_partition(position, PIECE_RECORDS) {
                Ok((records, next)) => {
                    self.position = next;
                    if !records.is_empty() {
                        return Some(Ok(records));
                    }
                }
                Err(error) => {
                    self.rest.clear();
                    return Some(Err(error.into()));
                }
            }
        }
    }
}
