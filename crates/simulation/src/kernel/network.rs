//! The simulated network: which messages arrive, when, how often, and in which order.
//!
//! Between processes, messages are lost, late, duplicated and reordered. A connection to the coordination service
//! behaves like TCP: messages arrive once and in order, and when one is lost the connection is broken, and nothing more
//! arrives on it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fastrand::Rng;

/// One end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Coordination,
    Process(usize),
}

/// The fate of a message between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It arrives after this time.
    Arrives(u64),
    /// It arrives twice.
    Doubled(u64, u64),
    /// The connection breaks, and both sides notice after this time.
    Breaks(u64),
    /// It is lost.
    Vanishes,
}

/// Times are in the unit of the world; chances are in thousandths.
#[derive(Debug)]
pub(crate) struct Network {
    /// The latency of most messages.
    near: Range<u64>,
    /// The latency of late messages.
    late: Range<u64>,
    /// The time until both sides notice that a connection broke.
    breaks: Range<u64>,
    chances: Chances,
    /// The lines that are cut, in one direction, until a time.
    cuts: BTreeMap<(Place, Place), u64>,
    /// Processes that are cut off from everything until a time.
    isolated: BTreeMap<usize, u64>,
    /// Broken connections to the coordination service.
    broken: BTreeSet<u64>,
    /// The arrival time of the last message of a connection, in each direction.
    arrivals: BTreeMap<(u64, bool), u64>,
}

/// How often random failures happen to messages.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Chances {
    pub(crate) late: u32,
    pub(crate) lost: u32,
    pub(crate) doubled: u32,
}

impl Network {
    pub(crate) fn new(near: Range<u64>, late: Range<u64>, breaks: Range<u64>, chances: Chances) -> Self {
        Self {
            near,
            late,
            breaks,
            chances,
            cuts: BTreeMap::new(),
            isolated: BTreeMap::new(),
            broken: BTreeSet::new(),
            arrivals: BTreeMap::new(),
        }
    }

    /// Cuts a line in one direction until a time.
    pub(crate) fn cut(&mut self, from: Place, to: Place, until: u64) {
        self.cuts.insert((from, to), until);
    }

    /// Cuts a process off from all others and from coordination until a time.
    pub(crate) fn isolate(&mut self, process: usize, until: u64) {
        self.isolated.insert(process, until);
    }

    /// Repairs everything, and no random failures happen any more.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.isolated.clear();
        self.chances = Chances::default();
    }

    /// Whether random failures happen.
    pub(crate) fn is_unreliable(&self) -> bool {
        self.chances.lost > 0
    }

    pub(crate) fn is_isolated(&self, place: Place, now: u64) -> bool {
        let until = match place {
            Place::Coordination => None,
            Place::Process(process) => self.isolated.get(&process),
        };
        until.is_some_and(|&until| now < until)
    }

    /// Whether messages get through.
    pub(crate) fn reaches(&self, from: Place, to: Place, now: u64) -> bool {
        let is_cut = self.cuts.get(&(from, to)).is_some_and(|&until| now < until);
        from == to || !(is_cut || self.is_isolated(from, now) || self.is_isolated(to, now))
    }

    /// Whether messages and their answers get through.
    pub(crate) fn connects(&self, a: usize, b: usize, now: u64) -> bool {
        let (a, b) = (Place::Process(a), Place::Process(b));
        self.reaches(a, b, now) && self.reaches(b, a, now)
    }

    /// The fate of a message between processes. Only idempotent messages may be duplicated: a connection never duplicates a
    /// request, but the same request may also be a repair that another process sent.
    pub(crate) fn fate(&self, from: usize, to: usize, may_double: bool, now: u64, rng: &mut Rng) -> Fate {
        let near = rng.u64(self.near.clone());
        if from == to {
            return Fate::Arrives(near / 20);
        }
        let mut happens = |chance: u32| rng.u32(..1000) < chance;
        let (is_lost, is_late) = (happens(self.chances.lost), happens(self.chances.late));
        let is_doubled = happens(self.chances.doubled);
        if is_lost || !self.reaches(Place::Process(from), Place::Process(to), now) {
            return match rng.bool() {
                true => Fate::Breaks(rng.u64(self.breaks.clone())),
                false => Fate::Vanishes,
            };
        }
        let after = match is_late {
            true => rng.u64(self.late.clone()),
            false => near,
        };
        match is_doubled && may_double {
            true => Fate::Doubled(after, after + rng.u64(..self.late.end)),
            false => Fate::Arrives(after),
        }
    }

    pub(crate) fn is_broken(&self, connection: u64) -> bool {
        self.broken.contains(&connection)
    }

    /// The arrival time of a message on a connection to coordination; `None` if the connection breaks. A connection breaks less
    /// often than messages between processes are lost.
    pub(crate) fn on_connection(
        &mut self,
        process: usize,
        connection: u64,
        to_service: bool,
        now: u64,
        rng: &mut Rng,
    ) -> Option<u64> {
        let is_cut = !self.reaches(Place::Coordination, Place::Process(process), now);
        if is_cut || rng.u32(..4_000) < self.chances.lost {
            self.broken.insert(connection);
        }
        if self.is_broken(connection) {
            return None;
        }
        let after = match rng.u32(..1000) < self.chances.late {
            true => rng.u64(self.late.clone()),
            false => rng.u64(self.near.clone()),
        };
        let last = self.arrivals.entry((connection, to_service)).or_default();
        *last = (now + after).max(*last);
        Some(*last)
    }
}
