//! An engine in memory with the faults of a disk. The end of the process loses nothing. A loss of power loses the last
//! unsynced writes: a write is never lost while a later one is kept. Records become unreadable, the disk becomes full, an
//! older copy replaces it, and writes fail, wait or panic.
//!
//! It is the disk of simulated nodes, and the engine of tests that need one that fails.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use fondaco_engine::{Engine, EngineError, Hot, MemoryEngine, Scan, Table, WriteBatch};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

/// How many of the last writes a loss of power can undo: the operating system has already written the earlier ones.
const UNSYNCED_MAX: usize = 256;

/// A disk with tables. Clones share the same disk.
#[derive(Clone)]
pub struct FaultyDisk {
    kept: Arc<Mutex<Kept>>,
    traits: Arc<Traits>,
}

/// The properties of a disk that do not change.
struct Traits {
    /// Whether it is in the node's machine, and has an identity.
    is_local: bool,
    hot: HotRecords,
    /// Whether an unreadable record names no key and ends a scan, as in engines that store many records in a block.
    has_blocks: bool,
    /// The minimum number of keys that its tables report: Merkle trees are sized for that many keys.
    tree_keys: u64,
    /// Whether it only pretends to sync.
    never_syncs: bool,
    write: Option<Box<WriteWith>>,
    drop_table: Option<Box<DropWith>>,
}

/// The records that are also in memory.
enum HotRecords {
    All,
    /// Some records are only on the disk, by a hash of their keys.
    Some,
    None,
}

type WriteWith = dyn Fn(&MemoryEngine, WriteBatch) -> Result<(), EngineError> + Send + Sync;
type DropWith = dyn Fn(&MemoryEngine, &str) -> Result<(), EngineError> + Send + Sync;

struct Kept {
    memory: Arc<MemoryEngine>,
    /// The tables before each of the last writes.
    unsynced: VecDeque<MemoryEngine>,
    /// Unreadable records, by table and key.
    unreadable: BTreeSet<(String, Bytes)>,
    is_full: bool,
    failure: Option<WriteFailure>,
    /// Drawn when the disk was created.
    identity: u64,
    /// The file of incarnations.
    incarnation: Option<Vec<u8>>,
}

/// How writes fail.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WriteFailure {
    /// All of them: the process is about to be killed.
    All,
    /// The write after this number of others. It may have taken effect all the same.
    After { writes: u32, has_effect: bool },
}

/// A copy of a disk, as an operator keeps one.
pub(crate) struct DiskCopy {
    memory: MemoryEngine,
    identity: u64,
    incarnation: Option<Vec<u8>>,
}

impl Default for FaultyDisk {
    /// A disk whose records are all in memory, too.
    fn default() -> Self {
        Self::of(Traits::default(), 0)
    }
}

impl Default for Traits {
    fn default() -> Self {
        Self {
            is_local: false,
            hot: HotRecords::All,
            has_blocks: false,
            tree_keys: 0,
            never_syncs: false,
            write: None,
            drop_table: None,
        }
    }
}

impl FaultyDisk {
    /// The disk of a simulated node.
    pub(crate) fn simulated(identity: u64, tree_keys: u64, never_syncs: bool) -> Self {
        let traits = Traits {
            is_local: true,
            hot: HotRecords::Some,
            tree_keys,
            never_syncs,
            ..Traits::default()
        };
        Self::of(traits, identity)
    }

    /// A disk without records in memory.
    pub fn cold() -> Self {
        let traits = Traits {
            hot: HotRecords::None,
            ..Traits::default()
        };
        Self::of(traits, 0)
    }

    /// A disk without records in memory, whose errors name no key and end scans, as in engines that store many records in a
    /// block.
    pub fn in_blocks() -> Self {
        let traits = Traits {
            hot: HotRecords::None,
            has_blocks: true,
            ..Traits::default()
        };
        Self::of(traits, 0)
    }

    /// A disk that carries out each write with this function, which may look at it, wait, fail or panic.
    pub fn writing(
        write: impl Fn(&MemoryEngine, WriteBatch) -> Result<(), EngineError> + Send + Sync + 'static,
    ) -> Self {
        let traits = Traits {
            write: Some(Box::new(write)),
            ..Traits::default()
        };
        Self::of(traits, 0)
    }

