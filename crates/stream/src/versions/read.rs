//! Reads a version from a topic.
//!
//! Each open file has a consumer of its own, which reads from the offset of its next piece. Consumers of files that are
//! closed are used again.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_format::{Checksum, Manifest};
use parking_lot::Mutex;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message};

use super::error::VersionTopicError;
use super::record::{End, Extent, INDEX, Index, Keys, records_of};
use super::{TopicAddress, VersionAddress};
use crate::kafka::{BaseConsumer, Reading, Refusals, of_consumers, without_value};

/// How long a file may give nothing.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long records are waited for before the consumer is asked for errors of its connections.
const TURN: Duration = Duration::from_millis(100);
/// How long a question to a broker may take.
const ASK_MAX: Duration = Duration::from_secs(2);
/// The longest end, in bytes.
const END_BYTES_MAX: usize = 64 << 10;
/// The longest index, in bytes: of a million files.
const INDEX_BYTES_MAX: u64 = 256 << 20;

/// A version in a topic.
pub struct VersionReader(Arc<Inner>);

struct Inner {
    address: VersionAddress,
    config: ClientConfig,
    /// Why brokers refuse connections.
    refusals: Refusals,
    idle: Mutex<Vec<Arc<BaseConsumer>>>,
    /// Once it was read.
    contents: Mutex<Option<Arc<Contents>>>,
}

impl Inner {
    fn unavailable(&self, error: &KafkaError) -> VersionTopicError {
        VersionTopicError::Unavailable {
            topic: self.address.topic.clone(),
            reason: self.refusals.reason(error),
        }
    }
}

struct Contents {
    keys: Keys,
    piece_bytes: u64,
    index: Index,
}

/// Reads a file of a version in a topic, from some offset to its end.
pub struct TopicFileReader {
    records: Records,
    file: String,
    keys: Keys,
    extent: Extent,
    piece_bytes: u64,
    next: u64,
    /// How many bytes of the next piece are not wanted.
    skipped: usize,
    piece: Vec<u8>,
    /// How many bytes of the piece were taken.
    taken: usize,
}

impl VersionReader {
    /// The version at this address, in a Kafka that is reached by these properties of librdkafka. Reads nothing yet.
    pub fn new(address: VersionAddress, properties: &BTreeMap<String, String>) -> Self {
        let defaults = [
            // A few pieces are fetched ahead: what is ahead of the end of a file is fetched in vain.
            ("queued.min.messages", "8"),
            ("queued.max.messages.kbytes", "8192"),
            ("fetch.queue.backoff.ms", "10"),
            ("fetch.wait.max.ms", "20"),
        ];
        let config = of_consumers(&address.topic.brokers, &defaults, properties);
        Self(Arc::new(Inner {
            address,
            config,
            refusals: Refusals::default(),
            idle: Mutex::default(),
            contents: Mutex::default(),
        }))
    }

    /// Its address.
    pub fn address(&self) -> &VersionAddress {
        &self.0.address
    }

    /// Opens a file from an offset to its end. With an offset at or past the end, there is nothing to read.
    ///
    /// # Errors
    /// [`VersionTopicError::NoFile`], or why the version cannot be read.
    pub fn open(&self, file: &str, offset: u64) -> Result<TopicFileReader, VersionTopicError> {
        let contents = self.0.contents()?;
        let Some(&extent) = contents.index.files.get(file) else {
            let (address, file) = (self.0.address.clone(), file.to_owned());
            return Err(VersionTopicError::NoFile { address, file });
        };
        TopicFileReader::open(&self.0, &contents.keys, file, extent, contents.piece_bytes, offset)
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`VersionTopicError::Damaged`] if it is longer than `bytes_max`.
    pub fn read_whole(&self, file: &str, bytes_max: u64) -> Result<Vec<u8>, VersionTopicError> {
        self.open(file, 0)?.read_whole(bytes_max)
    }

    /// Checks that the end of the push counts as many records of each partition as the manifest.
    ///
    /// # Errors
    /// [`VersionTopicError::Miscounted`], or why the version cannot be read.
    pub fn check(&self, manifest: &Manifest) -> Result<(), VersionTopicError> {
        let contents = self.0.contents()?;
        let (sent, found) = (&contents.index.records, records_of(manifest));
        let of = |counts: &BTreeMap<u32, u64>, partition| counts.get(&partition).copied().unwrap_or(0);
        for &partition in sent.keys().chain(found.keys()) {
            let (sent, found) = (of(sent, partition), of(&found, partition));
            if sent != found {
                let address = self.0.address.clone();
                return Err(VersionTopicError::Miscounted {
                    address,
                    partition,
                    sent,
                    found,
                });
            }
        }
        Ok(())
    }
}

