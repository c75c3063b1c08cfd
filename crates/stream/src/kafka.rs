//! Topics of Kafka, read with librdkafka.
//!
//! Whatever the number of stores, a Kafka has a few consumers, each of which reads many partitions, each at one
//! place. Those who read the same partition at different places, as two versions of a store do, are with different
//! consumers: so there are as many as the most readers that any partition has. Consumers are in no group: partitions
//! are assigned by us, and offsets kept with the data.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{self, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{Offset, TopicPartitionList};

use crate::error::StreamError;
use crate::event::{Change, Event, Poison};
use crate::source::{Batch, Logged, Source};

/// The header with the time of an event: milliseconds since 1970, in decimal digits.
pub const TIME_HEADER: &str = "event-time";
/// The header with the identifier of an event.
pub const ID_HEADER: &str = "event-id";
/// The header with the type of an event: `update`, if the record's value is one.
pub const TYPE_HEADER: &str = "event-type";

/// How often a partition is assigned whose first records come too early.
const ASSIGNED_MAX: usize = 10;
/// How long a question to a broker may take.
const ASK_MAX: Duration = Duration::from_secs(2);
/// For how long nothing is asked after a question had no answer.
const DOWN: Duration = Duration::from_secs(5);
/// For how long the number of a topic's partitions is known.
const COUNTED_FOR: Duration = Duration::from_secs(30);
/// How long a partition that is not at its end is read without asking where that is.
const END_KNOWN_FOR: Duration = Duration::from_secs(5);
/// How long a partition that nobody reads stays with its consumer.
const UNUSED_MAX: Duration = Duration::from_secs(60);

/// Logs what librdkafka says, but not the ends of partitions.
pub(crate) struct Logging;

impl ClientContext for Logging {
    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF) {
            tracing::warn!(%error, reason, "Kafka");
        }
    }
}

impl ConsumerContext for Logging {}

type BaseConsumer = consumer::BaseConsumer<Logging>;

/// A Kafka: one or more brokers.
pub struct KafkaCluster {
    config: ClientConfig,
    state: Mutex<State>,
    /// Held while a partition is assigned to a consumer.
    assigning: Mutex<()>,
    /// Until when nothing is asked, and why.
    down: Mutex<Option<(Instant, String)>>,
}

#[derive(Default)]
struct State {
    consumers: Vec<Arc<BaseConsumer>>,
    /// Each reader's place, and its consumer; none while it is being read.
    places: HashMap<PlaceName, (usize, Option<Place>)>,
}

/// A reader, a topic and a partition.
type PlaceName = (u64, String, i32);

/// Where a reader is in a partition.
struct Place {
    /// The consumer that reads it.
    consumer: usize,
    queue: PartitionQueue<Logging>,
    next: u64,
    end: u64,
    /// When the end was seen.
    end_at: Option<Instant>,
    /// Whether there was an error after records: librdkafka says it once, and may fetch no more.
    is_broken: bool,
    used: Instant,
}

/// A topic of a Kafka.
pub struct KafkaTopic {
    cluster: Arc<KafkaCluster>,
    topic: String,
    counted: Mutex<Option<(Instant, u32)>>,
}

