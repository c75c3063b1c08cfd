//! The forms of the records of an overlay.
//!
//! ```text
//! records:  place ++ key                                                      → flags (u8) ++ event time (u64) ++ value
//!                                                                               or, of a key with updates that are kept:
//!                                                                               flags ++ event time ++ ordered time (u64) ++ value
//! events:   place ++ length of the key (u16) ++ key ++ 0                      → flags ++ event time ++ value
//!           place ++ length of the key (u16) ++ key ++ 1 ++ event time (u64)
//!             ++ XXH3 of the update (u128) ++ source (16 bytes)               → update
//!
//! place:    partition (u16) ++ XXH3 of the key (u64)
//! flags:    the rank of the data center where a whole value was written (4 bits) ++ 4 flags
//! XXH3 of the update: of several data centers, the rank of the one where it was written (4 bits) ++ the first 124 bits
//! source:   XXH3 of the event's identifier (u128), or topic partition (u32) ++ offset (u64) ++ 0 (u32)
//! ```

use std::borrow::Cow;

use bytes::{Buf, BufMut, Bytes};
use fondaco_engine::{KEY_BYTES_MAX, Pair};
use fondaco_model::{PartitionId, VALUE_BYTES_MAX};
use xxhash_rust::xxh3::xxh3_128;

pub(super) const PLACE_BYTES: usize = 2 + 8;
const ORDER_BYTES: usize = 8 + 16 + 16;
const HEADER_BYTES: usize = 1 + 8;
/// The longest header of a record.
pub(super) const MERGED_HEADER_BYTES: usize = HEADER_BYTES + 8;

/// The longest key of an event, in bytes.
pub const EVENT_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - PLACE_BYTES - 2 - 1 - ORDER_BYTES;
/// The longest value of an event, in bytes.
pub(crate) const EVENT_VALUE_BYTES_MAX: usize = VALUE_BYTES_MAX - MERGED_HEADER_BYTES;

/// The flag of a deletion.
const DELETED: u8 = 1;
/// The flag of a value that updates have made, which are kept.
const MERGED: u8 = 2;
/// The flag of such a value if some of the updates did not fit.
const UNFIT: u8 = 4;
/// The flag of a whole value that updates have made, which are not kept.
const FOLDED: u8 = 8;

/// How many bits the flags have, below the rank of the data center.
const FLAG_BITS: u32 = 4;

const WHOLE: u8 = 0;
const UPDATE: u8 = 1;
const AFTER_UPDATES: u8 = 2;

/// The overlay's record of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The time of its latest event.
    pub(super) time_ms: u64,
    /// If there are updates that are kept.
    pub(super) merged: Option<Merged>,
    /// Whether it was made from updates that are not kept: no event may come before it any more.
    pub(super) is_folded: bool,
    /// The rank of the data center where it was written, if it is a whole value.
    pub(super) center: u8,
    /// `None` if it is deleted.
    pub(super) value: Option<Bytes>,
}

/// Properties of the updates that were merged into a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Merged {
    /// The time of the latest event that is no sum: after it, the order does not matter.
    pub(super) ordered_ms: u64,
    /// Whether all updates fit what they changed.
    pub(super) all_fit: bool,
}

impl Record {
    pub(super) fn decode(mut record: Bytes) -> Option<Self> {
        let flags = record.try_get_u8().ok()?;
        let time_ms = record.try_get_u64().ok()?;
        let merged = match flags & MERGED {
            0 => None,
            _ => Some(Merged {
                ordered_ms: record.try_get_u64().ok()?,
                all_fit: flags & UNFIT == 0,
            }),
        };
        Some(Self {
            time_ms,
            merged,
            is_folded: flags & FOLDED != 0,
            center: flags >> FLAG_BITS,
            value: (flags & DELETED == 0).then_some(record),
        })
    }

    /// A key of the table of records, and this record.
    pub(super) fn pair(&self, table_key: &[u8]) -> Pair {
        let merged = self
            .merged
            .map_or(0, |merged| if merged.all_fit { MERGED } else { MERGED | UNFIT });
        let folded = if self.is_folded { FOLDED } else { 0 };
        let flags = self.center << FLAG_BITS | merged | folded;
        let ordered_ms = self.merged.map(|merged| merged.ordered_ms);
        encode(table_key, flags, (self.time_ms, ordered_ms), self.value.as_deref())
    }
}

