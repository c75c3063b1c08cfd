//! Events to topics of a Kafka: one producer for all of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fondaco_model::{PartitionCount, Partitioner, Slot};
use parking_lot::Mutex;
use rdkafka::bindings::{rd_kafka_message_status, rd_kafka_msg_status_t};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, ProducerContext, ThreadedProducer};

use super::{OnWritten, StoreTopic, WriteError, Written};
use crate::event::{Change, Event, Poison, check_time};
use crate::kafka::{ID_HEADER, KafkaCluster, KafkaTopic, Refusals, TIME_HEADER, TYPE_HEADER, without_value};
use crate::source::Source;

/// How long the number of partitions of a topic is known, or why it is not.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// How long the brokers may take to acknowledge an event, in milliseconds.
const ACKNOWLEDGED_MS_MAX: &str = "5000";
/// How long to wait before another attempt to connect, in milliseconds: clients wait for it.
const RECONNECT_MS_MAX: &str = "1000";
/// How many events wait for brokers, in all topics.
const WAITING_MAX: &str = "100000";
/// How long they are together, in KiB.
const WAITING_KIB_MAX: &str = "65536";
/// The longest event: brokers have a limit of their own, as a rule a shorter one.
const EVENT_BYTES_MAX: &str = "69206016";

/// The topics of a Kafka.
pub(super) struct KafkaTopics {
    cluster: Arc<KafkaCluster>,
    config: ClientConfig,
    producer: OnceLock<ThreadedProducer<Deliveries>>,
    making: Mutex<()>,
    topics: Mutex<HashMap<String, Arc<Topic>>>,
}

/// A topic, and how many partitions it has.
struct Topic {
    source: KafkaTopic,
    counted: Mutex<Option<Counted>>,
    /// Held by the one thread that asks.
    asking: Mutex<()>,
}

/// The number of partitions, or why it is not known.
#[derive(Clone)]
struct Counted {
    at: Instant,
    partitions: Result<u32, String>,
}

/// An event that waits for its acknowledgement.
struct Waiting {
    topic: String,
    time_ms: Option<u64>,
    ahead_ms_max: u64,
    on_written: OnWritten,
}

/// Reports acknowledgements.
struct Deliveries(Refusals);

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.0.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<Waiting>;

    fn delivery(&self, result: &DeliveryResult<'_>, waiting: Box<Waiting>) {
        let Waiting {
            topic,
            time_ms,
            ahead_ms_max,
            on_written,
        } = *waiting;
        let written = match result {
            Ok(message) => {
                // Of the broker, if it gives records times of its own.
                let logged_ms = message.timestamp().to_millis().map(|ms| ms.max(0) as u64);
                match check_time(time_ms, logged_ms.unwrap_or(u64::MAX), ahead_ms_max) {
                    Ok(()) => Ok(Written {
                        partition: message.partition().max(0) as u32,
                        offset: message.offset().max(0) as u64,
                    }),
                    Err(Poison(reason)) => Err(WriteError::NoEvent { topic, reason }),
                }
            }
            Err((error, message)) => {
                // SAFETY: the message lives as long as the report, and the call only reads it.
                let status = unsafe { rd_kafka_message_status(message.ptr()) };
                let reason = self.0.reason(error);
                Err(match status {
                    rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_NOT_PERSISTED => {
                        WriteError::NotWritten { topic, reason }
                    }
                    _ => WriteError::Unknown { topic, reason },
                })
            }
        };
        on_written(written);
    }
}

impl KafkaTopics {
    pub(super) fn new(brokers: &str, properties: &BTreeMap<String, String>) -> Self {
        let mut properties = properties.clone();
        let backoff = properties.entry("reconnect.backoff.max.ms".to_owned());
        backoff.or_insert_with(|| RECONNECT_MS_MAX.to_owned());
        let mut config = ClientConfig::new();
        let defaults = [
            ("linger.ms", "1"),
            ("message.timeout.ms", ACKNOWLEDGED_MS_MAX),
            ("queue.buffering.max.messages", WAITING_MAX),
            ("queue.buffering.max.kbytes", WAITING_KIB_MAX),
            ("message.max.bytes", EVENT_BYTES_MAX),
            // As Java's producers assign keys.
            ("partitioner", "murmur2_random"),
        ];
        for (name, value) in defaults {
            config.set(name, value);
        }
        for (name, value) in &properties {
            config.set(name, value);
        }
        // All in-sync replicas have what is acknowledged, once, and in order.
        config.set("enable.idempotence", "true");
        config.set("bootstrap.servers", brokers);
        Self {
            cluster: Arc::new(KafkaCluster::new(brokers, &properties)),
            config,
            producer: OnceLock::new(),
            making: Mutex::default(),
            topics: Mutex::default(),
        }
    }