impl Inner {
    fn damaged(&self, detail: impl Into<String>) -> VersionTopicError {
        VersionTopicError::Damaged {
            address: self.address.clone(),
            detail: detail.into(),
        }
    }

    /// The end and the index, which are read once.
    fn contents(self: &Arc<Self>) -> Result<Arc<Contents>, VersionTopicError> {
        let mut known = self.contents.lock();
        if let Some(contents) = &*known {
            return Ok(Arc::clone(contents));
        }
        let contents = Arc::new(self.read_contents()?);
        *known = Some(Arc::clone(&contents));
        Ok(contents)
    }

    fn read_contents(self: &Arc<Self>) -> Result<Contents, VersionTopicError> {
        let VersionAddress { partition, offset, .. } = self.address;
        let records = Records::start(self, partition, offset)?;
        let (keys, end) = {
            let record = records.next(Instant::now() + SILENCE_MAX)?;
            let keys = record.key().and_then(Keys::of_end);
            let keys = keys.filter(|_| record.offset() as u64 == offset);
            let keys = keys.ok_or_else(|| self.damaged("there is no end of a push"))?;
            let value = record.payload().unwrap_or_default();
            if value.len() > END_BYTES_MAX {
                return Err(self.damaged(format!("its end has {} bytes", value.len())));
            }
            let end: End = serde_json::from_slice(value)
                .map_err(|error| self.damaged(format!("its end cannot be parsed: {error}")))?;
            (keys, end)
        };
        drop(records);
        end.check().map_err(|detail| self.damaged(detail))?;
        let index = TopicFileReader::open(self, &keys, INDEX, end.index, end.piece_bytes, 0)?;
        let index = index.read_whole(INDEX_BYTES_MAX)?;
        if Checksum::of(&index) != end.index_checksum {
            return Err(self.damaged("its index has another checksum than its end says"));
        }
        let index = serde_json::from_slice(&index)
            .map_err(|error| self.damaged(format!("its index cannot be parsed: {error}")))?;
        let piece_bytes = end.piece_bytes;
        Ok(Contents {
            keys,
            piece_bytes,
            index,
        })
    }
}

impl TopicFileReader {
    fn open(
        version: &Arc<Inner>,
        keys: &Keys,
        file: &str,
        extent: Extent,
        piece_bytes: u64,
        offset: u64,
    ) -> Result<Self, VersionTopicError> {
        extent
            .check(file, piece_bytes)
            .map_err(|detail| version.damaged(detail))?;
        let next = (offset / piece_bytes).min(extent.pieces(piece_bytes));
        let from = extent.first + next;
        Ok(Self {
            records: Records::start(version, extent.partition, from)?,
            file: file.to_owned(),
            keys: keys.clone(),
            extent,
            piece_bytes,
            next,
            skipped: (offset % piece_bytes) as usize,
            piece: Vec::new(),
            taken: 0,
        })
    }

    /// Reads the next bytes, as many as the buffer has room for or fewer; 0 at the end.
    ///
    /// # Errors
    /// Why the version cannot be read.
    pub fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, VersionTopicError> {
        while self.taken == self.piece.len() {
            if !self.read_piece()? {
                return Ok(0);
            }
        }
        let rest = &self.piece[self.taken..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }

    fn read_whole(mut self, bytes_max: u64) -> Result<Vec<u8>, VersionTopicError> {
        let (file, bytes) = (&self.file, self.extent.bytes);
        if bytes > bytes_max {
            let detail = format!("{file:?} has {bytes} bytes, more than the {bytes_max} allowed");
            return Err(self.records.version.damaged(detail));
        }
        // The length in the index may be wrong.
        let mut content = Vec::new();
        while self.read_piece()? {
            content.extend_from_slice(&self.piece);
        }
        Ok(content)
    }

    /// Reads the next piece; whether there was one.
    fn read_piece(&mut self) -> Result<bool, VersionTopicError> {
        if self.next == self.extent.pieces(self.piece_bytes) {
            return Ok(false);
        }
        let key = self.keys.piece(&self.file, self.next);
        // Between pieces there may be records of others, and pieces that were sent twice: up to the last piece.
        let record = loop {
            let record = self.records.next(Instant::now() + SILENCE_MAX)?;
            if record.offset() as u64 > self.extent.last {
                let Extent {
                    partition, first, last, ..
                } = self.extent;
                let (file, piece) = (&self.file, self.next);
                return Err(self.records.version.damaged(format!(
                    "piece {piece} of {file:?} is not in partition {partition} at the offsets {first} to {last}"
                )));
            }
            if record.key() == Some(key.as_bytes()) {
                break record;
            }
        };
        let value = record.payload().unwrap_or_default();
        let expected = self.piece_bytes.min(self.extent.bytes - self.next * self.piece_bytes);
        if value.len() as u64 != expected {
            let (file, piece, bytes) = (&self.file, self.next, value.len());
            return Err(self
                .records
                .version
                .damaged(format!("piece {piece} of {file:?} has {bytes} bytes, not {expected}")));
        }
        self.piece.clear();
        self.piece.extend_from_slice(value);
        self.next += 1;
        self.taken = std::mem::take(&mut self.skipped).min(self.piece.len());
        Ok(true)
    }
}

/// The records of a partition from an offset on.
struct Records {
    version: Arc<Inner>,
    /// `None` once it was ended.
    reading: Option<Reading>,
    consumer: Arc<BaseConsumer>,
    partition: i32,
    offset: u64,
    /// Whether it had an error: another consumer takes over.
    is_broken: Cell<bool>,
}

impl Records {
    fn start(version: &Arc<Inner>, partition: i32, offset: u64) -> Result<Self, VersionTopicError> {
        let failed = |error: KafkaError| version.unavailable(&error);
        let idle = version.idle.lock().pop();
        let consumer = match idle {
            Some(consumer) => consumer,
            None => {
                let made = version.config.create_with_context(version.refusals.clone());
                Arc::new(made.map_err(failed)?)
            }
        };
        let topic = &version.address.topic.topic;
        let reading = Reading::start(&consumer, topic, partition, offset).map_err(failed)?;
        Ok(Self {
            version: Arc::clone(version),
            reading: Some(reading),
            consumer,
            partition,
            offset,
            is_broken: Cell::new(false),
        })
    }

