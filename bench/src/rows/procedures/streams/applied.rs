//! Events of a topic into an overlay, against a consumer that stores nothing, and one that writes them to Redis.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fondaco_engine::{CacheBudget, DiskEngine, DiskOptions, Engine, LogEngine, LogOptions};
use fondaco_model::{PartitionId, Partitioner, VersionNumber};
use fondaco_stream::{Feed, FeedOptions, Ingest, KafkaCluster, Overlay, OverlayOptions};
use fondaco_testing::Kafka;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use super::{LIMIT, PARTITIONS};
use crate::bench::Bench;
use crate::child::Child;
use crate::machine::process::{cpu_time_of, status_bytes_of};
use crate::report::markdown::number;
use crate::rows::runner::Running;
use crate::rows::spec::Step;
use crate::servers::redis::{Redis, connect};

const PIPELINE: usize = 500;
/// The memory for values of an overlay.
const CACHE_BYTES: u64 = 64 << 20;
const STORE_PARTITIONS: u32 = 64;

/// The consumer of the records of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Consumed {
    /// Nothing: a consumer of librdkafka.
    Dropped,
    /// They are written to Redis.
    Redis,
    /// They are applied to an overlay on the log engine.
    Log,
    /// They are applied to an overlay on the disk engine.
    Disk,
}

/// The task of a process that reads a topic to its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Consume {
    consumed: Consumed,
    brokers: String,
    topic: String,
    records: u64,
    /// The directory of the overlay.
    dir: Option<PathBuf>,
    /// The address of Redis.
    redis: Option<SocketAddr>,
}

/// The cost of applying the events.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Cost {
    cpu_seconds: f64,
    wall_seconds: f64,
    resident_bytes: u64,
}

/// Reads a topic to its end, and prints what that cost.
pub fn consume(arguments: &Consume) -> Result<()> {
    let (started, before) = (Instant::now(), cpu_time_of(std::process::id())?);
    match arguments.consumed {
        Consumed::Dropped => poll(arguments, |_, _| Ok(()))?,
        Consumed::Redis => {
            let address = arguments.redis.context("no address of Redis")?;
            let mut connection = connect(address)?;
            let mut pipeline = redis::pipe();
            poll(arguments, |key, value| {
                pipeline.set(key, value).ignore();
                if pipeline.len() >= PIPELINE {
                    pipeline.query::<()>(&mut connection)?;
                    pipeline.clear();
                }
                Ok(())
            })?;
            if !pipeline.is_empty() {
                pipeline.query::<()>(&mut connection)?;
            }
        }
        Consumed::Disk => {
            let options = DiskOptions {
                cache: CacheBudget::new(CACHE_BYTES),
                ..DiskOptions::default()
            };
            apply(arguments, Arc::new(DiskEngine::open(directory(arguments)?, options)?))?;
        }
        Consumed::Log => {
            let options = LogOptions {
                cache: CacheBudget::new(CACHE_BYTES),
                ..LogOptions::default()
            };
            apply(arguments, Arc::new(LogEngine::open(directory(arguments)?, options)?))?;
        }
    }
    let cpu = cpu_time_of(std::process::id())? - before;
    let cost = Cost {
        cpu_seconds: cpu.as_secs_f64(),
        wall_seconds: started.elapsed().as_secs_f64(),
        resident_bytes: status_bytes_of(std::process::id(), "VmHWM")?,
    };
    println!("{}", serde_json::to_string(&cost)?);
    Ok(())
}

fn poll(arguments: &Consume, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &arguments.brokers)
        .set("group.id", "peer")
        .set("enable.auto.commit", "false")
        .create()?;
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset(&arguments.topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&list)?;
    let deadline = Instant::now() + LIMIT;
    let mut records = 0;
    while records < arguments.records {
        ensure!(Instant::now() < deadline, "only {records} records after {LIMIT:?}");
        let Some(message) = consumer.poll(Duration::from_millis(100)) else {
            continue;
        };
        let message = message?;
        each(message.key().unwrap_or_default(), message.payload().unwrap_or_default())?;
        records += 1;
    }
    Ok(())
}

fn directory(arguments: &Consume) -> Result<&Path> {
    arguments.dir.as_deref().context("no directory")
}

