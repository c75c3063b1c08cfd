//! A table: its keys, and its open scans.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Shared;
use super::entry::{At, Entry};
use super::frame::{Content, FRAME_HEAD_BYTES, read_frame};
use super::scan::{LogScan, Past};
use super::segment::Segment;
use super::tree::Tree;
use crate::batch::Pair;
use crate::engine::{Extent, Hot, Scan, Spot, Table};
use crate::error::EngineError;
use crate::failure;
use crate::open_table::OpenTable;

/// How many keys are passed at a time: writers wait meanwhile.
const KEYS_AT_ONCE: usize = 256;

/// The state that all handles to a table share.
#[derive(Debug)]
pub(super) struct LogTable {
    pub(super) open: OpenTable,
    pub(super) number: u32,
    /// How many bytes of each evicted value stay in memory.
    pub(super) kept_bytes: AtomicUsize,
    contents: RwLock<Contents>,
}

/// The keys of a table.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) tree: Tree,
    /// Scans in progress.
    scans: Vec<Weak<Mutex<Past>>>,
    /// All segments at the time when the table was dropped, for scans that outlive it.
    pub(super) segments: Option<Segments>,
}

/// Segments by their numbers.
pub(super) type Segments = BTreeMap<u32, Arc<Segment>>;

/// A record, in memory or on the disk.
#[derive(Debug, Clone)]
pub(super) enum Held {
    Memory(Pair),
    Disk(OnDisk),
}

/// A record on the disk.
#[derive(Debug, Clone)]
pub(super) struct OnDisk {
    pub(super) segment: Arc<Segment>,
    pub(super) offset: u32,
    pub(super) table: u32,
    pub(super) key: Bytes,
    pub(super) value_bytes: u32,
}

impl LogTable {
    pub(super) fn new(name: &str, number: u32, tree: Tree) -> Self {
        Self {
            open: OpenTable::new(name, number.into()),
            number,
            kept_bytes: AtomicUsize::new(0),
            contents: RwLock::new(Contents {
                tree,
                ..Contents::default()
            }),
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write()
    }
}

impl Contents {
    /// Sets the entry of a key, usually at this spot. Returns the old entry.
    pub(super) fn put(&mut self, entry: Entry, spot: Spot, table: u32, segments: &RwLock<Segments>) -> Option<Entry> {
        let key = (!self.scans.is_empty()).then(|| entry.key().to_vec());
        let before = self.tree.put(entry, spot);
        if let Some(key) = key {
            self.remember(&key, before.as_ref(), table, segments);
        }
        before
    }

    /// Removes and returns the entry of a key.
    pub(super) fn remove(&mut self, key: &[u8], table: u32, segments: &RwLock<Segments>) -> Option<Entry> {
        let before = self.tree.remove(key);
        self.remember(key, before.as_ref(), table, segments);
        before
    }

    /// Saves the old record of a key for the open scans.
    fn remember(&mut self, key: &[u8], before: Option<&Entry>, table: u32, segments: &RwLock<Segments>) {
        self.scans.retain(|scan| {
            let Some(scan) = scan.upgrade() else { return false };
            let mut past = scan.lock();
            // Every entry belongs to an existing segment.
            past.remember(key, || before.and_then(|entry| held(entry, table, segments)));
            true
        });
    }

    /// Registers a scan, which then receives the old records of all changed keys.
    pub(super) fn tell(&mut self, scan: &Arc<Mutex<Past>>) {
        self.scans.retain(|scan| scan.strong_count() > 0);
        self.scans.push(Arc::downgrade(scan));
    }
}

/// The record of an entry, in memory or on the disk.
pub(super) fn held(entry: &Entry, table: u32, segments: &RwLock<Segments>) -> Option<Held> {
    if let Some(pair) = entry.pair() {
        return Some(Held::Memory(pair));
    }
    let segments = segments.read();
    on_disk(entry, table, &segments).map(Held::Disk)
}

/// The record of an entry whose value is only on the disk.
pub(super) fn on_disk(entry: &Entry, table: u32, segments: &Segments) -> Option<OnDisk> {
    let At { segment, offset } = entry.at();
    Some(OnDisk {
        segment: Arc::clone(segments.get(&segment)?),
        offset,
        table,
        key: Bytes::copy_from_slice(entry.key()),
        value_bytes: entry.value_bytes(),
    })
}

impl OnDisk {
    /// Reads the record. If it is damaged, the error names its key.
    pub(super) fn read(&self) -> Result<Pair, EngineError> {
        self.read_pair().map_err(|error| error.of_record(&self.key))
    }

