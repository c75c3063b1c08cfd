//! Overlays that are fed from topics of a real Kafka.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fondaco_stream::{
    Feed, Found, ID_HEADER, Ingest, KafkaCluster, Overlay, OverlayOptions, Source, StreamError, TIME_HEADER,
    TYPE_HEADER,
};
use fondaco_testing::{Kafka, KafkaWriter, eventually, until};
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::overlay::{memory, options, overlay_in, partitions, value};

fn overlay(version: u64) -> Arc<Overlay> {
    let options = OverlayOptions {
        grace_ms: 3_600_000,
        ..options(version)
    };
    overlay_in(&memory(), options, &partitions(0..8))
}

fn feed(cluster: &Arc<KafkaCluster>, topic: &str, overlay: &Arc<Overlay>) -> Arc<Feed> {
    crate::overlay::feed(overlay, &Arc::new(cluster.topic(topic)))
}

fn wait_for(overlay: &Overlay, key: &str, expected: &Found) {
    until(&format!("{key} to be {expected:?}"), || {
        overlay.find(key.as_bytes()).unwrap() == *expected
    });
}

/// Sends values, a deletion, records that are no events, and one with an odd header.
fn send_first(topic: &KafkaWriter) {
    for number in 0..1000 {
        topic.send(
            number % 3,
            Some(&format!("k{}", number % 100)),
            Some(&format!("v{number}")),
            None,
        );
    }
    topic.send(0, Some("deleted"), Some("x"), None);
    topic.send(0, Some("deleted"), None, None);
    topic.send(1, None, Some("without a key"), None);
    topic.send(1, Some("odd"), Some("x"), Some((TIME_HEADER, "yesterday")));
    // SAFETY: it is only copied as bytes, into a C string.
    let name = unsafe { String::from_utf8_unchecked(vec![b'x', 0xFF]) };
    topic.send(1, Some("odder"), Some("x"), Some((&*name, "x")));
    topic.flush();
}

