//! Vector clocks: the writes of a key that have been seen.
//!
//! A clock has one entry for each replica that wrote the key: its highest counter seen. It covers a dot if its entry is
//! no lower. Clocks are only made by merging and counting. So a record whose clock covers a dot has seen all earlier
//! writes of that replica to the key, too: they are in the record or obsolete.
//!
//! Entries also have the time of their newest write. The time only decides which entries are forgotten first when a
//! clock grows too long.

use std::cmp::Ordering;
use std::fmt;

use smallvec::SmallVec;

use super::error::RecordError;
use super::replica::{COUNTER_MAX, Dot, ReplicaId};
use super::varint::{self, Reader, Sink};
use crate::node::NodeId;

/// How many entries the clock of a record keeps, besides those that its siblings need.
pub const ENTRIES_MAX: usize = 32;

/// The same for a counter. If a replica does not know that a counter was set, and has a sum whose entry the clock has
/// forgotten, the sum is added once more.
pub const COUNTER_ENTRIES_MAX: usize = 1024;

/// How many entries a clock may have when it is parsed: a merge of several, or of one with many siblings.
pub const ENTRIES_READ_MAX: usize = 1 << 16;

/// Up to this number of entries, the search is linear, not binary.
const FEW_ENTRIES: usize = 8;

/// How far a clock from a client may be ahead of the receiver's clock, in milliseconds: a day.
pub const AHEAD_MS_MAX: u64 = 86_400_000;

/// The highest counter in a clock that a client may give back: 2⁵³. Counters are times, or go up by one with each
/// write: none gets there in a hundred years, and the room above it is a thousand times as large.
pub const COUNTER_GIVEN_MAX: u64 = 1 << 53;

/// Why a clock that a client gives back cannot have been given to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// It has a time in the future.
    #[error(
        "the context has seen a write {ahead_ms} ms from now, which is more than a day: read the key again; if the \
         error stays, the clock of a node is or was wrong"
    )]
    Ahead {
        /// How far from now, in milliseconds.
        ahead_ms: u64,
    },
    /// It names a write that was never made.
    #[error("the context has seen write {dot}, but no replica has counted that far: use one that a read returned")]
    NoSuchWrite {
        /// The write.
        dot: Dot,
    },
}

/// The causal order of two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Causality {
    /// Both have seen the same writes.
    Equal,
    /// The second has seen all writes that the first has, and more.
    Before,
    /// The first has seen all writes that the second has, and more.
    After,
    /// Each has seen a write that the other has not.
    Concurrent,
}

/// The writes seen of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockEntry {
    /// The replica.
    pub replica: ReplicaId,
    /// Its highest counter seen, from 1.
    pub counter: u64,
    /// The time of its newest write seen, in milliseconds since 1970.
    pub written_unix_ms: u64,
}

/// The writes of a key that have been seen. Cheap to clone while few replicas wrote.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct VectorClock {
    /// By replica, each once.
    entries: SmallVec<[ClockEntry; 3]>,
}

impl VectorClock {
    /// The empty clock: no writes seen.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether no write has been seen.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of each replica, in the order of replicas.
    pub fn entries(&self) -> &[ClockEntry] {
        &self.entries
    }

    /// The highest counter seen of a replica; 0 if none.
    pub fn counter(&self, replica: ReplicaId) -> u64 {
        self.entry(replica).map_or(0, |entry| entry.counter)
    }

    pub(super) fn entry(&self, replica: ReplicaId) -> Option<&ClockEntry> {
        self.place(replica).map(|place| &self.entries[place])
    }

    pub(super) fn place(&self, replica: ReplicaId) -> Option<usize> {
        // Most clocks are short, and mostly the first entry matches.
        match self.entries.len() <= FEW_ENTRIES {
            true => self.entries.iter().position(|entry| entry.replica == replica),
            false => self.entries.binary_search_by_key(&replica, |entry| entry.replica).ok(),
        }
    }