    /// Whether the partitions of a topic were counted a moment ago.
    pub(super) fn is_known(&self, topic: &str) -> bool {
        let found = self.topics.lock().get(topic).cloned();
        found.is_some_and(|topic| topic.known().is_some()) && self.producer.get().is_some()
    }

    pub(super) fn write(&self, name: &str, of_store: &StoreTopic, slot: Slot, event: Event, on_written: OnWritten) {
        let not_written = |reason: String| WriteError::NotWritten {
            topic: name.to_owned(),
            reason,
        };
        let topic = {
            let mut topics = self.topics.lock();
            let new = || Arc::new(Topic::new(self.cluster.topic(name)));
            Arc::clone(topics.entry(name.to_owned()).or_insert_with(new))
        };
        let prepared = topic
            .partitions()
            .and_then(|partitions| partition_of(of_store.partitioner, slot, partitions))
            .and_then(|partition| Ok((partition, self.producer()?)));
        let (partition, producer) = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => return on_written(Err(not_written(reason))),
        };
        let waiting = Box::new(Waiting {
            topic: name.to_owned(),
            time_ms: event.time_ms,
            ahead_ms_max: of_store.clock_ahead_ms,
            on_written,
        });
        let mut record = BaseRecord::<[u8], [u8], _>::with_opaque_to(name, waiting).key(&event.key);
        record.partition = partition;
        record.headers = Some(headers(&event));
        record.payload = match &event.change {
            Change::Put(value) | Change::Update(value) => Some(value),
            Change::Delete => None,
        };
        if let Err((error, record)) = producer.send(record) {
            let Waiting { topic, on_written, .. } = *record.delivery_opaque;
            on_written(Err(match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::QueueFull) => WriteError::Full { topic },
                _ => not_written(error.to_string()),
            }));
        }
    }

    fn producer(&self) -> Result<&ThreadedProducer<Deliveries>, String> {
        if let Some(producer) = self.producer.get() {
            return Ok(producer);
        }
        let _making = self.making.lock();
        if self.producer.get().is_none() {
            let made = self.config.create_with_context(Deliveries(Refusals::default()));
            let made = made.map_err(|error| without_value(&error))?;
            // Nothing else sets it while this lock is held.
            let _ = self.producer.set(made);
        }
        self.producer.get().ok_or_else(|| "there is no producer".to_owned())
    }
}

impl Topic {
    fn new(source: KafkaTopic) -> Self {
        Self {
            source,
            counted: Mutex::default(),
            asking: Mutex::default(),
        }
    }

    /// The last answer, if it is not too old.
    fn known(&self) -> Option<Result<u32, String>> {
        let counted = self.counted.lock();
        let fresh = counted.as_ref().filter(|counted| counted.at.elapsed() < KNOWN_FOR);
        fresh.map(|counted| counted.partitions.clone())
    }

    /// How many partitions it has. One thread asks the brokers; others take the last answer meanwhile.
    fn partitions(&self) -> Result<u32, String> {
        if let Some(known) = self.known() {
            return known;
        }
        let last = self.counted.lock().clone();
        let _asking = match (self.asking.try_lock(), last) {
            (Some(asking), _) => asking,
            (None, Some(last)) => return last.partitions,
            (None, None) => self.asking.lock(),
        };
        if let Some(known) = self.known() {
            return known;
        }
        let partitions = self.source.partitions().map_err(|error| error.to_string());
        *self.counted.lock() = Some(Counted {
            at: Instant::now(),
            partitions: partitions.clone(),
        });
        partitions
    }
}

/// The partition that nodes expect a key in; `None` if any will do.
fn partition_of(partitioner: Partitioner, slot: Slot, partitions: u32) -> Result<Option<i32>, String> {
    match partitioner {
        Partitioner::Any => Ok(None),
        Partitioner::Store => match PartitionCount::try_from(partitions) {
            Ok(count) => Ok(Some(count.partition_of(slot).get() as i32)),
            Err(_) => Err(format!(
                "it has {partitions} partitions, and the partitioner store needs a power of two, from 1 to 16384"
            )),
        },
    }
}

fn headers(event: &Event) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new();
    if let Some(time_ms) = event.time_ms {
        headers = headers.insert(Header {
            key: TIME_HEADER,
            value: Some(&time_ms.to_string()),
        });
    }
    if let Some(id) = &event.id {
        headers = headers.insert(Header {
            key: ID_HEADER,
            value: Some(&id[..]),
        });
    }
    if let Change::Update(_) = event.change {
        headers = headers.insert(Header {
            key: TYPE_HEADER,
            value: Some("update"),
        });
    }
    headers
}
