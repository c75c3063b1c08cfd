//! Overlays of one store, and what feeds them.

use std::sync::Arc;

use fondaco_engine::{Engine, MemoryEngine};
use fondaco_model::{PartitionCount, PartitionId, PartitionSet, Partitioner, VersionNumber};
use fondaco_stream::{Below, Feed, FeedOptions, Found, Overlay, OverlayOptions, Source};
use fondaco_testing::until;

/// Options of the overlay of a version, without a cut.
pub fn options(version: u64) -> OverlayOptions {
    OverlayOptions {
        store: "s".parse().unwrap(),
        store_id: 7,
        created_unix_ms: 5,
        version: VersionNumber::new(version).unwrap(),
        partitions: count(),
        as_of_ms: None,
        grace_ms: 60_000,
        partitioner: Partitioner::Any,
        lifetimes: None,
    }
}

/// The number of partitions of the store.
pub fn count() -> PartitionCount {
    8.try_into().unwrap()
}

pub fn partitions(numbers: impl IntoIterator<Item = u32>) -> PartitionSet {
    numbers.into_iter().map(PartitionId::new).collect()
}

pub fn memory() -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::new())
}

/// An overlay of a version without values.
pub fn overlay_in(engine: &Arc<dyn Engine>, options: OverlayOptions, held: &PartitionSet) -> Arc<Overlay> {
    overlay_on(engine, options, held, Arc::new(|_| Ok(None)))
}

/// An overlay of a version with these values.
pub fn overlay_on(
    engine: &Arc<dyn Engine>,
    options: OverlayOptions,
    held: &PartitionSet,
    below: Below,
) -> Arc<Overlay> {
    let overlay = Overlay::open(Arc::clone(engine), options, below, Arc::default()).unwrap();
    overlay.set_held(held).unwrap();
    Arc::new(overlay)
}

pub fn feed<S: Source + 'static>(overlay: &Arc<Overlay>, topic: &Arc<S>) -> Arc<Feed> {
    let source: Arc<dyn Source> = Arc::clone(topic) as _;
    Arc::new(Feed::new(Arc::clone(overlay), source, FeedOptions::default()))
}

/// Waits until a feed has read all of its topic.
pub fn wait_until_read(feed: &Feed) {
    until("all events to be read", || {
        let partitions = feed.status().partitions;
        let is_read = partitions.iter().all(|partition| partition.lag_records == Some(0));
        is_read && !partitions.is_empty()
    });
}

pub fn value(text: &str) -> Found {
    Found::Value(text.to_owned().into())
}
