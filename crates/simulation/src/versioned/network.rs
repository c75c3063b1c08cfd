//! The simulated network: which processes cannot reach each other, and how unreliable the other lines are.

use std::collections::BTreeSet;

use fastrand::Rng;

/// The maximum latency of a late message, in microseconds. A coordinator gives up earlier.
const LATE_US_MAX: u64 = 600_000;

/// The fate of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrives after this many microseconds.
    Arrives(u64),
    /// It arrives twice.
    Doubled(u64, u64),
    /// The connection breaks, and both sides notice after this many microseconds.
    Breaks(u64),
    /// It is lost.
    Vanishes,
}

/// The network.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Pairs of processes that do not reach each other.
    blocked: BTreeSet<(usize, usize)>,
    /// Processes that are cut off from all others, including the coordination service.
    isolated: BTreeSet<usize>,
    /// Probabilities in thousandths.
    late: u32,
    lost: u32,
    doubled: u32,
}

impl Network {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let mut chance = |most: u32| rng.u32(..=most) * rng.u32(0..=1);
        Self {
            late: chance(60),
            lost: chance(30),
            doubled: chance(50),
            ..Self::default()
        }
    }

    pub(super) fn block(&mut self, from: usize, to: usize) {
        self.blocked.insert((from, to));
    }

    pub(super) fn isolate(&mut self, process: usize) {
        self.isolated.insert(process);
    }

    pub(super) fn is_isolated(&self, process: usize) -> bool {
        self.isolated.contains(&process)
    }

    pub(super) fn unblock(&mut self, from: usize, to: usize) {
        self.blocked.remove(&(from, to));
    }

    pub(super) fn join(&mut self, process: usize) {
        self.isolated.remove(&process);
    }

    /// Repairs everything.
    pub(super) fn heal(&mut self) {
        *self = Self::default();
    }

    /// Whether messages get through.
    pub(super) fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || !(self.is_isolated(from) || self.is_isolated(to) || self.blocked.contains(&(from, to)))
    }

    /// The fate of a message. Only idempotent messages may be duplicated: a connection never duplicates a request, but
    /// the same request may also be a repair that another process sent.
    pub(super) fn fate(&self, from: usize, to: usize, may_double: bool, rng: &mut Rng) -> Fate {
        let near_us = rng.u64(50..1_500);
        if from == to {
            return Fate::Arrives(near_us / 20);
        }
        let mut happens = |chance: u32| rng.u32(..1000) < chance;
        let (is_lost, is_late) = (happens(self.lost), happens(self.late));
        let is_doubled = happens(self.doubled);
        if is_lost || !self.reaches(from, to) {
            return match rng.bool() {
                true => Fate::Breaks(rng.u64(1_000..100_000)),
                false => Fate::Vanishes,
            };
        }
        let after_us = match is_late {
            true => rng.u64(1_000..LATE_US_MAX),
            false => near_us,
        };
        match is_doubled && may_double {
            true => Fate::Doubled(after_us, after_us + rng.u64(..LATE_US_MAX)),
            false => Fate::Arrives(after_us),
        }
    }
}
