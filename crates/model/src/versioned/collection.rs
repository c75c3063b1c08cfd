//! Tombstone garbage collection: a deletion may be forgotten once no node can bring back what it deleted.
//!
//! A deletion, and a value that has expired, is kept as a record. A replica that has forgotten it takes an older write
//! for a new one. So it is kept until all replicas have it and nothing older is on its way. Replicas forget it one
//! after the other. Anti-entropy may offer it again to a replica that has forgotten it; it is [past](Horizon::is_past),
//! and is not taken again.

use super::record::Record;

/// A replica's knowledge when it collects tombstones of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// The time, in milliseconds since 1970.
    pub now_unix_ms: u64,
    /// How long the store remembers deletions, in milliseconds.
    pub grace_ms: u64,
    /// When the comparisons with all other replicas began that came to their end: the earliest of the last one
    /// with each, in milliseconds by a clock that is never set. `None` if there was none with one of them;
    /// `u64::MAX` if there are no others.
    pub compared_ms: Option<u64>,
    /// The time of the oldest write that any node keeps for another one, in milliseconds since 1970; `u64::MAX`
    /// if none keeps one. `None` if a node is not there, or does not say.
    pub oldest_hint_unix_ms: Option<u64>,
}

/// Why a record is not forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remembered {
    /// It has a value.
    HasValue,
    /// The deletion or expiry is more recent than the grace period.
    InGrace,
    /// It was not found as it is before.
    IsNew,
    /// Another replica may not have it.
    NotCompared,
    /// It is not known what nodes keep for others.
    HintsUnknown,
    /// A node keeps a write for another one that may be older.
    OlderHint,
}

impl Horizon {
    /// Whether a record has no value, and for so long that other replicas may have forgotten it: a replica without the
    /// record does not take it from others.
    pub fn is_past(&self, record: &Record) -> bool {
        record.is_deleted(self.now_unix_ms)
            && record.quiet_since_unix_ms().saturating_add(self.grace_ms) <= self.now_unix_ms
    }

    /// Why a record is to be remembered, that was first found as it is at `found_ms`, by the clock of
    /// [`compared_ms`](Self::compared_ms); `None` if it may be forgotten.
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
