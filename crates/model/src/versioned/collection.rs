//! Tombstone garbage collection: a tombstone may be forgotten once no node can bring back the deleted value.
//!
//! A deletion, and a value that has expired, is kept as a record. A replica that has forgotten it would take an older
//! write for a new one. So it is kept until all replicas have it and no older write is on its way. Replicas forget it
//! one after the other. Anti-entropy may offer it again to a replica that has forgotten it; the record is then
//! [past](Horizon::is_past), and is not stored again.

use super::record::Record;

/// A replica's knowledge when it collects tombstones of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// The time, in milliseconds since 1970.
    pub now_unix_ms: u64,
    /// How long the store keeps tombstones, in milliseconds.
    pub grace_ms: u64,
    /// When the last completed comparison with each other replica began, the earliest of them, in milliseconds by a
    /// monotonic clock. `None` if one of them was never compared completely; `u64::MAX` if there are no others.
    pub compared_ms: Option<u64>,
    /// The time of the oldest hint that any node stores, in milliseconds since 1970; `u64::MAX` if there are no hints.
    /// `None` if a node is absent or has not answered.
    pub oldest_hint_unix_ms: Option<u64>,
}

/// Why a record is not forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remembered {
    /// It has a value.
    HasValue,
    /// The deletion or expiry is more recent than the grace period.
    InGrace,
    /// The record is in this state for the first time.
    IsNew,
    /// Another replica may not have it.
    NotCompared,
    /// The hints of some node are unknown.
    HintsUnknown,
    /// A node has a hint that may be older.
    OlderHint,
}

impl Horizon {
    /// Whether a record has had no value for so long that other replicas may have forgotten it: a replica without the
    /// record does not take it from others.
    pub fn is_past(&self, record: &Record) -> bool {
        record.is_deleted(self.now_unix_ms)
            && record.quiet_since_unix_ms().saturating_add(self.grace_ms) <= self.now_unix_ms
    }

    /// Why a record must be kept; `None` if it may be forgotten. `found_ms` is when it was first found in this state,
    /// by the clock of [`compared_ms`](Self::compared_ms).
    pub fn remembers(&self, record: &Record, found_ms: Option<u64>) -> Option<Remembered> {
        if !record.is_deleted(self.now_unix_ms) {
            return Some(Remembered::HasValue);
        }
        if !self.is_past(record) {
            return Some(Remembered::InGrace);
        }
        let Some(found_ms) = found_ms else {
            return Some(Remembered::IsNew);
        };
        if self.compared_ms.is_none_or(|compared_ms| compared_ms <= found_ms) {
            return Some(Remembered::NotCompared);
        }
        match self.oldest_hint_unix_ms {
            None => Some(Remembered::HintsUnknown),
            Some(oldest) if oldest <= record.quiet_since_unix_ms() => Some(Remembered::OlderHint),
            Some(_) => None,
        }
    }
}
