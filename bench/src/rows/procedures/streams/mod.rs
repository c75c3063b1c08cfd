//! Hybrid stores, whose events come from a Kafka on the same machine.

pub mod applied;
pub mod fresh;
pub mod many;

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fondaco_testing::Kafka;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::dataset::{Random, append_value, key};
use crate::machine::{disk, settled};
use crate::report::markdown::number;
use crate::rows::runner::Running;
use crate::rows::spec::Step;
use crate::servers::Wait;
use crate::servers::control::ControlPort;
use crate::servers::redis::connect;

/// The topic of a row with one, which it has from its first event on.
pub const TOPIC: &str = "events";
/// The number of partitions of a topic.
pub const PARTITIONS: i32 = 4;
/// How long a topic may take to be filled, or read.
const LIMIT: Duration = Duration::from_secs(300);
/// How many keys are compared with what was sent.
const COMPARED: u64 = 10_000;
/// How long to wait for room among the records that are on their way.
const ROOM_POLL: Duration = Duration::from_millis(5);

/// Writes events of numbered records to topics.
pub struct Writer {
    producer: BaseProducer,
    value: Vec<u8>,
}

impl Writer {
    pub fn new(kafka: &Kafka) -> Result<Self> {
        Ok(Self {
            producer: ClientConfig::new().set("bootstrap.servers", kafka.address()).create()?,
            value: Vec::new(),
        })
    }

    /// Sends an event that sets a record to its value.
    pub fn send_record(&mut self, topic: &str, partition: i32, record: u64, value_bytes: usize) -> Result<()> {
        self.value.clear();
        append_value(record, value_bytes, &mut self.value);
        self.send(topic, partition, &key(record), &self.value)
    }

    /// Sends such an event for each of these records, to the partitions of a topic in turn, and waits until all are there.
    pub fn send_all(&mut self, topic: &str, records: impl IntoIterator<Item = u64>, value_bytes: usize) -> Result<()> {
        for (record, partition) in records.into_iter().zip((0..PARTITIONS).cycle()) {
            self.send_record(topic, partition, record, value_bytes)?;
        }
        self.flush()
    }

    /// Sends an event that sets a key.
    fn send(&self, topic: &str, partition: i32, key: &[u8], value: &[u8]) -> Result<()> {
        let mut event = BaseRecord::to(topic).partition(partition).key(key).payload(value);
        loop {
            event = match self.producer.send(event) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), event)) => event,
                Err((error, _)) => bail!("an event cannot be sent to {topic:?}: {error}"),
            };
            self.producer.poll(ROOM_POLL);
        }
    }

    /// Waits until all events are in their topics.
    pub fn flush(&self) -> Result<()> {
        Ok(self.producer.flush(LIMIT)?)
    }
}

/// Sends events for a part of the row's records, up to the share of the first argument: of each record without an event one, or,
/// with the second argument, so many of random ones.
pub fn send_events(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let share: f64 = step.arguments.first().context("no share of the records")?.parse()?;
    let (records, value_bytes) = (
        (running.dataset.records as f64 * share) as u64,
        running.dataset.value_bytes,
    );
    let mut writer = Writer::new(running.kafka()?)?;
    running.kept.sent = match step.arguments.get(1) {
        Some(count) => {
            let count = if running.bench.quick { 100_000 } else { count.parse()? };
            let mut random = Random::new(running.round);
            writer.send_all(TOPIC, (0..count).map(|_| random.below(records)), value_bytes)?;
            running.figures.set("events", number(count as f64));
            running.kept.sent + count
        }
        None => {
            writer.send_all(TOPIC, running.kept.sent..records, value_bytes)?;
            records
        }
    };
    let process = running.fondaco()?.front().process();
    settled(|| process.cpu_time()).map(drop)
}

/// Has another process read all events that were sent so far, and drop them.
pub fn drop_events(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let brokers = running.kafka()?.address();
    applied::drop_records(running.bench, &brokers, TOPIC, running.kept.sent)
}

/// Lets a store that was paused go on, and waits until it has read all events: events per second.
pub fn apply_events(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let store = step.store.as_str();
    let (control, in_all) = (running.control()?, running.kept.sent);
    let before = events_read(control, store)?;
    let started = Instant::now();
    control.alter(store, &["--paused", "false"])?;
    let wait = Wait {
        limit: 3 * LIMIT,
        poll: Duration::from_millis(20),
    };
    wait.until("the store has read all events", || {
        Ok(events_read(control, store)? >= in_all)
    })?;
    let rate = (in_all - before) as f64 / started.elapsed().as_secs_f64();
    running.add("applied", "events/s", rate);
    Ok(())
}

/// Compares values of the row's store with what was sent, and records the size of the overlay on the disk.
pub fn overlay_size(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let (dataset, fondaco) = (running.dataset, running.fondaco()?);
    let mut connection = connect(fondaco.front().resp())?;
    let (mut random, mut expected) = (Random::new(7), Vec::new());
    for _ in 0..COMPARED {
        let record = random.below(dataset.records);
        expected.clear();
        append_value(record, dataset.value_bytes, &mut expected);
        let name = [format!("{}:", step.store).as_bytes(), &key(record)].concat();
        let found: Option<Vec<u8>> = redis::cmd("GET").arg(name).query(&mut connection)?;
        ensure!(found.as_ref() == Some(&expected), "record {record} is {found:?}");
    }
    let mut bytes = 0;
    disk::each_file(&fondaco.dir().join("versioned"), &mut |path| {
        // Files may be deleted meanwhile.
        bytes += fs::metadata(path).map_or(0, |found| found.len());
        Ok(())
    })?;
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    running.add("overlay", "MiB", mebibytes);
    let limits = running.spec.limit_bytes.context("no limit of memory")?;
    let limit_bytes = limits[usize::from(!running.bench.quick)];
    running.add("limit", "MiB", limit_bytes as f64 / f64::from(1 << 20));
    Ok(())
}

/// How many events the version of a hybrid store has read.
fn events_read(control: &ControlPort, store: &str) -> Result<u64> {
    let status = control.show(&format!("/v1/stores/{store}/stream"))?;
    let version = status["versions"].get(0).context("a hybrid store without a version")?;
    ensure!(version["error"].is_null(), "the stream cannot be read: {version}");
    let count = |name: &str| version[name].as_u64().unwrap_or(0);
    Ok(count("applied") + count("superseded"))
}