/// A key of the table of records, and its record: in one buffer, which the engine keeps.
fn encode(table_key: &[u8], flags: u8, (time_ms, ordered_ms): (u64, Option<u64>), value: Option<&[u8]>) -> Pair {
    let header_bytes = ordered_ms.map_or(HEADER_BYTES, |_| MERGED_HEADER_BYTES);
    let mut bytes = Vec::with_capacity(table_key.len() + header_bytes + value.map_or(0, <[u8]>::len));
    bytes.put_slice(table_key);
    bytes.put_u8(flags | if value.is_some() { 0 } else { DELETED });
    bytes.put_u64(time_ms);
    if let Some(ordered_ms) = ordered_ms {
        bytes.put_u64(ordered_ms);
    }
    bytes.put_slice(value.unwrap_or_default());
    Pair::new(bytes, table_key.len())
}

/// The beginning of a record: enough to compare a whole value with it, unless only the values differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordHead {
    flags: u8,
    /// The time of its latest event.
    pub(super) time_ms: u64,
}

impl RecordHead {
    /// How many bytes of a record it takes.
    pub(super) const BYTES: usize = HEADER_BYTES;

    /// The head of a record that begins like this; `None` if it is shorter.
    pub(super) fn decode(record: &[u8]) -> Option<Self> {
        let (&flags, rest) = record.split_first()?;
        let time_ms = u64::from_be_bytes(*rest.first_chunk()?);
        Some(Self { flags, time_ms })
    }

    /// See [`Record::merged`].
    pub(super) fn is_merged(self) -> bool {
        self.flags & MERGED != 0
    }

    /// See [`Record::is_folded`].
    pub(super) fn is_folded(self) -> bool {
        self.flags & FOLDED != 0
    }

    /// Whether the record has no value.
    pub(super) fn is_deletion(self) -> bool {
        self.flags & DELETED != 0
    }

    /// See [`Record::center`].
    pub(super) fn center(self) -> u8 {
        self.flags >> FLAG_BITS
    }
}

/// A whole value, or a deletion, of an event that was read. The value is that of the event, unless it is stored in another
/// form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewWhole<'e> {
    pub(super) time_ms: u64,
    /// The rank of the data center where it was written.
    pub(super) center: u8,
    pub(super) value: Option<Cow<'e, Bytes>>,
}

impl NewWhole<'_> {
    /// Its rank: of two of a key, the one with the greater rank counts.
    pub(super) fn rank(&self) -> Rank<'_> {
        rank(self.time_ms, self.center, self.value.as_deref())
    }

    /// A key of the table of records, and the record of this value.
    pub(super) fn pair(&self, table_key: &[u8]) -> Pair {
        let value = self.value.as_deref().map(|value| &value[..]);
        encode(table_key, self.center << FLAG_BITS, (self.time_ms, None), value)
    }
}

impl From<NewWhole<'_>> for Whole {
    fn from(new: NewWhole<'_>) -> Self {
        Self {
            time_ms: new.time_ms,
            is_folded: false,
            center: new.center,
            value: new.value.map(Cow::into_owned),
        }
    }
}

/// A whole value, or a deletion: what comes before it has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) time_ms: u64,
    /// Whether it was made from updates that are not kept: none may come before it any more.
    pub(super) is_folded: bool,
    /// The rank of the data center where it was written.
    pub(super) center: u8,
    pub(super) value: Option<Bytes>,
}

impl Whole {
    pub(super) fn decode(mut record: Bytes) -> Option<Self> {
        let flags = record.try_get_u8().ok()?;
        let time_ms = record.try_get_u64().ok()?;
        Some(Self {
            time_ms,
            is_folded: flags & FOLDED != 0,
            center: flags >> FLAG_BITS,
            value: (flags & DELETED == 0).then_some(record),
        })
    }

    pub(super) fn encode(&self) -> Bytes {
        let value = self.value.as_deref();
        let mut record = Vec::with_capacity(HEADER_BYTES + value.map_or(0, <[u8]>::len));
        let folded = if self.is_folded { FOLDED } else { 0 };
        record.put_u8(self.center << FLAG_BITS | folded | if value.is_some() { 0 } else { DELETED });
        record.put_u64(self.time_ms);
        record.put_slice(value.unwrap_or_default());
        record.into()
    }

