//! A replica's record of a key: the writes that are not obsolete, and the context.
//!
//! Each value has the [dot](Dot) of its write, and the record has a clock that covers these dots and all writes that
//! they made obsolete: dotted version vectors (Almeida, Baquero, Gonçalves, Preguiça and Fonte 2012). With a plain
//! vector clock for each value, one of two writes that reach one replica with the same context would be lost.
//!
//! Records form a join semilattice: [`merge`](Record::merge) is commutative, associative and idempotent. So replicas
//! that have received the same writes, in any order and any number of times, have equal records with equal bytes. Only
//! a pruned clock breaks this: an obsolete write whose entry one replica has pruned comes back as a sibling if another
//! replica still has it. No write is lost by that.

use std::cmp::Ordering;

use bytes::Bytes;
use smallvec::SmallVec;

use super::clock::{COUNTER_ENTRIES_MAX, ENTRIES_MAX, VectorClock};
use super::counter::Count;
use super::replica::Dot;

/// How many siblings a record may have when a write adds one more. The sums of a counter that other replicas have added
/// to do not count: see [`SUMS_MAX`].
pub const SIBLINGS_MAX: usize = 64;

/// How many sums of a counter a record may have when a new one begins. A sum stays after the incarnation of its replica
/// has ended, so there may be many more sums than replicas: one takes some 25 bytes.
pub const SUMS_MAX: usize = 1 << 15;

/// How many bytes the values of several siblings may have in total when another one is added. The siblings that three
/// replicas have added before they merge fit into one record.
pub const SIBLINGS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How many bytes a record may have: it is sent to another node in one request, with its key and the request's head.
pub const RECORD_BYTES_MAX: usize = 60 * 1024 * 1024;

/// How many bytes the values of several siblings may have in total if only the latest is read.
pub const SHADOWED_BYTES_MAX: usize = 1024 * 1024;

/// How many siblings a record may have when it is parsed: each replica may have added its own before they merge.
pub const SIBLINGS_READ_MAX: usize = 2 * SUMS_MAX;

/// A write that no other write has made obsolete.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sibling {
    /// The dot of the write.
    pub dot: Dot,
    /// When it was written, in milliseconds since 1970. A write that has seen another one has a later time.
    pub written_unix_ms: u64,
    /// When it expires, in milliseconds since 1970; `None` for never.
    pub expires_unix_ms: Option<u64>,
    /// The value; `None` for a deletion (a tombstone).
    pub value: Option<Bytes>,
    /// Its role in a counter, or the times of its fields.
    pub count: Count,
}

impl Sibling {
    /// The value, if it has not expired at this time.
    pub fn value_at(&self, now_unix_ms: u64) -> Option<&Bytes> {
        self.value.as_ref().filter(|_| !self.has_expired(now_unix_ms))
    }

    /// Whether it has expired.
    pub fn has_expired(&self, now_unix_ms: u64) -> bool {
        self.expires_unix_ms.is_some_and(|expires| expires <= now_unix_ms)
    }

    /// The order in which one of several siblings is the latest: by time, then deletions, then by dot. Causally they
    /// are concurrent, or they would not be siblings.
    ///
    /// If a value and its deletion were written through two nodes in the same millisecond, the deletion wins.
    pub(super) fn age(&self) -> (u64, bool, Dot) {
        // A value that was dropped after it expired is not a deletion: not all replicas have dropped it yet.
        let is_deletion = self.value.is_none() && self.expires_unix_ms.is_none();
        (self.written_unix_ms, is_deletion, self.dot)
    }
}

/// A replica's record of a key. The default is that of a key that was never written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Covers the dots of the siblings, and those of all obsolete writes.
    pub(super) context: VectorClock,
    /// Ordered by dot, each once.
    pub(super) siblings: SmallVec<[Sibling; 1]>,
}

impl Record {
    /// The context: the writes of the key that have been seen. A write with this context makes the siblings obsolete.
    pub fn context(&self) -> &VectorClock {
        &self.context
    }

    /// The writes that no other write has made obsolete, by dot.
    pub fn siblings(&self) -> &[Sibling] {
        &self.siblings
    }

    /// Whether the key was never written.
    pub fn is_empty(&self) -> bool {
        self.context.is_empty()
    }

    /// Whether no sibling has a value at this time: all are tombstones, or have expired.
    pub fn is_deleted(&self, now_unix_ms: u64) -> bool {
        self.siblings
            .iter()
            .all(|sibling| sibling.value_at(now_unix_ms).is_none())
    }

    /// The time of the newest sibling, or its expiry if that is later, in milliseconds since 1970: the record has not
    /// changed since. 0 if the key was never written.
    pub fn quiet_since_unix_ms(&self) -> u64 {
        let times = self
            .siblings
            .iter()
            .map(|sibling| sibling.written_unix_ms.max(sibling.expires_unix_ms.unwrap_or(0)));
        times.max().or(self.context.newest_unix_ms()).unwrap_or(0)
    }

