//! The simulated network: which messages arrive, when, how often, and in which order.
//!
//! Between processes, messages are lost, late, duplicated and reordered. A connection to the coordination service
//! behaves like TCP: messages arrive once and in order, and when one is lost the connection is broken, and nothing more
//! arrives on it.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

/// One end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Service,
    Process(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Network {
    /// Whether random failures happen.
    pub(crate) unreliable: bool,
    cuts: BTreeMap<(Place, Place), u64>,
    broken: BTreeSet<u64>,
    /// The arrival time of the last message of a connection, in each direction.
    arrivals: BTreeMap<(u64, bool), u64>,
}

impl Network {
    /// A network with or without random failures.
    pub(crate) fn new(unreliable: bool) -> Self {
        Self {
            unreliable,
            ..Self::default()
        }
    }

    /// Cuts a line until a time.
    pub(crate) fn cut(&mut self, a: Place, b: Place, until_ms: u64) {
        self.cuts.insert((a.min(b), a.max(b)), until_ms);
    }

    /// Repairs everything.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.unreliable = false;
    }

    pub(crate) fn is_cut(&self, a: Place, b: Place, now_ms: u64) -> bool {
        let until_ms = self.cuts.get(&(a.min(b), a.max(b)));
        until_ms.is_some_and(|&until_ms| now_ms < until_ms)
    }

    pub(crate) fn is_broken(&self, connection: u64) -> bool {
        self.broken.contains(&connection)
    }

    /// The latency of a message.
    pub(crate) fn delay_ms(&self, rng: &mut Rng) -> u64 {
        match self.unreliable && rng.u32(..50) == 0 {
            true => rng.u64(50..2_000),
            false => rng.u64(1..15),
        }
    }

    /// The arrival time of a message on a connection; `None` if the connection breaks.
    pub(crate) fn on_connection(
        &mut self,
        rng: &mut Rng,
        process: usize,
        connection: u64,
        to_service: bool,
        now_ms: u64,
    ) -> Option<u64> {
        let cut = self.is_cut(Place::Service, Place::Process(process), now_ms);
        let lost = self.unreliable && rng.u32(..400) == 0;
        if cut || lost {
            self.broken.insert(connection);
        }
        if self.is_broken(connection) {
            return None;
        }
        let at_ms = now_ms + self.delay_ms(rng);
        let last_ms = self.arrivals.entry((connection, to_service)).or_default();
        *last_ms = at_ms.max(*last_ms);
        Some(*last_ms)
    }

    /// The arrival times of a message between processes: none, one, or two.
    pub(crate) fn between(&self, rng: &mut Rng, from: usize, to: usize, now_ms: u64) -> [Option<u64>; 2] {
        let cut = self.is_cut(Place::Process(from), Place::Process(to), now_ms);
        if cut || (self.unreliable && rng.u32(..100) == 0) {
            return [None, None];
        }
        let doubled = self.unreliable && rng.u32(..50) == 0;
        let first = now_ms + self.delay_ms(rng);
        let second = doubled.then(|| now_ms + self.delay_ms(rng));
        [Some(first), second]
    }
}
