//! Topics of Kafka, read with librdkafka.
//!
//! A Kafka cluster has a few consumers, however many stores there are. A consumer reads many partitions, each at one
//! position. Readers of the same partition at different positions, such as two versions of a store, use different
//! consumers. So there are as many consumers as the most readers that any partition has. Consumers are in no consumer
//! group: we choose the partitions, and keep the offsets with the data.

mod identity;
mod positions;
mod reading;
mod record;
mod refusal;

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::bindings::{rd_kafka_get_watermark_offsets, rd_kafka_resp_err_t};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{self, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use self::identity::identity_of;
use self::positions::{ReadPosition, ReaderKey};
pub(crate) use self::reading::Reading;
use self::record::logged;
pub(crate) use self::record::named;
pub(crate) use self::refusal::{Refusals, without_value};
use crate::alarm::Alarm;
use crate::error::StreamError;
use crate::source::{Batch, Source};

pub use self::record::{ID_HEADER, TIME_HEADER, TYPE_HEADER};

/// How many events of a whole consumer are taken at a time.
const EVENTS_MAX: usize = 16;
/// How long to wait for the reason why a broker has not answered.
const REFUSED_WAIT: Duration = Duration::from_millis(10);
/// How long a question to a broker may take.
const ASK_MAX: Duration = Duration::from_secs(2);
/// For how long nothing is asked after a question had no answer.
const DOWN: Duration = Duration::from_secs(5);
/// For how long the number of a topic's partitions is known.
const COUNTED_FOR: Duration = Duration::from_secs(5);
/// How long a partition that is not at its end is read without asking where that is.
const END_KNOWN_FOR: Duration = Duration::from_secs(5);

pub(crate) type BaseConsumer = consumer::BaseConsumer<Refusals>;

/// A Kafka: one or more brokers.
pub struct KafkaCluster {
    config: ClientConfig,
    refusals: Refusals,
    state: Mutex<State>,
    /// The client that asks questions: brokers answer in order, and those of a consumer wait for new records first.
    asking: Mutex<Option<Arc<BaseConsumer>>>,
    /// Until when nothing is asked, and why.
    down: Mutex<Option<(Instant, String)>>,
}

#[derive(Default)]
struct State {
    consumers: Vec<Arc<BaseConsumer>>,
    /// Each reader's position, and its consumer; none while it is being read.
    positions: HashMap<ReaderKey, (usize, Option<ReadPosition>)>,
}

/// A topic of a Kafka.
pub struct KafkaTopic {
    cluster: Arc<KafkaCluster>,
    topic: String,
    counted: Mutex<Option<Counted>>,
}

/// The metadata of a topic, as the brokers last reported it.
#[derive(Clone, Copy)]
struct Counted {
    at: Instant,
    partitions: u32,
    identity: Option<u128>,
}

impl KafkaCluster {
    /// Checks properties of librdkafka: their names, and their values as far as they can be wrong by themselves.
    ///
    /// # Errors
    /// The name of a property, and what is wrong with it. Values are left out: some are passwords.
    pub fn check(properties: &BTreeMap<String, String>) -> Result<(), String> {
        let mut config = ClientConfig::new();
        config.extend(properties.clone());
        let checked = config.create_native_config();
        checked.map(drop).map_err(|error| without_value(&error))
    }

    /// The Kafka with these brokers (`host:port`, separated by commas), and these properties of librdkafka.
    pub fn new(brokers: &str, properties: &BTreeMap<String, String>) -> Self {
        let defaults = [
            ("queued.max.messages.kbytes", "16384"),
            ("fetch.wait.max.ms", "100"),
            // How long a partition that is full is not fetched: by default a second, in which it may become empty.
            ("fetch.queue.backoff.ms", "20"),
        ];
        Self {
            config: of_consumers(brokers, &defaults, properties),
            refusals: Refusals::default(),
            state: Mutex::default(),
            asking: Mutex::default(),
            down: Mutex::default(),
        }
    }

    /// A topic.
    pub fn topic(self: &Arc<Self>, topic: &str) -> KafkaTopic {
        KafkaTopic {
            cluster: Arc::clone(self),
            topic: topic.to_owned(),
            counted: Mutex::default(),
        }
    }

    fn consumer(&self, number: usize, topic: &str) -> Result<Arc<BaseConsumer>, StreamError> {
        let consumers = &mut self.state.lock().consumers;
        while consumers.len() <= number {
            consumers.push(self.new_consumer(topic)?);
        }
        Ok(Arc::clone(&consumers[number]))
    }

    fn new_consumer(&self, topic: &str) -> Result<Arc<BaseConsumer>, StreamError> {
        let made = self.config.create_with_context(self.refusals.clone());
        made.map(Arc::new).map_err(|error| self.unavailable(topic, &error))
    }

    fn asking(&self, topic: &str) -> Result<Arc<BaseConsumer>, StreamError> {
        let mut asking = self.asking.lock();
        let consumer = match asking.take() {
            Some(known) => known,
            None => self.new_consumer(topic)?,
        };
        Ok(Arc::clone(asking.insert(consumer)))
    }

    /// Asks a broker, unless the last question got no answer within the last few seconds.
    fn ask<T>(
        &self,
        topic: &str,
        question: impl FnOnce(&BaseConsumer) -> Result<T, KafkaError>,
    ) -> Result<T, StreamError> {
        let consumer = self.asking(topic)?;
        if let Some((until, reason)) = &*self.down.lock()
            && Instant::now() < *until
        {
            return Err(StreamError::Unavailable {
                topic: topic.to_owned(),
                reason: reason.clone(),
            });
        }
        let answer = question(&consumer);
        // Its events would be kept otherwise; they are logged.
        while consumer.poll(Duration::ZERO).is_some() {}
        match answer {
            Ok(answer) => {
                *self.down.lock() = None;
                self.refusals.clear();
                Ok(answer)
            }
            Err(error) => {
                // librdkafka reports a refused connection to the next poll, behind lines of the log.
                self.poll(&consumer, REFUSED_WAIT);
                let reason = self.refusals.reason(&error);
                if is_no_answer(&error) {
                    *self.down.lock() = Some((Instant::now() + DOWN, reason.clone()));
                }
                Err(StreamError::Unavailable {
                    topic: topic.to_owned(),
                    reason,
                })
            }
        }
    }

    /// Takes events of a whole consumer: the errors of its connections, above all. Returns the last error.
    fn poll(&self, consumer: &BaseConsumer, wait: Duration) -> Option<KafkaError> {
        let polls = (0..EVENTS_MAX).map_while(|_| consumer.poll(wait));
        polls.filter_map(Result::err).last()
    }

    fn unavailable(&self, topic: &str, error: &KafkaError) -> StreamError {
        StreamError::Unavailable {
            topic: topic.to_owned(),
            reason: self.refusals.reason(error),
        }
    }
}

impl KafkaTopic {
    fn number(&self, partition: u32) -> Result<i32, StreamError> {
        i32::try_from(partition).map_err(|_| StreamError::NoPartition {
            topic: self.topic.clone(),
            partition,
            partitions: i32::MAX as u32,
        })
    }

    /// Asks where a partition begins and ends.
    fn watermarks(&self, partition: i32) -> Result<(u64, u64), StreamError> {
        let ask = |consumer: &BaseConsumer| consumer.fetch_watermarks(&self.topic, partition, ASK_MAX);
        let (first, end) = self.cluster.ask(&self.topic, ask)?;
        Ok((first.max(0) as u64, end.max(0) as u64))
    }
}

impl Source for KafkaTopic {
    fn partitions(&self) -> Result<u32, StreamError> {
        if let Some(counted) = *self.counted.lock()
            && counted.at.elapsed() < COUNTED_FOR
        {
            return Ok(counted.partitions);
        }
        let ask = |consumer: &BaseConsumer| consumer.fetch_metadata(Some(&self.topic), ASK_MAX);
        let metadata = self.cluster.ask(&self.topic, ask)?;
        let found = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        let partitions = found.map_or(0, |topic| topic.partitions().len()) as u32;
        let topic = self.topic.clone();
        match found.and_then(|topic| topic.error()).map(RDKafkaErrorCode::from) {
            None if partitions > 0 => {}
            None | Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition) => {
                return Err(StreamError::NoTopic { topic });
            }
            Some(RDKafkaErrorCode::TopicAuthorizationFailed) => return Err(StreamError::NotAllowed { topic }),
            Some(code) => {
                let error = KafkaError::MetadataFetch(code);
                return Err(self.cluster.unavailable(&topic, &error));
            }
        }
        // Without it, records of another topic could pass for those that follow what was read.
        let ask = |consumer: &BaseConsumer| identity_of(consumer, &self.topic, ASK_MAX);
        let identity = self.cluster.ask(&self.topic, ask)?;
        let at = Instant::now();
        *self.counted.lock() = Some(Counted {
            at,
            partitions,
            identity,
        });
        Ok(partitions)
    }

    fn identity(&self) -> Option<u128> {
        self.counted.lock().and_then(|counted| counted.identity)
    }

    fn offset_at(&self, partition: u32, time_ms: u64) -> Result<u64, StreamError> {
        let number = self.number(partition)?;
        // First: a record that is logged between the two questions must not be passed over.
        let (_, end) = self.watermarks(number)?;
        let mut list = TopicPartitionList::new();
        let time = Offset::Offset(i64::try_from(time_ms).unwrap_or(i64::MAX));
        list.add_partition_offset(&self.topic, number, time)
            .map_err(|error| self.cluster.unavailable(&self.topic, &error))?;
        let ask = |consumer: &BaseConsumer| consumer.offsets_for_times(list, ASK_MAX);
        let found = self.cluster.ask(&self.topic, ask)?;
        let found = found.find_partition(&self.topic, number);
        match found.map(|found| (found.error(), found.offset())) {
            Some((Ok(()), Offset::Offset(offset))) => Ok(offset.max(0) as u64),
            Some((Err(error), _)) => Err(self.cluster.unavailable(&self.topic, &error)),
            // No record is as late.
            Some((Ok(()), _)) | None => Ok(end),
        }
    }

    fn first(&self, partition: u32) -> Result<u64, StreamError> {
        Ok(self.watermarks(self.number(partition)?)?.0)
    }

    fn read(&self, reader: u64, partition: u32, offset: u64, bytes_max: usize) -> Result<Batch, StreamError> {
        let number = self.number(partition)?;
        let name = (reader, self.topic.clone(), number);
        let mut position = self.cluster.take(&name, offset)?;
        let read = self.read_at(&mut position, number, bytes_max);
        if position.is_broken {
            // It begins anew, and meets the error again.
            drop(position);
            self.cluster.give_up(&name);
        } else {
            position.next = read.as_ref().map_or(position.next, |batch| batch.next);
            self.cluster.put_back(&name, position);
        }
        read
    }

    fn watch(&self, reader: u64, partition: u32, alarm: &Arc<Alarm>) -> bool {
        let Ok(number) = self.number(partition) else {
            return false;
        };
        let name = (reader, self.topic.clone(), number);
        let mut state = self.cluster.state.lock();
        let Some((_, Some(position))) = state.positions.get_mut(&name) else {
            return false;
        };
        if !position.is_watched {
            let alarm = Arc::clone(alarm);
            position.reading.on_records(move || alarm.ring(reader, partition));
            position.is_watched = true;
            // Records may have come before.
            return false;
        }
        position.is_emptied
    }
}