#[test]
fn events_of_topics_are_applied_whatever_happens_to_the_broker() {
    let mut kafka = Kafka::start();
    let topic = kafka.make_topic("events", 3);
    send_first(&topic);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now_ms = now.as_millis().to_string();
    let cluster = Arc::new(KafkaCluster::new(&kafka.address(), &BTreeMap::new()));
    // Two versions read the same partitions at different places.
    let overlays = [overlay(1), overlay(2)];
    let feeds: Vec<_> = overlays
        .iter()
        .map(|overlay| feed(&cluster, "events", overlay))
        .collect();
    let ingest = Ingest::start(2).unwrap();
    ingest.set_feeds(vec![Arc::clone(&feeds[0])]);
    wait_for(&overlays[0], "k99", &value("v999"));
    wait_for(&overlays[0], "deleted", &Found::Deleted);
    wait_for(&overlays[0], "odder", &value("x"));
    ingest.set_feeds(feeds.clone());
    wait_for(&overlays[1], "deleted", &Found::Deleted);
    for overlay in &overlays {
        until("all records to be read", || overlay.applied().poison == 2);
        let reasons = overlay.poisoned().unwrap();
        assert!(
            reasons[0].2.contains("no key") && reasons[1].2.contains(TIME_HEADER),
            "{reasons:?}"
        );
    }
    // Headers make an update of a record; one that comes again has no effect.
    for (partition, id) in [(0, "a"), (1, "b"), (0, "a"), (2, "a")] {
        let headers = [(TYPE_HEADER, "update"), (ID_HEADER, id), (TIME_HEADER, &now_ms)];
        topic.send(partition, Some("sum"), Some(r#"{"increment": 7}"#), headers);
    }
    topic.flush();
    overlays
        .iter()
        .for_each(|overlay| wait_for(overlay, "sum", &value("14")));
    // An earlier event does not count, even if it comes later.
    topic.send(2, Some("k5"), Some("late"), Some((TIME_HEADER, "1000")));
    topic.send(2, Some("k6"), Some("again"), None);
    topic.flush();
    overlays
        .iter()
        .for_each(|overlay| wait_for(overlay, "k6", &value("again")));
    assert!(
        overlays
            .iter()
            .all(|overlay| overlay.find(b"k5").unwrap() == value("v905"))
    );
    assert_eq!(overlays[0].applied().late, 1);

    kafka.kill();
    eventually("the loss of the broker to be told", || feeds[0].status().error);
    kafka.restart();
    topic.send(0, Some("after"), Some("y"), None);
    topic.flush();
    overlays
        .iter()
        .for_each(|overlay| wait_for(overlay, "after", &value("y")));
    for feed in &feeds {
        until("all to be well again", || {
            let status = feed.status();
            let mut partitions = status.partitions.iter();
            status.error.is_none() && partitions.all(|partition| partition.lag_records == Some(0))
        });
        let applied = feed.overlay().applied();
        assert_eq!((applied.poison, applied.late), (2, 1), "each record is read once");
    }
    until("the broker to say that a topic is missing", || {
        let missing = cluster.topic("missing").partitions();
        matches!(missing, Err(StreamError::NoTopic { .. }))
    });
}

#[test]
fn records_that_are_gone_before_they_are_read_are_reported() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("short", 1);
    let send = |from: u32, to: u32| {
        (from..to).for_each(|number| topic.send(0, Some(&format!("k{number}")), Some("x"), None));
        topic.flush();
    };
    send(0, 10);
    let cluster = Arc::new(KafkaCluster::new(&kafka.address(), &BTreeMap::new()));
    let overlay = overlay(1);
    let feed = feed(&cluster, "short", &overlay);
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    wait_for(&overlay, "k9", &value("x"));
    assert_eq!(overlay.lost(), []);
    feed.set(0, true);
    std::thread::sleep(Duration::from_millis(100));
    send(10, 30);
    topic.delete_before(0, 20);
    feed.set(0, false);
    wait_for(&overlay, "k29", &value("x"));
    let lost: Vec<_> = overlay
        .lost()
        .iter()
        .map(|lost| (lost.partition, lost.from, lost.to))
        .collect();
    // Records that the consumer had fetched before are there.
    let from = match lost[..] {
        [] => 20,
        [(0, from @ 10..20, 20)] => from,
        _ => panic!("{lost:?}"),
    };
    assert_eq!(overlay.find(format!("k{}", from - 1).as_bytes()).unwrap(), value("x"));
}

#[test]
fn a_missing_partition_delays_no_other_topic() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("there", 1);
    topic.send(0, Some("k"), Some("x"), None);
    topic.flush();
    let cluster = Arc::new(KafkaCluster::new(&kafka.address(), &BTreeMap::new()));
    let (gone, there) = (cluster.topic("gone"), cluster.topic("there"));
    eventually("the broker to answer", || there.offset_at(0, 0).ok());
    for _ in 0..3 {
        let error = gone.offset_at(0, 0).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        assert_eq!(there.offset_at(0, 0).unwrap(), 0);
    }
    // No record is as late.
    assert_eq!(there.offset_at(0, u64::MAX).unwrap(), 1);
}

#[test]
fn a_topic_that_was_made_again_is_read_from_its_beginning() {
    let kafka = Kafka::shared();
    let overlay = overlay(1);
    let read = |keys: std::ops::Range<u32>, text: &str, topic: &KafkaWriter| {
        keys.clone()
            .for_each(|key| topic.send(0, Some(&format!("k{key}")), Some(text), None));
        topic.flush();
        let cluster = Arc::new(KafkaCluster::new(&kafka.address(), &BTreeMap::new()));
        let ingest = Ingest::start(2).unwrap();
        ingest.set_feeds(vec![feed(&cluster, "again", &overlay)]);
        keys.for_each(|key| wait_for(&overlay, &format!("k{key}"), &value(text)));
        until("both partitions to be begun", || overlay.begun().len() == 2);
    };
    read(0..10, "old", &kafka.make_topic("again", 2));
    assert_eq!(overlay.lost(), []);
    // It has more records than were read before: offsets alone do not tell.
    let topic = kafka.make_topic_again("again", 2);
    read(0..30, "new", &topic);
    let lost: Vec<_> = overlay
        .lost()
        .iter()
        .map(|lost| (lost.partition, lost.from, lost.to))
        .collect();
    assert_eq!(lost, [(0, 10, 10), (1, 0, 0)]);
    read(20..40, "newer", &topic);
    assert_eq!(overlay.lost().len(), 2, "the topic is the same");
    until("each event to be applied once", || {
        overlay.applied().applied == 10 + 30 + 20
    });
}

