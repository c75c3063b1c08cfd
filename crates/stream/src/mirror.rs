//! The changes of a store to a topic of Kafka: one message per change, keyed, without a value for a deletion.
//!
//! Changes are written in transactions, each of which ends at a position. Messages have the position after their change and a number
//! that grows, as headers. So the last position is read back from the ends of the topic's partitions: a mirror that is killed continues
//! after the last transaction that was committed, and consumers that read what is committed get each change once. A second mirror of the
//! same store to the same topic ends the first one.
//!
//! | header | value |
//! |---|---|
//! | `fondaco-position` | where to continue after the change; of a versioned store only in the last message of a transaction |
//! | `fondaco-sequence` | a number that grows with each change, in decimal digits |
//! | `fondaco-version` | the version of the change |
//! | `event-time` | the time of its event, in milliseconds since 1970, if it has one: the topic can be the stream of a hybrid store |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedHeaders, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::error::StreamError;
use crate::kafka::{BaseConsumer, KafkaCluster, Reading, Refusals, TIME_HEADER, named, of_consumers};
use crate::source::Source;
use crate::versions::TopicAddress;

const POSITION_HEADER: &str = "fondaco-position";
const SEQUENCE_HEADER: &str = "fondaco-sequence";
const VERSION_HEADER: &str = "fondaco-version";

/// How long brokers may take for a question or a transaction.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// How many offsets before the end of a partition its last message is looked for at first: markers of transactions have offsets, too.
const TAIL_MIN: i64 = 64;
/// The factor by which the search goes further back while no message with a position is found.
const TAIL_GROWTH: i64 = 16;

/// A change, as it is written.
#[derive(Debug, Clone, Copy)]
pub struct Mirrored<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value; `None` if it was deleted.
    pub value: Option<&'a [u8]>,
    /// The version that has it.
    pub version: u64,
    /// The time of its event, in milliseconds since 1970.
    pub time_unix_ms: Option<u64>,
    /// Where to continue after it; empty if only a later change of the same transaction can be continued.
    pub position: &'a str,
}

/// A topic that the changes of a store are written to.
pub struct MirrorTopic {
    topic: TopicAddress,
    producer: BaseProducer,
    /// The number of the last change.
    sequence: u64,
}

/// Why changes are not written to a topic.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// There is no such topic.
    #[error("there is no topic {topic}: create it")]
    NoTopic {
        /// The topic.
        topic: TopicAddress,
    },

    /// The topic has messages of another producer.
    #[error(
        "topic {topic} has messages that no mirror has written: mirror the store to a topic of its own, or begin there all the same, with \
         --restart"
    )]
    Foreign {
        /// The topic.
        topic: TopicAddress,
    },

    /// Another mirror has taken over.
    #[error("another mirror of the store has begun to write to {topic}: this one ends")]
    Replaced {
        /// The topic.
        topic: TopicAddress,
    },

    /// The brokers refuse a message, and would refuse it again.
    #[error(
        "{topic} does not take the change at position {position}, of {bytes} bytes: {reason}; raise max.message.bytes of the topic"
    )]
    Refused {
        /// The topic.
        topic: TopicAddress,
        /// The position after it.
        position: String,
        /// The length of key and value.
        bytes: usize,
        /// The reason of the brokers.
        reason: String,
    },

    /// The brokers do not answer, or refuse.
    #[error("cannot write to {topic}: {reason}")]
    Unavailable {
        /// The topic.
        topic: TopicAddress,
        /// The reason.
        reason: String,
    },
}

impl MirrorError {
    /// Whether the mirror may succeed later, from the topic's last position on.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

impl MirrorTopic {
    /// Takes a topic over, and reads the last position from it; `None` if it is empty. `name` is that of the mirror: one that has the same
    /// name and writes to the topic ends. Messages of other producers are allowed if `allows_foreign`.
    ///
    /// # Errors
    /// [`MirrorError::NoTopic`], [`MirrorError::Foreign`], or [`MirrorError::Unavailable`].
    pub fn open(
        topic: &TopicAddress,
        properties: &BTreeMap<String, String>,
        name: &str,
        allows_foreign: bool,
    ) -> Result<(Self, Option<String>), MirrorError> {
        let unavailable = |error: KafkaError| MirrorError::Unavailable {
            topic: topic.clone(),
            reason: error.to_string(),
        };
        let cluster = Arc::new(KafkaCluster::new(&topic.brokers, properties));
        let partitions = cluster.topic(&topic.topic).partitions().map_err(|error| match error {
            StreamError::NoTopic { .. } => MirrorError::NoTopic { topic: topic.clone() },
            error => MirrorError::Unavailable {
                topic: topic.clone(),
                reason: error.to_string(),
            },
        })?;
        let mut config = ClientConfig::new();
        // As Java's producers assign keys.
        config.set("partitioner", "murmur2_random");
        config.set("message.max.bytes", "104857600");
        for (name, value) in properties {
            config.set(name, value);
        }
        config.set("bootstrap.servers", &topic.brokers);
        config.set("transactional.id", format!("fondaco-mirror-{name}-{}", topic.topic));
        config.set("enable.idempotence", "true");
        let producer: BaseProducer = config.create().map_err(unavailable)?;
        // Ends the transaction of a predecessor, so that the ends of partitions are known.
        producer.init_transactions(ANSWER_TIME_MAX).map_err(unavailable)?;
        let mut config = of_consumers(&topic.brokers, &[], properties);
        config.set("isolation.level", "read_committed");
        let consumer = config.create_with_context(Refusals::default()).map_err(unavailable)?;
        let consumer: Arc<BaseConsumer> = Arc::new(consumer);
        let (mut sequence, mut last) = (0, None);
        for partition in 0..partitions as i32 {
            match last_of(&consumer, &topic.topic, partition).map_err(unavailable)? {
                Tail::Empty => {}
                Tail::Foreign if allows_foreign => {}
                Tail::Foreign => return Err(MirrorError::Foreign { topic: topic.clone() }),
                Tail::Mirrored(number, position) => {
                    sequence = number.max(sequence);
                    last = last.max(position.map(|position| (number, position)));
                }
            }
        }
        let position = last.map(|(_, position)| position);
        let opened = Self {
            topic: topic.clone(),
            producer,
            sequence,
        };
        Ok((opened, position))
    }