impl KafkaTopic {
    /// Reads on. An error leaves a position at which nothing was taken, unless it is broken.
    fn read_at(&self, position: &mut ReadPosition, partition: i32, bytes_max: usize) -> Result<Batch, StreamError> {
        let mut batch = Batch {
            records: Vec::new(),
            next: position.next,
            end: position.end,
        };
        let consumer = self.cluster.consumer(position.consumer, &self.topic)?;
        let mut bytes = 0;
        position.is_emptied = false;
        while bytes < bytes_max {
            match position.reading.poll(Duration::ZERO) {
                None => {
                    position.is_emptied = true;
                    break;
                }
                Some(Ok(message)) => {
                    let record = logged(&message);
                    bytes += message.key_len() + message.payload_len() + 64;
                    batch.next = record.offset + 1;
                    batch.records.push(record);
                    position.marked_end = None;
                }
                // The queue is read on: the alarm is only rung for one that was empty.
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    batch.end = batch.next;
                    position.end_at = Some(Instant::now());
                    position.marked_end = last_known_end(&consumer, &self.topic, partition);
                }
                Some(Err(_)) if !batch.records.is_empty() => {
                    position.is_broken = true;
                    break;
                }
                Some(Err(error)) => {
                    position.is_broken = true;
                    return Err(self.failed(&error, position.next, partition));
                }
            }
        }
        match self.cluster.poll(&consumer, Duration::ZERO) {
            Some(error) if batch.records.is_empty() => {
                position.is_broken = true;
                return Err(self.cluster.unavailable(&self.topic, &error));
            }
            _ => {}
        }
        if batch.next > batch.end
            && let Some(end) = last_known_end(&consumer, &self.topic, partition)
        {
            batch.end = end;
            position.end_at = Some(Instant::now());
        }
        let is_known = position.end_at.is_some_and(|at| at.elapsed() < END_KNOWN_FOR);
        if batch.next > batch.end || !is_known {
            match self.watermarks(partition) {
                Ok((_, end)) => {
                    let is_read = position.marked_end.is_some_and(|marked| end <= marked);
                    batch.end = if is_read { batch.next } else { end.max(batch.next) };
                    position.end_at = Some(Instant::now());
                }
                Err(error) if batch.records.is_empty() => return Err(error),
                // There may be another record: the partition does not count as read to its end.
                Err(_) => batch.end = batch.end.max(batch.next + 1),
            }
        }
        position.end = batch.end;
        Ok(batch)
    }

    fn failed(&self, error: &KafkaError, offset: u64, partition: i32) -> StreamError {
        let is_lost = matches!(
            error,
            KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange)
        );
        match self.watermarks(partition) {
            Ok((first, end)) if is_lost && !(first..=end).contains(&offset) => StreamError::Lost {
                topic: self.topic.clone(),
                partition: partition as u32,
                offset,
                first,
                end,
            },
            Ok(_) => self.cluster.unavailable(&self.topic, error),
            Err(error) => error,
        }
    }
}