    fn read_pair(&self) -> Result<Pair, EngineError> {
        let length = FRAME_HEAD_BYTES + self.key.len() + self.value_bytes as usize;
        let bytes = Bytes::from(self.segment.read_at(self.offset, length)?);
        let is_it = read_frame(&bytes).is_some_and(|frame| {
            let is_value = matches!(frame.content, Content::Value(value) if value.len() == self.value_bytes as usize);
            is_value && frame.table == self.table && frame.key == self.key
        });
        if !is_it {
            let reason = format!("the record at byte {} does not match its checksum", self.offset);
            return Err(failure::corrupt(self.segment.path(), reason));
        }
        Ok(Pair::of_shared(bytes.slice(FRAME_HEAD_BYTES..), self.key.len()))
    }
}

impl Shared {
    /// Reads a record, and remembers its place if it is damaged.
    pub(super) fn read(&self, held: Held) -> Result<Pair, EngineError> {
        let at = held.at();
        let read = held.read();
        if let (Err(error), Some(at)) = (&read, at)
            && error.damaged_key().is_some()
        {
            self.damaged.found(at);
        }
        read
    }
}

impl Held {
    /// The place of the record, if it is on the disk.
    fn at(&self) -> Option<At> {
        match self {
            Self::Memory(_) => None,
            Self::Disk(record) => Some(At {
                segment: record.segment.number(),
                offset: record.offset,
            }),
        }
    }

    /// Reads the record.
    pub(super) fn read(self) -> Result<Pair, EngineError> {
        match self {
            Self::Memory(pair) => Ok(pair),
            Self::Disk(record) => record.read(),
        }
    }
}

/// A handle to a table.
pub(super) struct TableHandle {
    shared: Arc<Shared>,
    table: Arc<LogTable>,
}

impl TableHandle {
    pub(super) fn new(shared: Arc<Shared>, table: Arc<LogTable>) -> Self {
        Self { shared, table }
    }

    /// Puts a value that was read from the disk into memory, if its record has not moved.
    fn warm(&self, at: At, pair: &Pair) {
        let mut contents = self.table.write();
        if self.table.open.check().is_ok()
            && let Some(entry) = contents.tree.get_mut(pair.key())
            && entry.at() == at
            && entry.hot_bytes() == 0
        {
            entry.warm(pair);
            self.shared.resident_bytes.add(entry.hot_bytes());
            drop(contents);
            self.shared.cool();
        }
    }
}

impl Table for TableHandle {
    fn name(&self) -> &str {
        self.table.open.name()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.table.open.check()?;
        let (at, record) = {
            let contents = self.table.read();
            let Some(entry) = contents.tree.get(key) else {
                return Ok(None);
            };
            entry.touch();
            if let Some(value) = entry.kept_value() {
                return Ok(Some(value));
            }
            (entry.at(), held(entry, self.table.number, &self.shared.segments))
        };
        // Otherwise the table was dropped meanwhile.
        let pair = self.shared.read(record.ok_or_else(|| self.table.open.gone())?)?;
        self.warm(at, &pair);
        Ok(Some(pair.shared_value()))
    }

    fn get_hot(&self, key: &[u8]) -> Result<Hot<Bytes>, EngineError> {
        self.table.open.check()?;
        let contents = self.table.read();
        Ok(match contents.tree.get(key) {
            None => Hot::Absent,
            Some(entry) => {
                entry.touch();
                entry.kept_value().map_or(Hot::Cold, Hot::Found)
            }
        })
    }

    fn look_at_hot(
        &self,
        keys: &[&[u8]],
        extent: Extent,
        look: &mut dyn FnMut(Hot<&[u8]>, Spot) -> bool,
    ) -> Result<(), EngineError> {
        self.table.open.check()?;
        let mut look = |entry: Option<&Entry>, spot: Spot| {
            let hot = match entry {
                None => Hot::Absent,
                Some(entry) => {
                    entry.touch();
                    entry.value().map_or(Hot::Cold, Hot::Found)
                }
            };
            look(hot, spot)
        };
        let tree = &self.table.read().tree;
        match keys {
            [key] => {
                look(tree.get(key), Spot::default());
            }
            keys => tree.get_all(keys, extent, look),
        }
        Ok(())
    }

    fn look_at_beginnings(
        &self,
        keys: &[&[u8]],
        bytes: usize,
        look: &mut dyn FnMut(Hot<&[u8]>, Spot) -> bool,
    ) -> Result<(), EngineError> {
        self.table.open.check()?;
        let tree = &self.table.read().tree;
        tree.get_all(keys, Extent::Beginning, |entry, spot| {
            let hot = match entry {
                None => Hot::Absent,
                Some(entry) => entry.beginning(bytes).map_or(Hot::Cold, Hot::Found),
            };
            look(hot, spot)
        });
        Ok(())
    }

    fn keep_beginnings(&self, bytes: usize) {
        self.table.kept_bytes.store(bytes, Relaxed);
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError> {
        self.table.open.check()?;
        let scan = LogScan::begin(&self.shared, &self.table, from, to);
        Ok(Box::new(scan))
    }

    fn each_key(&self, each: &mut dyn FnMut(&[u8])) -> Result<(), EngineError> {
        let mut next = Vec::<u8>::new();
        loop {
            self.table.open.check()?;
            let contents = self.table.read();
            let mut last = None;
            for entry in contents.tree.entries_from(&next).take(KEYS_AT_ONCE) {
                each(entry.key());
                last = Some(entry.key());
            }
            let Some(last) = last else { return Ok(()) };
            next.clear();
            next.extend_from_slice(last);
            // The least key that is greater.
            next.push(0);
        }
    }

    fn approximate_len(&self) -> u64 {
        self.table.read().tree.len() as u64
    }
}