    /// A disk that calls a function before each write, and before it drops a table.
    pub fn waiting(wait: impl Fn() + Send + Sync + 'static) -> Self {
        let wait = Arc::new(wait);
        let before_drop = Arc::clone(&wait);
        let traits = Traits {
            write: Some(Box::new(move |memory, batch| {
                wait();
                memory.write(batch)
            })),
            drop_table: Some(Box::new(move |memory, name| {
                before_drop();
                memory.drop_table(name)
            })),
            ..Traits::default()
        };
        Self::of(traits, 0)
    }

    fn of(traits: Traits, identity: u64) -> Self {
        Self {
            kept: Arc::new(Mutex::new(Kept {
                memory: Arc::new(MemoryEngine::new()),
                unsynced: VecDeque::new(),
                unreadable: BTreeSet::new(),
                is_full: false,
                failure: None,
                identity,
                incarnation: None,
            })),
            traits: Arc::new(traits),
        }
    }

    fn memory(&self) -> Arc<MemoryEngine> {
        Arc::clone(&self.kept.lock().memory)
    }

    /// How many writes a loss of power would undo.
    pub(crate) fn unsynced(&self) -> usize {
        self.kept.lock().unsynced.len()
    }

    /// Loses power: of the unsynced writes, only the first ones are kept.
    pub(crate) fn lose_power(&self, first: usize) {
        let mut kept = self.kept.lock();
        let before = kept.unsynced.drain(..).nth(first);
        if let Some(before) = before {
            kept.memory = Arc::new(before);
        }
    }

    /// Puts keys of a table back to what they were before the unsynced writes, and leaves all else as it is.
    pub(crate) fn lose_power_for(&self, table: &str, keys: [&[u8]; 2]) -> Result<(), EngineError> {
        let kept = self.kept.lock();
        let Some(before) = kept.unsynced.front() else {
            return Ok(());
        };
        let (before, now) = (before.copy().open_table(table)?, kept.memory.open_table(table)?);
        let mut batch = WriteBatch::new();
        for entry in now.scan(keys[0], Some(keys[1]))? {
            batch.delete(&*now, entry?.0);
        }
        for entry in before.scan(keys[0], Some(keys[1]))? {
            let (key, value) = entry?;
            batch.put(&*now, key, value);
        }
        kept.memory.write(batch)
    }

    /// Copies the disk.
    pub(crate) fn copy(&self) -> DiskCopy {
        let kept = self.kept.lock();
        DiskCopy {
            memory: kept.memory.copy(),
            identity: kept.identity,
            incarnation: kept.incarnation.clone(),
        }
    }

    /// Replaces the disk by a copy, or by a new empty one.
    pub(crate) fn replace(&self, copy: Option<DiskCopy>, new_identity: u64) {
        let mut kept = self.kept.lock();
        kept.unsynced.clear();
        kept.unreadable.clear();
        let copy = copy.unwrap_or_else(|| DiskCopy {
            memory: MemoryEngine::new(),
            identity: new_identity,
            incarnation: None,
        });
        kept.memory = Arc::new(copy.memory);
        (kept.identity, kept.incarnation) = (copy.identity, copy.incarnation);
    }

    /// Loses all tables, but keeps the files beside them.
    pub(crate) fn lose_tables(&self) {
        let mut kept = self.kept.lock();
        kept.unsynced.clear();
        kept.unreadable.clear();
        kept.memory = Arc::new(MemoryEngine::new());
    }

    /// Makes the disk full: it refuses all writes; or gives it room again.
    pub fn set_full(&self, is_full: bool) {
        self.kept.lock().is_full = is_full;
    }

    /// Makes writes fail with an error that does not say whether they took effect, or not any more.
    pub(crate) fn fail_writes(&self, failure: Option<WriteFailure>) {
        self.kept.lock().failure = failure;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.kept.lock().is_full
    }

    /// The file of incarnations.
    pub(crate) fn incarnation(&self) -> Option<Vec<u8>> {
        self.kept.lock().incarnation.clone()
    }

