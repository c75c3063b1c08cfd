//! The keys of a batch of records, and the beginnings of what the overlay has for them.
//!
//! Events come in random order of their keys, so that each look-up waits for memory several times. All keys of a batch are
//! looked up together, before the first event is added: these waits overlap, and the engine says where each key is, so that
//! the write finds it there. The beginning of a record, its flags and its time, decides about nearly every value: the old
//! value is neither copied nor read from the disk.

use std::ops::Range;

use fondaco_engine::{Hot, Spot};
use fondaco_model::{PartitionId, PartitionSet, Slot};
use xxhash_rust::xxh3::xxh3_64;

use super::Overlay;
use super::record::{EVENT_KEY_BYTES_MAX, PLACE_BYTES, RecordHead, place};
use crate::source::Logged;

/// About how many bytes a key of the table has.
const KEY_BYTES: usize = 64;

/// The keys of a batch of records: one for each record. Those of records that are no events are empty.
pub(super) struct Located {
    /// The keys in the table, one after the other.
    table_keys: Vec<u8>,
    locations: Vec<Location>,
}

/// Where a key is, and what is there.
#[derive(Debug, Clone)]
pub(super) struct Location {
    pub(super) slot: Slot,
    pub(super) partition: PartitionId,
    /// XXH3 of the key.
    pub(super) hash: u64,
    pub(super) before: Before,
    /// The spot of the key in the table, as far as it is known.
    pub(super) spot: Spot,
    /// The range of the key in the table among all keys.
    range: Range<usize>,
}

/// What the overlay has for a key, before the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// No record.
    Absent,
    /// A record that begins like this.
    Record(RecordHead),
    /// That is not in memory.
    Unknown,
}

/// The key of one record.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocatedKey<'a> {
    /// The key in the table.
    pub(super) table_key: &'a [u8],
    pub(super) location: &'a Location,
}

impl Located {
    /// Looks up the keys of these records, as far as they belong to partitions that are held. No event must be applied until
    /// their changes are written.
    pub(super) fn of(overlay: &Overlay, records: &[Logged], held: &PartitionSet) -> Self {
        let mut located = Self {
            table_keys: Vec::with_capacity(records.len() * KEY_BYTES),
            locations: Vec::with_capacity(records.len()),
        };
        for record in records {
            let key = record.event.as_ref().map_or(&[][..], |event| &event.key[..]);
            let slot = overlay.slots.slot(key);
            let partition = overlay.options.partitions.partition_of(slot);
            let hash = xxh3_64(key);
            let start = located.table_keys.len();
            located.table_keys.extend_from_slice(&place(partition, hash));
            located.table_keys.extend_from_slice(key);
            located.locations.push(Location {
                slot,
                partition,
                hash,
                before: Before::Unknown,
                spot: Spot::default(),
                range: start..located.table_keys.len(),
            });
        }
        located.look_up(overlay, held);
        located
    }

    fn look_up(&mut self, overlay: &Overlay, held: &PartitionSet) {
        let table_keys = &self.table_keys;
        let is_wanted = |location: &&mut Location| {
            let key_bytes = location.range.len() - PLACE_BYTES;
            (1..=EVENT_KEY_BYTES_MAX).contains(&key_bytes) && held.contains(location.partition)
        };
        let mut wanted: Vec<&mut Location> = self.locations.iter_mut().filter(is_wanted).collect();
        let keys: Vec<&[u8]> = wanted
            .iter()
            .map(|location| &table_keys[location.range.clone()])
            .collect();
        let (table, mut each) = (&overlay.table, wanted.iter_mut());
        // If this fails, the look-ups of single keys report why.
        let _ = table.look_at_beginnings(&keys, RecordHead::BYTES, &mut |hot, spot| {
            if let Some(location) = each.next() {
                location.before = Before::of(hot);
                location.spot = spot;
            }
            true
        });
    }

    /// The keys, in the order of the records.
    pub(super) fn iter(&self) -> impl Iterator<Item = LocatedKey<'_>> {
        self.locations.iter().map(|location| LocatedKey {
            table_key: &self.table_keys[location.range.clone()],
            location,
        })
    }
}

impl Before {
    fn of(hot: Hot<&[u8]>) -> Self {
        match hot {
            Hot::Absent => Self::Absent,
            // A record that is too short is damaged: a look-up of the key reports it.
            Hot::Found(record) => RecordHead::decode(record).map_or(Self::Unknown, Self::Record),
            Hot::Cold => Self::Unknown,
        }
    }
}
