//! An engine on disk whose keys are in memory: a log, and where in it each record stands.
//!
//! What is written is appended to the log, once; what was overwritten is given back later, by moving what is left of
//! a part of the log to its end. So a write costs an append and a change in memory, and a read of what is not in memory
//! one read of the disk. The price is memory for all keys, and reading them when the engine is opened. The idea is
//! that of Bitcask (Sheehy and Smith, A Log-Structured Hash Table for Fast Key/Value Data, 2010), with a tree for its
//! table, so that keys can be gone through in order; the cleaning is that of log-structured file systems.

mod catalog;
mod cleaner;
mod entry;
mod frame;
mod heads;
mod heat;
mod marks;
mod moving;
mod recovery;
mod scan;
mod segment;
mod table;
mod tree;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use self::cleaner::{Cleaner, Cleaning};
use self::heat::Heat;
use self::recovery::{Recovered, recover};
use self::segment::Segment;
use self::table::{LogTable, Segments, TableHandle};
use self::tree::Tree;
use self::writer::Writer;
use crate::batch::WriteBatch;
use crate::budget::CacheBudget;
use crate::directory::{self, DamagedLog};
use crate::engine::{Engine, Table};
use crate::error::EngineError;
use crate::name;
use crate::space::Space;
use crate::synced::Synced;

/// How much of the machine the engine may take.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Memory for values, of all tables together. Keys are in memory in any case: about 110 bytes and its length for
    /// each.
    pub cache: CacheBudget,
    /// How long a part of the log is, about: what is given back at a time.
    pub segment_bytes: u64,
    /// Which share of the log may say nothing any more, in percent, before it is cleaned. The log is longer than what
    /// is in it by that; the smaller it is, the more is moved for each write.
    pub garbage_percent_max: u64,
    /// Writes are refused when less than this is left on the disk: cleaning needs room. What only deletes may take most of
    /// it.
    pub disk_reserve_bytes: u64,
    /// What to do when the log is found damaged.
    pub damaged_log: DamagedLog,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            cache: CacheBudget::new(256 << 20),
            segment_bytes: 64 << 20,
            garbage_percent_max: 50,
            disk_reserve_bytes: 1 << 30,
            damaged_log: DamagedLog::Refuse,
        }
    }
}

/// Tables in a log on disk, with all keys in memory.
pub struct LogEngine {
    shared: Arc<Shared>,
    _cleaner: Cleaner,
}

struct Shared {
    dir: PathBuf,
    options: LogOptions,
    tables: RwLock<Tables>,
    segments: RwLock<Segments>,
    /// Held while writing. Tables are locked after it, and the other locks after those.
    writer: Mutex<Writer>,
    synced: Synced,
    /// Full segments that are not on the disk yet.
    unsynced: Mutex<Vec<Arc<Segment>>>,
    heat: Heat,
    cleaning: Arc<Cleaning>,
    lost_writes: Option<String>,
    /// Held locked.
    _lock: File,
}

#[derive(Default)]
struct Tables {
    by_name: HashMap<String, Arc<LogTable>>,
    by_number: BTreeMap<u32, Arc<LogTable>>,
}

impl Tables {
    fn insert(&mut self, table: Arc<LogTable>) {
        self.by_number.insert(table.number, Arc::clone(&table));
        self.by_name.insert(table.open.name().to_owned(), table);
    }
}