/// The properties of consumers: these defaults, properties that an operator has set, and what the rest relies on.
pub(crate) fn of_consumers(
    brokers: &str,
    defaults: &[(&str, &str)],
    properties: &BTreeMap<String, String>,
) -> ClientConfig {
    let mut config = ClientConfig::new();
    for (name, value) in defaults {
        config.set(*name, *value);
    }
    for (name, value) in properties {
        config.set(name, value);
    }
    config.set("bootstrap.servers", brokers);
    config.remove("group.id");
    config.set("enable.auto.commit", "false");
    config.set("enable.auto.offset.store", "false");
    config.set("enable.partition.eof", "true");
    config.set("auto.offset.reset", "error");
    config
}

/// Whether an error means that no broker has answered, rather than that a broker has refused something.
fn is_no_answer(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::OperationTimedOut
                | Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::Resolve
                | Code::SSL
                | Code::Authentication
                | Code::RequestTimedOut
        )
    )
}

/// The end of a partition that the broker sent with the last records, if any.
fn last_known_end(consumer: &BaseConsumer, topic: &str, partition: i32) -> Option<u64> {
    let topic = CString::new(topic).ok()?;
    let (mut first, mut end) = (-1, -1);
    // SAFETY: the client lives as long as the consumer, the text ends with a zero, and librdkafka writes to the two
    // numbers before it returns.
    let error = unsafe {
        let client = consumer.client().native_ptr();
        rd_kafka_get_watermark_offsets(client, topic.as_ptr(), partition, &mut first, &mut end)
    };
    let is_known = error == rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
    is_known.then_some(end)?.try_into().ok()
}
