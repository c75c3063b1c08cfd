//! Counters: numbers that many add to at once, of which no increment is lost and none counts twice.
//!
//! Each replica sums up what was added through it, in one sibling of its own: adding through it makes its
//! last sum obsolete, and nothing else. So the sums of several replicas stand side by side, and the
//! counter is what they come to. To set a counter makes obsolete the sums that were read. A replica that
//! has not heard of that yet goes on with its sum, and then a part of it is obsolete and the rest is not:
//! so who sets a counter writes down how far each sum had come.
//!
//! A counter is the newest of what it was set to, and all that no setting has seen.

use std::fmt::Write;

use bytes::Bytes;

use super::record::{Record, Sibling};
use super::replica::ReplicaId;
use super::write::{Change, Update};

/// How many sums a setting of a counter remembers: the newest ones.
pub const SEEN_MAX: usize = 64;

/// What a sibling is to a counter.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Count {
    /// A value or a deletion, as in any store: it has seen nothing that was added.
    #[default]
    Whole,
    /// What was added through one replica: the value is the sum.
    Added {
        /// The counter of the first write that the sum has in it: which sum of the replica it is.
        since: u64,
    },
    /// What the counter was set to; no value if it was deleted.
    Set {
        /// The sums that it has made obsolete, as far as they had come: by replica and `since`.
        seen: Box<[Seen]>,
    },
}

/// How far a sum had come when a counter was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// Whose sum.
    pub replica: ReplicaId,
    /// Which sum of the replica: the counter of its first write.
    pub since: u64,
    /// The counter of its last write that was seen.
    pub counter: u64,
    /// What it was then.
    pub total: i64,
}

impl Update {
    /// The update that sets a counter, or deletes it, for who has read this record: to be written over its
    /// context. What is added before the write arrives, and was not read, stays.
    pub fn set_counter(read: &Record, value: Option<i64>, written_unix_ms: u64, expires_unix_ms: Option<u64>) -> Self {
        let mut seen: Vec<Seen> = Vec::new();
        let sums = read.siblings.iter().filter_map(Seen::of);
        for sum in sums.chain(read.siblings.iter().flat_map(earlier).copied()) {
            let same = |other: &&mut Seen| (other.replica, other.since) == (sum.replica, sum.since);
            match seen.iter_mut().find(same) {
                Some(other) if other.counter >= sum.counter => {}
                Some(other) => *other = sum,
                None => seen.push(sum),
            }
        }
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
    /// The sum that a sibling is.
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
        Count::Whole | Count::Added { .. } => &[],
    }
}

/// The sum of a replica that adds to a counter.
pub(super) struct OwnSum {
    replica: ReplicaId,
    now_unix_ms: u64,
    /// Which of its sums goes on, and what it comes to then. None if a new one is to be begun: there is none that
    /// lives, or none that has room for more.
    pub(super) continued: Option<(u64, i64)>,
}

impl OwnSum {
    /// What a replica does to add this much.
    pub(super) fn of(local: &Record, replica: ReplicaId, by: i64, now_unix_ms: u64) -> Self {
        let own = local.siblings.iter().filter(|sibling| sibling.dot.replica == replica);
        let mut living = own
            .filter(|sibling| !sibling.has_expired(now_unix_ms))
            .filter_map(Seen::of);
        Self {
            replica,
            now_unix_ms,
            continued: living.find_map(|sum| Some((sum.since, sum.total.checked_add(by)?))),
        }
    }

    /// Whether it takes the place of this sibling: of the sum that goes on, and of those that have expired.
    pub(super) fn replaces(&self, sibling: &Sibling) -> bool {
        let Count::Added { since } = sibling.count else {
            return false;
        };
        let is_continued = self.continued.is_some_and(|(continued, _)| continued == since);
        sibling.dot.replica == self.replica && (is_continued || sibling.has_expired(self.now_unix_ms))
    }
}

/// What a counter comes to; `None` if it is not there. One that was set to what is no number is that.
pub(super) fn value(record: &Record, now_unix_ms: u64) -> Option<Bytes> {
    let whole = |sibling: &&Sibling| !matches!(sibling.count, Count::Added { .. });
    let set = record.siblings.iter().filter(whole).max_by_key(|sibling| sibling.age());
    let set = set.and_then(|sibling| sibling.value_at(now_unix_ms));
    let base = match set.map(|value| (value, number(value))) {
        Some((value, None)) => return Some(value.clone()),
        Some((_, Some(number))) => Some(number),
        None => None,
    };
    let living = record
        .siblings
        .iter()
        .filter(|sibling| !sibling.has_expired(now_unix_ms));
    let mut sum: Option<i128> = base.map(i128::from);
    for added in living.filter_map(Seen::of) {
        let same = |seen: &&Seen| (seen.replica, seen.since) == (added.replica, added.since);
        let obsolete = record
            .siblings
            .iter()
            .flat_map(earlier)
            .filter(same)
            .max_by_key(|seen| seen.counter);
        let obsolete = obsolete.map_or(0, |seen| i128::from(seen.total));
        sum = Some(sum.unwrap_or(0) + i128::from(added.total) - obsolete);
    }
    let sum = sum?.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    if base.map(i128::from) == Some(sum) {
        return set.cloned();
    }
    Some(text(sum as i64))
}

/// A number as it stands in a value.
pub(super) fn text(number: i64) -> Bytes {
    let mut text = String::with_capacity(20);
    // A string takes all that is written to it.
    let _ = write!(text, "{number}");
    text.into()
}

/// The number that a value is, as Redis reads it: decimal, no blanks, no zeros or plus in front.
pub(super) fn number(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_shortest = digits == "0" && text == "0" || !digits.starts_with(['0', '+']);
    is_shortest.then_some(number)
}
