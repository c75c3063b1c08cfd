//! An engine on disk: one LSM tree per table; all tables share one log and one memory budget.
//!
//! The trees are fjall's. This module adds: a record cache that an event loop can read without ever waiting for a disk;
//! a reserve of disk space, so that a full disk leads to refused writes and not to a broken tree; recovery after
//! fjall has given up, by opening it again; and a check that the log is as long as at the last sync. Other damage in files is
//! noticed only as far as fjall notices it. Batches of a `write` that returned are in the page cache of the operating
//! system; after `sync` has returned, they are on the disk.

mod failure;
mod log_files;
mod opened;
mod table;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fjall::PersistMode;
use parking_lot::{Mutex, RwLock};

use self::opened::{OpenFailure, Opened, Slot};
use self::table::DiskTable;
use crate::batch::WriteBatch;
use crate::budget::CacheBudget;
use crate::directory;
use crate::engine::{Engine, Table};
use crate::error::EngineError;
use crate::high_water::{Found, HighWater, Mark};
use crate::loss::OnLoss;
use crate::name;
use crate::open_table::OpenTable;
use crate::record_cache::{Known, RecordCache};
use crate::space::Space;
use crate::synced::Synced;

/// The resources that an engine on disk may use.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// Memory for cached records, of all tables together.
    pub cache: CacheBudget,
    /// Memory for cached blocks of files, in bytes.
    pub block_cache_bytes: u64,
    /// The size of the log, and so approximately of the data that is only in memory. At least 64 MiB. When the log
    /// reaches it, tables are flushed before their buffers are full.
    pub log_bytes_max: u64,
    /// The size of a table's buffer, at which it is flushed.
    pub table_buffer_bytes: u64,
    /// Writes are refused when the disk has less free space than this plus the [space for flushes and
    /// compaction](Engine::pending_disk_bytes). Batches that only delete may use most of the reserve.
    pub disk_reserve_bytes: u64,
    /// Threads for flushes and compaction.
    pub threads: usize,
    /// The reaction if fjall refuses the log, or the log is shorter than at the last sync. A log that fjall refuses is cut
    /// off after the last sync, and if the damage is before that, all of it is set aside. The tables stay.
    pub on_loss: OnLoss,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            cache: CacheBudget::new(128 << 20),
            block_cache_bytes: 128 << 20,
            log_bytes_max: 512 << 20,
            table_buffer_bytes: 64 << 20,
            disk_reserve_bytes: 1 << 30,
            threads: std::thread::available_parallelism().map_or(1, usize::from).min(4),
            on_loss: OnLoss::Refuse,
        }
    }
}

/// Tables on disk.
pub struct DiskEngine {
    shared: Arc<Shared>,
}

struct Shared {
    dir: PathBuf,
    options: DiskOptions,
    cache: RecordCache,
    slot: Slot,
    tables: RwLock<HashMap<String, Arc<OpenTable>>>,
    /// Held while writing: the cache must see batches in the order of the log.
    writer: Mutex<Writer>,
    synced: Synced,
    high_water: HighWater,
    /// The last mark that was written to `high_water`.
    noted: Mutex<Option<Mark>>,
    /// The first damage that was found.
    damage: OnceLock<String>,
    /// The lock on the directory.
    _lock: File,
}

struct Writer {
    space: Space,
    /// The number of the next table to be opened.
    next_table: u64,
}

