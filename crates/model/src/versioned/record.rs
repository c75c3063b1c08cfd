//! A replica's record of a key: the writes that are not obsolete, and the context.
//!
//! Each value has the [dot](Dot) of its write, and the record a clock that covers these and all writes that they made
//! obsolete: dotted version vectors (Almeida, Baquero, Gonçalves, Preguiça and Fonte 2012). A plain vector clock for
//! each value would lose one of two writes that came to one replica with one context.
//!
//! Records form a join semilattice: [`merge`](Record::merge) is commutative, associative and idempotent. So replicas
//! that have got the same writes, in any order and any number of times, have equal records, and equal records are equal
//! bytes. Only a pruned clock breaks this: an obsolete write whose entry one replica has pruned comes back as a sibling
//! if another still has it. No write is lost by it.

use std::cmp::Ordering;

use bytes::Bytes;
use smallvec::SmallVec;

use super::clock::{COUNTER_ENTRIES_MAX, ENTRIES_MAX, VectorClock};
use super::counter::Count;
use super::replica::Dot;

/// How many siblings a record may have for another write to be taken that makes none of them obsolete. The sums of a
/// counter that other replicas have added to do not count: see [`SUMS_MAX`].
pub const SIBLINGS_MAX: usize = 64;

/// How many sums of a counter a record may have for another one to begin. A sum stays when the incarnation of a replica
/// that added it up has ended, so there may be many more than replicas: one has some 25 bytes.
pub const SUMS_MAX: usize = 1 << 15;

/// How many bytes the values of several siblings may have together for another one to be added. Three replicas that
/// have added theirs before they met have room in one record.
pub const SIBLINGS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How many bytes a record may have: what goes to another node in one request, with its key and all around it.
pub const RECORD_BYTES_MAX: usize = 60 * 1024 * 1024;

/// How many bytes the values of several siblings may have together where only the latest is read.
pub const SHADOWED_BYTES_MAX: usize = 1024 * 1024;

/// How many siblings a record may have when it is read: each replica may have added its own before they
/// met.
pub const SIBLINGS_READ_MAX: usize = 2 * SUMS_MAX;

/// A write that no other has made obsolete.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sibling {
    /// Which write it is.
    pub dot: Dot,
    /// When it was written, in milliseconds since 1970. A write that knew of another has a later time.
    pub written_unix_ms: u64,
    /// When it ends to be there, in milliseconds since 1970; `None` for never.
    pub expires_unix_ms: Option<u64>,
    /// The value; `None` for a deletion (a tombstone).
    pub value: Option<Bytes>,
    /// Its part in a counter.
    pub count: Count,
}

impl Sibling {
    /// The value, if it is there at this time.
    pub fn value_at(&self, now_unix_ms: u64) -> Option<&Bytes> {
        self.value.as_ref().filter(|_| !self.has_expired(now_unix_ms))
    }

    /// Whether its time to live is over.
    pub fn has_expired(&self, now_unix_ms: u64) -> bool {
        self.expires_unix_ms.is_some_and(|expires| expires <= now_unix_ms)
    }

    /// By this order, one of several siblings is the latest: by time, then deletions, then by dot. By causality they
    /// are all equal, or they would not be siblings.
    ///
    /// A deletion of a value that was written through another node in the same millisecond means that value.
    pub(super) fn age(&self) -> (u64, bool, Dot) {
        // A value that was dropped after it expired is not a deletion: not all replicas have dropped it yet.
        let is_deletion = self.value.is_none() && self.expires_unix_ms.is_none();
        (self.written_unix_ms, is_deletion, self.dot)
    }
}

/// A replica's record of a key. The default is that of a key that was never written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Covers the dots of the siblings, and those of all writes that are obsolete.
    pub(super) context: VectorClock,
    /// By dot, each once.
    pub(super) siblings: SmallVec<[Sibling; 1]>,
}

