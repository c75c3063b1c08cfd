//! The same records through Kafka to a node, as events and as a version: the time until they are served, and what the node
//! writes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fondaco_testing::Kafka;
use serde_json::Value;

use super::super::runner::Running;
use super::super::spec::Step;
use super::streams::{PARTITIONS, TOPIC, Writer};
use crate::bench::Bench;
use crate::dataset::file::{KEY_COLUMN, VALUE_COLUMN};
use crate::dataset::{Dataset, Scattered};
use crate::servers::Wait;
use crate::servers::control::PUSH_LIMIT;
use crate::servers::fondaco::{Fondaco, Limits, STORE, Shape};

/// How long a node writes nothing when it has written all.
const QUIET: Duration = Duration::from_secs(2);
const QUIET_LIMIT: Duration = Duration::from_secs(60);

/// The cost of loading the records in one of the two ways.
struct Took {
    /// From the beginning of the push to the swap: the time of the node.
    node_seconds: f64,
    /// The time of the command.
    command_seconds: f64,
    written_bytes: u64,
}

/// Sends all records as events, in scattered order, and makes the topic of versions.
pub fn send(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let (dataset, kafka) = (running.dataset, running.kafka()?);
    let scattered = Scattered::new(dataset.records);
    let records = (0..dataset.records).map(|place| scattered.place(place));
    Writer::new(kafka)?.send_all(TOPIC, records, dataset.value_bytes)?;
    drop(kafka.make_topic("versions", PARTITIONS));
    Ok(())
}

/// Both ways: seconds, and bytes written for each byte of data.
pub fn measure(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let (bench, dataset) = (running.bench, running.dataset);
    for (name, took) in [
        ("as events", ingest(bench, running.kafka()?, dataset)?),
        ("as a version", push(bench, running.kafka()?, dataset)?),
    ] {
        running.add(&format!("{name} time"), "s", took.node_seconds);
        running.add(&format!("{name} command"), "s", took.command_seconds);
        let times = took.written_bytes as f64 / dataset.bytes() as f64;
        running.add(&format!("{name} written"), "× data", times);
    }
    Ok(())
}

fn ingest(bench: &Bench, kafka: &Kafka, dataset: Dataset) -> Result<Took> {
    let empty = bench.work.join("empty.csv");
    std::fs::write(&empty, format!("{KEY_COLUMN},{VALUE_COLUMN}\n"))?;
    let node = Fondaco::start(bench, "bulk-events", Shape::default(), Limits::default())?;
    let stream = format!("kafka://{}/{TOPIC}", kafka.address());
    let options = ["--stream", &stream, "--rewind", "12h", "--max-lag", "1ms"];
    node.control().create("hybrid", STORE, &options)?;
    let empty = empty.to_str().context("a path that is not text")?;
    took(node, dataset, &[empty, "--allow-empty"])
}

fn push(bench: &Bench, kafka: &Kafka, dataset: Dataset) -> Result<Took> {
    let parquet = bench.parquet(dataset)?;
    let node = Fondaco::start(bench, "bulk-version", Shape::default(), Limits::default())?;
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
    let before = node.written_bytes()?;
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
    node.wait_for_last(STORE, dataset)?;
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
    let mut last = (node.written_bytes()?, Instant::now());
    let wait = Wait {
        limit: QUIET_LIMIT,
        poll: Duration::from_millis(100),
    };
    wait.until("the node writes no more", || {
        let now = node.written_bytes()?;
        if now != last.0 {
            last = (now, Instant::now());
        }
        Ok(last.1.elapsed() >= QUIET)
    })?;
    Ok(last.0)
}