impl DiskEngine {
    /// Opens the engine in a directory and locks it. Creates the directory if it does not exist.
    ///
    /// # Errors
    /// [`EngineError::Locked`] if the directory is in use, [`EngineError::Corrupt`] if it is damaged, or an error of
    /// the operating system.
    pub fn open(dir: &Path, options: DiskOptions) -> Result<Self, EngineError> {
        let lock = directory::lock(dir)?;
        options.on_loss.take_former_note(dir)?;
        let found = HighWater::find(dir)?;
        let was_there = opened::is_there(dir);
        let is_new = !found.is_whole() && !was_there;
        let (identity, marks) = match found {
            _ if is_new => (None, Some(Vec::new())),
            Found::Nothing => (None, None),
            Found::Something(identity, marks) => (identity, marks),
        };
        if is_new {
            // From now on, a database without this file has lost it.
            HighWater::open(dir, None)?;
        }
        let database = opened::database_in(dir, &options)?;
        let mut losses = match marks.as_deref() {
            None => vec![format!(
                "the length of the log in {database:?} is not known: its high-water file is missing or damaged"
            )],
            Some(marks) if !was_there && !marks.is_empty() => vec![format!("the database {database:?} is missing")],
            Some(marks) => log_files::missing(&database, marks)?,
        };
        options.on_loss.react(dir, &losses)?;
        let marks = marks.unwrap_or_default();
        log_files::ensure(&database)?;
        let mut cuts = [marks.last().copied(), None].into_iter();
        let slot = loop {
            match Slot::open(&database, &options) {
                Ok(slot) => break slot,
                Err(OpenFailure::DamagedLog { reason }) => {
                    let cut = cuts.next().ok_or_else(|| failure::corrupt(dir, &reason))?;
                    options.on_loss.react(dir, std::slice::from_ref(&reason))?;
                    log_files::cut_off(&database, cut)?;
                    losses.push(reason);
                }
                Err(failure) => return Err(failure.of(&database)),
            }
        };
        if losses.is_empty() {
            // fjall drops a damaged part of a log without a word.
            let files = log_files::all_marks(&database)?;
            losses.extend(log_files::shortened(&database, &marks, &files));
            options.on_loss.react(dir, &losses)?;
        }
        let high_water = HighWater::open(dir, identity)?;
        let last = log_files::last_mark(&database, None)?;
        if !losses.is_empty() || marks.len() > 1 {
            // From here on the database deletes files by itself.
            high_water.note_durably(last.as_slice())?;
        }
        let shared = Shared {
            dir: database,
            cache: RecordCache::new(&options.cache),
            slot,
            tables: RwLock::default(),
            writer: Mutex::new(Writer {
                space: Space::new(dir, options.disk_reserve_bytes),
                next_table: 0,
            }),
            synced: Synced::at_start(),
            high_water,
            noted: Mutex::new(last),
            damage: OnceLock::new(),
            _lock: lock,
            options,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The memory that the cached records use, in bytes.
    pub fn cached_bytes(&self) -> u64 {
        self.shared.cache.bytes()
    }
}

impl Shared {
    fn state_of(&self, name: &str) -> Option<Arc<OpenTable>> {
        let tables = self.tables.read();
        tables.get(name).cloned()
    }

    fn write(&self, batch: &WriteBatch) -> Result<(), EngineError> {
        let mut writer = self.writer.lock();
        self.synced.check(&self.dir)?;
        writer.space.claim(batch, || self.pending_disk_bytes())?;
        let opened = self.slot.working(&self.dir, &self.options, &self.cache)?;
        let made = match self.commit(&opened, batch) {
            // fjall's threads do not say why they stopped. If the disk was not full, a sync may have failed. The writes
            // acknowledged since the last successful sync would then be a hole in the log before the next batch.
            Err(EngineError::Stopped { .. }) if !writer.space.may_have_been_full() => {
                let reason = "its threads could not flush or compact, and the disk was not full";
                Err(self.synced.failed(&self.dir, &io::Error::other(reason)))
            }
            Err(EngineError::Stopped { .. }) => {
                // Nothing of the batch was written: fjall had stopped before.
                drop(opened);
                let opened = self.slot.reopen(&self.dir, &self.options, &self.cache)?;
                self.commit(&opened, batch)
            }
            result => result,
        };
        match &made {
            Ok(()) => writer.space.made(),
            Err(EngineError::DiskFull { .. }) => writer.space.was_full(),
            Err(_) => {}
        }
        made
    }

    fn commit(&self, opened: &Opened, batch: &WriteBatch) -> Result<(), EngineError> {
        let failed = |error| failure::name("write to", &self.dir, error);
        let mut changes = opened.database().batch().durability(Some(PersistMode::Buffer));
        let mut written = Vec::with_capacity(batch.len());
        for (name, table_changes) in batch.tables() {
            let no_table = || EngineError::NoTable { table: name.to_owned() };
            let state = self.state_of(name).ok_or_else(no_table)?;
            let keyspace = opened.keyspace(&state)?;
            opened.wait_for_room(&self.dir, &keyspace)?;
            for change in table_changes.iter() {
                let (key, value) = (change.shared_key(), change.shared_value());
                let is_there = value.is_some();
                match value {
                    Some(value) => changes.insert(&keyspace, key, value),
                    None => changes.remove(&keyspace, key),
                }
                written.push(Known {
                    table: state.number(),
                    pair: change.shared_pair(),
                    is_there,
                });
            }
        }
        changes.commit().map_err(failed)?;
        self.synced.wrote();
        self.cache.put(written);
        Ok(())
    }

    fn pending_disk_bytes(&self) -> u64 {
        // Without an open database there are no flushes.
        let opened = self.slot.at_once();
        opened.map_or(0, |opened| opened.pending_disk_bytes(self.options.threads.max(1)))
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.synced.sync(&self.dir, || {
            let opened = self.slot.current(&self.dir)?;
            let mark = self.mark();
            let persisted = opened.database().persist(PersistMode::SyncData);
            // Fails if one of fjall's threads synced first and received the error.
            let persisted = persisted.and_then(|()| opened.database().persist(PersistMode::Buffer));
            persisted.map_err(|error| match error {
                // The operating system has the log already, so only the disk can have failed. fjall then gives up, and
                // the next write would open it again, with a log that continues after a hole.
                fjall::Error::Io(error) => self.synced.failed(&self.dir, &error),
                error => failure::name("sync", &self.dir, error),
            })?;
            if let Some(mark) = mark {
                // The data is on the disk, noted or not.
                let _ = self.high_water.note(&[mark]);
            }
            Ok(())
        })
    }

    /// The end of the log, between two batches. Does not wait for writers: the mark of an earlier sync is lower but
    /// still correct.
    fn mark(&self) -> Option<Mark> {
        let _writer = self.writer.try_lock()?;
        let mut noted = self.noted.lock();
        *noted = log_files::last_mark(&self.dir, *noted).ok()?;
        *noted
    }

    /// Maps an error of a read, and remembers it if the stored data is damaged.
    fn read_error(&self, action: &'static str, error: fjall::Error) -> EngineError {
        let error = failure::name_reading(action, &self.dir, error);
        if matches!(error, EngineError::Corrupt { .. }) {
            self.damage.get_or_init(|| error.to_string());
        }
        error
    }

    fn open_table(self: &Arc<Self>, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        name::check(name)?;
        let mut writer = self.writer.lock();
        let state = match self.state_of(name) {
            Some(state) => state,
            None => {
                let state = Arc::new(OpenTable::new(name, writer.next_table));
                let opened = self.slot.working(&self.dir, &self.options, &self.cache)?;
                opened.open_keyspace(&self.dir, &self.options, &state)?;
                writer.next_table += 1;
                let mut tables = self.tables.write();
                tables.insert(name.to_owned(), state.clone());
                state
            }
        };
        Ok(Arc::new(DiskTable::new(self.clone(), state)))
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        let _writer = self.writer.lock();
        let opened = self.slot.working(&self.dir, &self.options, &self.cache)?;
        opened.drop_keyspace(&self.dir, &self.options, name)?;
        let state = {
            let mut tables = self.tables.write();
            tables.remove(name)
        };
        if let Some(state) = state {
            state.set_dropped();
            opened.forget(&state);
        }
        Ok(())
    }
}

impl Drop for Shared {
    /// Notes the length of each file of the log: nothing is written or deleted any more.
    fn drop(&mut self) {
        if self.slot.close()
            && self.synced.check(&self.dir).is_ok()
            && let Ok(marks) = log_files::all_marks(&self.dir)
        {
            // If this fails, less of a loss can be detected.
            let _ = self.high_water.note(&marks);
        }
    }
}

impl Engine for DiskEngine {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        self.shared.open_table(name)
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        self.shared.drop_table(name)
    }

    fn tables(&self) -> Result<Vec<String>, EngineError> {
        Ok(self.shared.slot.current(&self.shared.dir)?.table_names())
    }

    fn write(&self, batch: WriteBatch) -> Result<(), EngineError> {
        batch.check()?;
        if batch.is_empty() {
            return Ok(());
        }
        self.shared.write(&batch)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.shared.sync()
    }

    fn disk_bytes(&self) -> u64 {
        directory::used_bytes(&self.shared.dir)
    }

    fn pending_disk_bytes(&self) -> u64 {
        self.shared.pending_disk_bytes()
    }

    fn identity(&self) -> Option<u64> {
        Some(self.shared.high_water.identity())
    }

    fn damage(&self) -> Option<String> {
        self.shared.damage.get().cloned()
    }

    fn is_local(&self) -> bool {
        true
    }

    fn is_durable(&self) -> bool {
        true
    }
}
