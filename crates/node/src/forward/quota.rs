//! How many keys a second may be read or written of a store through this process: its share of the store's quota.
//!
//! All event loops share one account for each store, a single number that is changed by one atomic
//! operation a request. Only stores with a quota have their numbers touched.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fondaco_catalog::StoreId;

/// The allowance of this time may be used at once.
const BURST_NS: u64 = 1_000_000_000;

/// The accounts of all stores that there can be.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// Until when what was read so far pays for itself, in nanoseconds since the start.
    paid_until_ns: Box<[AtomicU64]>,
}

impl Quotas {
    /// Nothing was read yet.
    pub(crate) fn new() -> Self {
        Self {
            paid_until_ns: (0..=StoreId::MAX).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Takes this many keys from the quota of a store, in keys a second; false if it is used up.
    ///
    /// A store that has not used up the second before gets all that is asked for, and may owe the rest.
    pub(crate) fn take(&self, store: StoreId, keys: usize, keys_per_second: u64, now_ns: u64) -> bool {
        let cost_ns = (u128::from(BURST_NS) * keys as u128 / u128::from(keys_per_second.max(1))) as u64;
        let charge = |paid_until_ns: u64| {
            let from_ns = paid_until_ns.max(now_ns);
            (from_ns - now_ns < BURST_NS).then(|| from_ns.saturating_add(cost_ns))
        };
        let account = &self.paid_until_ns[usize::from(store.get())];
        account.fetch_update(Relaxed, Relaxed, charge).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_store_without_readers_gives_a_second_s_worth_at_once_and_then_its_rate() {
        let (quotas, store) = (Quotas::new(), StoreId::new(7).unwrap());
        let taken = (0..100).filter(|_| quotas.take(store, 1, 10, 5 * SECOND_NS)).count();
        assert_eq!(taken, 10);
        let soon_ns = 5 * SECOND_NS + SECOND_NS / 20;
        assert!(quotas.take(store, 1, 10, soon_ns), "a part of a key may be owed");
        assert!(!quotas.take(store, 1, 10, soon_ns));
        assert!(quotas.take(store, 1, 10, soon_ns + SECOND_NS / 10));
        assert!(
            quotas.take(StoreId::new(8).unwrap(), 1, 10, 5 * SECOND_NS),
            "another store"
        );
    }

    #[test]
    fn a_request_larger_than_the_quota_is_let_through_and_paid_for_later() {
        let (quotas, store) = (Quotas::new(), StoreId::new(1).unwrap());
        assert!(quotas.take(store, 100, 10, 0));
        assert!(!quotas.take(store, 1, 10, 9 * SECOND_NS - 1));
        assert!(quotas.take(store, 1, 10, 9 * SECOND_NS + 1));
    }

    proptest! {
        #[test]
        fn no_more_is_read_than_the_rate_and_one_burst_and_one_request_allow(
            requests in prop::collection::vec((0..SECOND_NS / 10, 1..50usize), 1..200),
            rate in 1..1000u64,
        ) {
            let (quotas, store) = (Quotas::new(), StoreId::new(1).unwrap());
            let (mut now_ns, mut taken) = (0, 0);
            for (pause_ns, keys) in requests {
                now_ns += pause_ns;
                if quotas.take(store, keys, rate, now_ns) {
                    taken += keys as u64;
                }
            }
            let allowed = rate as f64 * (now_ns as f64 / SECOND_NS as f64 + 1.0) + 51.0;
            prop_assert!(taken as f64 <= allowed, "{taken} > {allowed}");
        }
    }
}