    /// The next record.
    fn next(&self, until: Instant) -> Result<BorrowedMessage<'_>, VersionTopicError> {
        let found = self.poll(until);
        self.is_broken.set(found.is_err());
        found
    }

    fn poll(&self, until: Instant) -> Result<BorrowedMessage<'_>, VersionTopicError> {
        let topic = &self.version.address.topic;
        let silent = |reason: String| VersionTopicError::Unavailable {
            topic: topic.clone(),
            reason,
        };
        let reading = self
            .reading
            .as_ref()
            .ok_or_else(|| silent("it was closed".to_owned()))?;
        let mut last_error = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match reading.poll(left.min(TURN)) {
                Some(Ok(record)) if record.partition() == self.partition && record.offset() as u64 >= self.offset => {
                    return Ok(record);
                }
                Some(Ok(_)) => {}
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    let (partition, offset) = (self.partition, self.offset);
                    return Err(silent(format!(
                        "partition {partition} has no more records after offset {offset}, and the version has"
                    )));
                }
                Some(Err(error)) => match error.rdkafka_error_code() {
                    Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) => {
                        return Err(self.out_of_range(&error));
                    }
                    Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => {
                        let (topic, partition) = (topic.clone(), self.partition);
                        return Err(VersionTopicError::NoTopic { topic, partition });
                    }
                    // A batch that cannot be read, for instance: it is asked for again.
                    _ => last_error = Some(error),
                },
                None => {}
            }
            // A connection that is lost is made again.
            while let Some(Err(error)) = self.consumer.poll(Duration::ZERO) {
                last_error = Some(error);
            }
            if left.is_zero() {
                let seconds = SILENCE_MAX.as_secs();
                let cause = last_error.map_or_else(String::new, |error| {
                    format!(": {}", self.version.refusals.reason(&error))
                });
                return Err(silent(format!("nothing of the version came for {seconds} s{cause}")));
            }
        }
    }

    fn out_of_range(&self, error: &KafkaError) -> VersionTopicError {
        let topic = &self.version.address.topic;
        let (partition, offset) = (self.partition, self.offset);
        match self.consumer.fetch_watermarks(&topic.topic, partition, ASK_MAX) {
            Ok((first, _)) if offset < first.max(0) as u64 => VersionTopicError::Gone {
                topic: topic.clone(),
                partition,
                offset,
                first: first.max(0) as u64,
            },
            Ok((_, end)) => VersionTopicError::Unavailable {
                topic: topic.clone(),
                reason: format!("partition {partition} ends at offset {end}, and offset {offset} is needed"),
            },
            Err(_) => self.version.unavailable(error),
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // Before another file may have the consumer.
        self.reading = None;
        if !self.is_broken.get() {
            self.version.idle.lock().push(Arc::clone(&self.consumer));
        }
    }
}

pub(super) fn unavailable(topic: &TopicAddress, error: &KafkaError) -> VersionTopicError {
    VersionTopicError::Unavailable {
        topic: topic.clone(),
        reason: without_value(error),
    }
}
