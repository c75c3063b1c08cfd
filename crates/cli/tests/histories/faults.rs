//! The schedule of faults: which, when and for how long, from a seed.
//!
//! Faults come in bouts of one to three, each on a different node. Between bouts there is a calm period in which
//! everything works again. Each kind occurs once before any kind repeats.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::ledger::Ledger;
use super::machines::{Machines, Trouble};

/// The most nodes with a fault at a time.
const AT_ONCE_MAX: usize = 3;
/// The time until the next fault of a bout, in milliseconds.
const NEXT_MS: std::ops::Range<u64> = 0..1200;
/// How long a fault lasts, in milliseconds.
const LASTS_MS: std::ops::Range<u64> = 400..3500;
/// How long nothing fails between bouts, in milliseconds.
const CALM_MS: std::ops::Range<u64> = 1500..2600;
/// How far clocks can be off, in seconds, in either direction.
const OFF_S: [i64; 4] = [1, 30, 600, 7200];

/// The sequence of faults.
pub struct Faults {
    rng: Rng,
    /// The kinds that have not occurred yet in this round.
    bag: Vec<Trouble>,
    /// A log of the faults with their times.
    told: Vec<String>,
}

impl Faults {
    /// The faults of a seed.
    pub fn of(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            bag: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Causes faults until the end time, or until a promise is broken. Heals everything at the end.
    pub fn make(&mut self, machines: &mut Machines, ledger: &Ledger, until: Instant) {
        while Instant::now() < until && !ledger.is_broken() {
            self.rest(CALM_MS);
            self.set_a_clock(machines, ledger);
            ledger.trouble_begins();
            self.bout(machines, ledger);
            ledger.trouble_ends();
        }
        machines.heal_all();
    }

    fn bout(&mut self, machines: &mut Machines, ledger: &Ledger) {
        let mut under_way: Vec<(Instant, usize)> = Vec::new();
        for _ in 0..self.rng.usize(1..=AT_ONCE_MAX) {
            let trouble = self.next(machines);
            let well: Vec<usize> = (0..machines.nodes()).filter(|&node| machines.is_well(node)).collect();
            let node = well[self.rng.usize(..well.len())];
            let lasts = Duration::from_millis(self.rng.u64(LASTS_MS));
            self.tell(ledger, format!("node {}: {trouble:?} for {lasts:?}", node + 1));
            machines.harm(node, trouble);
            under_way.push((Instant::now() + lasts, node));
            self.rest(NEXT_MS);
        }
        under_way.sort_unstable();
        for (until, node) in under_way {
            rest_until(until);
            machines.heal(node);
            self.tell(ledger, format!("node {} is healed", node + 1));
        }
    }

    fn next(&mut self, machines: &Machines) -> Trouble {
        if self.bag.is_empty() {
            self.bag = Trouble::ALL
                .into_iter()
                .filter(|&trouble| machines.can(trouble))
                .collect();
            self.rng.shuffle(&mut self.bag);
        }
        self.bag.pop().expect("processes can be killed everywhere")
    }

    /// Sets a clock forward or back; it stays wrong.
    fn set_a_clock(&mut self, machines: &Machines, ledger: &Ledger) {
        let node = self.rng.usize(..machines.nodes());
        let off_s = OFF_S[self.rng.usize(..OFF_S.len())] * [-1, 1][self.rng.usize(..2)];
        if machines.set_clock(node, off_s) {
            self.tell(ledger, format!("node {}: its clock is {off_s} s off", node + 1));
        }
    }

    fn rest(&mut self, for_ms: std::ops::Range<u64>) {
        rest_until(Instant::now() + Duration::from_millis(self.rng.u64(for_ms)));
    }

    fn tell(&mut self, ledger: &Ledger, what: String) {
        self.told.push(format!("{:>9} us: {what}", ledger.now_us()));
    }

    /// The log of the faults with their times.
    pub fn told(&self) -> String {
        self.told.join("\n")
    }
}

fn rest_until(moment: Instant) {
    while let Some(left) = moment
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
    {
        std::thread::park_timeout(left);
    }
}