impl LogEngine {
    /// Opens the engine in a directory, which is made if it is not there, and locks it. All keys are read.
    ///
    /// # Errors
    /// [`EngineError::Locked`] if it is in use, [`EngineError::Corrupt`] if it is damaged, or what the
    /// operating system says.
    pub fn open(dir: &Path, options: LogOptions) -> Result<Self, EngineError> {
        let lock = directory::lock(dir)?;
        let Recovered {
            catalog,
            mut trees,
            segments,
            uses,
            active,
            full,
            damage,
        } = recover(dir, options.damaged_log)?;
        if catalog.next == 0 {
            // So that a directory with a segment has names, too.
            catalog.write(dir)?;
        }
        let mut tables = Tables::default();
        for (name, &number) in &catalog.numbers {
            let tree: Tree = trees.remove(&number).unwrap_or_default();
            tables.insert(Arc::new(LogTable::new(name, number, tree)));
        }
        let cleaning = Arc::<Cleaning>::default();
        let unsynced = full.iter().map(|full| Arc::clone(&full.segment)).collect();
        full.into_iter().for_each(|full| cleaning.seal(full));
        let space = Space::new(dir, options.disk_reserve_bytes);
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            tables: RwLock::new(tables),
            segments: RwLock::new(segments),
            writer: Mutex::new(Writer::new(space, catalog, active, uses)),
            synced: Synced::at_start(),
            unsynced: Mutex::new(unsynced),
            heat: Heat::new(&options.cache),
            cleaning,
            lost_writes: damage,
            _lock: lock,
            options,
        });
        Ok(Self {
            _cleaner: Cleaner::start(&shared)?,
            shared,
        })
    }

    /// How many bytes the values in memory take.
    pub fn cached_bytes(&self) -> u64 {
        self.shared.heat.bytes()
    }
}

impl Shared {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        // What a writer that panicked leaves behind is no worse than what a crash does.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn unsynced(&self) -> MutexGuard<'_, Vec<Arc<Segment>>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.synced.sync(&self.dir, || {
            let active = self.writer().active.as_ref().map(|active| Arc::clone(&active.segment));
            let full = self.unsynced().clone();
            for segment in full.iter().chain(&active) {
                let synced = segment.sync();
                synced.map_err(|error| self.synced.failed(&self.dir, &error))?;
            }
            Ok(())
        })
    }

    fn open_table(self: &Arc<Self>, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        name::check(name)?;
        let mut writer = self.writer();
        let known = self.tables().by_name.get(name).cloned();
        let table = match known {
            Some(table) => table,
            None => {
                let mut catalog = writer.catalog.clone();
                let number = catalog.next;
                catalog.numbers.insert(name.to_owned(), number);
                catalog.next += 1;
                catalog.write(&self.dir)?;
                writer.catalog = catalog;
                let table = Arc::new(LogTable::new(name, number, Tree::default()));
                let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
                tables.insert(Arc::clone(&table));
                table
            }
        };
        Ok(Arc::new(TableHandle::new(Arc::clone(self), table)))
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        let mut writer = self.writer();
        let mut catalog = writer.catalog.clone();
        if catalog.numbers.remove(name).is_none() {
            return Ok(());
        }
        catalog.write(&self.dir)?;
        writer.catalog = catalog;
        let table = {
            let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
            let table = tables.by_name.remove(name);
            table.inspect(|table| drop(tables.by_number.remove(&table.number)))
        };
        let Some(table) = table else { return Ok(()) };
        table.open.set_dropped();
        let mut contents = table.write();
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        contents.segments = Some(segments.clone());
        drop(segments);
        let mut hot_bytes = 0;
        for entry in contents.tree.iter() {
            writer.unused(entry);
            hot_bytes += entry.hot_bytes();
        }
        self.heat.remove(hot_bytes);
        self.cleaning.wrote(&mut writer, self.options.segment_bytes);
        // Scans have a table of their own to go through; nobody else asks it any more.
        Ok(())
    }
}

impl Engine for LogEngine {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        self.shared.open_table(name)
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        self.shared.drop_table(name)
    }

    fn tables(&self) -> Result<Vec<String>, EngineError> {
        Ok(self.shared.writer().catalog.numbers.keys().cloned().collect())
    }

    fn write(&self, batch: WriteBatch) -> Result<(), EngineError> {
        batch.check()?;
        if batch.is_empty() {
            return Ok(());
        }
        self.shared.write(batch)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.shared.sync()
    }

    fn disk_bytes(&self) -> u64 {
        directory::used_bytes(&self.shared.dir)
    }

    fn writes_at_once(&self) -> bool {
        !self.shared.cleaning.is_behind()
    }

    fn lost_writes(&self) -> Option<&str> {
        self.shared.lost_writes.as_deref()
    }

    fn make_room(&self) {
        self.shared.cleaning.hurry();
    }

    fn is_durable(&self) -> bool {
        true
    }
}
