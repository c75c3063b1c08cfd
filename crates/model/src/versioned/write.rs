//! Writes: how a write changes the record of the first replica that takes it. The other replicas then merge the new
//! record, so that everything else about a write is decided in one place.

use bytes::Bytes;

use super::clock::VectorClock;
use super::counter::{Count, OwnSum, Seen, text};
use super::fields::FieldTimes;
use super::record::{Record, SIBLINGS_BYTES_MAX, SIBLINGS_MAX, SUMS_MAX, Sibling};
use super::replica::{DotSource, ReplicaId};

/// The latest time that a write may have, in milliseconds since 1970: the end of the year 9999.
pub const TIME_UNIX_MS_MAX: u64 = 253_402_300_799_999;

/// The writes that a write makes obsolete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over<'a> {
    /// The writes that this clock covers, and no others: for clients that send a context.
    Context(&'a VectorClock),
    /// The writes that this clock covers and all that the replica has: for clients that send no context. The clock is
    /// the merged context of other replicas.
    All(&'a VectorClock),
    /// All writes, but only if the replica has seen none that this clock does not cover: for clients that change a
    /// value that they have read.
    Unchanged(&'a VectorClock),
}

impl<'a> Over<'a> {
    /// The clock that came with the write.
    pub fn clock(self) -> &'a VectorClock {
        match self {
            Self::Context(clock) | Self::All(clock) | Self::Unchanged(clock) => clock,
        }
    }
}

/// A write to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The time, in milliseconds since 1970, by the sender's clock. If the write makes a newer one obsolete, it gets a
    /// later time.
    pub written_unix_ms: u64,
    /// When it expires, in milliseconds since 1970; `None` for never.
    pub expires_unix_ms: Option<u64>,
    /// The change.
    pub change: Change,
}

/// The change that a write makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key has this value.
    Put(Bytes),
    /// The key is deleted.
    Delete,
    /// Adds, or subtracts if negative: for stores that resolve counters. It makes nothing obsolete, and never
    /// conflicts, whatever [`Over`] says. An existing counter keeps its expiry; the expiry in the update only applies
    /// to a new counter. If its outcome is unknown, it must not be resent to another replica: it would count twice.
    Add(i64),
    /// Sets the counter, or deletes it: see [`Update::set_counter`].
    SetCounter {
        /// The number; `None` deletes the counter.
        value: Option<i64>,
        /// The sums of all replicas.
        seen: Box<[Seen]>,
    },
    /// Writes some fields of a value: see [`Update::put_fields`].
    PutFields {
        /// The whole value.
        value: Bytes,
        /// When its fields were written.
        times: FieldTimes,
    },
}

impl Update {
    /// A value.
    pub fn put(value: Bytes, written_unix_ms: u64, expires_unix_ms: Option<u64>) -> Self {
        Self {
            written_unix_ms,
            expires_unix_ms,
            change: Change::Put(value),
        }
    }

    /// A deletion.
    pub fn delete(written_unix_ms: u64) -> Self {
        Self {
            written_unix_ms,
            expires_unix_ms: None,
            change: Change::Delete,
        }
    }

    /// An increment.
    pub fn add(by: i64, written_unix_ms: u64, expires_unix_ms: Option<u64>) -> Self {
        Self {
            written_unix_ms,
            expires_unix_ms,
            change: Change::Add(by),
        }
    }
}

/// Why a replica refuses a write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The key was written in the meantime.
    #[error("the key was written since it was read: read it again, and derive the write from the new value")]
    Conflict,
    /// The key has too many values at once.
    #[error("the key has {siblings} concurrent values of {bytes} bytes: read them, and write one with their context")]
    TooManySiblings {
        /// The number of concurrent values.
        siblings: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// Too many incarnations of replicas have added to the counter.
    #[error("the counter has {sums} sums of earlier incarnations of replicas: set it to its value")]
    TooManySums {
        /// The number of sums.
        sums: usize,
    },
    /// The time is out of range.
    #[error("a write at {written_unix_ms} ms since 1970 is later than the year 9999: set the clock of its sender")]
    TimeOutOfRange {
        /// The time.
        written_unix_ms: u64,
    },
    /// The context names a write with the highest possible number.
    #[error("the context names more writes of replica {replica} than there can be: use a context from a read")]
    CounterUsedUp {
        /// The replica that was to take the write.
        replica: ReplicaId,
    },
}

