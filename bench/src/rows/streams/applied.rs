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
use crate::children::Child;
use crate::machine::process::{cpu_time_of, status_bytes_of};
use crate::report::markdown::number;
use crate::report::{Line, Rounds};
use crate::rows::Measured;
use crate::servers::redis::Redis;

const REDIS_MIN: f64 = 2.0;
const PIPELINE: usize = 500;
/// The memory for values of an overlay.
const CACHE_BYTES: u64 = 64 << 20;
const STORE_PARTITIONS: u32 = 64;

/// What becomes of the records of a topic.
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

/// What it cost.
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
            let client = redis::Client::open(format!("redis://{address}"))?;
            let mut connection = client.get_connection()?;
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
    };
    let overlay = Arc::new(Overlay::open(engine, options, Arc::new(|_| Ok(None)))?);
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

/// The content of a topic.
struct Events {
    topic: &'static str,
    title: &'static str,
    records: u64,
    value_bytes: usize,
    is_update: bool,
}

pub(in crate::rows) fn measure(bench: &Bench) -> Result<Measured> {
    let events = |topic, title, records: u64, value_bytes| Events {
        topic,
        title,
        records: if bench.quick { records / 50 } else { records },
        value_bytes,
        is_update: value_bytes == 0,
    };
    let all = [
        events("values-100", "values of 100 B", 2_000_000, 100),
        events("values-1024", "values of 1 KiB", 400_000, 1024),
        events("increments", "increments of one field", 1_000_000, 0),
    ];
    let kafka = Kafka::start();
    let mut lines = Vec::new();
    for events in all {
        fill(&kafka, &events)?;
        lines.extend(measure_events(bench, &kafka, &events)?);
    }
    Ok(Measured {
        lines,
        notes: vec![
            "Events of a topic with 4 partitions of a Kafka on the same machine, keys at random among half as many. fondaco: an overlay with offsets written beside the effects, two threads of ingest. Redis: a consumer of librdkafka that sends pipelines of 500 SET, no persistence; its CPU time and the server's count. Bare: the same consumer, which drops what it reads.".into(),
            "A figure is events divided by the CPU time of all threads: events per second and core.".into(),
        ],
        ..Measured::default()
    })
}

fn fill(kafka: &Kafka, events: &Events) -> Result<()> {
    let topic = kafka.make_topic(events.topic, PARTITIONS);
    let mut random = fastrand::Rng::with_seed(1);
    let value: String = (0..events.value_bytes).map(|_| random.alphanumeric()).collect();
    for number in 0..events.records {
        let key = format!("key-{:09}", random.u64(..events.records / 2));
        let partition = (number % PARTITIONS as u64) as i32;
        match events.is_update {
            true => topic.send(
                partition,
                Some(&key),
                Some(r#"{"increment":{"views":1}}"#),
                [(fondaco_stream::TYPE_HEADER, "update")],
            ),
            false => topic.send(partition, Some(&key), Some(&value), []),
        }
        if number % 20_000 == 19_999 {
            topic.flush();
        }
    }
    topic.flush();
    Ok(())
}

fn measure_events(bench: &Bench, kafka: &Kafka, events: &Events) -> Result<[Line; 3]> {
    let to_redis = match events.is_update {
        true => "a consumer that sets them in Redis",
        false => "a consumer into Redis",
    };
    let consume = |consumed, dir, redis| {
        let consume = Consume {
            consumed,
            brokers: kafka.address(),
            topic: events.topic.to_owned(),
            records: events.records,
            dir,
            redis,
        };
        consume.run(bench)
    };
    let [mut rates, mut memory] = [Rounds::default(), Rounds::default()];
    let mut add = |name: &str, cpu_seconds: f64, resident_bytes: u64| {
        rates.add(name, "events/s/core", events.records as f64 / cpu_seconds);
        memory.add(name, "MiB", resident_bytes as f64 / f64::from(1 << 20));
    };
    for _ in 0..bench.rounds().min(3) {
        let dropped = consume(Consumed::Dropped, None, None)?;
        add("a bare consumer", dropped.cpu_seconds, dropped.resident_bytes);
        for (engine, consumed) in [("log", Consumed::Log), ("disk", Consumed::Disk)] {
            let applied = consume(consumed, Some(bench.fresh_dir("overlay")?), None)?;
            add(engine, applied.cpu_seconds, applied.resident_bytes);
        }
        let server = Redis::start(bench, None)?;
        let before = server.process().cpu_time()?;
        let written = consume(Consumed::Redis, None, Some(server.address()))?;
        let used = server.process().cpu_time()? - before;
        add(
            to_redis,
            written.cpu_seconds + used.as_secs_f64(),
            written.resident_bytes,
        );
    }
    let work = format!("{} {}", number(events.records as f64), events.title);
    let against = |engine: &str, peer: &str| {
        let work = format!("{work}, engine {engine}, against {peer}");
        rates.compare(work, engine, peer, "of it")
    };
    let most_memory = |engine: &str| {
        let most = memory.figure(engine).rounds.into_iter().fold(0.0, f64::max);
        format!("fondaco {} MiB", number(most))
    };
    let log = against("log", to_redis).memory(most_memory("log"));
    Ok([
        match events.is_update {
            true => log,
            false => log.at_least(REDIS_MIN),
        },
        against("log", "a bare consumer"),
        against("disk", to_redis).memory(most_memory("disk")),
    ])
}

/// Has a process read so many records of a topic, and do nothing with them.
pub(super) fn drop_records(bench: &Bench, brokers: &str, topic: &str, records: u64) -> Result<()> {
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