fn apply(arguments: &Consume, engine: Arc<dyn Engine>) -> Result<()> {
    let options = OverlayOptions {
        store: "s".parse()?,
        store_id: 1,
        created_unix_ms: 1,
        version: VersionNumber::new(1).context("1 is a version")?,
        partitions: STORE_PARTITIONS.try_into()?,
        as_of_ms: None,
        grace_ms: 3_600_000,
        partitioner: Partitioner::Any,
        lifetimes: None,
    };
    let overlay = Arc::new(Overlay::open(engine, options, Arc::new(|_| Ok(None)), Arc::default())?);
    overlay.set_held(&(0..STORE_PARTITIONS).map(PartitionId::new).collect())?;
    let cluster = Arc::new(KafkaCluster::new(&arguments.brokers, &Default::default()));
    let source = Arc::new(cluster.topic(&arguments.topic));
    let feed = Arc::new(Feed::new(Arc::clone(&overlay), source, FeedOptions::default()));
    let ingest = Ingest::start(2)?;
    ingest.set_feeds(vec![feed]);
    let deadline = Instant::now() + LIMIT;
    let read = || {
        let counts = overlay.applied();
        counts.applied + counts.superseded
    };
    while read() < arguments.records {
        ensure!(Instant::now() < deadline, "only {} records after {LIMIT:?}", read());
        std::thread::sleep(Duration::from_millis(2));
    }
    ingest.close();
    Ok(())
}

/// A topic of events, and what became of them: the arguments are the topic, the number of events, and the length of the values,
/// 0 for increments of a field. Events per second and core, of each consumer.
pub fn measure(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let [topic, records, value_bytes] = &step.arguments[..] else {
        anyhow::bail!("a topic, a number of events and the length of their values are needed");
    };
    let bench = running.bench;
    let records = records.parse::<u64>()? / if bench.quick { 50 } else { 1 };
    let kafka = running.kafka()?;
    if !kafka.has_topic(topic) {
        fill(kafka, topic, records, value_bytes.parse()?);
    }
    let brokers = kafka.address();
    running.figures.set(&format!("{topic}_events"), number(records as f64));
    let consume = |consumed, dir, redis| {
        let consume = Consume {
            consumed,
            brokers: brokers.clone(),
            topic: topic.clone(),
            records,
            dir,
            redis,
        };
        consume.run(bench)
    };
    let mut add = |name: &str, cost: Cost, more_cpu_seconds: f64| {
        let cpu_seconds = cost.cpu_seconds + more_cpu_seconds;
        running.add(
            &format!("{topic} {name}"),
            "events/s/core",
            records as f64 / cpu_seconds,
        );
        let mebibytes = cost.resident_bytes as f64 / f64::from(1 << 20);
        running.add(&format!("{topic} {name} memory"), "MiB", mebibytes);
    };
    add("bare", consume(Consumed::Dropped, None, None)?, 0.0);
    for (engine, consumed) in [("log", Consumed::Log), ("disk", Consumed::Disk)] {
        add(engine, consume(consumed, Some(bench.fresh_dir("overlay")?), None)?, 0.0);
    }
    let server = Redis::start(bench, None, false)?;
    let before = server.process().cpu_time()?;
    let written = consume(Consumed::Redis, None, Some(server.address()))?;
    let used = server.process().cpu_time()? - before;
    add("redis", written, used.as_secs_f64());
    Ok(())
}

fn fill(kafka: &Kafka, topic: &str, records: u64, value_bytes: usize) {
    let topic = kafka.make_topic(topic, PARTITIONS);
    let mut random = fastrand::Rng::with_seed(1);
    let value: String = (0..value_bytes).map(|_| random.alphanumeric()).collect();
    for number in 0..records {
        let key = format!("key-{:09}", random.u64(..records / 2));
        let partition = (number % PARTITIONS as u64) as i32;
        match value_bytes {
            0 => topic.send(
                partition,
                Some(&key),
                Some(r#"{"increment":{"views":1}}"#),
                [(fondaco_stream::TYPE_HEADER, "update")],
            ),
            _ => topic.send(partition, Some(&key), Some(&value), []),
        }
        if number % 20_000 == 19_999 {
            topic.flush();
        }
    }
    topic.flush();
}

/// Has a process read so many records of a topic, and do nothing with them.
pub fn drop_records(bench: &Bench, brokers: &str, topic: &str, records: u64) -> Result<()> {
    let consume = Consume {
        consumed: Consumed::Dropped,
        brokers: brokers.to_owned(),
        topic: topic.to_owned(),
        records,
        dir: None,
        redis: None,
    };
    consume.run(bench).map(drop)
}

impl Consume {
    fn run(self, bench: &Bench) -> Result<Cost> {
        let consumer = Child::Consume(self).launch()?.log_to(bench.log("consume"));
        Ok(serde_json::from_str(&consumer.output(LIMIT)?)?)
    }
}