    pub(crate) fn set_incarnation(&self, bytes: Vec<u8>) {
        self.kept.lock().incarnation = Some(bytes);
    }

    /// The keys of a table.
    pub(crate) fn keys(&self, table: &str) -> Vec<Bytes> {
        let memory = self.memory();
        let scan = memory.open_table(table).and_then(|table| table.scan(&[], None));
        scan.map_or_else(|_| Vec::new(), |scan| scan.flatten().map(|(key, _)| key).collect())
    }

    /// Makes a record unreadable, until it is written again.
    pub(crate) fn spoil(&self, table: &str, key: Bytes) {
        self.kept.lock().unreadable.insert((table.to_owned(), key));
    }

    /// Makes the chosen records of all tables unreadable, by table name and key, until they are written again. Returns how many
    /// records are unreadable.
    pub fn spoil_where(&self, is_chosen: impl Fn(&str, &[u8]) -> bool) -> usize {
        for table in self.tables().into_iter().flatten() {
            for key in self.keys(&table).into_iter().filter(|key| is_chosen(&table, key)) {
                self.spoil(&table, key);
            }
        }
        self.unreadable().len()
    }

    /// The keys of the unreadable records.
    pub fn unreadable(&self) -> Vec<Bytes> {
        let kept = self.kept.lock();
        kept.unreadable.iter().map(|(_, key)| key.clone()).collect()
    }
}

impl Engine for FaultyDisk {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        Ok(Arc::new(DiskTable {
            table: self.memory().open_table(name)?,
            disk: self.clone(),
        }))
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        let memory = self.memory();
        match &self.traits.drop_table {
            Some(drop_table) => drop_table(&memory, name),
            None => memory.drop_table(name),
        }
    }

    fn tables(&self) -> Result<Vec<String>, EngineError> {
        self.kept.lock().memory.tables()
    }

    fn write(&self, batch: WriteBatch) -> Result<(), EngineError> {
        if let Some(write) = &self.traits.write {
            return write(&self.memory(), batch);
        }
        let mut kept = self.kept.lock();
        if kept.is_full {
            return Err(EngineError::DiskFull { dir: "disk".into() });
        }
        let has_failed = match &mut kept.failure {
            Some(WriteFailure::After { writes: 0, .. } | WriteFailure::All) => true,
            Some(WriteFailure::After { writes, .. }) => {
                *writes -= 1;
                false
            }
            None => false,
        };
        let failed = || EngineError::Io {
            action: "write to",
            place: "disk".to_owned(),
            source: std::io::ErrorKind::Other.into(),
        };
        if has_failed {
            match kept.failure.take() {
                Some(WriteFailure::After { has_effect: true, .. }) => {}
                failure => {
                    kept.failure = failure.filter(|failure| matches!(failure, WriteFailure::All));
                    return Err(failed());
                }
            }
        }
        let before = kept.memory.copy();
        if !kept.unreadable.is_empty() {
            let memory = Arc::clone(&kept.memory);
            let is_written = |(table, key): &(String, Bytes)| {
                let table = memory.open_table(table);
                table.is_ok_and(|table| batch.change_of(&*table, key).is_some())
            };
            kept.unreadable.retain(|record| !is_written(record));
        }
        kept.memory.write(batch)?;
        kept.unsynced.push_back(before);
        if kept.unsynced.len() > UNSYNCED_MAX {
            kept.unsynced.pop_front();
        }
        if has_failed { Err(failed()) } else { Ok(()) }
    }

    fn sync(&self) -> Result<(), EngineError> {
        if !self.traits.never_syncs {
            self.kept.lock().unsynced.clear();
        }
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.kept.lock().memory.disk_bytes()
    }

    fn identity(&self) -> Option<u64> {
        self.traits.is_local.then(|| self.kept.lock().identity)
    }

    fn is_local(&self) -> bool {
        self.traits.is_local
    }

    fn writes_at_once(&self) -> bool {
        self.traits.is_local
    }

    fn is_durable(&self) -> bool {
        true
    }
}

