//! Events of a topic into an overlay, against a consumer that stores nothing, and one that writes them to Redis.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use fondaco_engine::{CacheBudget, DiskEngine, DiskOptions, Engine, LogEngine, LogOptions};
use fondaco_model::{PartitionId, Partitioner, VersionNumber};
use fondaco_stream::{Feed, FeedOptions, Ingest, KafkaCluster, Overlay, OverlayOptions};
use fondaco_testing::Kafka;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use super::{LIMIT, PARTITIONS};
use crate::bench::Bench;
use crate::machine::process::{Launch, cpu_time_of};
use crate::report::markdown::number;
use crate::report::{Figure, Line, Target};
use crate::rows::Measured;
use crate::servers::redis::Redis;

const REDIS_MIN: f64 = 2.0;
const PIPELINE: usize = 500;
/// The memory for values of an overlay.
const CACHE_BYTES: u64 = 64 << 20;
const STORE_PARTITIONS: u32 = 64;

/// What becomes of the records of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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

/// Arguments of a process that reads a topic to its end.
#[derive(Debug, Args)]
pub struct ConsumeArguments {
    #[arg(long)]
    consumed: Consumed,
    #[arg(long)]
    brokers: String,
    #[arg(long)]
    topic: String,
    #[arg(long)]
    records: u64,
    /// The directory of the overlay.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The address of Redis.
    #[arg(long)]
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
pub fn consume(arguments: &ConsumeArguments) -> Result<()> {
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
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let cost = Cost {
        cpu_seconds: cpu.as_secs_f64(),
        wall_seconds: started.elapsed().as_secs_f64(),
        resident_bytes: kib.unwrap_or(0) << 10,
    };
    println!("{}", serde_json::to_string(&cost)?);
    Ok(())
}

fn poll(arguments: &ConsumeArguments, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
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

fn directory(arguments: &ConsumeArguments) -> Result<&Path> {
    arguments.dir.as_deref().context("no directory")
}

fn apply(arguments: &ConsumeArguments, engine: Arc<dyn Engine>) -> Result<()> {
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

/// What is in a topic.
struct Events {
    topic: &'static str,
    title: &'static str,
    records: u64,
    value_bytes: usize,
    is_update: bool,
}

pub(in crate::rows) fn measure(bench: &Bench) -> Result<Measured> {
    let of = |records: u64| if bench.quick { records / 50 } else { records };
    let all = [
        Events {
            topic: "values-100",
            title: "values of 100 B",
            records: of(2_000_000),
            value_bytes: 100,
            is_update: false,
        },
        Events {
            topic: "values-1024",
            title: "values of 1 KiB",
            records: of(400_000),
            value_bytes: 1024,
            is_update: false,
        },
        Events {
            topic: "increments",
            title: "increments of one field",
            records: of(1_000_000),
            value_bytes: 0,
            is_update: true,
        },
    ];
    let kafka = Kafka::start();
    let mut measured = Measured {
        notes: vec![
            "Events of a topic with 4 partitions of a Kafka on the same machine, keys at random among half as many. fondaco: an overlay with offsets written beside the effects, two threads of ingest. Redis: a consumer of librdkafka that sends pipelines of 500 SET, no persistence; its CPU time and the server's count. Bare: the same consumer, which drops what it reads.".into(),
            "A figure is events divided by the CPU time of all threads: events per second and core.".into(),
        ],
        ..Measured::default()
    };
    for events in all {
        fill(&kafka, &events)?;
        measure_events(bench, &kafka, &events, &mut measured)?;
    }
    Ok(measured)
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

fn measure_events(bench: &Bench, kafka: &Kafka, events: &Events, measured: &mut Measured) -> Result<()> {
    let figure = || Figure::new("events/s/core", Vec::new());
    let (mut log, mut disk, mut bare, mut redis) = (figure(), figure(), figure(), figure());
    let (mut log_bytes, mut disk_bytes) = (0, 0);
    let rate = |cpu_seconds: f64| events.records as f64 / cpu_seconds;
    for _ in 0..bench.rounds().min(3) {
        let dropped = run(bench, kafka, events, Consumed::Dropped, None, None)?;
        bare.rounds.push(rate(dropped.cpu_seconds));
        let dir = bench.fresh_dir("overlay")?;
        let applied = run(bench, kafka, events, Consumed::Log, Some(&dir), None)?;
        log.rounds.push(rate(applied.cpu_seconds));
        log_bytes = log_bytes.max(applied.resident_bytes);
        let dir = bench.fresh_dir("overlay")?;
        let applied = run(bench, kafka, events, Consumed::Disk, Some(&dir), None)?;
        disk.rounds.push(rate(applied.cpu_seconds));
        disk_bytes = disk_bytes.max(applied.resident_bytes);
        let server = Redis::start(bench, None)?;
        let before = server.process().cpu_time()?;
        let written = run(bench, kafka, events, Consumed::Redis, None, Some(server.address()))?;
        let cpu = server.process().cpu_time()? - before;
        redis.rounds.push(rate(written.cpu_seconds + cpu.as_secs_f64()));
    }
    let work = format!("{} {}", number(events.records as f64), events.title);
    let memory = |bytes: u64| format!("fondaco {} MiB", number(bytes as f64 / f64::from(1 << 20)));
    let against = |engine: &str, (ours, figure): (&Figure, &Figure), peer: &str, min: Option<f64>, memory: String| {
        let ratio = ours.over(figure);
        Line {
            work: format!("{work}, engine {engine}, against {peer}"),
            ours: ours.clone(),
            peers: vec![(peer.to_owned(), figure.clone())],
            ratio: Some((ratio, "of it".into())),
            targets: min.map(|min| Target::at_least(ratio, min)).into_iter().collect(),
            memory,
        }
    };
    let min = (!events.is_update).then_some(REDIS_MIN);
    let to_redis = match events.is_update {
        true => "a consumer that sets them in Redis",
        false => "a consumer into Redis",
    };
    measured.lines.extend([
        against("log", (&log, &redis), to_redis, min, memory(log_bytes)),
        against("log", (&log, &bare), "a bare consumer", None, String::new()),
        against("disk", (&disk, &redis), to_redis, None, memory(disk_bytes)),
    ]);
    Ok(())
}

/// Has a process read so many records of a topic, and do nothing with them.
pub(super) fn drop_records(bench: &Bench, brokers: &str, topic: &str, records: u64) -> Result<()> {
    launch(bench, brokers, (topic, records), Consumed::Dropped)?.output(LIMIT)?;
    Ok(())
}

fn launch(bench: &Bench, brokers: &str, (topic, records): (&str, u64), consumed: Consumed) -> Result<Launch> {
    let name = consumed.to_possible_value().context("it has a name")?;
    Ok(Launch::own()?
        .args(["consume", "--consumed", name.get_name()])
        .args(["--brokers", brokers, "--topic", topic])
        .args(["--records", &records.to_string()])
        .log_to(bench.log("consume")))
}

fn run(
    bench: &Bench,
    kafka: &Kafka,
    events: &Events,
    consumed: Consumed,
    dir: Option<&Path>,
    redis: Option<SocketAddr>,
) -> Result<Cost> {
    let mut launch = launch(bench, &kafka.address(), (events.topic, events.records), consumed)?;
    if let Some(dir) = dir {
        launch = launch.args(["--dir".as_ref(), dir.as_os_str()]);
    }
    if let Some(redis) = redis {
        launch = launch.args(["--redis", &redis.to_string()]);
    }
    Ok(serde_json::from_str(&launch.output(LIMIT)?)?)
}
