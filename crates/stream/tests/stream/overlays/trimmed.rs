//! Logs whose first events are deleted.

use std::sync::Arc;

use fondaco_engine::{DiskEngine, DiskOptions, Engine};
use fondaco_stream::{EventLog, Feed, FeedOptions, LogTopic, LostRecords, Overlay, Source, StreamError};

use super::{START_MS, event, feed_all, value_of};
use crate::overlay::{feed, memory, options, overlay_in, partitions, value};

#[test]
fn logs_keep_the_records_since_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Engine> { Arc::new(DiskEngine::open(dir.path(), DiskOptions::default()).unwrap()) };
    let log = EventLog::new(open());
    let topic = log.topic("t", 2).unwrap();
    for hour in 0..10 {
        let events: Vec<_> = (0..50).map(|key| event(&format!("k{key}"), Some("x"), None)).collect();
        topic.append(&events, START_MS + hour).unwrap();
    }
    let ends = [0, 1].map(|partition| topic.offset_at(partition, u64::MAX).unwrap());
    topic.trim(START_MS + 4).unwrap();
    // More before that time: there is nothing to do.
    topic.trim(START_MS + 3).unwrap();
    drop((topic, log));
    let topic = EventLog::new(open()).topic("t", 2).unwrap();
    for (partition, end) in (0..).zip(ends) {
        let first = topic.offset_at(partition, 0).unwrap();
        assert_eq!(first, end / 10 * 4, "as many of each hour");
        let batch = topic.read(1, partition, first, usize::MAX).unwrap();
        assert_eq!((batch.records.len() as u64, batch.next), (end - first, end));
        assert!(batch.records.iter().all(|record| record.logged_ms >= START_MS + 4));
        let lost = topic.read(1, partition, first - 1, usize::MAX).unwrap_err();
        assert!(
            matches!(lost, StreamError::Lost { first: kept, .. } if kept == first),
            "{lost}"
        );
    }
    // All records may be too old: offsets continue.
    topic.trim(u64::MAX).unwrap();
    topic.append(&[event("k0", Some("x"), None)], START_MS + 10).unwrap();
    let next = [0, 1].map(|partition| topic.offset_at(partition, u64::MAX).unwrap());
    assert_eq!(next.iter().sum::<u64>(), ends.iter().sum::<u64>() + 1);
}

#[test]
fn deleted_topics_begin_anew() {
    let log = EventLog::new(memory());
    let events = [event("k", Some("x"), None)];
    log.topic("t", 1).unwrap().append(&events, START_MS).unwrap();
    log.topic("other", 1).unwrap().append(&events, START_MS).unwrap();
    log.delete(&["t".to_owned(), "missing".to_owned()]).unwrap();
    let end = |name: &str| log.topic(name, 1).unwrap().offset_at(0, u64::MAX).unwrap();
    assert_eq!((end("t"), end("other")), (0, 1));
}

/// A feed of a topic, for a node that is told by others where they have begun.
fn feed_after(overlay: &Arc<Overlay>, topic: &Arc<LogTopic>, begun_elsewhere: Option<u64>) -> Arc<Feed> {
    let options = FeedOptions {
        begun_elsewhere: Box::new(move |_| Ok(begun_elsewhere)),
        ..FeedOptions::default()
    };
    Arc::new(Feed::new(Arc::clone(overlay), Arc::clone(topic) as _, options))
}

#[test]
fn partitions_gained_after_deleted_events_know_what_is_missing() {
    let topic = EventLog::new(memory()).topic("t", 1).unwrap();
    let all = |value: &str| -> Vec<_> {
        (0..50)
            .map(|key| event(&format!("k{key}"), Some(value), None))
            .collect()
    };
    topic.append(&all("deleted"), START_MS).unwrap();
    let (engine, options) = (memory(), options(1));
    let overlay = overlay_in(&engine, options.clone(), &partitions(0..4));
    let first = feed(&overlay, &topic);
    feed_all(&[Arc::clone(&first)]);
    topic.append(&all("kept"), START_MS + 1).unwrap();
    topic.trim(START_MS + 1).unwrap();

    // On the node that has read them, for another partition, also after a restart.
    feed_all(&[Arc::clone(&first)]);
    assert_eq!((overlay.lost(), first.status().begun), (vec![], [(0, 0)].into()));
    drop((first, overlay));
    let overlay = overlay_in(&engine, options.clone(), &partitions(0..8));
    let lost = vec![LostRecords {
        partition: 0,
        from: 0,
        to: 50,
    }];
    feed_all(&[feed(&overlay, &topic)]);
    assert_eq!(overlay.lost(), lost);

    // On one that has read nothing, if others tell; and if they have begun later.
    for (begun, lost) in [(Some(0), lost), (Some(50), vec![]), (Some(70), vec![]), (None, vec![])] {
        let overlay = overlay_in(&memory(), options.clone(), &partitions(0..8));
        feed_all(&[feed_after(&overlay, &topic, begun)]);
        assert_eq!(overlay.lost(), lost, "{begun:?}");
        assert_eq!(value_of(&overlay, "k0"), value("kept"));
    }
}
