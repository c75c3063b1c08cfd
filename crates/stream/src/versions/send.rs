//! Sends a version through a topic.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fondaco_format::{Checksum, Checksummer, MANIFEST_FILE, Manifest};
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use super::error::VersionTopicError;
use super::read::unavailable;
use super::record::{End, Extent, INDEX, Index, Keys, PIECE_BYTES, Start, records_of};
use super::{TopicAddress, VersionAddress};
use crate::error::StreamError;
use crate::kafka::KafkaCluster;
use crate::source::Source;

/// How long is waited at a time for acknowledgements.
const TURN: Duration = Duration::from_millis(5);

/// The partition of the topic with what belongs to no partition of the store.
const COMMON_PARTITION: i32 = 0;

/// A version that was sent.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Where it is.
    pub address: VersionAddress,
    /// The length of its files.
    pub bytes: u64,
    /// How many records of the topic it took.
    pub topic_records: u64,
}

/// The number of partitions of a topic.
///
/// # Errors
/// [`VersionTopicError::NoTopic`] or [`VersionTopicError::Unavailable`].
pub fn partitions_of(topic: &TopicAddress, properties: &BTreeMap<String, String>) -> Result<u32, VersionTopicError> {
    let cluster = Arc::new(KafkaCluster::new(&topic.brokers, properties));
    cluster.topic(&topic.topic).partitions().map_err(|error| match error {
        StreamError::NoTopic { .. } => VersionTopicError::NoTopic {
            topic: topic.clone(),
            partition: COMMON_PARTITION,
        },
        StreamError::Unavailable { reason, .. } => VersionTopicError::Unavailable {
            topic: topic.clone(),
            reason,
        },
        other => VersionTopicError::Unavailable {
            topic: topic.clone(),
            reason: other.to_string(),
        },
    })
}

