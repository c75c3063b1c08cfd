//! Hybrid stores, whose events come from a Kafka on the same machine.

pub mod applied;
pub(super) mod fresh;
pub(super) mod large;
pub(super) mod many;
pub(super) mod reads;
pub(super) mod tail;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fondaco_testing::Kafka;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::dataset::{append_value, key};
use crate::servers::cluster::Wait;
use crate::servers::control::ControlPort;

/// The number of partitions of a topic.
const PARTITIONS: i32 = 4;
/// How long a topic may take to be filled, or read.
const LIMIT: Duration = Duration::from_secs(300);
/// How long to wait for room among the records that are on their way.
const ROOM_POLL: Duration = Duration::from_millis(5);

/// Writes events of numbered records to topics.
pub(super) struct Writer {
    producer: BaseProducer,
    value: Vec<u8>,
}

impl Writer {
    pub(super) fn new(kafka: &Kafka) -> Result<Self> {
        Ok(Self {
            producer: ClientConfig::new().set("bootstrap.servers", kafka.address()).create()?,
            value: Vec::new(),
        })
    }

    /// Sends an event that sets a record to its value.
    pub(super) fn send_record(&mut self, topic: &str, partition: i32, record: u64, value_bytes: usize) -> Result<()> {
        self.value.clear();
        append_value(record, value_bytes, &mut self.value);
        self.send(topic, partition, &key(record), &self.value)
    }

    /// Sends such an event for each of these records, to the partitions of a topic in turn, and waits until all are there.
    pub(super) fn send_all(
        &mut self,
        topic: &str,
        records: impl IntoIterator<Item = u64>,
        value_bytes: usize,
    ) -> Result<()> {
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
    pub(super) fn flush(&self) -> Result<()> {
        Ok(self.producer.flush(LIMIT)?)
    }
}

/// Creates a hybrid store on a topic, without a version.
fn create(control: &ControlPort, store: &str, kafka: &Kafka, topic: &str) -> Result<()> {
    create_on("log", control, store, kafka, topic)
}

/// The same, with this engine.
fn create_on(engine: &str, control: &ControlPort, store: &str, kafka: &Kafka, topic: &str) -> Result<()> {
    let source = format!("kafka://{}/{topic}", kafka.address());
    control.create_hybrid(store, &["--stream", &source, "--rewind", "1h", "--engine", engine])
}

/// Waits until the version of a hybrid store has read so many events.
fn wait_until_read(control: &ControlPort, store: &str, events: u64) -> Result<()> {
    wait_until_read_for(control, store, events, LIMIT)
}

/// The same, for at most so long.
fn wait_until_read_for(control: &ControlPort, store: &str, events: u64, limit: Duration) -> Result<()> {
    let wait = Wait {
        limit,
        poll: Duration::from_millis(20),
    };
    wait.until("the store has read all events", || {
        Ok(events_read(control, store)? >= events)
    })
}

/// How many events the version of a hybrid store has read.
fn events_read(control: &ControlPort, store: &str) -> Result<u64> {
    let status = control.show(&format!("/v1/stores/{store}/stream"))?;
    let version = status["versions"].get(0).context("a hybrid store without a version")?;
    ensure!(version["error"].is_null(), "the stream cannot be read: {version}");
    let count = |name: &str| version[name].as_u64().unwrap_or(0);
    Ok(count("applied") + count("superseded"))
}
