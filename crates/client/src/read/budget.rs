//! Budgets for extra requests: a share of the ordinary ones, and a bounded reserve for bursts.
//!
//! A token bucket filled by requests, not by time: an idle client saves nothing, and a cluster in trouble gets a fixed
//! share of extra load, never a multiple. The invariant: over any number of requests, at most `share × requests +
//! stock` tokens are taken. Shared by all requests of a client; takes no lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counted in thousandths, so that a share of 5 % is an integer.
const TOKEN: u64 = 1000;

/// How many extra requests may be sent.
#[derive(Debug)]
pub struct Budget {
    tokens: AtomicU64,
    deposit: u64,
    stock_max: u64,
}

impl Budget {
    /// A budget of `share` extra requests (0 to 1) for each ordinary one, and at most `stock_max` of them are saved
    /// up; it begins with `stock` of them.
    pub fn new(share: f64, stock: u32, stock_max: u32) -> Self {
        Self {
            tokens: AtomicU64::new(u64::from(stock.min(stock_max)) * TOKEN),
            deposit: (share.clamp(0.0, 1.0) * TOKEN as f64) as u64,
            stock_max: u64::from(stock_max) * TOKEN,
        }
    }

    /// An ordinary request was sent.
    #[inline]
    pub fn deposit(&self) {
        let tokens = self.tokens.load(Relaxed);
        if tokens < self.stock_max {
            // Two threads may each exceed the limit by one deposit, which is harmless.
            self.tokens.fetch_add(self.deposit, Relaxed);
        }
    }

    /// Takes a token for an extra request.
    pub fn take(&self) -> bool {
        let taken = self
            .tokens
            .fetch_update(Relaxed, Relaxed, |tokens| tokens.checked_sub(TOKEN));
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn savings_are_bounded() {
        let budget = Budget::new(0.1, 0, 5);
        (0..1000).for_each(|_| budget.deposit());
        let taken = (0..1000).filter(|_| budget.take()).count();
        assert_eq!(taken, 5);
    }

    proptest! {
        #[test]
        fn no_more_is_taken_than_share_and_stock(steps in prop::collection::vec(any::<bool>(), 0..2000)) {
            let budget = Budget::new(0.05, 3, 10);
            let (mut sent, mut taken) = (0u64, 0u64);
            for extra in steps {
                if extra {
                    taken += u64::from(budget.take());
                } else {
                    budget.deposit();
                    sent += 1;
                }
                prop_assert!(taken as f64 <= 3.0 + sent as f64 * 0.05 + 1e-9);
            }
        }
    }
}
