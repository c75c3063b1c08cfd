//! Counters: numbers with concurrent increments. No increment is lost, and none counts twice.
//!
//! Each replica sums up the increments that it takes, in one sibling of its own: an increment only makes the replica's
//! last sum obsolete. So the sums of several replicas are siblings, and the counter is their total. Setting a counter
//! makes the sums obsolete that were read. A replica that does not know that yet continues its sum: then a
//! part of the sum is obsolete, and the rest is not. So the write that sets a counter contains each sum as it was read.
//!
//! The value of a counter is the newest value that it was set to, plus all increments that the setting has not seen.

use std::fmt::Write;

use bytes::Bytes;

use super::fields::FieldTimes;
use super::record::{Record, Sibling};
use super::replica::ReplicaId;
use super::write::{Change, Update};

/// How many sums a write that sets a counter contains: the newest ones.
pub const SEEN_MAX: usize = 1024;

/// A sibling's role among the others of its key.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Count {
    /// A value or a tombstone, as in any store: it has seen no increments.
    #[default]
    Whole,
    /// The sum added through one replica: the value is the total of these sums.
    Added {
        /// The counter of the first write in the sum: it identifies the sum among those of the replica.
        since: u64,
    },
    /// The value that the counter was set to; `None` if it was deleted.
    Set {
        /// The sums that it has made obsolete, up to a write each: by replica and `since`.
        seen: Box<[Seen]>,
    },
    /// A value with fields that were written later than the value as a whole.
    Fields(FieldTimes),
}

/// The state of a sum when a counter was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// The replica of the sum.
    pub replica: ReplicaId,
    /// Identifies the sum among those of the replica: the counter of its first write.
    pub since: u64,
    /// The counter of its last write that was seen.
    pub counter: u64,
    /// The sum at that time.
    pub total: i64,
}

impl Update {
    /// The update that sets a counter, or deletes it, for a client that has read this record: to be written over its
    /// context. Increments that arrive before the write, and were not read, stay.
    pub fn set_counter(read: &Record, value: Option<i64>, written_unix_ms: u64, expires_unix_ms: Option<u64>) -> Self {
        let sums = read.siblings.iter().filter_map(Seen::of);
        let earlier = read.siblings.iter().flat_map(earlier).copied();
        let mut seen: Vec<Seen> = sums.chain(earlier).collect();
        // The latest state of each sum.
        seen.sort_unstable_by_key(|sum| (sum.replica, sum.since, std::cmp::Reverse(sum.counter)));
        seen.dedup_by_key(|sum| (sum.replica, sum.since));
        seen.sort_unstable_by_key(|sum| std::cmp::Reverse(sum.counter));
        seen.truncate(SEEN_MAX);
        seen.sort_unstable();
        Self {
            written_unix_ms,
            expires_unix_ms,
            change: Change::SetCounter {
                value,
                seen: seen.into(),
            },
        }
    }
}

impl Seen {
    /// The sibling as a sum.
    fn of(sibling: &Sibling) -> Option<Self> {
        let Count::Added { since } = sibling.count else {
            return None;
        };
        Some(Self {
            replica: sibling.dot.replica,
            since,
            counter: sibling.dot.counter,
            total: sibling.value.as_deref().and_then(number)?,
        })
    }
}

/// The sums that a sibling has made obsolete.
fn earlier(sibling: &Sibling) -> &[Seen] {
    match &sibling.count {
        Count::Set { seen } => seen,
        Count::Whole | Count::Added { .. } | Count::Fields(_) => &[],
    }
}

/// The sum of a replica that adds to a counter.
pub(super) struct OwnSum {
    replica: ReplicaId,
    now_unix_ms: u64,
    /// When the counter expires, if it exists.
    pub(super) expiry: Option<Option<u64>>,
    /// The sum that is continued, and its new value. `None` if a new sum must be begun: all have expired, or would
    /// overflow.
    pub(super) continued: Option<(u64, i64)>,
}