/// A table on the disk.
struct DiskTable {
    table: Arc<dyn Table>,
    disk: FaultyDisk,
}

impl DiskTable {
    fn check(&self, key: &[u8]) -> Result<(), EngineError> {
        let kept = self.disk.kept.lock();
        let is_unreadable = !kept.unreadable.is_empty()
            && kept
                .unreadable
                .contains(&(self.name().to_owned(), Bytes::copy_from_slice(key)));
        match is_unreadable {
            true => Err(EngineError::Corrupt {
                place: self.name().to_owned(),
                reason: "it cannot be read: Input/output error (os error 5)".to_owned(),
                key: (!self.disk.traits.has_blocks).then(|| key.into()),
            }),
            false => Ok(()),
        }
    }
}

impl Table for DiskTable {
    fn name(&self) -> &str {
        self.table.name()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.check(key)?;
        self.table.get(key)
    }

    fn get_hot(&self, key: &[u8]) -> Result<Hot<Bytes>, EngineError> {
        let is_hot = match self.disk.traits.hot {
            HotRecords::All => true,
            HotRecords::Some => !xxh3_64(key).is_multiple_of(4),
            HotRecords::None => false,
        };
        match is_hot && self.check(key).is_ok() {
            true => self.table.get_hot(key),
            false => Ok(Hot::Cold),
        }
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError> {
        let checked = DiskTable {
            table: Arc::clone(&self.table),
            disk: self.disk.clone(),
        };
        let (ends_at_error, mut is_over) = (self.disk.traits.has_blocks, false);
        let scan = self.table.scan(from, to)?;
        Ok(Box::new(scan.map_while(move |entry| {
            if is_over {
                return None;
            }
            let entry = entry.and_then(|(key, record)| checked.check(&key).map(|()| (key, record)));
            is_over = ends_at_error && entry.is_err();
            Some(entry)
        })))
    }

    fn approximate_len(&self) -> u64 {
        self.table.approximate_len().max(self.disk.traits.tree_keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(disk: &FaultyDisk, table: &dyn Table, value: &'static str) {
        let mut batch = WriteBatch::new();
        batch.put(table, "k".into(), value.into());
        disk.write(batch).unwrap();
    }

    fn value(disk: &FaultyDisk) -> Option<Bytes> {
        disk.open_table("t").unwrap().get(b"k").unwrap()
    }

    #[test]
    fn a_loss_of_power_undoes_the_last_unsynced_writes() {
        let disk = FaultyDisk::simulated(1, 0, false);
        let table = disk.open_table("t").unwrap();
        put(&disk, &*table, "a");
        disk.sync().unwrap();
        for value in ["b", "c", "d"] {
            put(&disk, &*table, value);
        }
        disk.lose_power(2);
        assert_eq!((value(&disk), disk.unsynced()), (Some("c".into()), 0));
        disk.lose_power(0);
        assert_eq!(value(&disk), Some("c".into()));
    }

    #[test]
    fn an_unreadable_record_can_be_overwritten() {
        let disk = FaultyDisk::simulated(1, 0, false);
        let table = disk.open_table("t").unwrap();
        put(&disk, &*table, "a");
        disk.spoil("t", "k".into());
        assert!(table.get(b"k").is_err());
        assert!(matches!(table.get_hot(b"k"), Ok(Hot::Cold)));
        let found: Vec<_> = table.scan(&[], None).unwrap().collect();
        let [Err(error)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(error.damaged_key(), Some(&b"k"[..]));
        put(&disk, &*table, "b");
        assert_eq!(table.get(b"k").unwrap(), Some("b".into()));
    }

    #[test]
    fn a_copy_keeps_the_old_state_of_the_disk() {
        let disk = FaultyDisk::simulated(1, 0, false);
        let table = disk.open_table("t").unwrap();
        put(&disk, &*table, "a");
        let copy = disk.copy();
        put(&disk, &*table, "b");
        disk.replace(Some(copy), 2);
        assert_eq!((value(&disk), disk.identity()), (Some("a".into()), Some(1)));
        disk.replace(None, 2);
        assert_eq!((value(&disk), disk.identity()), (None, Some(2)));
    }
}
