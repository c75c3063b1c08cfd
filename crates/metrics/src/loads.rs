//! The load of partitions and keys, from a sample of the requests.
//!
//! Looking at every request would cost too much. Each event loop looks at requests with some two thousand keys a second, and counts
//! each of them for all; a loop that gets fewer looks at each. The part that it looks at is chosen anew at each report, and halved
//! in between when more requests come than then. So the cost does not grow with the rate, nor with the keys of a request, and a
//! loop that was idle does not look at each request of a burst.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use fondaco_catalog::StoreId;
use fondaco_model::PartitionId;
use parking_lot::Mutex;

/// How many keys a second a loop looks at.
const SAMPLES_PER_SECOND: f64 = 2000.0;

/// After how many keys that it looked at a loop checks whether they were too many for the time: twice those that it should look
/// at, and as many as this.
const CHECKED_AFTER: u64 = 128;

/// Of how many requests it looks at one at most.
const INTERVAL_MAX: u32 = 1 << 16;

/// How many partitions of stores a loop counts between two reports.
const PLACES_MAX: usize = 1 << 16;

/// How many keys a loop counts between two reports.
const KEYS_MAX: usize = 1 << 14;

/// The longest key that is counted, in bytes.
const KEY_BYTES_MAX: usize = 256;

/// The keys and partitions that one loop was asked for.
#[derive(Debug)]
pub(crate) struct LoopLoads {
    /// How many requests are not looked at before the next one that is.
    left: AtomicU32,
    interval: AtomicU32,
    counted: Mutex<Counted>,
}

/// The counts since a time.
#[derive(Debug)]
struct Counted {
    since: Instant,
    loads: Loads,
}

/// The keys and partitions that were asked for.
#[derive(Debug, Default)]
pub struct Loads {
    /// By store and partition.
    pub places: HashMap<(StoreId, PartitionId), Load>,
    /// How often each key was asked for, about.
    pub keys: HashMap<(StoreId, Box<[u8]>), f64>,
    /// How many keys were looked at, and for how many they count. A request without keys counts as one with one.
    looked_at: u64,
    stand_for: u64,
    /// When to check whether so many were too many.
    checked_at: u64,
}

/// The estimated load of a partition of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Keys read and written.
    pub requests: f64,
    /// Keys written.
    pub writes: f64,
    /// Bytes of values.
    pub bytes: f64,
}

/// A key that a request names.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Its store.
    pub store: StoreId,
    /// Its partition.
    pub partition: PartitionId,
    /// The key itself.
    pub key: &'a [u8],
    /// Whether the request writes it.
    pub is_write: bool,
    /// The bytes of its value.
    pub bytes: u64,
}

impl Default for LoopLoads {
    fn default() -> Self {
        Self {
            left: AtomicU32::new(0),
            interval: AtomicU32::new(1),
            counted: Mutex::new(Counted {
                since: Instant::now(),
                loads: Loads::default(),
            }),
        }
    }
}

impl LoopLoads {
    /// Whether to look at the next request. Only the loop's own thread.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let left = self.left.load(Relaxed);
        if left > 0 {
            self.left.store(left - 1, Relaxed);
            return false;
        }
        true
    }

    /// Counts a request that was looked at, and chooses the next one.
    pub(crate) fn count<'a>(&self, asked: impl Iterator<Item = Asked<'a>>, now: Instant) {
        let mut interval = self.interval.load(Relaxed);
        let weight = f64::from(interval);
        let mut counted = self.counted.lock();
        let Counted { since, loads } = &mut *counted;
        let mut keys = 0;
        for one in asked {
            loads.add(one, weight);
            keys += 1;
        }
        loads.looked_at += keys.max(1);
        loads.stand_for += keys.max(1) * u64::from(interval);
        if loads.looked_at >= loads.checked_at + CHECKED_AFTER {
            loads.checked_at = loads.looked_at;
            let elapsed = now.saturating_duration_since(*since).as_secs_f64();
            if loads.looked_at > CHECKED_AFTER + (2.0 * SAMPLES_PER_SECOND * elapsed) as u64 {
                interval = (2 * interval).min(INTERVAL_MAX);
                self.interval.store(interval, Relaxed);
            }
        }
        // At random, so that no pattern of requests is always met at the same place; on average one of `interval`, which the next
        // request counts for.
        self.left.store(fastrand::u32(0..2 * interval - 1), Relaxed);
    }

    /// The counts since they were last taken.
    fn take(&self, now: Instant) -> Loads {
        let (taken, since) = {
            let mut counted = self.counted.lock();
            let loads = std::mem::take(&mut counted.loads);
            (loads, std::mem::replace(&mut counted.since, now))
        };
        let elapsed = now.saturating_duration_since(since).as_secs_f64();
        let rate = taken.stand_for as f64 / elapsed.max(1e-3);
        let interval = (rate / SAMPLES_PER_SECOND).round() as u32;
        self.interval.store(interval.clamp(1, INTERVAL_MAX), Relaxed);
        taken
    }
}

impl Loads {
    fn add(&mut self, asked: Asked<'_>, weight: f64) {
        let place = (asked.store, asked.partition);
        if self.places.len() < PLACES_MAX || self.places.contains_key(&place) {
            let load = self.places.entry(place).or_default();
            load.requests += weight;
            load.writes += if asked.is_write { weight } else { 0.0 };
            load.bytes += weight * asked.bytes as f64;
        }
        if asked.key.len() > KEY_BYTES_MAX {
            return;
        }
        let key = (asked.store, Box::from(asked.key));
        if self.keys.len() < KEYS_MAX || self.keys.contains_key(&key) {
            *self.keys.entry(key).or_default() += weight;
        }
    }

