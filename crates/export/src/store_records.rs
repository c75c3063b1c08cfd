//! The records of a store that changes, listed and looked up at a node.
//!
//! A scan returns each key at least once. Its cursor is a place in the order of hashes, so a key that is returned twice, because the
//! version was swapped meanwhile, is returned twice within a short time: the last keys are remembered.

use std::collections::{HashSet, VecDeque};

use fondaco_admin::{Connection, Endpoint, refused};
use fondaco_model::{PartitionCount, PartitionSet, SlotPrefix, StoreName};

use crate::error::ExportError;
use crate::rows::{BATCH_BYTES, BATCH_ROWS, Batch};
use crate::selection::Selection;

/// The number of keys to request at a time.
const KEYS_PER_REQUEST: usize = 1000;

/// The number of keys to remember, at least.
const REMEMBERED: usize = 100_000;

/// The records that are still to be read.
pub(crate) struct StoreRecords {
    connection: Connection,
    /// The name of the store and a colon.
    prefix: Vec<u8>,
    cursor: u64,
    is_listed: bool,
    /// Keys that are to be looked up, as on the wire.
    keys: VecDeque<Vec<u8>>,
    /// How many keys to look up at once.
    at_once: usize,
    wanted: Option<(SlotPrefix, PartitionCount, PartitionSet)>,
    /// The last keys, and those before them.
    seen: [HashSet<Vec<u8>>; 2],
}

impl StoreRecords {
    /// The records of a store at a process of a cluster with this number of partitions.
    pub(crate) fn new(
        selection: &Selection,
        (name, endpoint): (&StoreName, &Endpoint),
        partitions: u32,
    ) -> Result<Self, ExportError> {
        let wanted = match &selection.partitions {
            None => None,
            Some(set) => {
                let count = PartitionCount::try_from(partitions)
                    .map_err(|error| ExportError::WrongOptions(format!("the cluster has {error}")))?;
                Some((SlotPrefix::of(name), count, set.clone()))
            }
        };
        Ok(Self {
            connection: fondaco_admin::connect(endpoint, &endpoint.resp_address()?)?,
            prefix: format!("{name}:").into_bytes(),
            cursor: 0,
            is_listed: false,
            keys: VecDeque::new(),
            at_once: KEYS_PER_REQUEST,
            wanted,
            seen: Default::default(),
        })
    }

    pub(crate) fn next(&mut self) -> Result<Batch, ExportError> {
        let mut batch = Batch::default();
        while batch.keys.len() < BATCH_ROWS && batch.bytes < BATCH_BYTES {
            if self.keys.is_empty() {
                if self.is_listed {
                    break;
                }
                self.list()?;
                continue;
            }
            self.look_up(&mut batch)?;
        }
        Ok(batch)
    }

    /// Adds the next keys to those that are to be looked up.
    fn list(&mut self) -> Result<(), ExportError> {
        let mut command = redis::cmd("SCAN");
        let pattern = [&self.prefix[..], b"*"].concat();
        command.arg(self.cursor).arg("MATCH").arg(pattern);
        command.arg("COUNT").arg(KEYS_PER_REQUEST);
        let (cursor, keys): (u64, Vec<Vec<u8>>) = command.query(&mut *self.connection).map_err(refused)?;
        self.cursor = cursor;
        self.is_listed = cursor == 0;
        for key in keys {
            let is_wanted = self.wanted.as_ref().is_none_or(|(slots, count, set)| {
                let own = key.strip_prefix(&self.prefix[..]).unwrap_or(&key);
                set.contains(count.partition_of(slots.slot(own)))
            });
            let is_known = self.seen.iter().any(|seen| seen.contains(&key));
            if is_wanted && !is_known {
                self.seen[0].insert(key.clone());
                self.keys.push_back(key);
            }
        }
        if self.seen[0].len() >= REMEMBERED {
            self.seen.swap(0, 1);
            self.seen[0].clear();
        }
        Ok(())
    }

    /// Looks up the next keys. One that has been deleted meanwhile has no record.
    fn look_up(&mut self, batch: &mut Batch) -> Result<(), ExportError> {
        let count = self.at_once.min(self.keys.len());
        let keys: Vec<Vec<u8>> = self.keys.drain(..count).collect();
        let mut command = redis::cmd("MGET");
        for key in &keys {
            command.arg(key);
        }
        let values: Vec<Option<Vec<u8>>> = command.query(&mut *self.connection).map_err(refused)?;
        let bytes: usize = values.iter().flatten().map(Vec::len).sum();
        // The next answer is about as long as a batch may be.
        let each = (bytes / keys.len().max(1)).max(1);
        self.at_once = (BATCH_BYTES / each).clamp(1, KEYS_PER_REQUEST);
        for (key, value) in keys.into_iter().zip(values) {
            if let Some(value) = value {
                let own = match key.strip_prefix(&self.prefix[..]) {
                    Some(own) => own.to_vec(),
                    None => key,
                };
                batch.add(own, value);
            }
        }
        Ok(())
    }
}