    /// The time of the newest write seen, in milliseconds since 1970; `None` if none was seen.
    pub fn newest_unix_ms(&self) -> Option<u64> {
        self.entries.iter().map(|entry| entry.written_unix_ms).max()
    }

    /// Checks whether a client may have been given this clock, as far as this can be seen without the key's record.
    ///
    /// A forged clock can only hide writes of its own key, for which the client needs the right anyway. It must not
    /// hide them for ever: later writes get a later time, and a higher counter.
    ///
    /// # Errors
    /// Times and counters that no replica can have reached.
    pub fn check_given(&self, now_unix_ms: u64) -> Result<(), ContextError> {
        let ahead_ms = self
            .newest_unix_ms()
            .map_or(0, |newest| newest.saturating_sub(now_unix_ms));
        if ahead_ms > AHEAD_MS_MAX {
            return Err(ContextError::Ahead { ahead_ms });
        }
        match self.entries.iter().find(|entry| entry.counter > COUNTER_GIVEN_MAX) {
            Some(&ClockEntry { replica, counter, .. }) => Err(ContextError::NoSuchWrite {
                dot: Dot { replica, counter },
            }),
            None => Ok(()),
        }
    }

    /// Whether a write has been seen.
    pub fn covers(&self, dot: Dot) -> bool {
        self.counter(dot.replica) >= dot.counter
    }

    /// Whether this clock has seen all writes that another has.
    pub fn covers_all(&self, other: &Self) -> bool {
        let mut mine = self.entries.iter();
        other.entries.iter().all(|theirs| {
            let mine = mine.find(|entry| entry.replica >= theirs.replica);
            mine.is_some_and(|mine| mine.replica == theirs.replica && mine.counter >= theirs.counter)
        })
    }

    /// Compares this clock to another. Times are ignored.
    pub fn compare(&self, other: &Self) -> Causality {
        match (self.covers_all(other), other.covers_all(self)) {
            (true, true) => Causality::Equal,
            (false, true) => Causality::Before,
            (true, false) => Causality::After,
            (false, false) => Causality::Concurrent,
        }
    }