#[test]
fn a_topic_that_ends_with_a_transaction_is_read_to_its_end() {
    let kafka = Kafka::shared();
    drop(kafka.make_topic("whole", 1));
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", kafka.address())
        .set("transactional.id", "t");
    let producer: BaseProducer = config.create().unwrap();
    let patience = Duration::from_secs(60);
    producer.init_transactions(patience).unwrap();
    for (key, is_whole) in [("k", Some(true)), ("given up", Some(false)), ("open", None)] {
        producer.begin_transaction().unwrap();
        producer
            .send(BaseRecord::to("whole").key(key).payload("x"))
            .map_err(|(error, _)| error)
            .unwrap();
        producer.flush(patience).unwrap();
        match is_whole {
            Some(true) => producer.commit_transaction(patience).unwrap(),
            Some(false) => producer.abort_transaction(patience).unwrap(),
            None => {}
        }
    }
    let cluster = Arc::new(KafkaCluster::new(&kafka.address(), &BTreeMap::new()));
    let overlay = overlay(1);
    let feed = feed(&cluster, "whole", &overlay);
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    wait_for(&overlay, "k", &value("x"));
    let lag = || feed.status().partitions[0].lag_records;
    until("the end to be reached", || lag() == Some(0));
    // Meanwhile the end is asked for again.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(7) {
        assert_eq!(lag(), Some(0), "after {:?}", began.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(overlay.find(b"given up").unwrap(), Found::Nothing);
    producer.commit_transaction(patience).unwrap();
    wait_for(&overlay, "open", &value("x"));
}

#[test]
fn events_that_follow_silence_are_applied_at_once() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("rare", 3);
    let cluster = Arc::new(KafkaCluster::new(&kafka.address(), &BTreeMap::new()));
    let overlay = overlay(1);
    let ingest = Ingest::start(2).unwrap();
    ingest.set_feeds(vec![feed(&cluster, "rare", &overlay)]);
    let send = |number: i32| {
        let key = format!("k{number}");
        topic.send(number % 3, Some(&key), Some("x"), None);
        topic.flush();
        wait_for(&overlay, &key, &value("x"));
    };
    send(0);
    let timed = |number| {
        let sent = Instant::now();
        send(number);
        sent.elapsed()
    };
    // The machine may stall now and then. A partition that is not watched would be read once in a second.
    let are_quick = |round: i32| {
        let mut times: Vec<Duration> = (1..=60).map(|number| timed(60 * round + number)).collect();
        times.sort();
        times[..50].iter().sum::<Duration>() < Duration::from_secs(10)
    };
    assert!((0..5).any(are_quick));
}

#[test]
fn brokers_may_ask_for_tls_and_a_password() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("secured", 2);
    kafka.allow("read", "secured");
    topic.send(0, Some("a"), Some("1"), None);
    topic.send(1, Some("b"), Some("2"), None);
    topic.flush();
    let properties = kafka.secured_properties();
    KafkaCluster::check(&properties).unwrap();
    let cluster = Arc::new(KafkaCluster::new(&kafka.secured_address(), &properties));
    let overlay = overlay(1);
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![feed(&cluster, "secured", &overlay)]);
    wait_for(&overlay, "a", &value("1"));
    wait_for(&overlay, "b", &value("2"));

    let other = tempfile::NamedTempFile::new().unwrap();
    let unknown = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(other.path(), unknown.cert.pem()).unwrap();
    let wrong = [
        ("sasl.password", "another secret"),
        ("ssl.ca.location", other.path().to_str().unwrap()),
    ];
    for (property, value) in wrong {
        let mut properties = properties.clone();
        properties.insert(property.to_owned(), value.to_owned());
        let cluster = Arc::new(KafkaCluster::new(&kafka.secured_address(), &properties));
        // The first question may end before the broker's refusal is known.
        let error = eventually(&format!("the error to name {property}"), || {
            let error = cluster.topic("secured").partitions().unwrap_err().to_string();
            error.contains(property).then_some(error)
        });
        assert!(error.contains(&kafka.secured_address()), "{error}");
        assert!(!error.contains("another secret"), "{error}");
    }
}

