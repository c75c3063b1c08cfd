//! The quota of writes: records wait in the topic, and none is dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_stream::{EventLog, Found, Ingest};
use fondaco_testing::until;

use super::event;
use crate::overlay::{feed, memory, options, overlay_in, partitions, wait_until_read};

#[test]
fn a_version_that_answers_reads_no_more_than_the_quota_and_one_that_catches_up_reads_all() {
    let topic = EventLog::new(memory()).topic("t", 1).unwrap();
    let append = |numbers: std::ops::Range<u32>| {
        let events: Vec<_> = numbers
            .map(|number| event(&format!("k{number}"), Some("v"), None))
            .collect();
        topic.append(&events, 5).unwrap();
    };
    append(0..2000);
    let overlay = overlay_in(&memory(), options(1), &partitions(0..8));
    let (feed, ingest) = (feed(&overlay, &topic), Ingest::start(2).unwrap());
    feed.set_quota(Some(100));
    let begun = Instant::now();
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    wait_until_read(&feed);
    until("it to answer", || *overlay.ready() == partitions(0..8));
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "2000 records at 100 a second take 20 s"
    );
    // The feed notices a moment later that it answers.
    until("the quota to hold it back", || {
        append(2000..2010);
        feed.status().is_held_back
    });
    append(3000..3250);
    let is_read = |key: &str| overlay.find(key.as_bytes()).unwrap() != Found::Nothing;
    until("the last event to be read", || is_read("k3249"));
    // More than the quota may be read at once; then the next event waits.
    let begun = Instant::now();
    append(3500..3501);
    until("the next event to be read", || is_read("k3500"));
    assert!(begun.elapsed() > Duration::from_millis(500));
    assert!(
        (2000..2010)
            .chain(3000..3250)
            .all(|number| is_read(&format!("k{number}")))
    );
    // Without the quota they are read at once.
    feed.set_quota(None);
    append(4000..5000);
    until("the last event to be read", || is_read("k4999"));
    ingest.close();
}
