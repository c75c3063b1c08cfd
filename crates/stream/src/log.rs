//! The log of events inside a process: topics for development clusters and tests, in tables of an engine.
//!
//! ```text
//! 0 ++ partition (u32)                    → offset after the last record (u64)
//! 1 ++ partition (u32) ++ offset (u64)    → when it was logged (u64) ++ event
//! ```
//!
//! An append has handed its events to the operating system when it returns: they survive the end of the process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};

use bytes::{Buf, BufMut, Bytes};
use fondaco_engine::{CacheBudget, DiskEngine, DiskOptions, Engine, Table, WriteBatch};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::StreamError;
use crate::event::{Event, Poison};
use crate::source::{Batch, Logged, Source};

const ENDS: u8 = 0;
const RECORDS: u8 = 1;

/// The topics of a process.
pub struct EventLog {
    /// Where the engine is opened with the first topic, if it is not open.
    dir: PathBuf,
    opened: Mutex<Opened>,
}

#[derive(Default)]
struct Opened {
    engine: Option<Arc<dyn Engine>>,
    topics: BTreeMap<String, Arc<LogTopic>>,
}

/// A topic of an [`EventLog`].
pub struct LogTopic {
    name: String,
    engine: Arc<dyn Engine>,
    table: Arc<dyn Table>,
    /// The offset after the last record of each partition. Locked while that partition is written.
    partitions: Vec<(Mutex<()>, AtomicU64)>,
}

impl EventLog {
    /// Topics in tables of this engine.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        let opened = Opened {
            engine: Some(engine),
            ..Opened::default()
        };
        Self {
            dir: PathBuf::new(),
            opened: Mutex::new(opened),
        }
    }

    /// Topics in a directory, in which nothing is opened before there is one.
    pub fn in_dir(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            opened: Mutex::default(),
        }
    }

    /// Opens a topic with so many partitions, and makes it if there is none.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub fn topic(&self, name: &str, partitions: u32) -> Result<Arc<LogTopic>, StreamError> {
        let mut opened = self.opened.lock();
        if let Some(topic) = opened.topics.get(name) {
            return Ok(Arc::clone(topic));
        }
        let engine = match &opened.engine {
            Some(engine) => Arc::clone(engine),
            None => Arc::new(DiskEngine::open(&self.dir, options())?),
        };
        opened.engine = Some(Arc::clone(&engine));
        let table = engine.open_table(&format!("topic-1-{name}"))?;
        let end = |partition: u32| -> Result<(Mutex<()>, AtomicU64), StreamError> {
            let end = match table.get(&end_key(partition))? {
                None => 0,
                Some(bytes) => bytes.as_ref().try_get_u64().map_err(|error| StreamError::Damaged {
                    what: "offset",
                    stream: name.to_owned(),
                    detail: error.to_string(),
                })?,
            };
            Ok((Mutex::default(), AtomicU64::new(end)))
        };
        let topic = Arc::new(LogTopic {
            name: name.to_owned(),
            partitions: (0..partitions.max(1)).map(end).collect::<Result<_, _>>()?,
            engine,
            table,
        });
        opened.topics.insert(name.to_owned(), Arc::clone(&topic));
        Ok(topic)
    }
}

/// Little memory: events are read soon after they were written.
fn options() -> DiskOptions {
    DiskOptions {
        cache: CacheBudget::new(8 << 20),
        block_cache_bytes: 8 << 20,
        log_bytes_max: 64 << 20,
        table_buffer_bytes: 8 << 20,
        threads: 1,
        ..DiskOptions::default()
    }
}