impl OwnSum {
    /// The sum after this replica adds this much.
    pub(super) fn of(local: &Record, replica: ReplicaId, by: i64, now_unix_ms: u64) -> Self {
        let sums = sums(local, now_unix_ms).map(|(_, sum)| sum);
        let mut own = sums.filter(|sum| sum.replica == replica);
        Self {
            replica,
            now_unix_ms,
            expiry: expiry(local, now_unix_ms),
            continued: own.find_map(|sum| Some((sum.since, sum.total.checked_add(by)?))),
        }
    }

    /// Whether it replaces this sibling: the sum that it continues, or an expired one.
    pub(super) fn replaces(&self, sibling: &Sibling) -> bool {
        let Count::Added { since } = sibling.count else {
            return false;
        };
        let is_continued = self.continued.is_some_and(|(continued, _)| continued == since);
        sibling.dot.replica == self.replica && (is_continued || sibling.has_expired(self.now_unix_ms))
    }
}

/// The value that a counter was last set to, if it exists still.
fn base(record: &Record, now_unix_ms: u64) -> Option<&Sibling> {
    let set = record.siblings.iter();
    let set = set.filter(|sibling| !matches!(sibling.count, Count::Added { .. }));
    let newest = set.max_by_key(|sibling| sibling.age());
    newest.filter(|sibling| sibling.value_at(now_unix_ms).is_some())
}

/// The sums that are neither expired nor obsolete.
fn sums(record: &Record, now_unix_ms: u64) -> impl Iterator<Item = (&Sibling, Seen)> {
    let living = record.siblings.iter();
    let living = living.filter(move |sibling| !sibling.has_expired(now_unix_ms));
    living.filter_map(|sibling| Some((sibling, Seen::of(sibling)?)))
}

/// When a counter expires, in milliseconds since 1970, or `None` for never: with the value that it was set to, or else
/// with the last of its sums. `None` around it if there is no counter.
pub(super) fn expiry(record: &Record, now_unix_ms: u64) -> Option<Option<u64>> {
    if let Some(base) = base(record, now_unix_ms) {
        return Some(base.expires_unix_ms);
    }
    let ends = sums(record, now_unix_ms).map(|(sibling, _)| sibling.expires_unix_ms.unwrap_or(u64::MAX));
    ends.max().map(|end| Some(end).filter(|&end| end != u64::MAX))
}

/// The value of a counter; `None` if it does not exist. A counter that was set to something other than a number has
/// that as its value.
pub(super) fn value(record: &Record, now_unix_ms: u64) -> Option<Bytes> {
    let base = base(record, now_unix_ms).and_then(|sibling| sibling.value.as_ref());
    let mut total: Option<i128> = None;
    if let Some(base) = base {
        let Some(number) = number(base) else {
            return Some(base.clone());
        };
        total = Some(i128::from(number));
    }
    for (_, sum) in sums(record, now_unix_ms) {
        let obsolete = record.siblings.iter().map(earlier).filter_map(|seen| {
            let place = seen.binary_search_by_key(&(sum.replica, sum.since), |seen| (seen.replica, seen.since));
            place.ok().map(|place| &seen[place])
        });
        let obsolete = obsolete
            .max_by_key(|seen| seen.counter)
            .map_or(0, |seen| i128::from(seen.total));
        total = Some(total.unwrap_or(0) + i128::from(sum.total) - obsolete);
    }
    // The replica that adds refuses sums that are out of range, as far as it can see.
    let total = total?.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    Some(text(total as i64))
}

/// A number in the form of a value.
pub(super) fn text(number: i64) -> Bytes {
    let mut text = String::with_capacity(20);
    // Writing to a string cannot fail.
    let _ = write!(text, "{number}");
    text.into()
}

/// Parses a value as a number, like Redis: decimal, no blanks, no leading zeros or plus.
pub(super) fn number(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_shortest = text == "0" || !digits.starts_with(['0', '+']);
    is_shortest.then_some(number)
}
