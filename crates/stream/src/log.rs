//! The log of events inside a process: topics for development clusters and tests, in tables of an engine.
//!
//! ```text
//! 0 ++ partition (u32)                    → offset after the last record (u64)
//! 1 ++ partition (u32) ++ offset (u64)    → when it was logged (u64) ++ event
//! 2 ++ partition (u32)                    → offset of the first record that is kept (u64), if others were deleted
//! ```
//!
//! An append has handed its events to the operating system when it returns: they survive the end of the process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Instant;

use bytes::{Buf, BufMut, Bytes};
use fondaco_engine::{CacheBudget, DiskEngine, DiskOptions, Engine, Table, WriteBatch};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::StreamError;
use crate::event::{Event, Poison};
use crate::quota::EventQuota;
use crate::source::{Batch, Logged, Source};
use crate::write::Written;

const ENDS: u8 = 0;
const RECORDS: u8 = 1;
const FIRSTS: u8 = 2;

/// The prefix of the names of topics' tables.
const TOPIC_PREFIX: &str = "topic-1-";
/// How many records one batch deletes.
const DELETED_MAX: usize = 4096;

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
    partitions: Vec<Partition>,
    quota: Mutex<EventQuota>,
}

/// A partition of a topic.
struct Partition {
    /// Held while records are added.
    writing: Mutex<()>,
    /// Held while records are deleted.
    trimming: Mutex<()>,
    /// The offset of the first record that is kept.
    first: AtomicU64,
    /// The offset after the last record.
    end: AtomicU64,
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

