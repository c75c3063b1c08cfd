//! Topics that are partitioned as the store is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use fondaco_model::{PartitionCount, PartitionSet, Partitioner, slot_of_key};
use fondaco_stream::{
    Batch, EventLog, Feed, FeedOptions, Ingest, LogTopic, Overlay, OverlayOptions, Source, StreamError,
};
use fondaco_testing::{eventually, until};

use super::{START_MS, event, feed_all, value_of};
use crate::overlay::{count, memory, options, overlay_in, partitions, value};

/// A topic with a log for each partition, and a partitioner of its own. It counts the records that were read of each, and all
/// reads. Those that are broken cannot be read.
struct Partitioned {
    logs: Vec<Arc<LogTopic>>,
    read: Vec<AtomicUsize>,
    reads: AtomicUsize,
    is_broken: Vec<AtomicBool>,
}

impl Partitioned {
    fn new(count: u32) -> Arc<Self> {
        let log = EventLog::new(memory());
        Arc::new(Self {
            logs: (0..count)
                .map(|number| log.topic(&format!("t{number}"), 1).unwrap())
                .collect(),
            read: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            reads: AtomicUsize::new(0),
            is_broken: (0..count).map(|_| AtomicBool::new(false)).collect(),
        })
    }

    /// Logs the key in the partition that it has in a store with this number of partitions.
    fn append(&self, keys: impl Iterator<Item = u32>, text: &str) {
        let count: PartitionCount = (self.logs.len() as u32).try_into().unwrap();
        for key in keys.map(|key| format!("k{key}")) {
            let partition = count.partition_of(slot_of_key(&"s".parse().unwrap(), key.as_bytes()));
            let events = [event(&key, Some(text), None)];
            self.logs[partition.get() as usize].append(&events, START_MS).unwrap();
        }
    }

    fn read(&self) -> Vec<usize> {
        self.read.iter().map(|read| read.swap(0, Relaxed)).collect()
    }
}

impl Source for Partitioned {
    fn partitions(&self) -> Result<u32, StreamError> {
        Ok(self.logs.len() as u32)
    }

    fn offset_at(&self, partition: u32, time_ms: u64) -> Result<u64, StreamError> {
        self.logs[partition as usize].offset_at(0, time_ms)
    }

    fn first(&self, partition: u32) -> Result<u64, StreamError> {
        self.logs[partition as usize].first(0)
    }

    fn read(&self, reader: u64, partition: u32, offset: u64, bytes_max: usize) -> Result<Batch, StreamError> {
        if self.is_broken[partition as usize].load(Relaxed) {
            return Err(StreamError::Unavailable {
                topic: "t".to_owned(),
                reason: format!("partition {partition} is broken"),
            });
        }
        let batch = self.logs[partition as usize].read(reader, 0, offset, bytes_max)?;
        self.read[partition as usize].fetch_add(batch.records.len(), Relaxed);
        self.reads.fetch_add(1, Relaxed);
        Ok(batch)
    }
}

fn partitioned(version: u64) -> OverlayOptions {
    OverlayOptions {
        partitioner: Partitioner::Store,
        ..options(version)
    }
}

fn feed_of(overlay: &Arc<Overlay>, topic: &Arc<Partitioned>) -> Arc<Feed> {
    let source: Arc<dyn Source> = Arc::<Partitioned>::clone(topic);
    Arc::new(Feed::new(Arc::clone(overlay), source, FeedOptions::default()))
}

/// Feeds an overlay until these partitions answer, and all that they read was read.
fn feed_until_ready(feed: &Arc<Feed>, held: &PartitionSet) {
    let ingest = Ingest::start(2).unwrap();
    ingest.set_feeds(vec![Arc::clone(feed)]);
    until("all partitions to answer", || *feed.overlay().ready() == *held);
    ingest.close();
    feed_all(&[Arc::clone(feed)]);
}