    /// The time of the oldest sibling, in milliseconds since 1970: no deletion in the record is older. Without
    /// siblings, the time of the newest write seen, and 0 if the key was never written.
    pub fn oldest_unix_ms(&self) -> u64 {
        let times = self.siblings.iter().map(|sibling| sibling.written_unix_ms);
        times.min().or(self.context.newest_unix_ms()).unwrap_or(0)
    }

    /// When the first sibling expires, in milliseconds since 1970; `None` if none ever does.
    pub fn next_expiry_unix_ms(&self) -> Option<u64> {
        self.siblings.iter().filter_map(|sibling| sibling.expires_unix_ms).min()
    }

    /// This record without the values that have expired by a time, which are no longer read: their siblings stay, like
    /// tombstones. `None` if no value was dropped. Merging a record that has a value with one that has dropped it drops
    /// the value. Not for counters, whose sums are short and depend on each other.
    pub fn without_expired(&self, now_unix_ms: u64) -> Option<Self> {
        let drops = |sibling: &Sibling| {
            let is_value = matches!(sibling.count, Count::Whole | Count::Fields(_));
            is_value && sibling.value.is_some() && sibling.has_expired(now_unix_ms)
        };
        if !self.siblings.iter().any(drops) {
            return None;
        }
        let mut dropped = self.clone();
        for sibling in dropped.siblings.iter_mut().filter(|sibling| drops(sibling)) {
            sibling.value = None;
        }
        Some(dropped)
    }

    /// The bytes of all values.
    pub fn value_bytes(&self) -> usize {
        let values = self.siblings.iter().filter_map(|sibling| sibling.value.as_ref());
        values.map(Bytes::len).sum()
    }

    /// The merge of both records. A write stays if both have it, or if one has it and the other has not seen it.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let mut siblings = SmallVec::new();
        let (mut mine, mut theirs) = (&self.siblings[..], &other.siblings[..]);
        loop {
            let order = match (mine.first(), theirs.first()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.dot.cmp(&b.dot),
            };
            match order {
                Ordering::Less => siblings.extend(mine.first().filter(|a| !other.context.covers(a.dot)).cloned()),
                Ordering::Greater => siblings.extend(theirs.first().filter(|b| !self.context.covers(b.dot)).cloned()),
                // They are equal, except in two cases: one has dropped its expired value (then it is the lesser one),
                // or a client forged a dot (then all replicas choose the same one).
                Ordering::Equal => siblings.extend(mine.first().min(theirs.first()).cloned()),
            }
            mine = &mine[usize::from(order.is_le())..];
            theirs = &theirs[usize::from(order.is_ge())..];
        }
        let mut merged = Self {
            context: self.context.merge(&other.context),
            siblings,
        };
        merged.prune();
        merged
    }

    /// Whether another record has nothing new: merging it would change nothing.
    pub fn covers(&self, other: &Self) -> bool {
        self.merge(other) == *self
    }

    /// Forgets all siblings but the latest, if their number has reached the limit, or they have more than
    /// [`SHADOWED_BYTES_MAX`] bytes: for stores that resolve by the latest, whose readers see no other. So many
    /// concurrent writers are possible, and the record stays short. Forgotten siblings still count as seen: replicas
    /// that have them forget them when they merge this record.
    pub fn forget_shadowed(&mut self) {
        let is_long = self.siblings.len() >= SIBLINGS_MAX || self.value_bytes() > SHADOWED_BYTES_MAX;
        if self.siblings.len() > 1 && is_long {
            let latest = self.siblings.iter().max_by_key(|sibling| sibling.age()).cloned();
            self.siblings = latest.into_iter().collect();
        }
    }

    /// Forgets the oldest entries of a context that is too long. Siblings stay.
    pub(super) fn prune(&mut self) {
        let siblings = &self.siblings;
        // If a counter's sum came back, it would be counted twice; a value that comes back is only a sibling.
        let is_counter = |sibling: &Sibling| matches!(sibling.count, Count::Added { .. } | Count::Set { .. });
        let is_counter = siblings.iter().any(is_counter);
        let entries_max = if is_counter { COUNTER_ENTRIES_MAX } else { ENTRIES_MAX };
        self.context.prune(entries_max, |replica| {
            // They are ordered by dot, so by replica.
            let place = siblings.partition_point(|sibling| sibling.dot.replica < replica);
            siblings
                .get(place)
                .is_some_and(|sibling| sibling.dot.replica == replica)
        });
        self.check();
    }

    /// The invariants of a record.
    pub(super) fn check(&self) {
        debug_assert!(self.siblings.is_sorted_by(|a, b| a.dot < b.dot), "{self:?}");
        debug_assert!(
            self.siblings.iter().all(|sibling| {
                let entry = self.context.entry(sibling.dot.replica);
                entry.is_some_and(|entry| {
                    entry.counter >= sibling.dot.counter && entry.written_unix_ms >= sibling.written_unix_ms
                })
            }),
            "{self:?}"
        );
    }
}
