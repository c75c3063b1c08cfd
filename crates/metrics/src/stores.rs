//! The latency of the requests of each store. The first hundred stores that are requested have a histogram each; all
//! others share one, so that neither memory nor the scraped metrics grow with the number of stores.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use fondaco_catalog::StoreId;
use fondaco_model::{Histogram, HistogramSnapshot};

/// How many stores have their own histogram.
pub(crate) const STORES_MAX: u8 = 100;

/// The index of the histogram of all other stores.
const OTHERS: u8 = STORES_MAX;

/// As an index: the store has none yet.
const NONE: u8 = u8::MAX;

/// The index of the histogram of each store, the same in all event loops. It is kept until the process ends: the number
/// of a store is never given to another.
#[derive(Debug)]
pub(crate) struct StorePlaces {
    /// Indexed by the number of the store.
    places: Box<[AtomicU8]>,
    taken: AtomicU8,
}

/// The histograms of one event loop, by index. Each is created at its first use.
#[derive(Debug)]
pub(crate) struct StoreLatencies([OnceLock<Box<Histogram>>; STORES_MAX as usize + 1]);

impl Default for StorePlaces {
    fn default() -> Self {
        Self {
            places: (0..=StoreId::MAX).map(|_| AtomicU8::new(NONE)).collect(),
            taken: AtomicU8::new(0),
        }
    }
}

impl StorePlaces {
    /// The index of a store's histogram, assigned if it has none.
    #[inline]
    fn of(&self, store: StoreId) -> u8 {
        match self.places[usize::from(store.get())].load(Relaxed) {
            NONE => self.take(store),
            place => place,
        }
    }

    #[cold]
    fn take(&self, store: StoreId) -> u8 {
        let free = self
            .taken
            .fetch_update(Relaxed, Relaxed, |taken| (taken < OTHERS).then_some(taken + 1));
        let own = &self.places[usize::from(store.get())];
        // If another loop was first, one histogram stays unused.
        own.compare_exchange(NONE, free.unwrap_or(OTHERS), Relaxed, Relaxed)
            .map_or_else(|given| given, |_| free.unwrap_or(OTHERS))
    }

    /// The index of a store that has its own histogram.
    pub(crate) fn known(&self, store: StoreId) -> Option<u8> {
        let place = self.places[usize::from(store.get())].load(Relaxed);
        (place < OTHERS).then_some(place)
    }
}

impl Default for StoreLatencies {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }
}

impl StoreLatencies {
    /// Counts requests of a store. Only the loop's own thread.
    #[inline]
    pub(crate) fn record(&self, places: &StorePlaces, store: StoreId, took: Duration, count: u64) {
        let histogram = &self.0[usize::from(places.of(store))];
        histogram.get_or_init(Box::default).record(took, count);
    }

    /// A snapshot of the histogram at an index; without an index, of the one that all other stores share.
    pub(crate) fn snapshot(&self, place: Option<u8>) -> Option<HistogramSnapshot> {
        let histogram = self.0[usize::from(place.unwrap_or(OTHERS))].get()?;
        Some(histogram.snapshot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_stores_have_own_histograms_and_others_share_one() {
        let (places, loops) = (
            StorePlaces::default(),
            [StoreLatencies::default(), StoreLatencies::default()],
        );
        let store = |number| StoreId::new(number).unwrap();
        for number in 1..=150 {
            for latencies in &loops {
                latencies.record(&places, store(number), Duration::from_micros(number.into()), 2);
            }
        }
        let count = |place| -> u64 {
            loops
                .iter()
                .filter_map(|one| one.snapshot(place))
                .map(|one| one.count())
                .sum()
        };
        for number in 1..=100 {
            assert_eq!(count(Some(places.known(store(number)).unwrap())), 4, "{number}");
        }
        assert!((101..=150).all(|number| places.known(store(number)).is_none()));
        assert_eq!(count(None), 4 * 50);
        assert_eq!(places.known(store(4000)), None);
    }
}
