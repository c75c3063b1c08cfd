//! All sources of the files of a version, the best first, with the state of each.
//!
//! A source that fails is left alone for a while, each time longer, and the next one is asked. So a missing source
//! delays a fetch once, and not once for each of thousands of files. A source that takes long to fail, like a file
//! system whose client retries by itself, is asked only if no other is left. This is the state of the sources; which of
//! them a file has given up on is part of the state of the file.
//!
//! A source may be a *relay* of partitions: a peer that fetches them from the location at the same time, so that each
//! crosses the link to the location once. It is asked first for their files, and waited for while it lacks them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fondaco_model::PartitionId;
use parking_lot::Mutex;

use crate::source::FetchSource;

/// How long a source is left alone after its first failure; each further failure doubles it.
const REST_MIN: Duration = Duration::from_millis(100);

/// The longest that a source is left alone.
const REST_MAX: Duration = Duration::from_secs(5);

/// The longest that a source may ask to be left alone.
const BUSY_MAX: Duration = Duration::from_secs(30);

/// A failure that took this long costs more than reading from another source.
const FAILURE_SLOW_MIN: Duration = Duration::from_secs(2);

/// How long a relay may give nothing before its files are fetched from elsewhere. A push waits for the relay anyway.
const RELAY_WAIT_MAX: Duration = Duration::from_secs(600);

/// The sources of the files of one version, in the order in which they are asked.
pub struct Sources {
    all: Vec<Entry>,
    /// The number of the relay of each partition that has one.
    relays: BTreeMap<PartitionId, usize>,
}

struct Entry {
    source: Box<dyn FetchSource>,
    health: Mutex<Health>,
    bytes: AtomicU64,
}

#[derive(Default)]
struct Health {
    /// How often it failed since it last worked.
    failures: u32,
    /// Until when it is left alone.
    rests_until: Duration,
    /// Whether it is asked only after all others.
    is_avoided: bool,
    /// Since when files that are awaited from it were missing, and it gave nothing.
    awaited_since: Option<Duration>,
}

/// The next step for a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Ask the source with this number.
    Ask(usize),
    /// All remaining sources are left alone until then.
    Wait(Duration),
    /// No source is left.
    Nothing,
}

impl Sources {
    /// Sources in the order in which they are to be asked.
    pub fn new(sources: impl IntoIterator<Item = Box<dyn FetchSource>>) -> Self {
        let entry = |source| Entry {
            source,
            health: Mutex::default(),
            bytes: AtomicU64::new(0),
        };
        Self {
            all: sources.into_iter().map(entry).collect(),
            relays: BTreeMap::new(),
        }
    }

    /// The same, with the numbers of the sources that are relays of these partitions.
    #[must_use]
    pub fn with_relays(self, relays: BTreeMap<PartitionId, usize>) -> Self {
        debug_assert!(relays.values().all(|&number| number < self.all.len()));
        Self { relays, ..self }
    }

    pub(crate) fn relay_of(&self, partition: PartitionId) -> Option<usize> {
        self.relays.get(&partition).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn FetchSource> {
        self.all.iter().map(|entry| &*entry.source)
    }

    pub(crate) fn get(&self, number: usize) -> &dyn FetchSource {
        &*self.all[number].source
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The source to ask now, of those that a file has not given up on.
    pub(crate) fn choose(&self, given_up: &[bool], now: Duration) -> Choice {
        let left = || self.all.iter().enumerate().filter(|(number, _)| !given_up[*number]);
        let all_avoided = left().all(|(_, entry)| entry.health.lock().is_avoided);
        let mut earliest = None;
        for (number, entry) in left() {
            let health = entry.health.lock();
            if health.is_avoided && !all_avoided {
                continue;
            }
            let rests_until = health.rests_until;
            if rests_until <= now {
                return Choice::Ask(number);
            }
            earliest = Some(earliest.map_or(rests_until, |earliest: Duration| earliest.min(rests_until)));
        }
        earliest.map_or(Choice::Nothing, Choice::Wait)
    }

    /// Records that a source gave bytes.
    pub(crate) fn gave(&self, number: usize, bytes: u64) {
        self.all[number].bytes.fetch_add(bytes, Relaxed);
        let mut health = self.all[number].health.lock();
        health.failures = 0;
        health.is_avoided = false;
        health.awaited_since = None;
    }

    /// Whether to wait for a file that a relay does not have yet.
    pub(crate) fn awaits(&self, relay: usize, now: Duration) -> bool {
        let since = *self.all[relay].health.lock().awaited_since.get_or_insert(now);
        now.saturating_sub(since) < RELAY_WAIT_MAX
    }

    /// Records that a source gave nothing for this time, and then failed.
    pub(crate) fn took(&self, number: usize, time: Duration) {
        self.all[number].health.lock().is_avoided |= time >= FAILURE_SLOW_MIN;
    }

    /// Records a failure. Several files with the same failure count once.
    pub(crate) fn failed(&self, number: usize, now: Duration) {
        let mut health = self.all[number].health.lock();
        if health.rests_until <= now {
            let rest = REST_MIN.saturating_mul(2u32.saturating_pow(health.failures));
            health.failures += 1;
            health.rests_until = now + rest.min(REST_MAX);
        }
    }

    /// Records that a source asked to be left alone.
    pub(crate) fn busy(&self, number: usize, retry_after: Duration, now: Duration) {
        let mut health = self.all[number].health.lock();
        let until = now + retry_after.clamp(REST_MIN, BUSY_MAX);
        health.rests_until = health.rests_until.max(until);
    }

    /// How many bytes each source has given.
    pub(crate) fn bytes(&self) -> Vec<(String, u64)> {
        let each = self.all.iter();
        each.map(|entry| (entry.source.name(), entry.bytes.load(Relaxed)))
            .collect()
    }
}

impl<S: FetchSource + 'static> From<S> for Sources {
    fn from(source: S) -> Self {
        Self::new([Box::new(source) as Box<dyn FetchSource>])
    }
}

#[cfg(test)]
mod tests {
    use fondaco_storage::Location;