#[test]
fn partitions_of_the_topic_are_read_where_they_belong() {
    // As many as the store has, fewer, and more.
    for (topic_partitions, of_first, of_second) in [(8, 0..3, 2..5), (4, 0..2, 1..3), (32, 0..12, 8..20)] {
        let topic = Partitioned::new(topic_partitions);
        topic.append(0..400, "first");
        let engine = memory();
        let overlay = overlay_in(&engine, partitioned(1), &partitions(0..3));
        feed_until_ready(&feed_of(&overlay, &topic), &partitions(0..3));
        let read = |of: &std::ops::Range<usize>| {
            for (partition, count) in topic.read().into_iter().enumerate() {
                assert_eq!(count > 0, of.contains(&partition), "{topic_partitions}: {partition}");
            }
        };
        read(&of_first);
        let known_elsewhere = overlay.applied().elsewhere;
        assert_eq!(known_elsewhere > 0, topic_partitions < 8, "{topic_partitions}");
        // Two are lost, and two gained, whose stream is read from the beginning; so it is after a restart.
        overlay.set_held(&partitions(2..5)).unwrap();
        drop(overlay);
        let overlay = overlay_in(&engine, partitioned(1), &partitions(2..5));
        topic.append(0..300, "second");
        feed_until_ready(&feed_of(&overlay, &topic), &partitions(2..5));
        read(&of_second);
        // The records of a lost partition are not found again when it is gained back.
        overlay.set_held(&partitions(0..8)).unwrap();
        topic.append(0..50, "third");
        feed_until_ready(&feed_of(&overlay, &topic), &partitions(0..8));
        for key in 0..400 {
            let expected = ["third", "second", "first"][usize::from(key >= 50) + usize::from(key >= 300)];
            assert_eq!(
                value_of(&overlay, &format!("k{key}")),
                value(expected),
                "{topic_partitions}: {key}"
            );
        }
        assert_eq!(overlay.applied().poison, 0);
    }
}

#[test]
fn events_in_a_wrong_partition_are_poison() {
    let topic = Partitioned::new(8);
    topic.append(0..100, "right");
    let right = count().partition_of(slot_of_key(&"s".parse().unwrap(), b"k0")).get();
    let wrong = (right + 3) % 8;
    let misplaced = [event("k0", Some("wrong"), None)];
    topic.logs[wrong as usize].append(&misplaced, START_MS).unwrap();
    // Only the partition with the wrong event is held.
    let overlay = overlay_in(&memory(), partitioned(1), &partitions([wrong]));
    feed_until_ready(&feed_of(&overlay, &topic), &partitions([wrong]));
    let poisoned = overlay.poisoned().unwrap();
    let (names, reason) = (
        [right, wrong].map(|number| format!("partition {number}")),
        &poisoned[0].2,
    );
    assert_eq!((poisoned.len(), poisoned[0].0), (1, wrong));
    assert!(names.iter().all(|name| reason.contains(name)), "{reason}");
}

#[test]
fn topics_that_do_not_fit_the_partitioner_are_not_read() {
    let engine = memory();
    let all = partitions(0..8);
    let overlay = overlay_in(&engine, partitioned(1), &all);
    feed_until_ready(&feed_of(&overlay, &Partitioned::new(8)), &all);
    let error = |overlay: &Arc<Overlay>, topic_partitions: u32| {
        let feed = feed_of(overlay, &Partitioned::new(topic_partitions));
        let ingest = Ingest::start(1).unwrap();
        ingest.set_feeds(vec![Arc::clone(&feed)]);
        let error = eventually("an error", || feed.status().error);
        assert!(error.contains(&format!("{topic_partitions} partitions")), "{error}");
        assert_eq!(feed.status().partitions, []);
        error
    };
    let grown = error(&overlay, 16);
    assert!(grown.contains("push a new version"), "{grown}");
    let odd = error(&overlay_in(&engine, partitioned(2), &all), 12);
    assert!(odd.contains("--partitioner any"), "{odd}");
}

#[test]
fn nothing_answers_while_a_partition_cannot_be_read() {
    let topic = Partitioned::new(2);
    topic.append(0..100, "x");
    let overlay = overlay_in(&memory(), options(1), &partitions(0..8));
    let source: Arc<dyn Source> = Arc::<Partitioned>::clone(&topic);
    let terms = FeedOptions {
        lag_ms_max: u64::MAX,
        ..FeedOptions::default()
    };
    let feed = Arc::new(Feed::new(Arc::clone(&overlay), source, terms));
    let set_broken = |partition: usize, is_broken| topic.is_broken[partition].store(is_broken, Relaxed);
    let is_read = |partition: usize| {
        let found = feed.status().partitions;
        found.get(partition).is_some_and(|found| found.lag_records == Some(0))
    };
    set_broken(1, true);
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    until("the first one to be read", || is_read(0));
    set_broken(0, true);
    until("it to fail", || {
        feed.status().error.is_some_and(|error| error.contains("partition 0"))
    });
    // All was read, but the end of the first partition may have moved meanwhile.
    set_broken(1, false);
    until("the second one to be read", || is_read(1));
    let reads = topic.reads.load(Relaxed);
    until("it to be read again", || topic.reads.load(Relaxed) > reads + 2);
    assert!(overlay.ready().is_empty());
    set_broken(0, false);
    until("all partitions to answer", || *overlay.ready() == partitions(0..8));
}