impl Record {
    /// The record of a replica after a write that reaches it first. Its newest dot is that of the write.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] if the write is over an [unchanged](Over::Unchanged) record and the record has changed;
    /// invalid values. Then nothing may be changed.
    pub fn write(
        local: Option<&Self>,
        dots: &mut DotSource,
        over: Over<'_>,
        update: Update,
    ) -> Result<Self, WriteError> {
        let absent = Self::default();
        let local = local.unwrap_or(&absent);
        let replica = dots.replica();
        let Update {
            written_unix_ms: given_unix_ms,
            expires_unix_ms,
            change,
        } = update;
        if given_unix_ms > TIME_UNIX_MS_MAX {
            return Err(WriteError::TimeOutOfRange {
                written_unix_ms: given_unix_ms,
            });
        }
        // An increment uses an empty clock: another clock would hide writes that it covers but that this replica does
        // not have.
        let nothing = VectorClock::new();
        let (over, sum) = match change {
            Change::Add(by) => {
                let sum = OwnSum::of(local, replica, by, given_unix_ms);
                (Over::Context(&nothing), Some(sum))
            }
            // Concurrent increments that were not read stay.
            Change::SetCounter { .. } if matches!(over, Over::All(_)) => (Over::Context(over.clock()), None),
            Change::SetCounter { .. } | Change::Put(_) | Change::PutFields { .. } | Change::Delete => (over, None),
        };
        let clock = over.clock();
        if matches!(over, Over::Unchanged(_)) && !clock.covers_all(&local.context) {
            return Err(WriteError::Conflict);
        }
        let is_obsolete = |sibling: &Sibling| match over {
            Over::All(_) | Over::Unchanged(_) => true,
            Over::Context(clock) => clock.covers(sibling.dot) || sum.as_ref().is_some_and(|sum| sum.replaces(sibling)),
        };
        let obsolete = || local.siblings.iter().filter(|sibling| is_obsolete(sibling));
        let times = obsolete().map(|sibling| sibling.written_unix_ms);
        let newest_unix_ms = times.chain(clock.newest_unix_ms()).max();
        let after_unix_ms = newest_unix_ms.map_or(0, |newest| newest.saturating_add(1));
        let written_unix_ms = given_unix_ms.max(after_unix_ms);

        let mut context = local.context.merge(clock);
        let dot = dots.next(context.counter(replica), given_unix_ms);
        let dot = dot.ok_or(WriteError::CounterUsedUp { replica })?;
        let expires_unix_ms = sum.as_ref().and_then(|sum| sum.expiry).unwrap_or(expires_unix_ms);
        let (value, count) = match change {
            Change::Put(value) => (Some(value), Count::Whole),
            Change::PutFields { value, times } => (Some(value), Count::Fields(times)),
            Change::Delete => (None, Count::Whole),
            Change::SetCounter { value, seen } => (value.map(text), Count::Set { seen }),
            Change::Add(by) => {
                let continued = sum.as_ref().and_then(|sum| sum.continued);
                let (since, total) = continued.unwrap_or((dot.counter, by));
                (Some(text(total)), Count::Added { since })
            }
        };
        context.increment(dot, written_unix_ms);
        let stays = local.siblings.iter().filter(|sibling| !is_obsolete(sibling));
        let record = Self {
            context,
            siblings: stays.cloned().collect(),
        };
        record.with(Sibling {
            dot,
            written_unix_ms,
            expires_unix_ms,
            value,
            count,
        })
    }

    /// This record with one more sibling, whose dot its context covers.
    fn with(mut self, sibling: Sibling) -> Result<Self, WriteError> {
        // There are as many sums of other replicas as replicas have ever added to the counter: most are obsolete.
        let is_others_sum =
            |other: &&Sibling| matches!(other.count, Count::Added { .. }) && other.dot.replica != sibling.dot.replica;
        let sums = self.siblings.iter().filter(is_others_sum).count();
        if sums >= SUMS_MAX {
            return Err(WriteError::TooManySums { sums });
        }
        let (siblings, bytes) = (self.siblings.len(), self.value_bytes());
        let more = sibling.value.as_ref().map_or(0, Bytes::len);
        if siblings - sums >= SIBLINGS_MAX || (siblings > 0 && bytes + more > SIBLINGS_BYTES_MAX) {
            return Err(WriteError::TooManySiblings { siblings, bytes });
        }
        let place = self.siblings.partition_point(|other| other.dot < sibling.dot);
        self.siblings.insert(place, sibling);
        self.prune();
        Ok(self)
    }
}