    use super::*;
    use crate::LocationSource;

    const NO: [bool; 2] = [false, false];

    fn two() -> Sources {
        let source = |path| Box::new(LocationSource::new(Location::local(path))) as Box<dyn FetchSource>;
        Sources::new([source("/a"), source("/b")])
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_first_working_source_is_asked() {
        let sources = two();
        assert_eq!(sources.choose(&NO, ms(0)), Choice::Ask(0));
        sources.failed(0, ms(0));
        assert_eq!(sources.choose(&NO, ms(99)), Choice::Ask(1));
        assert_eq!(sources.choose(&NO, ms(100)), Choice::Ask(0));
        assert_eq!(sources.choose(&[false, true], ms(99)), Choice::Wait(ms(100)));
        assert_eq!(sources.choose(&[true, true], ms(99)), Choice::Nothing);
    }

    #[test]
    fn pauses_grow_with_failures_and_end_with_a_success() {
        let sources = two();
        let mut now = ms(0);
        for expected in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            sources.failed(0, now);
            sources.failed(0, now);
            assert_eq!(sources.choose(&[false, true], now), Choice::Wait(now + ms(expected)));
            now += ms(expected);
        }
        sources.gave(0, 10);
        sources.failed(0, now);
        assert_eq!(sources.choose(&[false, true], now), Choice::Wait(now + ms(100)));
        assert_eq!(sources.bytes(), [("/a".to_owned(), 10), ("/b".to_owned(), 0)]);
    }

    #[test]
    fn a_slowly_failing_source_is_asked_last() {
        let sources = two();
        sources.took(0, ms(1999));
        assert_eq!(sources.choose(&NO, ms(0)), Choice::Ask(0));
        sources.took(0, ms(2000));
        assert_eq!(sources.choose(&NO, ms(0)), Choice::Ask(1));
        sources.failed(1, ms(0));
        assert_eq!(sources.choose(&NO, ms(0)), Choice::Wait(ms(100)));
        assert_eq!(sources.choose(&[false, true], ms(0)), Choice::Ask(0));
        sources.gave(0, 1);
        assert_eq!(sources.choose(&NO, ms(0)), Choice::Ask(0));
    }

    #[test]
    fn a_relay_that_gives_nothing_is_awaited_for_a_bounded_time() {
        let sources = two();
        let end = RELAY_WAIT_MAX.as_millis() as u64;
        assert!(sources.awaits(1, ms(10)) && sources.awaits(1, ms(end + 9)));
        assert!(!sources.awaits(1, ms(end + 10)));
        sources.gave(1, 1);
        assert!(sources.awaits(1, ms(end + 10)));
    }

    #[test]
    fn a_busy_source_is_left_alone_for_a_bounded_time() {
        let sources = two();
        sources.busy(0, Duration::from_secs(2), ms(0));
        sources.busy(1, Duration::MAX, ms(0));
        assert_eq!(sources.choose(&NO, ms(1)), Choice::Wait(ms(2000)));
        assert_eq!(sources.choose(&[true, false], ms(1)), Choice::Wait(ms(30_000)));
    }
}
