//! Writes events to the topics of hybrid stores, for clients of Redis.
//!
//! A process has one producer for each Kafka, whichever stores have topics there: librdkafka collects the events of a moment in
//! one request. An event is acknowledged once all in-sync replicas of its topic partition have it. An error says whether the
//! event may have been written all the same.

mod kafka;
mod times;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fondaco_model::{Partitioner, Slot, StreamSource};
use parking_lot::Mutex;

use self::kafka::KafkaTopics;
use self::times::EventTimes;
use crate::error::StreamError;
use crate::event::{Change, Event};
use crate::log::EventLog;

/// The topics of a process's stores, to be written to.
#[derive(Default)]
pub struct EventWriters {
    log: Option<Arc<EventLog>>,
    /// The properties of librdkafka.
    properties: BTreeMap<String, String>,
    /// By the brokers.
    kafka: Mutex<BTreeMap<String, Arc<KafkaTopics>>>,
    times: EventTimes,
}

/// The topic of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreTopic {
    /// Its address.
    pub source: StreamSource,
    /// Its name, if it is in the log of the process.
    pub log_topic: String,
    /// The rule that assigns records to its partitions.
    pub partitioner: Partitioner,
    /// How much later than its record an event may be, in milliseconds.
    pub clock_ahead_ms: u64,
}

/// The place of an event that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The partition of the topic.
    pub partition: u32,
    /// The offset there.
    pub offset: u64,
}

/// Why an event was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Nothing was written.
    #[error("the event was not written to topic {topic:?}: {reason}")]
    NotWritten {
        /// The topic.
        topic: String,
        /// Why.
        reason: String,
    },
    /// Too many events wait for the brokers. Nothing was written.
    #[error(
        "the event was not written to topic {topic:?}: too many events wait for its brokers; send fewer at a time, or again in a moment"
    )]
    Full {
        /// The topic.
        topic: String,
    },
    /// The event was written, and no node will count it.
    #[error("the event was written to topic {topic:?}, and does not count: {reason}")]
    NoEvent {
        /// The topic.
        topic: String,
        /// Why.
        reason: String,
    },
    /// The event may have been written, and may take effect later.
    #[error("the event may have been written to topic {topic:?}, and may take effect later: {reason}")]
    Unknown {
        /// The topic.
        topic: String,
        /// Why.
        reason: String,
    },
}

/// Called once with the outcome of a write, on any thread.
pub type OnWritten = Box<dyn FnOnce(Result<Written, WriteError>) + Send + Sync>;

impl fmt::Debug for EventWriters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Properties may be passwords.
        f.debug_struct("EventWriters").finish_non_exhaustive()
    }
}

impl EventWriters {
    /// Topics in this log, and in any Kafka, with these properties of librdkafka.
    pub fn new(log: Option<Arc<EventLog>>, properties: BTreeMap<String, String>) -> Self {
        Self {
            log,
            properties,
            ..Self::default()
        }
    }

    /// An event of a key that happens now: later than all events of the key that this process has made for this topic, unless both
    /// only add to numbers. At equal times the last of two values would not count.
    pub fn event(&self, topic: &StoreTopic, key: bytes::Bytes, change: Change, now_ms: u64) -> Event {
        let is_sum = matches!(&change, Change::Update(text) if is_sum(text));
        Event {
            time_ms: Some(self.times.next(&key, is_sum, now_ms, topic.clock_ahead_ms)),
            // The brokers may log a copy of it again.
            id: matches!(change, Change::Update(_)).then(|| self.times.id()),
            key,
            change,
        }
    }

    /// Whether [`write`](Self::write) does not wait for a disk or a network now.
    pub fn is_prompt(&self, topic: &StoreTopic) -> bool {
        match &topic.source {
            StreamSource::Log(_) => false,
            StreamSource::Kafka { brokers, topic, .. } => {
                let topics = self.kafka.lock().get(brokers).cloned();
                topics.is_some_and(|topics| topics.is_known(topic))
            }
        }
    }

    /// Writes an event to the partition of the topic in which nodes expect it. May wait for a disk or a network, unless it is
    /// [prompt](Self::is_prompt), but not for the acknowledgement.
    pub fn write(&self, topic: &StoreTopic, slot: Slot, event: Event, on_written: OnWritten, now_ms: u64) {
        match &topic.source {
            StreamSource::Log(partitions) => {
                let written = self.write_to_log(&topic.log_topic, *partitions, event, now_ms);
                on_written(written);
            }
            StreamSource::Kafka {
                brokers, topic: name, ..
            } => {
                let topics = {
                    let mut kafka = self.kafka.lock();
                    let topics = kafka.entry(brokers.clone());
                    Arc::clone(topics.or_insert_with(|| Arc::new(KafkaTopics::new(brokers, &self.properties))))
                };
                topics.write(name, topic, slot, event, on_written);
            }
        }
    }

    fn write_to_log(&self, topic: &str, partitions: u32, event: Event, now_ms: u64) -> Result<Written, WriteError> {
        let unknown = |error: StreamError| WriteError::Unknown {
            topic: topic.to_owned(),
            reason: error.to_string(),
        };
        let log = self.log.as_ref().ok_or_else(|| WriteError::NotWritten {
            topic: topic.to_owned(),
            reason: "this process has no log of events: it is not a cluster of its own".to_owned(),
        })?;
        let written = log.topic(topic, partitions).map_err(unknown)?;
        let written = written.append(&[event], now_ms).map_err(unknown)?;
        // One event has one place.
        let last = written.last().copied();
        last.ok_or_else(|| WriteError::NotWritten {
            topic: topic.to_owned(),
            reason: "it was empty".to_owned(),
        })
    }
}

fn is_sum(text: &[u8]) -> bool {
    fondaco_schema::Update::parse(text).is_ok_and(|update| update.is_sum())
}
