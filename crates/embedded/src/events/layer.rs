//! The events on top of one version.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use fondaco_format::Version;
use fondaco_model::{PartitionSet, StreamSettings, VersionNumber};
use fondaco_stream::{Applied, Feed, Found, LostRecords, Overlay};
use parking_lot::Mutex;

use super::description::StreamOf;
use crate::error::EmbeddedError;

/// How many keys are looked up in memory at a time.
const KEYS_AT_ONCE: usize = 128;

/// How far a reader has read the stream of its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamProgress {
    /// The age of the last event that it has applied, if there are more; and at least the time since it could ask the brokers for more.
    /// Zero if it has all.
    pub lag: Duration,
    /// How many records are yet to be read, as far as is known; `None` before the first answer of the brokers.
    pub lag_records: Option<u64>,
    /// How many records it has read since the reader was opened.
    pub records_read: u64,
    /// How many keys have events.
    pub keys: u64,
    /// Records that the topic had deleted before they were read: reads lack their effects until a version is swapped in that has them.
    pub lost: Vec<LostRecords>,
    /// The reason that keeps it from reading, if there is one.
    pub error: Option<String>,
}

/// A version with the stream on top of it.
pub(crate) struct ReadStream<'a> {
    pub(crate) version: &'a Arc<Version>,
    pub(crate) number: VersionNumber,
    /// When its store was created.
    pub(crate) store_created_unix_ms: u64,
    pub(crate) stream: &'a StreamOf,
}

/// The overlay of a version, and the feed that it has from the topic.
pub(crate) struct Layer {
    feed: Arc<Feed>,
    /// The version below, as it is open now: a repaired one takes the place of a damaged one.
    below: Arc<ArcSwap<Version>>,
    /// Whether events were deleted before they were read, when that was last checked.
    lacks_events: AtomicBool,
    /// When it had all events, as far as was known.
    had_all: Mutex<Instant>,
    /// How many records were counted when it was opened: those that are no events are counted for good.
    counted_before: u64,
}

impl Layer {
    pub(super) fn new(feed: Arc<Feed>, below: Arc<ArcSwap<Version>>) -> Self {
        let layer = Self {
            counted_before: counted(&feed.overlay().applied()),
            feed,
            below,
            lacks_events: AtomicBool::new(false),
            had_all: Mutex::new(Instant::now()),
        };
        layer.check();
        layer
    }

    pub(crate) fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    pub(crate) fn overlay(&self) -> &Overlay {
        self.feed.overlay()
    }

    /// Puts another opening of the version below, and reads the stream for its partitions.
    pub(super) fn put_below(&self, version: &Arc<Version>) -> Result<(), EmbeddedError> {
        if let Some(lifetimes) = self.overlay().options().lifetimes {
            version.set_lifetimes(lifetimes);
        }
        self.below.store(Arc::clone(version));
        let held: PartitionSet = version.held().collect();
        Ok(self.feed.set_held(&held)?)
    }

    /// Applies the settings that may change.
    pub(crate) fn set(&self, settings: &StreamSettings) {
        self.feed.set(settings.lag_ms, settings.paused);
        self.feed.set_quota(settings.write_keys_per_second);
    }

    /// Whether all partitions of the version that are held answer.
    pub(crate) fn answers(&self) -> bool {
        let held: PartitionSet = self.below.load().held().collect();
        self.overlay().ready().covers(&held)
    }

    /// Whether its lag is within the bound of the store now. An overlay that was ready once answers also after it was not read for long.
    pub(crate) fn has_caught_up(&self, settings: &StreamSettings) -> bool {
        let partitions = self.feed.status().partitions;
        let is_near = |lag_ms: u64| lag_ms > 0 && lag_ms <= settings.lag_ms;
        let mut read = partitions.iter().map(|read| match read.lag_records {
            Some(0) => true,
            // Without a record that was applied since the start, the lag is not known, and 0.
            Some(_) => is_near(read.lag_ms),
            None => false,
        });
        settings.paused || !partitions.is_empty() && read.all(|is_near| is_near)
    }

    /// Looks up a key.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Result<Found, EmbeddedError> {
        match self.overlay().find_hot(&[key], usize::MAX).pop() {
            Some(Found::Unknown) | None => Ok(self.overlay().find(key)?),
            Some(found) => Ok(found),
        }
    }

    /// Looks up many keys: one answer for each, in order.
    pub(crate) fn find_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Found>, EmbeddedError> {
        let mut all = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            for (found, key) in self.overlay().find_hot(&keys, usize::MAX).into_iter().zip(&keys) {
                all.push(match found {
                    Found::Unknown => self.overlay().find(key)?,
                    found => found,
                });
            }
        }
        Ok(all)
    }

    /// Whether events were deleted before they were read.
    #[inline]
    pub(crate) fn lacks_events(&self) -> bool {
        self.lacks_events.load(Relaxed)
    }

    /// Notes how far it is. Called about once a second.
    pub(crate) fn check(&self) {
        let status = self.feed.status();
        self.lacks_events.store(!status.lost.is_empty(), Relaxed);
        let is_known =
            !status.partitions.is_empty() && status.partitions.iter().all(|read| read.lag_records == Some(0));
        if is_known && status.error.is_none() {
            *self.had_all.lock() = Instant::now();
        }
    }

    pub(crate) fn progress(&self) -> StreamProgress {
        self.check();
        let status = self.feed.status();
        let read = || status.partitions.iter();
        let lag_ms = read().map(|partition| partition.lag_ms).max().unwrap_or(0);
        let since = match status.error {
            Some(_) => self.had_all.lock().elapsed(),
            None => Duration::ZERO,
        };
        let known = (!status.partitions.is_empty()).then(|| read().map(|partition| partition.lag_records).sum());
        StreamProgress {
            lag: since.max(Duration::from_millis(lag_ms)),
            lag_records: known.flatten(),
            records_read: counted(&self.overlay().applied()) - self.counted_before,
            keys: self.overlay().size().0,
            lost: status.lost,
            error: status.error,
        }
    }
}

/// How many records were read: each has one outcome.
fn counted(applied: &Applied) -> u64 {
    let changes = applied.applied + applied.superseded + applied.cut + applied.late + applied.repeated;
    changes + applied.poison + applied.elsewhere
}