    /// Opens a topic, or creates it with this number of partitions if it does not exist.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub fn topic(&self, name: &str, partitions: u32) -> Result<Arc<LogTopic>, StreamError> {
        let mut opened = self.opened.lock();
        if let Some(topic) = opened.topics.get(name) {
            return Ok(Arc::clone(topic));
        }
        let engine = self.engine(&mut opened)?;
        let table = engine.open_table(&format!("{TOPIC_PREFIX}{name}"))?;
        let offset = |key: Bytes| match table.get(&key)? {
            None => Ok(AtomicU64::new(0)),
            Some(bytes) => {
                let offset = bytes.as_ref().try_get_u64().map_err(|error| StreamError::Damaged {
                    what: "offset",
                    stream: name.to_owned(),
                    detail: error.to_string(),
                });
                offset.map(AtomicU64::new)
            }
        };
        let partition = |partition: u32| {
            Ok::<_, StreamError>(Partition {
                writing: Mutex::default(),
                trimming: Mutex::default(),
                first: offset(partition_key(FIRSTS, partition))?,
                end: offset(partition_key(ENDS, partition))?,
            })
        };
        let topic = Arc::new(LogTopic {
            name: name.to_owned(),
            partitions: (0..partitions.max(1)).map(partition).collect::<Result<_, _>>()?,
            engine,
            table,
            quota: Mutex::default(),
        });
        opened.topics.insert(name.to_owned(), Arc::clone(&topic));
        Ok(topic)
    }

    fn engine(&self, opened: &mut Opened) -> Result<Arc<dyn Engine>, StreamError> {
        let engine = match &opened.engine {
            Some(engine) => Arc::clone(engine),
            None => Arc::new(DiskEngine::open(&self.dir, options())?),
        };
        opened.engine = Some(Arc::clone(&engine));
        Ok(engine)
    }

    /// Deletes topics, as far as they are there.
    ///
    /// # Errors
    /// An error of the engine.
    pub fn delete(&self, names: &[String]) -> Result<(), StreamError> {
        let mut opened = self.opened.lock();
        if names.is_empty() || (opened.engine.is_none() && !self.dir.exists()) {
            return Ok(());
        }
        let engine = self.engine(&mut opened)?;
        let tables = engine.tables()?;
        for name in names {
            opened.topics.remove(name);
            let table = format!("{TOPIC_PREFIX}{name}");
            if tables.contains(&table) {
                engine.drop_table(&table)?;
            }
        }
        Ok(())
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
    /// Counts events that are to be appended, of which this number may come per second. Returns false, and counts none, if those
    /// before them have used up the quota.
    pub fn admits(&self, events: usize, per_second: u64, now: Instant) -> bool {
        let mut quota = self.quota.lock();
        let is_open = quota.opens(now).is_none();
        if is_open {
            quota.count(events, per_second, now);
        }
        is_open
    }

    /// Appends events, each to the partition that its key selects. All of a partition become visible together. Returns their places,
    /// by partition.
    ///
    /// # Errors
    /// An error of the engine: then it is unknown which events were appended.
    pub fn append(&self, events: &[Event], now_ms: u64) -> Result<Vec<Written>, StreamError> {
        let mut by_partition = BTreeMap::<u32, Vec<&Event>>::new();
        for event in events {
            let partition = xxh3_64(&event.key) % self.partitions.len() as u64;
            by_partition.entry(partition as u32).or_default().push(event);
        }
        let mut written = Vec::with_capacity(events.len());
        for (partition, events) in by_partition {
            let Partition { writing, end, .. } = &self.partitions[partition as usize];
            let _writing = writing.lock();
            let mut next = end.load(Acquire);
            let mut batch = WriteBatch::new();
            for event in events {
                let mut record = Vec::with_capacity(32 + event.key.len() + event.change.bytes().len());
                record.put_u64(now_ms);
                event.encode(&mut record);
                batch.put(&*self.table, record_key(partition, next), record.into());
                written.push(Written {
                    partition,
                    offset: next,
                });
                next += 1;
            }
            batch.put(
                &*self.table,
                partition_key(ENDS, partition),
                next.to_be_bytes().to_vec().into(),
            );
            self.engine.write(batch)?;
            end.store(next, Release);
        }
        Ok(written)
    }

    /// Deletes the records that were logged before a time, in milliseconds since 1970.
    ///
    /// # Errors
    /// An error of the engine; what is left is deleted the next time.
    pub fn trim(&self, before_ms: u64) -> Result<(), StreamError> {
        for (number, partition) in (0..).zip(&self.partitions) {
            let _trimming = partition.trimming.lock();
            let first = self.offset_at(number, before_ms)?;
            if first > partition.first.load(Acquire) {
                // A record that is missing without this would be taken for one that never was.
                let mut batch = WriteBatch::new();
                let value = first.to_be_bytes().to_vec().into();
                batch.put(&*self.table, partition_key(FIRSTS, number), value);
                self.engine.write(batch)?;
                partition.first.store(first, Release);
            }
            let (from, to) = (record_key(number, 0), record_key(number, first));
            loop {
                let mut batch = WriteBatch::new();
                for entry in self.table.scan(&from, Some(&to))?.take(DELETED_MAX) {
                    batch.delete(&*self.table, entry?.0);
                }
                if batch.is_empty() {
                    break;
                }
                self.engine.write(batch)?;
            }
        }
        Ok(())
    }

    /// The first offset that is kept, and the one after the last.
    fn bounds(&self, partition: u32) -> Result<(u64, u64), StreamError> {
        let found = self.partitions.get(partition as usize);
        let found = found.ok_or_else(|| StreamError::NoPartition {
            topic: self.name.clone(),
            partition,
            partitions: self.partitions.len() as u32,
        })?;
        Ok((found.first.load(Acquire), found.end.load(Acquire)))
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
        let (mut start, mut after) = self.bounds(partition)?;
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

    fn first(&self, partition: u32) -> Result<u64, StreamError> {
        Ok(self.bounds(partition)?.0)
    }

    fn read(&self, _: u64, partition: u32, offset: u64, bytes_max: usize) -> Result<Batch, StreamError> {
        self.read_from(partition, offset, bytes_max)
    }
}

impl LogTopic {
    fn read_from(&self, partition: u32, offset: u64, bytes_max: usize) -> Result<Batch, StreamError> {
        let (first, end) = self.bounds(partition)?;
        let mut batch = Batch {
            records: Vec::new(),
            next: offset,
            end,
        };
        if !(first..=end).contains(&offset) {
            return Err(StreamError::Lost {
                topic: self.name.clone(),
                partition,
                offset,
                first,
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
        // They may have been deleted meanwhile: then there is a gap.
        match self.bounds(partition)?.0 > offset {
            true => self.read_from(partition, offset, bytes_max),
            false => Ok(batch),
        }
    }
}

fn partition_key(kind: u8, partition: u32) -> Bytes {
    let mut key = vec![kind];
    key.put_u32(partition);
    key.into()
}

fn record_key(partition: u32, offset: u64) -> Bytes {
    let mut key = vec![RECORDS];
    key.put_u32(partition);
    key.put_u64(offset);
    key.into()
}