    /// Adds the counts of other loops.
    fn merge(&mut self, other: Self) {
        for (place, load) in other.places {
            let sum = self.places.entry(place).or_default();
            sum.requests += load.requests;
            sum.writes += load.writes;
            sum.bytes += load.bytes;
        }
        for (key, count) in other.keys {
            *self.keys.entry(key).or_default() += count;
        }
    }
}

/// The counts of all loops since they were last taken.
pub(crate) fn take<'a>(loops: impl Iterator<Item = &'a LoopLoads>, now: Instant) -> Loads {
    loops.fold(Loads::default(), |mut sum, one| {
        sum.merge(one.take(now));
        sum
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn asked(partition: u32, key: &[u8]) -> Asked<'_> {
        Asked {
            store: StoreId::new(1).unwrap(),
            partition: PartitionId::new(partition),
            key,
            is_write: partition == 1,
            bytes: 10,
        }
    }

    /// Requests are counted as often as they come, however many are looked at.
    #[test]
    fn a_sample_stands_for_all_requests() {
        let loads = LoopLoads::default();
        let mut start = Instant::now();
        for per_second in [100_u32, 1_000_000, 50_000] {
            // The first second sets the interval.
            for second in 0..2 {
                for request in 0..per_second {
                    if loads.is_due() {
                        // A third of the requests is for partition 1.
                        let partition = u32::from(request % 3 == 0);
                        loads.count(
                            std::iter::once(asked(partition, if partition == 1 { b"hot" } else { b"cold" })),
                            start + Duration::from_secs(1) * request / per_second,
                        );
                    }
                }
                start += Duration::from_secs(1);
                let taken = loads.take(start);
                if second == 0 {
                    continue;
                }
                let samples = taken.looked_at;
                assert!(
                    samples <= 2_400 && samples >= u64::from(per_second.min(1_600)),
                    "{samples} of {per_second}"
                );
                let load = |partition| taken.places[&(StoreId::new(1).unwrap(), PartitionId::new(partition))];
                let share = load(1).requests / (load(0).requests + load(1).requests);
                assert!((share - 1.0 / 3.0).abs() < 0.06, "{share}");
                let all = load(0).requests + load(1).requests;
                assert!(
                    (all / f64::from(per_second) - 1.0).abs() < 0.15,
                    "{all} of {per_second}"
                );
                assert_eq!(load(1).writes, load(1).requests);
                assert_eq!(load(0).bytes, 10.0 * load(0).requests);
                let hot = taken.keys[&(StoreId::new(1).unwrap(), Box::from(&b"hot"[..]))];
                assert_eq!(hot, load(1).requests);
            }
        }
    }

    /// A loop that was idle looks at each request at first, and soon at few.
    #[test]
    fn few_requests_of_a_burst_are_looked_at() {
        for idle_seconds in [0_u64, 6] {
            let loads = LoopLoads::default();
            let start = Instant::now();
            loads.take(start);
            let burst = start + Duration::from_secs(idle_seconds);
            let requests = 4_000_000_u32;
            for request in 0..requests {
                if loads.is_due() {
                    let now = burst + Duration::from_secs(2) * request / requests;
                    loads.count(std::iter::once(asked(0, b"key")), now);
                }
            }
            let taken = loads.take(burst + Duration::from_secs(2));
            let samples_max = 4000 * (idle_seconds + 2) + 2000;
            assert!(
                taken.looked_at < samples_max,
                "{} after {idle_seconds} s",
                taken.looked_at
            );
            let all = taken.places[&(StoreId::new(1).unwrap(), PartitionId::new(0))].requests;
            assert!((all / f64::from(requests) - 1.0).abs() < 0.15, "{all}");
        }
    }

    /// However many keys a request names. Of one burst few requests are looked at; of many bursts, the sum is about right.
    #[test]
    fn few_keys_of_large_requests_are_looked_at() {
        let (bursts, requests, keys) = (100, 20_000_u32, 100);
        let (mut looked_at, mut all) = (0, 0.0);
        for _ in 0..bursts {
            let loads = LoopLoads::default();
            let start = Instant::now();
            loads.take(start);
            for request in 0..requests {
                if loads.is_due() {
                    let now = start + Duration::from_secs(1) * request / requests;
                    loads.count((0..keys).map(|_| asked(0, b"key")), now);
                }
            }
            let taken = loads.take(start + Duration::from_secs(1));
            looked_at += taken.looked_at;
            all += taken.places[&(StoreId::new(1).unwrap(), PartitionId::new(0))].requests;
        }
        assert!(looked_at < 4_000 * bursts, "{looked_at}");
        let share = all / (bursts * u64::from(requests) * keys) as f64;
        assert!((share - 1.0).abs() < 0.25, "{share}");
    }

    #[test]
    fn memory_is_bounded() {
        let mut loads = Loads::default();
        for number in 0..100_000_u32 {
            loads.add(asked(number % 16384, &number.to_le_bytes()), 1.0);
        }
        loads.add(asked(0, &[0; 1000]), 1.0);
        assert_eq!(loads.keys.len(), KEYS_MAX);
    }
}
