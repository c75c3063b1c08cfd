//! A scan of a version: all records of some partitions, piece by piece.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_format::{Record, ScanPosition, key_hash};
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
            match self.open.piece(position) {
                Ok((records, next)) => {
                    self.position = next;
                    if !records.is_empty() {
                        return Some(Ok(records));
                    }
                }
                Err(error) => {
                    self.rest.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Records, and where those that follow in the partition begin; `None` at its end.
type Piece = (Vec<Record>, Option<ScanPosition>);

impl Open {
    /// The records from a position in a partition on, in the order of their hashes.
    fn piece(&self, from: ScanPosition) -> Result<Piece, EmbeddedError> {
        let (mut records, next) = self.version.scan_partition(from, PIECE_RECORDS)?;
        let Some(layer) = &self.layer else {
            return Ok((records, next));
        };
        let partition = from.partition;
        let of_version = next.map_or((PartitionId::new(partition.get() + 1), 0), |next| {
            (next.partition, next.hash)
        });
        let start = (partition, from.hash);
        let (changed, sooner) = layer.overlay().records(start, Some(of_version), PIECE_RECORDS)?;
        let end = sooner.unwrap_or(of_version);
        let changed: BTreeMap<Bytes, Option<Bytes>> = changed.into_iter().collect();
        // The version begins with the whole bucket, and may end behind the events.
        records.retain(|(key, _)| {
            let place = (partition, key_hash(key));
            place >= start && place < end && !changed.contains_key(&key[..])
        });
        let with_values = changed
            .into_iter()
            .filter_map(|(key, value)| Some((key.into(), value?.into())));
        records.extend(with_values);
        records.sort_by_cached_key(|(key, _)| key_hash(key));
        let next = match end {
            (of, hash) if of == partition => Some(ScanPosition { partition, hash }),
            _ => None,
        };
        Ok((records, next))
    }
}
