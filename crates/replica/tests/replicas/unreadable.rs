//! An engine in memory with some unreadable records, like those in bad sectors of a disk, or with a full disk.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fondaco_engine::{Engine, EngineError, Hot, MemoryEngine, Scan, Table, WriteBatch};

/// The unreadable keys of each table, until they are overwritten.
type Bad = Arc<Mutex<BTreeSet<(String, Bytes)>>>;

/// The engine.
#[derive(Default)]
pub struct UnreadableEngine {
    inner: MemoryEngine,
    bad: Bad,
    /// Whether errors name no key and end scans, as in engines that store many records in a block.
    is_of_blocks: bool,
    /// Whether it refuses all writes.
    pub is_full: AtomicBool,
}

struct UnreadableTable {
    inner: Arc<dyn Table>,
    bad: Bad,
    is_of_blocks: bool,
}

impl UnreadableEngine {
    /// An engine whose errors name no key and end scans, as in engines that store many records in a block.
    pub fn of_blocks() -> Self {
        Self {
            is_of_blocks: true,
            ..Self::default()
        }
    }

    /// Makes the chosen records of tables unreadable, by table name and key. Returns how many they are.
    pub fn spoil(&self, is_chosen: impl Fn(&str, &[u8]) -> bool) -> usize {
        let mut bad = self.bad.lock().unwrap();
        for name in self.inner.tables().unwrap() {
            let table = self.inner.open_table(&name).unwrap();
            let keys = table.scan(&[], None).unwrap().map(|entry| entry.unwrap().0);
            let chosen = keys.filter(|key| is_chosen(&name, key));
            bad.extend(chosen.map(|key| (name.clone(), key)));
        }
        bad.len()
    }

    /// How many records are unreadable.
    pub fn bad(&self) -> usize {
        self.bad.lock().unwrap().len()
    }
}

impl Engine for UnreadableEngine {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        Ok(Arc::new(UnreadableTable {
            inner: self.inner.open_table(name)?,
            bad: Arc::clone(&self.bad),
            is_of_blocks: self.is_of_blocks,
        }))
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        self.inner.drop_table(name)
    }

    fn tables(&self) -> Result<Vec<String>, EngineError> {
        self.inner.tables()
    }

    fn write(&self, batch: WriteBatch) -> Result<(), EngineError> {
        if self.is_full.load(Relaxed) {
            return Err(EngineError::DiskFull { dir: "full".into() });
        }
        let mut bad = self.bad.lock().unwrap();
        for (name, key) in bad.clone() {
            let table = self.inner.open_table(&name)?;
            if batch.change_of(&*table, &key).is_some() {
                bad.remove(&(name, key));
            }
        }
        self.inner.write(batch)
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.inner.disk_bytes()
    }

    fn is_durable(&self) -> bool {
        true
    }
}

impl UnreadableTable {
    fn check(&self, key: &[u8]) -> Result<(), EngineError> {
        let name = self.inner.name().to_owned();
        match self.bad.lock().unwrap().contains(&(name, Bytes::copy_from_slice(key))) {
            true => Err(EngineError::Corrupt {
                place: "a bad sector".to_owned(),
                reason: "it cannot be read: Input/output error (os error 5)".to_owned(),
                key: (!self.is_of_blocks).then(|| key.into()),
            }),
            false => Ok(()),
        }
    }
}

impl Table for UnreadableTable {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.check(key).and_then(|()| self.inner.get(key))
    }

    fn get_hot(&self, _: &[u8]) -> Result<Hot<Bytes>, EngineError> {
        Ok(Hot::Cold)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError> {
        let mut found = Vec::new();
        for entry in self.inner.scan(from, to)? {
            let (key, value) = entry?;
            let checked = self.check(&key);
            let is_end = checked.is_err() && self.is_of_blocks;
            found.push(checked.map(|()| (key, value)));
            if is_end {
                break;
            }
        }
        Ok(Box::new(found.into_iter()))
    }

    fn approximate_len(&self) -> u64 {
        self.inner.approximate_len()
    }
}