impl Record {
    /// The context: the writes of the key that have been seen. A write with this context makes the siblings obsolete.
    pub fn context(&self) -> &VectorClock {
        &self.context
    }

    /// The writes that nothing has made obsolete, by dot.
    pub fn siblings(&self) -> &[Sibling] {
        &self.siblings
    }

    /// Whether nothing was ever written.
    pub fn is_empty(&self) -> bool {
        self.context.is_empty()
    }

    /// Whether no sibling has a value at this time: they are tombstones, or have expired.
    pub fn is_deleted(&self, now_unix_ms: u64) -> bool {
        self.siblings
            .iter()
            .all(|sibling| sibling.value_at(now_unix_ms).is_none())
    }

    /// The time of the newest sibling, or the end of its time to live if that is later, in milliseconds
    /// since 1970: since then nothing has happened to the key. 0 if nothing was ever written.
    pub fn quiet_since_unix_ms(&self) -> u64 {
        let times = self
            .siblings
            .iter()
            .map(|sibling| sibling.written_unix_ms.max(sibling.expires_unix_ms.unwrap_or(0)));
        times.max().or(self.context.newest_unix_ms()).unwrap_or(0)
    }

    /// The time of the oldest sibling, in milliseconds since 1970: no deletion in here is older. Without siblings, that
    /// of the newest write seen, and 0 if nothing was ever written.
    pub fn oldest_unix_ms(&self) -> u64 {
        let times = self.siblings.iter().map(|sibling| sibling.written_unix_ms);
        times.min().or(self.context.newest_unix_ms()).unwrap_or(0)
    }

    /// When the first sibling expires, in milliseconds since 1970; `None` if none ever does.
    pub fn next_expiry_unix_ms(&self) -> Option<u64> {
        self.siblings.iter().filter_map(|sibling| sibling.expires_unix_ms).min()
    }

    /// This record without the values that have expired by a time, which are no longer read: their siblings stay, as
    /// deletions do. `None` if no value was dropped. Merging a record that has a value with one that has dropped it drops the
    /// value. Not for counters, whose sums are short and depend on each other.
    pub fn without_expired(&self, now_unix_ms: u64) -> Option<Self> {
        let drops = |sibling: &Sibling| {
            sibling.count == Count::Whole && sibling.value.is_some() && sibling.has_expired(now_unix_ms)
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
                // They are equal, unless the value of one has expired and was dropped (then that one is less than any),
                // or a client forged a dot: then all replicas choose the same one.
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

    /// Whether another record has nothing that is new here: to merge it would change nothing.
    pub fn covers(&self, other: &Self) -> bool {
        self.merge(other) == *self
    }

    /// Forgets all siblings but the latest, if there are as many as a record may have, or more than
    /// [`SHADOWED_BYTES_MAX`] bytes: for stores that resolve by the latest, whose readers see no other. So many
    /// concurrent writers find room, and the record stays short. Forgotten siblings still count as seen: replicas that
    /// have them forget them when they merge this record.
    pub fn forget_shadowed(&mut self) {
        let is_long = self.siblings.len() >= SIBLINGS_MAX || self.value_bytes() > SHADOWED_BYTES_MAX;
        if self.siblings.len() > 1 && is_long {
            let latest = self.siblings.iter().max_by_key(|sibling| sibling.age()).cloned();
            self.siblings = latest.into_iter().collect();
        }
    }

    /// Forgets what is oldest in a context that is too long, and nothing of siblings.
    pub(super) fn prune(&mut self) {
        let siblings = &self.siblings;
        // A sum of a counter that came back would be counted twice, where a value that does is a sibling.
        let is_counter = siblings.iter().any(|sibling| sibling.count != Count::Whole);
        let entries_max = if is_counter { COUNTER_ENTRIES_MAX } else { ENTRIES_MAX };
        self.context.prune(entries_max, |replica| {
            // They are by dot, so by replica.
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