/// Sends the version in a directory through a topic with this number of partitions. Returns when the brokers have
/// acknowledged all of it. `go_on` gets the number of acknowledged bytes and of all bytes from time to time; it
/// returns `false` to cancel.
///
/// # Errors
/// The directory is no version, or changed since it was built; or the brokers do not accept it. A broker that does
/// not answer is waited for as long as librdkafka's `message.timeout.ms`, five minutes by default.
pub fn send_version(
    topic: &TopicAddress,
    partitions: u32,
    properties: &BTreeMap<String, String>,
    dir: &Path,
    go_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Sent, VersionTopicError> {
    let (manifest, version) = Manifest::read_identified(dir)?;
    let path = dir.join(MANIFEST_FILE);
    let manifest_bytes = std::fs::read(&path).map_err(|source| VersionTopicError::Io { path, source })?;
    let mut config = ClientConfig::new();
    config.set("queue.buffering.max.kbytes", "32768");
    for (name, value) in properties {
        config.set(name, value);
    }
    // The reader relies on this: retries keep the order.
    config.set("bootstrap.servers", &topic.brokers);
    config.set("enable.idempotence", "true");
    let producer = config.create_with_context(Deliveries::default());
    let unix_ns = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let start = Start {
        store: manifest.store.clone(),
        version,
        partitions: manifest.partitions,
        records: manifest.records,
        files: manifest.files_with_patches().count() as u64 + 1,
        bytes: manifest.files_with_patches().map(|file| file.bytes).sum::<u64>() + manifest_bytes.len() as u64,
    };
    let mut sending = Sending {
        producer: producer.map_err(|error| unavailable(topic, &error))?,
        topic,
        keys: Keys::new(version, unix_ns),
        dir,
        sent: Vec::new(),
        total: start.bytes,
        go_on,
    };
    sending.one(COMMON_PARTITION, sending.keys.start(), &start)?;
    sending.files(&manifest, &manifest_bytes, partitions)?;
    sending.end(start, records_of(&manifest))
}

/// A file or a single record, which is sent in pieces.
struct Entry {
    name: String,
    partition: i32,
    bytes: u64,
    records: u64,
}

struct Sending<'a> {
    producer: BaseProducer<Deliveries>,
    topic: &'a TopicAddress,
    keys: Keys,
    dir: &'a Path,
    sent: Vec<Entry>,
    /// The length of all files.
    total: u64,
    go_on: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl Sending<'_> {
    fn files(&mut self, manifest: &Manifest, manifest_bytes: &[u8], partitions: u32) -> Result<(), VersionTopicError> {
        let chunks = manifest.chunks.iter();
        let of_chunks = chunks.flat_map(|chunk| chunk.files().map(|file| (&*file.name, chunk.partition)));
        let patches = manifest
            .patches
            .iter()
            .map(|patch| (&*patch.patch.name, patch.partition));
        let of: HashMap<&str, _> = of_chunks.chain(patches).collect();
        for file in manifest.files_with_patches() {
            let partition = of.get(&*file.name).map(|partition| partition.get() % partitions.max(1));
            let partition = partition.map_or(COMMON_PARTITION, |partition| partition as i32);
            let path = self.dir.join(&file.name);
            let open = File::open(&path).map_err(io_error(&path))?;
            let (bytes, checksum) = self.pieces(&file.name, partition, open)?;
            if (bytes, checksum) != (file.bytes, file.checksum) {
                return Err(VersionTopicError::Changed { path });
            }
        }
        self.pieces(MANIFEST_FILE, COMMON_PARTITION, manifest_bytes)?;
        Ok(())
    }

    /// Sends the index and the end.
    fn end(mut self, start: Start, records: BTreeMap<u32, u64>) -> Result<Sent, VersionTopicError> {
        self.settle()?;
        // The first entry is the start.
        let files = (1..self.sent.len()).map(|number| Ok((self.sent[number].name.clone(), self.extent(number)?)));
        let index = Index {
            files: files.collect::<Result<_, VersionTopicError>>()?,
            records,
        };
        let index = serde_json::to_vec(&index).map_err(|error| self.refused(&error))?;
        let number = self.sent.len();
        let (_, index_checksum) = self.pieces(INDEX, COMMON_PARTITION, &index[..])?;
        self.settle()?;
        let bytes = start.bytes;
        let end = End {
            start,
            piece_bytes: PIECE_BYTES as u64,
            index: self.extent(number)?,
            index_checksum,
        };
        self.one(COMMON_PARTITION, self.keys.end(), &end)?;
        self.settle()?;
        let Extent { partition, first, .. } = self.extent(self.sent.len() - 1)?;
        Ok(Sent {
            address: VersionAddress {
                topic: self.topic.clone(),
                partition,
                offset: first,
            },
            bytes,
            topic_records: self.sent.iter().map(|entry| entry.records).sum(),
        })
    }

    /// Sends a record of its own.
    fn one(&mut self, partition: i32, key: String, value: &impl serde::Serialize) -> Result<(), VersionTopicError> {
        let value = serde_json::to_vec(value).map_err(|error| self.refused(&error))?;
        self.begin(&key, partition);
        self.send(&key, &value)
    }

    /// Sends a file in pieces. Returns its length and its checksum.
    fn pieces(
        &mut self,
        name: &str,
        partition: i32,
        mut content: impl Read,
    ) -> Result<(u64, Checksum), VersionTopicError> {
        self.begin(name, partition);
        let mut checksum = Checksummer::new();
        let (mut piece, mut bytes) = (Vec::with_capacity(PIECE_BYTES), 0);
        for number in 0.. {
            piece.clear();
            let read = content.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece);
            read.map_err(io_error(&self.dir.join(name)))?;
            if piece.is_empty() {
                break;
            }
            checksum.update(&piece);
            bytes += piece.len() as u64;
            self.send(&self.keys.piece(name, number), &piece)?;
        }
        Ok((bytes, checksum.finish()))
    }

    fn begin(&mut self, name: &str, partition: i32) {
        self.sent.push(Entry {
            name: name.to_owned(),
            partition,
            bytes: 0,
            records: 0,
        });
    }

    /// Sends a record of the last entry.
    fn send(&mut self, key: &str, value: &[u8]) -> Result<(), VersionTopicError> {
        let number = self.sent.len() - 1;
        let entry = &mut self.sent[number];
        entry.records += 1;
        entry.bytes += value.len() as u64;
        let mut record = BaseRecord::with_opaque_to(&self.topic.topic, number)
            .partition(entry.partition)
            .key(key)
            .payload(value);
        loop {
            match self.producer.send(record) {
                Ok(()) => return self.turn(Duration::ZERO),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => record = back,
                Err((error, _)) => return Err(unavailable(self.topic, &error)),
            }
            self.turn(TURN)?;
        }
    }

    /// Takes what was acknowledged.
    fn turn(&mut self, wait: Duration) -> Result<(), VersionTopicError> {
        self.producer.poll(wait);
        let bytes = {
            let delivered = self.producer.context().0.lock();
            if let Some(error) = &delivered.error {
                return Err(unavailable(self.topic, error));
            }
            delivered.bytes
        };
        match (self.go_on)(bytes.min(self.total), self.total) {
            true => Ok(()),
            false => Err(VersionTopicError::Interrupted),
        }
    }

    /// Waits until all is acknowledged.
    fn settle(&mut self) -> Result<(), VersionTopicError> {
        self.turn(Duration::ZERO)?;
        while self.producer.in_flight_count() > 0 {
            self.turn(TURN)?;
        }
        self.turn(Duration::ZERO)
    }

    /// Where an entry is, once all of it is acknowledged.
    fn extent(&self, number: usize) -> Result<Extent, VersionTopicError> {
        let entry = &self.sent[number];
        let delivered = self.producer.context().0.lock();
        let found = delivered.entries.get(&number).copied().unwrap_or_default();
        if found.records != entry.records {
            return Err(VersionTopicError::Unavailable {
                topic: self.topic.clone(),
                reason: format!(
                    "{} of {} records of {:?} were acknowledged",
                    found.records, entry.records, entry.name
                ),
            });
        }
        Ok(Extent {
            partition: entry.partition,
            first: found.first,
            last: found.last,
            bytes: entry.bytes,
        })
    }

    fn refused(&self, error: &serde_json::Error) -> VersionTopicError {
        VersionTopicError::Unavailable {
            topic: self.topic.clone(),
            reason: error.to_string(),
        }
    }
}

fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> VersionTopicError {
    let path: PathBuf = path.to_owned();
    |source| VersionTopicError::Io { path, source }
}

/// The numbers of acknowledged records and bytes.
#[derive(Default)]
struct Deliveries(Mutex<Delivered>);

#[derive(Default)]
struct Delivered {
    /// By the number of the entry.
    entries: HashMap<usize, Offsets>,
    bytes: u64,
    error: Option<KafkaError>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Offsets {
    records: u64,
    first: u64,
    last: u64,
}

impl ClientContext for Deliveries {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "Kafka");
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, entry: usize) {
        let mut delivered = self.0.lock();
        let message = match result {
            Ok(message) => message,
            Err((error, _)) => {
                delivered.error.get_or_insert_with(|| error.clone());
                return;
            }
        };
        delivered.bytes += message.payload_len() as u64;
        let offset = message.offset().max(0) as u64;
        let of_entry = delivered.entries.entry(entry).or_default();
        of_entry.first = match of_entry.records {
            0 => offset,
            _ => of_entry.first.min(offset),
        };
        of_entry.last = of_entry.last.max(offset);
        of_entry.records += 1;
    }
}