impl KafkaCluster {
    /// The Kafka with these brokers (`host:port`, separated by commas), and these properties of librdkafka.
    pub fn new(brokers: &str, properties: &BTreeMap<String, String>) -> Self {
        let mut config = ClientConfig::new();
        config.set("queued.max.messages.kbytes", "16384");
        config.set("fetch.wait.max.ms", "100");
        for (name, value) in properties {
            config.set(name, value);
        }
        // What the rest relies on.
        config.set("bootstrap.servers", brokers);
        config.set("group.id", "fondaco");
        config.set("enable.auto.commit", "false");
        config.set("enable.partition.eof", "true");
        config.set("auto.offset.reset", "error");
        Self {
            config,
            state: Mutex::default(),
            assigning: Mutex::default(),
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
        let mut state = self.state.lock();
        if let Some(consumer) = state.consumers.get(number) {
            return Ok(Arc::clone(consumer));
        }
        let consumer: BaseConsumer = self
            .config
            .create_with_context(Logging)
            .map_err(|error| unavailable(topic, &error))?;
        state.consumers.push(Arc::new(consumer));
        Ok(Arc::clone(&state.consumers[state.consumers.len() - 1]))
    }

    /// Asks a broker, unless one has not answered a moment ago.
    fn ask<T>(
        &self,
        topic: &str,
        question: impl FnOnce(&BaseConsumer) -> Result<T, KafkaError>,
    ) -> Result<T, StreamError> {
        let consumer = self.consumer(0, topic)?;
        if let Some((until, reason)) = &*self.down.lock()
            && Instant::now() < *until
        {
            return Err(StreamError::Unavailable {
                topic: topic.to_owned(),
                reason: reason.clone(),
            });
        }
        match question(&consumer) {
            Ok(answer) => {
                *self.down.lock() = None;
                Ok(answer)
            }
            Err(error) => {
                *self.down.lock() = Some((Instant::now() + DOWN, error.to_string()));
                Err(unavailable(topic, &error))
            }
        }
    }

    /// Takes the place of a reader, at an offset, until it is put back or given up.
    fn take(&self, name: &PlaceName, offset: u64) -> Result<Place, StreamError> {
        let known = self
            .state
            .lock()
            .places
            .get_mut(name)
            .and_then(|(_, place)| place.take());
        if let Some(place) = known {
            if place.next == offset {
                return Ok(place);
            }
            self.give_up(name)?;
        }
        let (_, topic, partition) = name;
        let number = {
            let mut state = self.state.lock();
            let others = state
                .places
                .iter()
                .filter(|((_, known, at), _)| known == topic && at == partition);
            let taken: Vec<usize> = others.map(|(_, (consumer, _))| *consumer).collect();
            let number = (0..).find(|number| !taken.contains(number)).unwrap_or(0);
            state.places.insert(name.clone(), (number, None));
            number
        };
        let assigned = self.assign(number, topic, *partition, offset);
        if assigned.is_err() {
            self.state.lock().places.remove(name);
        }
        Ok(Place {
            consumer: number,
            queue: assigned?,
            next: offset,
            end: offset,
            end_at: None,
            is_broken: false,
            used: Instant::now(),
        })
    }

    fn assign(
        &self,
        number: usize,
        topic: &str,
        partition: i32,
        offset: u64,
    ) -> Result<PartitionQueue<Logging>, StreamError> {
        let consumer = self.consumer(number, topic)?;
        let mut list = TopicPartitionList::new();
        let at = Offset::Offset(i64::try_from(offset).unwrap_or(i64::MAX));
        let failed = |error: KafkaError| unavailable(topic, &error);
        list.add_partition_offset(topic, partition, at).map_err(failed)?;
        let _assigning = self.assigning.lock();
        for _ in 0..ASSIGNED_MAX {
            consumer.incremental_assign(&list).map_err(failed)?;
            let queue = consumer.split_partition_queue(topic, partition);
            let queue = queue.ok_or_else(|| StreamError::NoTopic {
                topic: topic.to_owned(),
            })?;
            // Records that came before the queue was split off are in that of the whole consumer, ahead of all others.
            let mut is_whole = true;
            while let Some(found) = consumer.poll(Duration::ZERO) {
                is_whole &= !found.is_ok_and(|found| found.topic() == topic && found.partition() == partition);
            }
            if is_whole {
                return Ok(queue);
            }
            drop(queue);
            consumer.incremental_unassign(&list).map_err(failed)?;
        }
        Err(StreamError::Unavailable {
            topic: topic.to_owned(),
            reason: format!("the records of partition {partition} come before it was begun"),
        })
    }

    /// Gives up the place of a reader.
    fn give_up(&self, name: &PlaceName) -> Result<(), StreamError> {
        let (_, topic, partition) = name;
        let Some((number, place)) = self.state.lock().places.remove(name) else {
            return Ok(());
        };
        // Its queue goes first.
        drop(place);
        let consumer = self.consumer(number, topic)?;
        let mut list = TopicPartitionList::new();
        list.add_partition(topic, *partition);
        consumer
            .incremental_unassign(&list)
            .map_err(|error| unavailable(topic, &error))
    }

    /// Puts the place of a reader back, and gives up those that have not been used for long.
    fn put_back(&self, name: &PlaceName, mut place: Place) {
        let now = Instant::now();
        place.used = now;
        let unused: Vec<PlaceName> = {
            let mut state = self.state.lock();
            if let Some((_, back)) = state.places.get_mut(name) {
                *back = Some(place);
            }
            let is_unused = |place: &Option<Place>| place.as_ref().is_some_and(|place| now - place.used > UNUSED_MAX);
            let unused = state.places.iter().filter(|(_, (_, place))| is_unused(place));
            unused.map(|(name, _)| name.clone()).collect()
        };
        for name in unused {
            if let Err(error) = self.give_up(&name) {
                tracing::warn!(%error, "a partition that nobody reads cannot be given up");
            }
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
        if let Some((at, count)) = *self.counted.lock()
            && at.elapsed() < COUNTED_FOR
        {
            return Ok(count);
        }
        let ask = |consumer: &BaseConsumer| consumer.fetch_metadata(Some(&self.topic), ASK_MAX);
        let metadata = self.cluster.ask(&self.topic, ask)?;
        let found = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        let found = found.filter(|topic| topic.error().is_none() && !topic.partitions().is_empty());
        let found = found.ok_or_else(|| StreamError::NoTopic {
            topic: self.topic.clone(),
        })?;
        let count = found.partitions().len() as u32;
        *self.counted.lock() = Some((Instant::now(), count));
        Ok(count)
    }

    fn offset_at(&self, partition: u32, time_ms: u64) -> Result<u64, StreamError> {
        let number = self.number(partition)?;
        let mut list = TopicPartitionList::new();
        let time = Offset::Offset(i64::try_from(time_ms).unwrap_or(i64::MAX));
        list.add_partition_offset(&self.topic, number, time)
            .map_err(|error| unavailable(&self.topic, &error))?;
        let ask = |consumer: &BaseConsumer| consumer.offsets_for_times(list, ASK_MAX);
        let found = self.cluster.ask(&self.topic, ask)?;
        let found = found.find_partition(&self.topic, number);
        match found.map(|found| (found.error(), found.offset())) {
            Some((Ok(()), Offset::Offset(offset))) => Ok(offset.max(0) as u64),
            Some((Err(error), _)) => Err(unavailable(&self.topic, &error)),
            // No record is as late.
            Some((Ok(()), _)) | None => Ok(self.watermarks(number)?.1),
        }
    }

    fn read(&self, reader: u64, partition: u32, offset: u64, bytes_max: usize) -> Result<Batch, StreamError> {
        let number = self.number(partition)?;
        let name = (reader, self.topic.clone(), number);
        let mut place = self.cluster.take(&name, offset)?;
        let read = self.read_at(&mut place, number, bytes_max);
        match &read {
            Ok(batch) if !place.is_broken => {
                place.next = batch.next;
                self.cluster.put_back(&name, place);
            }
            // It begins anew, and meets the error again.
            Ok(_) | Err(_) => {
                drop(place);
                self.cluster.give_up(&name)?;
            }
        }
        read
    }
}

impl KafkaTopic {
    fn read_at(&self, place: &mut Place, partition: i32, bytes_max: usize) -> Result<Batch, StreamError> {
        let mut batch = Batch {
            records: Vec::new(),
            next: place.next,
            end: place.end,
        };
        let mut bytes = 0;
        while bytes < bytes_max {
            match place.queue.poll(Duration::ZERO) {
                None => break,
                Some(Ok(message)) => {
                    let record = logged(&message);
                    bytes += message.key_len() + message.payload_len() + 64;
                    batch.next = record.offset + 1;
                    batch.records.push(record);
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    batch.end = batch.next;
                    place.end_at = Some(Instant::now());
                    break;
                }
                Some(Err(_)) if !batch.records.is_empty() => {
                    place.is_broken = true;
                    break;
                }
                Some(Err(error)) => return Err(self.failed(&error, place.next, partition)),
            }
        }
        // Events of the whole consumer: its connections, above all.
        let consumer = self.cluster.consumer(place.consumer, &self.topic)?;
        match consumer.poll(Duration::ZERO) {
            Some(Err(error)) if batch.records.is_empty() => return Err(unavailable(&self.topic, &error)),
            _ => {}
        }
        let is_known = place.end_at.is_some_and(|at| at.elapsed() < END_KNOWN_FOR);
        if batch.next > batch.end || !is_known {
            batch.end = self.watermarks(partition)?.1.max(batch.next);
            place.end_at = Some(Instant::now());
        }
        place.end = batch.end;
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
            Ok(_) => unavailable(&self.topic, error),
            Err(error) => error,
        }
    }
}

fn logged(message: &BorrowedMessage<'_>) -> Logged {
    Logged {
        offset: message.offset().max(0) as u64,
        logged_ms: message.timestamp().to_millis().unwrap_or(0).max(0) as u64,
        event: event(message).map_err(Poison),
    }
}

fn event(message: &BorrowedMessage<'_>) -> Result<Event, String> {
    let key = message.key().ok_or("the record has no key")?;
    let (mut time_ms, mut id, mut is_update) = (None, None, false);
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    for header in headers {
        let bytes = header.value.unwrap_or_default();
        match header.key {
            TIME_HEADER => {
                let time = str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
                let no_time = || format!("the header {TIME_HEADER} is no number of milliseconds since 1970");
                time_ms = Some(time.ok_or_else(no_time)?);
            }
            ID_HEADER => id = Some(Bytes::copy_from_slice(bytes)),
            TYPE_HEADER if bytes == b"update" => is_update = true,
            TYPE_HEADER => {
                let found = String::from_utf8_lossy(bytes);
                return Err(format!(
                    "the header {TYPE_HEADER} is {found:?}: it can only be \"update\""
                ));
            }
            _ => {}
        }
    }
    let value = message.payload().map(Bytes::copy_from_slice);
    let change = match (is_update, value) {
        (false, value) => Change::of(value),
        (true, Some(text)) => Change::Update(text),
        (true, None) => return Err("an update without a value".to_owned()),
    };
    let key = Bytes::copy_from_slice(key);
    Ok(Event {
        key,
        change,
        time_ms,
        id,
    })
}

fn unavailable(topic: &str, error: &KafkaError) -> StreamError {
    StreamError::Unavailable {
        topic: topic.to_owned(),
        reason: error.to_string(),
    }
}