#[test]
fn events_are_read_in_no_consumer_group_by_a_user_who_may_read_the_topic() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("granted", 2);
    topic.send(0, Some("a"), Some("1"), None);
    topic.flush();
    let mut properties = kafka.secured_properties();
    // A group of the operator's does not count.
    properties.insert("group.id".to_owned(), "ours".to_owned());
    let cluster = Arc::new(KafkaCluster::new(&kafka.secured_address(), &properties));
    let overlay = overlay(1);
    let feed = feed(&cluster, "granted", &overlay);
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    let error = eventually("the right to be missing", || feed.status().error);
    assert!(error.contains("grant the operation Read"), "{error}");
    kafka.allow("read", "granted");
    wait_for(&overlay, "a", &value("1"));
    topic.send(1, Some("b"), Some("2"), None);
    topic.flush();
    wait_for(&overlay, "b", &value("2"));
    until("the error to be over", || feed.status().error.is_none());
    assert_eq!(kafka.groups(), Vec::<String>::new());
    assert!(!kafka.has_topic("__consumer_offsets"));
}

#[test]
fn batches_of_every_codec_are_read() {
    let kafka = Kafka::shared();
    kafka.make_topic("codecs", 2);
    let cluster = Arc::new(KafkaCluster::new(&kafka.address(), &BTreeMap::new()));
    let overlay = overlay(1);
    let ingest = Ingest::start(2).unwrap();
    ingest.set_feeds(vec![feed(&cluster, "codecs", &overlay)]);
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    for codec in codecs {
        let lines = (0..500).map(|number| format!("{codec}-{number}:{codec} {codec} {codec} {number}\n"));
        kafka.produce("codecs", codec, &lines.collect::<String>());
    }
    for codec in codecs {
        for number in [0, 250, 499] {
            let expected = value(&format!("{codec} {codec} {codec} {number}"));
            wait_for(&overlay, &format!("{codec}-{number}"), &expected);
        }
    }
    let all = 500 * codecs.len() as u64;
    until("each event to be applied once", || overlay.applied().applied == all);
}

#[test]
fn partitions_that_a_topic_is_given_are_read_soon() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("grown", 1);
    let cluster = Arc::new(KafkaCluster::new(&kafka.address(), &BTreeMap::new()));
    let overlay = overlay(1);
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![feed(&cluster, "grown", &overlay)]);
    topic.send(0, Some("a"), Some("1"), None);
    topic.flush();
    wait_for(&overlay, "a", &value("1"));
    topic.grow(3);
    // A producer that knows of it at once.
    let topic = kafka.writer("grown");
    topic.send(2, Some("b"), Some("2"), None);
    topic.flush();
    let grown = Instant::now();
    wait_for(&overlay, "b", &value("2"));
    assert!(grown.elapsed() < Duration::from_secs(10), "{:?}", grown.elapsed());
}

#[test]
fn a_paused_feed_knows_how_far_behind_it_is() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("paused", 1);
    let cluster = Arc::new(KafkaCluster::new(&kafka.address(), &BTreeMap::new()));
    let overlay = overlay(1);
    let send = |from: u32, to: u32| {
        (from..to).for_each(|number| topic.send(0, Some(&format!("k{number}")), Some("x"), None));
        topic.flush();
    };
    send(0, 10);
    let lag = |feed: &Feed| feed.status().partitions.first().and_then(|known| known.lag_records);
    let paused = feed(&cluster, "paused", &overlay);
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![Arc::clone(&paused)]);
    wait_for(&overlay, "k9", &value("x"));
    paused.set(0, true);
    until("the step under way to end", || lag(&paused) == Some(0));
    send(10, 30);
    until("the lag to grow", || lag(&paused) == Some(20));
    assert_eq!(overlay.find(b"k29").unwrap(), Found::Nothing);
    // So does one that was paused when the process began.
    let again = feed(&cluster, "paused", &overlay);
    again.set(0, true);
    ingest.set_feeds(vec![Arc::clone(&again)]);
    until("the lag to be known", || lag(&again) == Some(20));
    again.set(0, false);
    wait_for(&overlay, "k29", &value("x"));
}

#[test]
fn errors_of_properties_do_not_tell_their_values() {
    let properties = BTreeMap::from([("sasl.pasword".to_owned(), "secret".to_owned())]);
    let cluster = Arc::new(KafkaCluster::new("127.0.0.1:1", &properties));
    let unavailable = cluster.topic("events").partitions().unwrap_err().to_string();
    for found in [KafkaCluster::check(&properties).unwrap_err(), unavailable] {
        assert!(found.contains("sasl.pasword") && found.contains("[kafka]"), "{found}");
        assert!(!found.contains("secret"), "{found}");
    }
}
