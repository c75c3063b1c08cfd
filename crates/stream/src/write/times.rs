//! The times and identifiers of events that this process makes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// How many keys have a last time of their own; others share one with them, and may get a time some milliseconds later than now.
const PLACES: usize = 1 << 14;

/// The last time of the events of each key, by its hash; and the number of the last identifier.
pub(super) struct EventTimes {
    last_ms: Box<[AtomicU64]>,
    /// Of this process.
    seed: u128,
    count: AtomicU64,
}

impl Default for EventTimes {
    fn default() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // Two processes that start in the same nanosecond have other numbers, or run on other machines.
        let start = [
            now.unwrap_or_default().as_nanos().to_le_bytes(),
            u128::from(std::process::id()).to_le_bytes(),
            u128::from(std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)).to_le_bytes(),
        ];
        Self {
            last_ms: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            seed: xxh3_128(start.as_flattened()),
            count: AtomicU64::new(0),
        }
    }
}

impl EventTimes {
    /// The time of the next event of a key. Those that only add to numbers may have equal times. A last time that is ahead of the
    /// clock by more than allowed is of a clock that was wrong: no event with that time counts.
    pub(super) fn next(&self, key: &[u8], is_sum: bool, now_ms: u64, ahead_ms_max: u64) -> u64 {
        let after = |last_ms: u64| match last_ms > now_ms.saturating_add(ahead_ms_max) {
            true => now_ms,
            false => now_ms.max(last_ms + u64::from(!is_sum)),
        };
        let last_ms = &self.last_ms[xxh3_64(key) as usize % PLACES];
        // It always has a next one.
        let before = last_ms.fetch_update(Relaxed, Relaxed, |last_ms| Some(after(last_ms)));
        after(before.unwrap_or_else(|before| before))
    }

    /// An identifier that no other event has.
    pub(super) fn id(&self) -> Bytes {
        let number = self.seed.wrapping_add(self.count.fetch_add(1, Relaxed).into());
        number.to_be_bytes().to_vec().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_later_than_all_before_it_and_sums_may_be_at_once() {
        let times = EventTimes::default();
        let next = |is_sum, now_ms| times.next(b"k", is_sum, now_ms, 100);
        assert_eq!(
            [next(false, 5), next(false, 5), next(true, 5), next(true, 6)],
            [5, 6, 6, 6]
        );
        // A clock that goes back.
        assert_eq!([next(true, 1), next(false, 1), next(false, 9)], [6, 7, 9]);
        // One that was wrong by more than allowed.
        assert_eq!([next(false, 110), next(false, 9), next(false, 9)], [110, 9, 10]);
        assert_ne!(times.id(), times.id());
        assert_ne!(times.id(), EventTimes::default().id());
    }
}
