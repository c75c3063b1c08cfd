//! State shared by all requests of a client: budgets, thresholds, and counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fastrand::Rng;

use super::budget::Budget;
use super::threshold::Thresholds;

/// The limits of extra work, for all requests of a client together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteeringPolicy {
    /// Retries after failures, as a share of sub-requests.
    pub retry_share: f64,
    /// How many retries may be saved up: this many simultaneous failures, as when a connection breaks, can be retried.
    pub retry_stock_max: u32,
    /// Hedges, as a share of sub-requests.
    pub hedge_share: f64,
    /// How many hedges may be saved up: a pause of a node affects many requests at once.
    pub hedge_stock_max: u32,
    /// The quantile of latencies for the threshold of hedging.
    pub hedge_quantile: f64,
    /// The threshold is this multiple of the quantile.
    pub hedge_margin: f64,
}

impl Default for SteeringPolicy {
    fn default() -> Self {
        Self {
            retry_share: 0.10,
            retry_stock_max: 1_000,
            hedge_share: 0.05,
            hedge_stock_max: 1_000,
            hedge_quantile: 0.95,
            hedge_margin: 1.5,
        }
    }
}

/// State shared by all requests of a client. Takes no lock.
#[derive(Debug)]
pub struct Steering {
    pub(super) retries: Budget,
    pub(super) hedges: Budget,
    pub(super) thresholds: Thresholds,
    pub(super) counts: Counts,
    turn: AtomicU64,
    /// The seed of the random numbers of strategies.
    seed: u64,
}

/// The difference of the seeds of two requests, one after the other: the golden ratio, so that they have little in common.
const SEED_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Steering {
    /// No samples yet, and an initial reserve: all retries, since a client may start when a node has just died, and a
    /// few hedges.
    pub fn new(policy: &SteeringPolicy) -> Self {
        Self {
            retries: Budget::new(policy.retry_share, policy.retry_stock_max, policy.retry_stock_max),
            hedges: Budget::new(policy.hedge_share, 10, policy.hedge_stock_max),
            thresholds: Thresholds::new(policy.hedge_quantile, policy.hedge_margin),
            counts: Counts::default(),
            turn: AtomicU64::new(0),
            seed: 0,
        }
    }

    /// The same with a seed for the random numbers of strategies.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The counts of reads so far.
    pub fn counts(&self) -> ReadCounts {
        self.counts.read()
    }

    /// After how long a second node is asked for this many keys, in microseconds; `None` before enough samples.
    pub fn hedge_threshold_us(&self, keys: usize) -> Option<u64> {
        self.thresholds.threshold_us(keys)
    }

    /// The random numbers of a request.
    #[inline]
    pub(super) fn random(&self, turn: u64) -> Rng {
        Rng::with_seed(self.seed.wrapping_add(turn.wrapping_mul(SEED_STEP)))
    }

    #[inline]
    pub(super) fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Relaxed)
    }
}

/// For the operations on versioned stores, which share budgets and thresholds with look-ups.
impl Steering {
    /// An ordinary request is made.
    pub(crate) fn deposit(&self) {
        self.retries.deposit();
        self.hedges.deposit();
    }

    /// Takes a token for a retry.
    pub(crate) fn take_retry(&self) -> bool {
        let may = self.retries.take();
        self.counts.retries_denied.fetch_add(u64::from(!may), Relaxed);
        may
    }

    /// Takes a token for a hedge.
    pub(crate) fn take_hedge(&self) -> bool {
        let may = self.hedges.take();
        self.counts.hedges_denied.fetch_add(u64::from(!may), Relaxed);
        may
    }

    /// Records that this many keys were read in this time.
    pub(crate) fn note_answered(&self, keys: usize, took_us: u64) {
        self.thresholds.answered(keys, took_us);
    }

    /// Records that this many keys were not read within the threshold.
    pub(crate) fn note_exceeded(&self, keys: usize) {
        self.thresholds.exceeded(keys);
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counts of a client's requests, since it was made.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct ReadCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(super) struct Counts {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counts {
            fn read(&self) -> ReadCounts {
                ReadCounts { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Requests started.
    requests,
    /// Keys asked for.
    keys,
    /// Distinct nodes asked, summed over requests that are over: divided by them it is the mean.
    nodes,
    /// Keys asked of the node that was asked for most, summed over requests.
    largest_shares,
    /// Microseconds in the slowest sub-request, summed over requests.
    server_us,
    /// Microseconds of the rest of the time, spent by the client, summed over requests.
    client_us,
    /// Sub-requests sent, of all kinds.
    sub_requests,
    /// Of these, those sent because another one failed.
    retries,
    /// Of these, those sent because another one took long.
    hedges,
    /// Hedges that answered a key first.
    hedges_won,
    /// Of these, those sent because a node did not have the requested keys or version.
    redirects,
    /// Retries denied because the budget was used up.
    retries_denied,
    /// Hedges denied because the budget was used up.
    hedges_denied,
    /// How often a node was found to be late.
    lates,
    /// Stores read again at another version, because the first one was gone.
    repins,
    /// Keys without an answer at the deadline.
    keys_timed_out,
    /// Keys without an answer for another reason.
    keys_failed,
}
