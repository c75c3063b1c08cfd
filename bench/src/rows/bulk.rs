//! The same records through Kafka to a node, as events and as a version: the time until they are served, and what the node
//! writes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fondaco_testing::Kafka;
use serde_json::Value;

use super::Measured;
use super::streams::Writer;
use crate::bench::Bench;
use crate::dataset::file::{KEY_COLUMN, VALUE_COLUMN};
use crate::dataset::{Dataset, Scattered};
use crate::peers::fondaco::STORE;
use crate::report::Rounds;
use crate::report::markdown::number;
use crate::servers::control::{COMMAND_LIMIT, PUSH_LIMIT};
use crate::servers::fondaco::{Fondaco, Settings};

/// The topic of the events.
const EVENTS: &str = "events";
/// Both ways, in the table.
const EVENTS_NAME: &str = "as events";
const VERSION_NAME: &str = "as a version";
const TOPIC_PARTITIONS: i32 = 4;
/// What Venice gained by sorting.
const TIME_MIN: f64 = 5.0;
const WRITTEN_MIN: f64 = 6.0;
/// How long a node writes nothing when it has written all.
const QUIET: Duration = Duration::from_secs(2);
const QUIET_LIMIT: Duration = Duration::from_secs(60);

/// What one way took.
struct Took {
    /// From the beginning of the push to the swap: the time of the node.
    node_seconds: f64,
    /// The time of the command.
    command_seconds: f64,
    written_bytes: u64,
}

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let kafka = Kafka::start();
    fill(&kafka, dataset)?;
    kafka.make_topic("versions", TOPIC_PARTITIONS);
    let [mut times, mut commands, mut written] = [(); 3].map(|()| Rounds::default());
    let of_data = |bytes: u64| bytes as f64 / dataset.bytes() as f64;
    for _ in 0..bench.rounds().min(3) {
        for (name, took) in [
            (EVENTS_NAME, ingest(bench, &kafka, dataset)?),
            (VERSION_NAME, push(bench, &kafka, dataset)?),
        ] {
            times.add(name, "s", took.node_seconds);
            commands.add(name, "s", took.command_seconds);
            written.add(name, "× data", of_data(took.written_bytes));
        }
    }
    let records = number(dataset.records as f64);
    let line = |work: &str, ours: &Rounds, peer: &Rounds, what: &str| {
        let work = format!("{records} records of {} B: {work}", dataset.value_bytes);
        let line = ours
            .line(work, VERSION_NAME)
            .peer(EVENTS_NAME, peer.figure(EVENTS_NAME));
        line.peer_over_ours(what)
    };
    Ok(Measured {
        lines: vec![
            line("the node's time", &times, &times, "faster").at_least(TIME_MIN),
            line("with build and sending", &commands, &times, "faster"),
            line("bytes that the node wrote", &written, &written, "less").at_least(WRITTEN_MIN),
        ],
        notes: vec![
            format!("As a version: `fondaco push --through` of the Parquet file; its build sorts the records. The node's time is from the beginning of the push to the swap: it fetches the files from the topic, verifies them, makes them durable and opens them. As events: a hybrid store (engine `disk`) whose topic has the records in scattered order; the time is that of a push of an empty version, which is swapped in when all events are read. Kafka has {TOPIC_PARTITIONS} partitions, and runs on the same machine."),
            "Bytes are `write_bytes` of the node in `/proc`, until it has written nothing for 2 s, so that compactions after the swap count.".into(),
        ],
        ..Measured::default()
    })
}

/// Sends all records as events, in scattered order.
fn fill(kafka: &Kafka, dataset: Dataset) -> Result<()> {
    drop(kafka.make_topic(EVENTS, TOPIC_PARTITIONS));
    let scattered = Scattered::new(dataset.records);
    let records = (0..dataset.records).map(|place| scattered.place(place));
    Writer::new(kafka)?.send_all(EVENTS, records, dataset.value_bytes)
}

fn ingest(bench: &Bench, kafka: &Kafka, dataset: Dataset) -> Result<Took> {
    let empty = bench.work.join("empty.csv");
    std::fs::write(&empty, format!("{KEY_COLUMN},{VALUE_COLUMN}\n"))?;
    let node = Fondaco::start(bench, "bulk-events", Settings::default())?;
    let stream = format!("kafka://{}/{EVENTS}", kafka.address());
    let create = ["store", "create", STORE, "--kind", "hybrid", "--stream", &stream];
    let lags = ["--rewind", "12h", "--max-lag", "1ms"];
    node.control()
        .command(&[&create[..], &lags].concat())
        .run(COMMAND_LIMIT)?;
    let empty = empty.to_str().context("a path that is not text")?;
    took(node, dataset, &[empty, "--allow-empty"])
}

fn push(bench: &Bench, kafka: &Kafka, dataset: Dataset) -> Result<Took> {
    let parquet = bench.parquet(dataset)?;
    let node = Fondaco::start(bench, "bulk-version", Settings::default())?;
    let topic = format!("kafka://{}/versions", kafka.address());
    let work = bench.fresh_dir("push-work")?;
    let [parquet, work] = [&parquet, &work].map(|path| path.to_str().context("a path that is not text"));
    took(
        node,
        dataset,
        &[parquet?, "--create", "--through", &topic, "--work", work?],
    )
}

/// Pushes to a node, and ends it.
fn took(mut node: Fondaco, dataset: Dataset, arguments: &[&str]) -> Result<Took> {
    let columns = ["--key", KEY_COLUMN, "--value", VALUE_COLUMN, "--json"];
    let before = node.process().written_bytes()?;
    let started = Instant::now();
    let push = node
        .control()
        .command(&[&["push", STORE], arguments, &columns].concat());
    let result: Value = serde_json::from_str(&push.output(PUSH_LIMIT)?)?;
    let command_seconds = started.elapsed().as_secs_f64();
    let time = |name: &str| {
        result["push"][name]
            .as_u64()
            .with_context(|| format!("no {name} in {result}"))
    };
    let node_ms = time("ended_unix_ms")? - time("started_unix_ms")?;
    node.wait_for_last(dataset)?;
    let written_bytes = written(&node)? - before;
    node.end()?;
    Ok(Took {
        node_seconds: node_ms as f64 / 1000.0,
        command_seconds,
        written_bytes,
    })
}

/// The bytes that a node has written, once it writes no more.
fn written(node: &Fondaco) -> Result<u64> {
    let deadline = Instant::now() + QUIET_LIMIT;
    let mut last = (node.process().written_bytes()?, Instant::now());
    while last.1.elapsed() < QUIET {
        ensure!(Instant::now() < deadline, "the node still writes after {QUIET_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(100));
        let now = node.process().written_bytes()?;
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    Ok(last.0)
}
