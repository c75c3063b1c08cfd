//! Pushes through a topic of a real Kafka, from a machine that shares no storage with the nodes.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use fondaco_format::{Checksum, MANIFEST_FILE, Manifest};
use fondaco_testing::{Kafka, KafkaWriter};
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::{of_csv, until, wait, write_csv};
use super::values::{KEYS, STORE, read_all, value};

/// So slow that there is time to interfere: a version takes some twenty seconds.
const SLOWLY: u64 = 20_000;

fn address(kafka: &Kafka, topic: &str) -> String {
    format!("kafka://{}/{topic}", kafka.address())
}

/// How many bytes a node's log says that its fetches got, from sources whose name contains this.
fn fetched(cluster: &Cluster, name: &str, source: &str) -> u64 {
    let log = fs::read_to_string(cluster.dir.path().join(format!("{name}.log"))).unwrap();
    let lines = log
        .lines()
        .filter(|line| line.contains("fetched from") && line.contains(source));
    let bytes = lines.filter_map(|line| {
        line.split("bytes=")
            .nth(1)?
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
    });
    bytes.sum()
}

/// `fondaco deploy --through`.
fn deploy(cluster: &Cluster, build: &Path, topic: &str) -> Child {
    let arguments = ["deploy", STORE, build.to_str().unwrap(), "--through", topic, "--json"];
    let mut command = cluster.get("controller-1").command(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(mut child: Child) -> Value {
    wait(&mut child);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_push_through_a_topic_brings_the_same_files() {
    let kafka = Kafka::start();
    kafka.make_topic("versions", 4);
    let topic = address(&kafka, "versions");
    let mut cluster = Cluster::start(Shape::steady());
    let csv = cluster.data("1.csv");
    write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), value(1, key))));
    let work = tempfile::tempdir().unwrap();
    let mut push = of_csv("push", STORE, &csv, &["--create"]);
    push.extend(["--work", work.path().to_str().unwrap()]);
    let through = |topic: &str| [&push[..], &["--through", topic]].concat().join("\n");
    let missing = through(&address(&kafka, "missing"));
    let missing: Vec<&str> = missing.lines().collect();
    let refused = cluster.any().refused(1, &missing);
    assert!(refused.contains("create the topic"), "{refused}");
    let here = through(&topic);
    let here: Vec<&str> = here.lines().collect();
    let pushed = cluster.any().json(&here);
    let source = pushed["push"]["source"].as_str().unwrap();
    assert!(source.starts_with(&format!("{topic}/0/")), "{source}");
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);

    let build = cluster.build(1);
    let mut files = 0;
    for name in cluster.nodes() {
        assert_eq!(read_all(&mut cluster.get(&name).redis()), Ok(1), "{name}");
        let version = cluster.data(&name).join("stores").join(STORE).join("version-1");
        for entry in fs::read_dir(version).unwrap().map(Result::unwrap) {
            let file = entry.file_name();
            if file != MANIFEST_FILE && build.join(&file).exists() {
                assert!(
                    fs::read(entry.path()).unwrap() == fs::read(build.join(&file)).unwrap(),
                    "{file:?}"
                );
                files += 1;
            }
        }
    }
    assert_eq!(files, 2 * 2 * 16, "data and index of each partition, on two nodes");
    // Each partition was read once from Kafka, and by its other replica from the first one.
    let (manifest, _) = Manifest::read_identified(&build).unwrap();
    let from = |source: &str| {
        cluster
            .nodes()
            .iter()
            .map(|name| fetched(&cluster, name, source))
            .sum::<u64>()
    };
    assert_eq!(
        (from("kafka://"), from("location=")),
        (manifest.files_bytes(), 2 * manifest.files_bytes())
    );

    // The same once more, by its address; and without Kafka, from the other nodes.
    let again = ["deploy", STORE, source, "--quiet", "--again"];
    assert_eq!(cluster.any().json(&again)["version"], 2);
    drop(kafka);
    cluster.kill("node-2");
    fs::remove_dir_all(cluster.data("node-2").join("stores")).unwrap();
    cluster.launch("node-2");
    cluster.until_holds("node-2", &["version-1", "version-2"]);
    assert_eq!(read_all(&mut cluster.get("node-2").redis()), Ok(1));
}