    /// The rank of this whole value: of two of a key, the one with the greater rank counts.
    pub(super) fn rank(&self) -> Rank<'_> {
        rank(self.time_ms, self.center, self.value.as_ref())
    }
}

/// The time of a whole value, its data center, whether it is a deletion, and the value.
pub(super) type Rank<'a> = (u64, u8, bool, Option<&'a [u8]>);

/// The rank of a whole value: of two of a key, the one with the greater rank counts.
pub(super) fn rank(time_ms: u64, center: u8, value: Option<&Bytes>) -> Rank<'_> {
    (time_ms, center, value.is_none(), value.map(|value| &value[..]))
}

/// The place of an update among those of its key: the order in which they apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) time_ms: u64,
    pub(super) text_hash: u128,
    pub(super) source: u128,
}

impl Place {
    /// The hash of an update, by which updates of one time are in order: first by the data center where they were written.
    pub(super) fn text_hash(center: u8, text: &[u8]) -> u128 {
        match (center, xxh3_128(text)) {
            (0, hash) => hash,
            (center, hash) => u128::from(center) << 124 | hash >> 4,
        }
    }

    /// The source of an event without an identifier.
    pub(super) fn source(partition: u32, offset: u64) -> u128 {
        u128::from(partition) << 96 | u128::from(offset) << 32
    }
}

/// The beginning of the keys of a table.
pub(super) fn place(partition: PartitionId, hash: u64) -> [u8; PLACE_BYTES] {
    let mut bytes = [0; PLACE_BYTES];
    // There are 16384 at most.
    bytes[..2].copy_from_slice(&(partition.get() as u16).to_be_bytes());
    bytes[2..].copy_from_slice(&hash.to_be_bytes());
    bytes
}

/// The events that are kept of one key: the beginning of their keys in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head(Vec<u8>);

impl Head {
    /// The events of a key, by its key in the table of records.
    pub(super) fn of(table_key: &[u8]) -> Self {
        let (place, key) = table_key.split_at(PLACE_BYTES);
        let mut head = Vec::with_capacity(table_key.len() + 2 + 1 + ORDER_BYTES);
        head.put_slice(place);
        // Longer keys are no events.
        head.put_u16(key.len() as u16);
        head.put_slice(key);
        Self(head)
    }

    /// The events of the key that one of them has.
    pub(super) fn of_event(event_key: &[u8]) -> Option<Self> {
        let key_bytes = event_key.get(PLACE_BYTES..)?.first_chunk()?;
        let head_bytes = PLACE_BYTES + 2 + usize::from(u16::from_be_bytes(*key_bytes));
        event_key.get(..head_bytes).map(|head| Self(head.to_vec()))
    }

    /// The key in the table of records.
    pub(super) fn table_key(&self) -> Vec<u8> {
        [&self.0[..PLACE_BYTES], &self.0[PLACE_BYTES + 2..]].concat()
    }

    /// The key of the whole value.
    pub(super) fn whole(&self) -> Bytes {
        [&self.0[..], &[WHOLE]].concat().into()
    }

    /// The key of an update.
    pub(super) fn update(&self, place: &Place) -> Bytes {
        let mut key = self.0.clone();
        key.put_u8(UPDATE);
        key.put_u64(place.time_ms);
        key.put_u128(place.text_hash);
        key.put_u128(place.source);
        key.into()
    }

    /// The first key of updates from a time on.
    pub(super) fn updates_from(&self, time_ms: u64) -> Vec<u8> {
        [&self.0[..], &[UPDATE], &time_ms.to_be_bytes()].concat()
    }

    /// The range of the keys of all updates.
    pub(super) fn updates(&self) -> [Vec<u8>; 2] {
        [UPDATE, AFTER_UPDATES].map(|tag| [&self.0[..], &[tag]].concat())
    }

    /// The place of the update with this key.
    pub(super) fn place(&self, event_key: &[u8]) -> Option<Place> {
        let mut rest = event_key.strip_prefix(&self.0[..])?.strip_prefix(&[UPDATE])?;
        Some(Place {
            time_ms: rest.try_get_u64().ok()?,
            text_hash: rest.try_get_u128().ok()?,
            source: rest.try_get_u128().ok()?,
        })
    }
}