    /// Writes changes in one transaction: all of them, or none.
    ///
    /// # Errors
    /// [`MirrorError::Replaced`], [`MirrorError::Refused`], or [`MirrorError::Unavailable`]: then it has to be opened again.
    pub fn write(&mut self, changes: &[Mirrored<'_>]) -> Result<(), MirrorError> {
        let begun = self.producer.begin_transaction();
        begun.map_err(|error| self.failed(&error))?;
        for change in changes {
            self.sequence += 1;
            self.send(change)?;
        }
        let committed = self.producer.commit_transaction(ANSWER_TIME_MAX);
        committed.map_err(|error| self.failed(&error))
    }

    fn send(&self, change: &Mirrored<'_>) -> Result<(), MirrorError> {
        let (sequence, version) = (self.sequence.to_string(), change.version.to_string());
        let time = change.time_unix_ms.map(|time_unix_ms| time_unix_ms.to_string());
        let mut headers = OwnedHeaders::new();
        for (name, text) in [
            (
                POSITION_HEADER,
                Some(change.position).filter(|position| !position.is_empty()),
            ),
            (SEQUENCE_HEADER, Some(&*sequence)),
            (VERSION_HEADER, Some(&*version)),
            (TIME_HEADER, time.as_deref()),
        ] {
            if let Some(text) = text {
                headers = headers.insert(Header {
                    key: name,
                    value: Some(text),
                });
            }
        }
        let mut record = BaseRecord::<[u8], [u8]>::to(&self.topic.topic)
            .key(change.key)
            .headers(headers);
        if let Some(value) = change.value {
            record = record.payload(value);
        }
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        loop {
            let (error, refused) = match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::QueueFull) if Instant::now() < deadline => {
                    self.producer.poll(Duration::from_millis(10));
                    record = refused;
                }
                Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
                    return Err(MirrorError::Refused {
                        topic: self.topic.clone(),
                        position: change.position.to_owned(),
                        bytes: change.key.len() + change.value.map_or(0, <[u8]>::len),
                        reason: error.to_string(),
                    });
                }
                _ => return Err(self.failed(&error)),
            }
        }
    }

    fn failed(&self, error: &KafkaError) -> MirrorError {
        let is_replaced = matches!(
            error.rdkafka_error_code(),
            Some(RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::InvalidProducerEpoch)
        );
        match is_replaced {
            true => MirrorError::Replaced {
                topic: self.topic.clone(),
            },
            false => MirrorError::Unavailable {
                topic: self.topic.clone(),
                reason: error.to_string(),
            },
        }
    }
}

/// The last message of a partition.
enum Tail {
    Empty,
    /// It is of another producer.
    Foreign,
    /// Its number, and its position if it has one: the last message of a transaction has.
    Mirrored(u64, Option<String>),
}

/// Reads the last committed message of a partition.
fn last_of(consumer: &Arc<BaseConsumer>, topic: &str, partition: i32) -> Result<Tail, KafkaError> {
    let (first, end) = consumer.fetch_watermarks(topic, partition, ANSWER_TIME_MAX)?;
    let mut length = TAIL_MIN;
    loop {
        let from = first.max(end.saturating_sub(length));
        if from >= end {
            return Ok(Tail::Empty);
        }
        let reading = Reading::start(consumer, topic, partition, from.max(0) as u64)?;
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let mut last = None;
        loop {
            match reading.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => last = Some(tail_of(message.headers())),
                Some(Err(KafkaError::PartitionEOF(_))) => break,
                Some(Err(error)) => return Err(error),
                None if Instant::now() > deadline => {
                    return Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut));
                }
                None => {}
            }
        }
        match last {
            Some(last) => return Ok(last),
            None if from == first => return Ok(Tail::Empty),
            None => length *= TAIL_GROWTH,
        }
    }
}

fn tail_of(headers: Option<&BorrowedHeaders>) -> Tail {
    let text = |name: &str| {
        let (_, value) = named(headers?).find(|(known, _)| *known == name)?;
        str::from_utf8(value).ok().map(str::to_owned)
    };
    let sequence = text(SEQUENCE_HEADER).and_then(|text| text.parse().ok());
    match sequence {
        Some(sequence) => Tail::Mirrored(sequence, text(POSITION_HEADER)),
        None => Tail::Foreign,
    }
}