impl LogTopic {
    /// Appends events, each to the partition that its key selects. All of a partition become visible together.
    ///
    /// # Errors
    /// An error of the engine: then it is unknown which events were appended.
    pub fn append(&self, events: &[Event], now_ms: u64) -> Result<(), StreamError> {
        let mut by_partition = BTreeMap::<u32, Vec<&Event>>::new();
        for event in events {
            let partition = xxh3_64(&event.key) % self.partitions.len() as u64;
            by_partition.entry(partition as u32).or_default().push(event);
        }
        for (partition, events) in by_partition {
            let (lock, end) = &self.partitions[partition as usize];
            let _writing = lock.lock();
            let mut next = end.load(Acquire);
            let mut batch = WriteBatch::new();
            for event in events {
                let mut record = Vec::with_capacity(32 + event.key.len() + event.change.bytes().len());
                record.put_u64(now_ms);
                event.encode(&mut record);
                batch.put(&*self.table, record_key(partition, next), record.into());
                next += 1;
            }
            batch.put(&*self.table, end_key(partition), next.to_be_bytes().to_vec().into());
            self.engine.write(batch)?;
            end.store(next, Release);
        }
        Ok(())
    }

    fn end(&self, partition: u32) -> Result<u64, StreamError> {
        let end = self.partitions.get(partition as usize);
        let end = end.ok_or_else(|| StreamError::NoPartition {
            topic: self.name.clone(),
            partition,
            partitions: self.partitions.len() as u32,
        })?;
        Ok(end.1.load(Acquire))
    }

    /// Records from an offset on, with their offsets.
    fn records(
        &self,
        partition: u32,
        offset: u64,
    ) -> Result<impl Iterator<Item = Result<(u64, Bytes), StreamError>> + '_, StreamError> {
        let (from, to) = (record_key(partition, offset), record_key(partition, u64::MAX));
        let scan = self.table.scan(&from, Some(&to))?;
        Ok(scan.map(|entry| {
            let (key, record) = entry?;
            let offset = key.get(5..).and_then(|mut offset| offset.try_get_u64().ok());
            let offset = offset.filter(|_| record.len() >= 8);
            Ok((offset.ok_or_else(|| self.damaged(&key))?, record))
        }))
    }

    fn damaged(&self, key: &[u8]) -> StreamError {
        StreamError::Damaged {
            what: "record",
            stream: self.name.clone(),
            detail: format!("key {key:02x?}"),
        }
    }
}

impl Source for LogTopic {
    fn partitions(&self) -> Result<u32, StreamError> {
        Ok(self.partitions.len() as u32)
    }

    fn offset_at(&self, partition: u32, time_ms: u64) -> Result<u64, StreamError> {
        let (mut start, mut after) = (0, self.end(partition)?);
        // Clocks may go back: then it is one of the places where the time is passed.
        while start < after {
            let middle = start + (after - start) / 2;
            let found = self.records(partition, middle)?.next().transpose()?;
            match found {
                Some((_, record)) if record.as_ref().get_u64() < time_ms => start = middle + 1,
                _ => after = middle,
            }
        }
        Ok(start)
    }

    fn read(&self, _reader: u64, partition: u32, offset: u64, bytes_max: usize) -> Result<Batch, StreamError> {
        let end = self.end(partition)?;
        let mut batch = Batch {
            records: Vec::new(),
            next: offset,
            end,
        };
        if offset > end {
            return Err(StreamError::Lost {
                topic: self.name.clone(),
                partition,
                offset,
                first: 0,
                end,
            });
        }
        if offset == end {
            return Ok(batch);
        }
        let mut bytes = 0;
        for found in self.records(partition, offset)? {
            let (offset, mut record) = found?;
            if offset >= end || bytes >= bytes_max {
                break;
            }
            bytes += record.len();
            batch.records.push(Logged {
                offset,
                logged_ms: record.get_u64(),
                event: Event::decode(record).ok_or_else(|| Poison("the record is damaged".to_owned())),
            });
            batch.next = offset + 1;
        }
        Ok(batch)
    }
}

fn end_key(partition: u32) -> Bytes {
    let mut key = vec![ENDS];
    key.put_u32(partition);
    key.into()
}

fn record_key(partition: u32, offset: u64) -> Bytes {
    let mut key = vec![RECORDS];
    key.put_u32(partition);
    key.put_u64(offset);
    key.into()
}