#[test]
fn a_fetch_from_a_topic_resumes_after_kills() {
    let mut kafka = Kafka::start();
    kafka.make_topic("versions", 2);
    let topic = address(&kafka, "versions");
    let mut cluster = Cluster::start(Shape {
        replicas: 3,
        ..Shape::default()
    });
    cluster.create(&["--tolerate-failures", "0"]);
    cluster.set_rate(SLOWLY);
    let build = cluster.build(1);
    let push = deploy(&cluster, &build, &topic);
    let lost = cluster.number("node-1");
    let done = |cluster: &Cluster| {
        let push = cluster.try_get(cluster.any(), "/v1/stores/s/push").unwrap_or_default();
        let nodes = push["nodes"].as_array().cloned().unwrap_or_default();
        let node = nodes.into_iter().find(|node| node["node"] == lost);
        node.and_then(|node| node["bytes_done"].as_u64()).unwrap_or(0)
    };
    let mut before = 0;
    until("node-1 has some files", || {
        before = done(&cluster);
        before > 6 * SLOWLY
    });
    cluster.kill("node-1");
    let (manifest, _) = Manifest::read_identified(&build).unwrap();
    let total = manifest.files_bytes();
    assert!(before < total, "{before} of {total}");
    cluster.launch("node-1");
    cluster.until_live(lost, true);
    until("node-1 continues", || done(&cluster) > before);
    kafka.restart();
    cluster.set_rate(0);
    assert_eq!(ended(push)["state"], "swapped");
    let again = fetched(&cluster, "node-1", "location=");
    // Of the files that it was reading it may have lost a piece, and here they are no longer than that.
    assert!(again <= total - before / 2, "{again} of {total} bytes after {before}");
    for name in cluster.nodes() {
        assert_eq!(read_all(&mut cluster.get(&name).redis()), Ok(1), "{name}");
    }
}

/// Sends a push with the build's manifest and no other file, and returns where its end is. `first` is the offset of the
/// next record.
fn crafted(writer: &KafkaWriter, first: &mut u64, build: &Path, index: impl FnOnce(Value) -> Value) -> u64 {
    let text = fs::read_to_string(build.join(MANIFEST_FILE)).unwrap();
    let extent = |offset: u64, bytes: usize| json!({"partition": 0, "first": offset, "last": offset, "bytes": bytes});
    let index = index(extent(*first, text.len())).to_string();
    let (_, version) = Manifest::read_identified(build).unwrap();
    let end = json!({
        "store": STORE, "version": version, "partitions": 16, "records": KEYS, "files": 1, "bytes": text.len(),
        "piece_bytes": 1 << 20, "index": extent(*first + 1, index.len()), "index_checksum": Checksum::of(index.as_bytes()),
    });
    let records = [("manifest.json/0", text), ("index/0", index), ("end", end.to_string())];
    for (key, value) in records {
        writer.send(0, Some(&format!("fondaco/1/x/{key}")), Some(&value), []);
    }
    writer.flush();
    *first += 3;
    *first - 1
}

#[test]
fn pushes_of_wrong_records_fail_with_their_reason() {
    let kafka = Kafka::shared();
    let writer = kafka.make_topic("crafted", 1);
    let cluster = Cluster::start(Shape::steady());
    cluster.create(&[]);
    let build = cluster.build(1);
    let (manifest, _) = Manifest::read_identified(&build).unwrap();
    let mut counts = serde_json::Map::new();
    for chunk in &manifest.chunks {
        counts.insert(chunk.partition.get().to_string(), chunk.records.into());
    }
    let mut next = 0;
    let place = |offset: u64| format!("{}/0/{offset}", address(kafka, "crafted"));

    let mut wrong = counts.clone();
    wrong["3"] = json!(7);
    let offset = crafted(
        &writer,
        &mut next,
        &build,
        |at| json!({"files": {MANIFEST_FILE: at}, "records": wrong}),
    );
    let refused = cluster.any().refused(1, &["deploy", STORE, &place(offset)]);
    let records = &counts["3"];
    let expected = format!("the end of the push counts 7 records in partition 3, and the manifest {records}");
    assert!(refused.contains(&expected), "{refused}");

    // All files in the place of the manifest: nodes find out.
    let offset = crafted(&writer, &mut next, &build, |at| {
        let files = manifest.files().map(|file| {
            let mut extent = at.clone();
            extent["bytes"] = json!(file.bytes);
            (file.name.clone(), extent)
        });
        let mut files: serde_json::Map<String, Value> = files.collect();
        files.insert(MANIFEST_FILE.to_owned(), at.clone());
        json!({"files": files, "records": counts})
    });
    let refused = cluster.any().refused(1, &["deploy", STORE, &place(offset), "--quiet"]);
    assert!(refused.contains("is no complete version: piece 0 of"), "{refused}");

    let other = cluster.any().refused(1, &["deploy", STORE, &place(0)]);
    assert!(other.contains("there is no end of a push"), "{other}");
    writer.delete_before(0, next as i64 - 1);
    let gone = cluster.any().refused(1, &["deploy", STORE, &place(1)]);
    assert!(gone.contains("retention.ms") && gone.contains("push again"), "{gone}");
    let invalid = cluster.any().refused(1, &["deploy", STORE, &address(kafka, "crafted")]);
    assert!(invalid.contains("/TOPIC/PARTITION/OFFSET"), "{invalid}");

    let stream = address(kafka, "crafted");
    let create = ["store", "create", "h", "--kind", "hybrid", "--stream", &stream];
    cluster.any().done(&create);
    let same = ["deploy", "h", build.to_str().unwrap(), "--through", &stream];
    // Nor may versions of other stores go through it.
    let another = ["deploy", STORE, build.to_str().unwrap(), "--through", &stream];
    for through_events in [&same, &another] {
        let refused = cluster.any().refused(1, through_events);
        assert!(refused.contains("through a topic of another name"), "{refused}");
    }
    assert!(
        cluster
            .any()
            .refused(2, &[&same[..], &["--upload"]].concat())
            .contains("--upload")
    );
}
