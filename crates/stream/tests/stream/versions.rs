//! Versions that travel through topics of a real Kafka, whatever else is in these.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fondaco_format::{Checksum, Compression, MANIFEST_FILE, Manifest};
use fondaco_stream::{
    Sent, TopicAddress, VersionAddress, VersionReader, VersionTopicError, partitions_of, send_version,
};
use fondaco_testing::{Kafka, KafkaWriter, until};
use serde_json::{Value, json};
use tempfile::TempDir;

#[path = "../../../format/tests/written/mod.rs"]
mod written;

/// The longest file that is read whole.
const BYTES_MAX: u64 = 64 << 20;

/// A version of some 4 MB in two partitions.
fn built() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let record = |n: u32| (n.to_string().into_bytes(), format!("{n:0>2000}").into_bytes());
    let shape = written::Shape {
        partitions: 2,
        chunks: 1,
        compression: Compression::None,
    };
    written::write(dir.path(), &(0..2000).map(record).collect(), &shape);
    dir
}

fn address(kafka: &Kafka, topic: &str) -> TopicAddress {
    format!("kafka://{}/{topic}", kafka.address()).parse().unwrap()
}

fn send(topic: &TopicAddress, dir: &Path, go_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<Sent, VersionTopicError> {
    let partitions = partitions_of(topic, &BTreeMap::new())?;
    send_version(topic, partitions, &BTreeMap::new(), dir, go_on)
}

fn reader(address: &VersionAddress) -> VersionReader {
    VersionReader::new(address.clone(), &BTreeMap::new())
}

/// The bytes of a file from an offset on.
fn read_from(reader: &VersionReader, file: &str, offset: u64) -> Result<Vec<u8>, VersionTopicError> {
    let mut open = reader.open(file, offset)?;
    let (mut all, mut buffer) = (Vec::new(), vec![0; 10_000]);
    loop {
        match open.read_some(&mut buffer)? {
            0 => return Ok(all),
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
}

fn assert_whole(reader: &VersionReader, dir: &Path) {
    let (manifest, _) = Manifest::read_identified(dir).unwrap();
    let names = manifest.files().map(|file| &*file.name).chain([MANIFEST_FILE]);
    for name in names {
        let expected = fs::read(dir.join(name)).unwrap();
        assert!(reader.read_whole(name, BYTES_MAX).unwrap() == expected, "{name}");
    }
    reader.check(&manifest).unwrap();
}

#[test]
fn versions_come_out_as_sent_between_other_records() {
    let kafka = Kafka::shared();
    let others = kafka.make_topic("between", 3);
    let (topic, dir) = (address(kafka, "between"), built());
    let mut count = 0;
    let mut go_on = |sent: u64, total: u64| {
        assert!(sent <= total && total > 4_000_000);
        others.send(count % 3, Some("other"), Some("x"), []);
        count += 1;
        true
    };
    let sent = send(&topic, dir.path(), &mut go_on).unwrap();
    let again = send(&topic, dir.path(), &mut go_on).unwrap();
    assert!(count > 20 && sent.topic_records > 10, "{count} {sent:?}");
    assert_ne!(sent.address, again.address);
    for sent in [&sent, &again] {
        assert_whole(&reader(&sent.address), dir.path());
    }

    let reader = reader(&sent.address);
    let (manifest, _) = Manifest::read_identified(dir.path()).unwrap();
    let file = &manifest.chunks[0].data;
    let bytes = fs::read(dir.path().join(&file.name)).unwrap();
    for offset in [
        1,
        (512 << 10) - 1,
        512 << 10,
        (512 << 10) + 1,
        file.bytes - 1,
        file.bytes,
        file.bytes + 9,
    ] {
        let found = read_from(&reader, &file.name, offset).unwrap();
        assert!(found == bytes[bytes.len().min(offset as usize)..], "from {offset}");
    }
    // Several files of one partition of the topic at a time.
    let mut open: Vec<_> = (0..4).map(|_| reader.open(&file.name, 0).unwrap()).collect();
    let mut first = [0; 100];
    open.iter_mut().for_each(|open| {
        open.read_some(&mut first).unwrap();
        assert_eq!(first, bytes[..100]);
    });
    let error = reader.open("p00009-c0000.data", 0).err().unwrap();
    assert!(matches!(error, VersionTopicError::NoFile { .. }), "{error}");

    let stopped = send(&topic, dir.path(), &mut |sent, total| sent < total / 2).unwrap_err();
    assert!(matches!(stopped, VersionTopicError::Interrupted), "{stopped}");
    let path = dir.path().join(&file.name);
    fs::write(&path, &bytes[1..]).unwrap();
    let changed = send(&topic, dir.path(), &mut |_, _| true).unwrap_err();
    assert!(changed.to_string().contains(&file.name), "{changed}");
    let missing = send(&address(kafka, "missing"), dir.path(), &mut |_, _| true).unwrap_err();
    assert!(missing.to_string().contains("create the topic"), "{missing}");
}

#[test]
fn versions_come_through_topics_of_every_codec_in_no_consumer_group() {
    let kafka = Kafka::shared();
    let dir = built();
    for codec in ["uncompressed", "gzip", "snappy", "lz4", "zstd"] {
        // The broker compresses what it is sent.
        kafka.make_topic_with(codec, 2, &[("compression.type", codec)]);
        let sent = send(&address(kafka, codec), dir.path(), &mut |_, _| true).unwrap();
        assert_whole(&reader(&sent.address), dir.path());
    }
    // So may the sender, who may do no more than write; readers may only read.
    kafka.make_topic("sent", 2);
    kafka.allow("write", "sent");
    let topic: TopicAddress = format!("kafka://{}/sent", kafka.secured_address()).parse().unwrap();
    let send_with = |codec: &str| {
        let mut properties = kafka.secured_properties();
        properties.insert("compression.type".to_owned(), codec.to_owned());
        let partitions = partitions_of(&topic, &properties).unwrap();
        send_version(&topic, partitions, &properties, dir.path(), &mut |_, _| true).unwrap()
    };
    let sent = ["gzip", "snappy", "lz4", "zstd"].map(send_with);
    kafka.allow("read", "sent");
    for sent in sent {
        let reader = VersionReader::new(sent.address, &kafka.secured_properties());
        assert_whole(&reader, dir.path());
    }
    assert_eq!(kafka.groups(), Vec::<String>::new());
    assert!(!kafka.has_topic("__consumer_offsets"));
}

#[test]
fn a_broker_that_restarts_delays_a_version() {
    let mut kafka = Kafka::start();
    kafka.make_topic("versions", 2);
    let (topic, dir) = (address(&kafka, "versions"), built());
    let mut restarts = 0;
    let sent = send(&topic, dir.path(), &mut |sent, total| {
        if restarts == 0 && sent > total / 4 {
            kafka.restart();
            restarts = 1;
        }
        true
    });
    let sent = sent.unwrap();
    assert_eq!(restarts, 1);
    let version = reader(&sent.address);
    assert_whole(&version, dir.path());

    let (manifest, _) = Manifest::read_identified(dir.path()).unwrap();
    let file = &manifest.chunks[0].data.name;
    kafka.kill();
    // A few pieces were fetched ahead, so a reader that knows nothing yet is asked.
    let away = reader(&sent.address).read_whole(file, BYTES_MAX).unwrap_err();
    assert!(away.may_pass() && away.to_string().contains("kafka://"), "{away}");
    kafka.restart();
    let bytes = fs::read(dir.path().join(file)).unwrap();
    until("the version can be read again", || {
        let found = version.read_whole(file, BYTES_MAX);
        found.is_ok_and(|found| found == bytes)
    });

    kafka.writer("versions").delete_before(0, sent.address.offset as i64);
    let gone = version.read_whole(MANIFEST_FILE, BYTES_MAX).unwrap_err();
    assert!(matches!(gone, VersionTopicError::Gone { .. }), "{gone}");
    assert!(gone.to_string().contains("retention.ms"), "{gone}");
}

/// Records of an attacker, or of an older or later release.
struct Crafted<'a> {
    topic: TopicAddress,
    writer: &'a KafkaWriter,
    next: u64,
}

impl Crafted<'_> {
    fn record(&mut self, key: &str, value: &str) -> u64 {
        self.writer.send(0, Some(key), Some(value), []);
        self.writer.flush();
        self.next += 1;
        self.next - 1
    }

    /// A push with this index, and an end that was changed.
    fn push(&mut self, index: &str, change: impl FnOnce(&mut Value)) -> VersionAddress {
        let at = self.record("fondaco/1/x/index/0", index);
        let mut end = json!({
            "store": "pymk", "version": Checksum::of(b"x"), "partitions": 2, "records": 7, "files": 1, "bytes": 5,
            "piece_bytes": 1000, "index_checksum": Checksum::of(index.as_bytes()),
            "index": {"partition": 0, "first": at, "last": at, "bytes": index.len()},
        });
        change(&mut end);
        let offset = self.record("fondaco/1/x/end", &end.to_string());
        let topic = self.topic.clone();
        VersionAddress {
            topic,
            partition: 0,
            offset,
        }
    }

    /// The error of reading a file of it.
    fn refused(&self, address: &VersionAddress) -> String {
        let read = reader(address).read_whole("a", 1 << 20);
        let error = read.expect_err("it was read");
        assert!(!error.may_pass(), "{error}");
        error.to_string()
    }
}

fn index_of(first: u64, last: u64, bytes: u64) -> String {
    let extent = json!({"partition": 0, "first": first, "last": last, "bytes": bytes});
    json!({"files": {"a": extent}, "records": {"0": 3}}).to_string()
}

#[test]
fn records_of_others_and_wrong_ends_are_refused() {
    let kafka = Kafka::shared();
    let writer = kafka.make_topic("crafted", 1);
    let mut crafted = Crafted {
        topic: address(kafka, "crafted"),
        writer: &writer,
        next: 0,
    };
    let piece = crafted.record("fondaco/1/x/a/0", "12345");
    let other = crafted.record("other", "12345");
    let of_another = crafted.record("fondaco/1/y/a/0", "12345");
    let same = |_: &mut Value| ();

    let good = crafted.push(&index_of(piece, piece, 5), same);
    assert_eq!(reader(&good).read_whole("a", 5).unwrap(), b"12345");
    let refused = reader(&good).read_whole("a", 4).unwrap_err().to_string();
    assert!(refused.contains("5 bytes, more than the 4"), "{refused}");
    let dir = built();
    let (manifest, _) = Manifest::read_identified(dir.path()).unwrap();
    let miscounted = reader(&good).check(&manifest).unwrap_err().to_string();
    assert!(
        miscounted.contains("counts 3 records in partition 0, and the manifest"),
        "{miscounted}"
    );

    for (first, last, bytes, expected) in [
        (other, other, 5, "piece 0 of \"a\" is not in partition 0"),
        (of_another, good.offset, 5, "piece 0 of \"a\" is not in partition 0"),
        (piece, piece, 6, "has 5 bytes, not 6"),
        (piece, piece, 4, "has 5 bytes, not 4"),
        (piece, other, 1005, "has 5 bytes, not 1000"),
        (piece, piece, 1001, "the 2 pieces of \"a\""),
        (piece, 0, 1 << 60, "pieces of \"a\""),
        (piece, u64::MAX, 5, "pieces of \"a\""),
    ] {
        let address = crafted.push(&index_of(first, last, bytes), same);
        let refused = crafted.refused(&address);
        assert!(
            refused.contains(expected) && refused.contains(&address.to_string()),
            "{refused}"
        );
    }
    let index = index_of(piece, piece, 5);
    for (change, expected) in [
        (json!({"piece_bytes": 0}), "pieces have 0 bytes"),
        (
            json!({"piece_bytes": u64::MAX}),
            "pieces have 18446744073709551615 bytes",
        ),
        (json!({"index_checksum": Checksum::of(b"y")}), "another checksum"),
        (json!({"index": null}), "its end cannot be parsed"),
        (
            json!({"index": {"partition": 0, "first": 0, "last": 1u64 << 40, "bytes": 1u64 << 42}}),
            "\"index\" has",
        ),
        (json!({"store": "x".repeat(70_000)}), "its end has"),
    ] {
        let address = crafted.push(&index, |end| {
            end.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        });
        let refused = crafted.refused(&address);
        assert!(refused.contains(expected), "{refused}");
    }
    let unknown = crafted.push("[]", same);
    let refused = crafted.refused(&unknown);
    assert!(refused.contains("its index cannot be parsed"), "{refused}");
    for offset in [piece, other, of_another] {
        let address = VersionAddress { offset, ..good.clone() };
        let refused = crafted.refused(&address);
        assert!(refused.contains("there is no end of a push"), "{refused}");
    }

    let beyond = VersionAddress {
        offset: 1_000_000,
        ..good.clone()
    };
    let refused = reader(&beyond).read_whole("a", 5).unwrap_err().to_string();
    assert!(refused.contains("offset 1000000 is needed"), "{refused}");
    let elsewhere = VersionAddress { partition: 7, ..good };
    let refused = crafted.refused(&elsewhere);
    assert!(refused.contains("no partition 7"), "{refused}");
}