    /// The smallest clock that covers both.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let mut entries = SmallVec::with_capacity(self.entries.len().max(other.entries.len()));
        let (mut mine, mut theirs) = (&self.entries[..], &other.entries[..]);
        while let ([a, mine_after @ ..], [b, theirs_after @ ..]) = (mine, theirs) {
            let order = a.replica.cmp(&b.replica);
            entries.push(match order {
                Ordering::Less => *a,
                Ordering::Greater => *b,
                Ordering::Equal => ClockEntry {
                    replica: a.replica,
                    counter: a.counter.max(b.counter),
                    written_unix_ms: a.written_unix_ms.max(b.written_unix_ms),
                },
            });
            if order.is_le() {
                mine = mine_after;
            }
            if order.is_ge() {
                theirs = theirs_after;
            }
        }
        entries.extend_from_slice(mine);
        entries.extend_from_slice(theirs);
        Self { entries }
    }

    /// Adds a write to those seen.
    pub fn increment(&mut self, dot: Dot, written_unix_ms: u64) {
        debug_assert!(dot.counter > self.counter(dot.replica), "{dot} was seen before");
        match self.entries.binary_search_by_key(&dot.replica, |entry| entry.replica) {
            Ok(place) => {
                let entry = &mut self.entries[place];
                entry.counter = entry.counter.max(dot.counter);
                entry.written_unix_ms = entry.written_unix_ms.max(written_unix_ms);
            }
            Err(place) => self.entries.insert(
                place,
                ClockEntry {
                    replica: dot.replica,
                    counter: dot.counter,
                    written_unix_ms,
                },
            ),
        }
    }

    /// Forgets all entries except those that are `needed`, and the `entries_max` with the newest times.
    ///
    /// The rank of an entry depends only on the times in the clock, so that replicas that have seen the same writes
    /// forget the same entries.
    pub(super) fn prune(&mut self, entries_max: usize, needed: impl Fn(ReplicaId) -> bool) {
        if self.entries.len() <= entries_max {
            return;
        }
        let rank = |entry: &ClockEntry| (entry.written_unix_ms, entry.replica);
        let mut ranks: Vec<_> = self.entries.iter().map(rank).collect();
        ranks.sort_unstable_by(|a, b| b.cmp(a));
        let oldest = ranks[entries_max - 1];
        self.entries
            .retain(|entry| rank(entry) >= oldest || needed(entry.replica));
    }

    /// Appends the clock: the same form in records, in requests, and in the context of clients.
    ///
    /// ```text
    /// clock    entries, and unless there are none: newest time, entry…   (all varints)
    /// entry    node, incarnation, newest time - its time, its counter - its time (zigzag)
    /// ```
    /// Counters are close to times, so that an entry takes some 8 bytes.
    pub(super) fn encode(&self, out: &mut impl Sink) {
        varint::put(out, self.entries.len() as u64);
        let Some(newest_unix_ms) = self.newest_unix_ms() else {
            return;
        };
        varint::put(out, newest_unix_ms);
        for entry in &self.entries {
            varint::put(out, u64::from(entry.replica.node.get()));
            varint::put(out, u64::from(entry.replica.incarnation));
            varint::put(out, newest_unix_ms - entry.written_unix_ms);
            varint::put_difference(out, entry.counter, entry.written_unix_ms);
        }
    }

    /// The clock as bytes; the empty clock has no bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.is_empty() {
            self.encode(&mut bytes);
        }
        bytes
    }

    /// Parses a clock. No bytes are the empty clock.
    ///
    /// # Errors
    /// Bytes that [`to_bytes`](Self::to_bytes) does not produce.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader::new(bytes);
        let clock = Self::read(&mut reader)?;
        reader.end()?;
        Ok(clock)
    }

    /// Skips a clock without parsing it.
    pub(super) fn skip(reader: &mut Reader<'_>) -> Result<(), RecordError> {
        let entries = reader.number()?;
        if entries > 0 {
            let _newest_unix_ms = reader.number()?;
        }
        for _ in 0..entries {
            let [_node, _incarnation] = [reader.number()?, reader.number()?];
            let [_age_ms, _counter] = [reader.number()?, reader.number()?];
        }
        Ok(())
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        let count = reader.number()?;
        if count == 0 {
            return Ok(Self::default());
        }
        // An entry has at least four bytes.
        if count > ENTRIES_READ_MAX as u64 || count > reader.left() as u64 / 4 {
            return Err(RecordError::invalid("its clock has more entries than possible"));
        }
        let newest_unix_ms = reader.number()?;
        let mut entries: SmallVec<[ClockEntry; 3]> = SmallVec::with_capacity(count as usize);
        let mut is_newest_there = false;
        for _ in 0..count {
            let node = reader.number_u32("a node number has more than 32 bits")?;
            let replica = ReplicaId {
                node: NodeId::new(node).ok_or(RecordError::invalid("a node has the number 0"))?,
                incarnation: reader.number_u32("an incarnation has more than 32 bits")?,
            };
            let age_ms = reader.number()?;
            let written_unix_ms = newest_unix_ms
                .checked_sub(age_ms)
                .ok_or(RecordError::invalid("a time is before 1970"))?;
            let counter = reader.difference(written_unix_ms)?;
            if !(1..=COUNTER_MAX).contains(&counter) {
                return Err(RecordError::invalid("a counter is out of range"));
            }
            if entries.last().is_some_and(|last| last.replica >= replica) {
                return Err(RecordError::invalid("the entries of its clock are out of order"));
            }
            is_newest_there |= age_ms == 0;
            entries.push(ClockEntry {
                replica,
                counter,
                written_unix_ms,
            });
        }
        match is_newest_there {
            true => Ok(Self { entries }),
            false => Err(RecordError::invalid("the newest time of its clock is of no entry")),
        }
    }
}

impl fmt::Debug for VectorClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |entry: &ClockEntry| format!("{}:{}@{}", entry.replica, entry.counter, entry.written_unix_ms);
        f.debug_set().entries(self.entries.iter().map(entry)).finish()
    }
}
