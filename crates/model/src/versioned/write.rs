//! Writes: how one changes the record of the replica that takes it first. The record that results is then
//! merged by the other replicas, so that all else about a write is decided in one place.

use bytes::Bytes;

use super::clock::VectorClock;
use super::counter::{Count, OwnSum, Seen, text};
use super::record::{Record, SIBLINGS_BYTES_MAX, SIBLINGS_MAX, SUMS_MAX, Sibling};
use super::replica::{DotSource, ReplicaId};

/// The latest time that a write may have, in milliseconds since 1970: the end of the year 9999.
pub const TIME_UNIX_MS_MAX: u64 = 253_402_300_799_999;

/// The writes that a write makes obsolete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over<'a> {
    /// Those that this clock covers, and nothing else: for clients that send a context.
    Context(&'a VectorClock),
    /// Those that this clock covers and all that the replica has: for clients that send no context. The clock is the
    /// merged context of other replicas.
    All(&'a VectorClock),
    /// All; and only if the replica has seen nothing that this clock does not cover: for clients that
    /// change what they have read.
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
    /// When it ends to be there, in milliseconds since 1970; `None` for never.
    pub expires_unix_ms: Option<u64>,
    /// The change.
    pub change: Change,
}

/// The change that a write makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key has this value.
    Put(Bytes),
    /// The key is gone.
    Delete,
    /// Adds, or subtracts if negative: for stores that resolve counters. It makes nothing obsolete, and never
    /// conflicts, whatever [`Over`] says. An existing counter keeps its expiry; the expiry in the update only applies
    /// to a new counter. Must not be resent to another replica when its outcome is unknown: it would count twice.
    Add(i64),
    /// The counter is this, or gone: see [`Update::set_counter`].
    SetCounter {
        /// The number; `None` for none.
        value: Option<i64>,
        /// The sums of all replicas.
        seen: Box<[Seen]>,
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

/// Why a replica does not take a write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The key was written meanwhile.
    #[error("the key was written since it was read: read it again, and write what follows from that")]
    Conflict,
    /// The key has too many values at once.
    #[error("the key has {siblings} concurrent values of {bytes} bytes: read them, and write one with their context")]
    TooManySiblings {
        /// How many there are.
        siblings: usize,
        /// How many bytes they have.
        bytes: usize,
    },
    /// Too many incarnations of replicas have added to the counter.
    #[error("the counter has {sums} sums of replicas that were started anew: set it to its value")]
    TooManySums {
        /// How many there are.
        sums: usize,
    },
    /// The time is not possible.
    #[error("a write at {written_unix_ms} ms since 1970 is later than the year 9999: set the clock of who sends it")]
    TimeOutOfRange {
        /// The time.
        written_unix_ms: u64,
    },
    /// The context names a write with the highest possible number.
    #[error("the context names more writes of replica {replica} than there can be: use a context that was given out")]
    CounterUsedUp {
        /// The replica that was to take the write.
        replica: ReplicaId,
    },
}

impl Record {
    /// The record of a replica after a write that comes to it first. The newest of its dots is the
    /// write's.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] if it is over what is [unchanged](Over::Unchanged) and that has changed;
    /// values that are not possible. Then nothing is to be changed.
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
        // An addition uses an empty clock: another clock would hide writes that it covers and that are not here.
        let nothing = VectorClock::new();
        let (over, sum) = match change {
            Change::Add(by) => {
                let sum = OwnSum::of(local, replica, by, given_unix_ms);
                (Over::Context(&nothing), Some(sum))
            }
            // Concurrent additions that were not read stay.
            Change::SetCounter { .. } if matches!(over, Over::All(_)) => (Over::Context(over.clock()), None),
            Change::SetCounter { .. } | Change::Put(_) | Change::Delete => (over, None),
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

    /// This record with one more sibling, that its context covers.
    fn with(mut self, sibling: Sibling) -> Result<Self, WriteError> {
        // Those of other replicas are as many as have ever added to the counter: most of them count no more.
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
