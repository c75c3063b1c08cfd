//! An open fjall database, and the place that holds it: when it has given up, another takes its place.
//!
//! fjall gives up for good when a write or a merge fails, for want of space as a rule: it refuses every write
//! until it is opened again. If it was for that, it is opened again here, by the next write, when all who read have let
//! go.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use parking_lot::{Mutex, RwLock};

use super::{DiskOptions, failure, lists};
use crate::error::EngineError;
use crate::open_table::OpenTable;
use crate::record_cache::RecordCache;

/// How long readers are kept waiting for others to let go of a database that has given up.
const LET_GO_MAX: Duration = Duration::from_millis(200);
/// How often opening again is tried.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long a write waits for the disk to catch up.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(60);
/// Writing out and merging give way to what answers clients, but not wholly: they hold locks that writers wait for.
const THREADS_NICE: i32 = 5;
const POLL: Duration = Duration::from_millis(1);

/// fjall makes writers wait when a table has this many buffers to write out, or this many runs to merge: for ever,
/// if its threads have ended meanwhile. So we wait before it does, and see whether they have.
const BUFFERS_WAITING_MAX: usize = 2;
const RUNS_WAITING_MAX: usize = 18;

/// How much a merge takes of the disk before it gives back what it has merged: mostly files of one level and of the next one,
/// ten times as large, whose keys they have between them, each of 64 MiB. Of levels that are far too large it may be more.
const MERGE_BYTES: u64 = 1 << 30;
/// How long the tables are taken to be as large as they were.
const TABLES_LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Where the database is.
pub(super) struct Slot {
    /// Empty while it is being replaced, or could not be.
    opened: RwLock<Option<Arc<Opened>>>,
    /// When that was last tried in vain, and whether it was for want of space.
    failed: Mutex<Option<(Instant, bool)>>,
}

pub(super) struct Opened {
    keyspaces: RwLock<HashMap<u64, Keyspace>>,
    /// How large their files were, and when that was looked at last.
    tables: Mutex<(Option<Instant>, u64)>,
    database: Database,
}

/// The directory of the database, which is made if it is not there. A crash while fjall makes one would leave what it
/// does not open: so it gets its name when it is complete.
pub(super) fn database_in(dir: &Path, options: &DiskOptions) -> Result<PathBuf, EngineError> {
    let (complete, begun) = (dir.join("fjall"), dir.join("fjall.begun"));
    if complete.exists() {
        return Ok(complete);
    }
    if begun.exists() {
        fs::remove_dir_all(&begun).map_err(|error| failure::io("delete", &begun, error))?;
    }
    drop(Opened::open(&begun, options)?);
    let renamed = fondaco_durable::rename(&begun, &complete);
    renamed.map_err(|error| failure::io("create", &complete, error))?;
    Ok(complete)
}

/// Whether there is a database in a directory.
pub(super) fn is_there(dir: &Path) -> bool {
    dir.join("fjall").exists()
}

impl Slot {
    /// Ends the database, which then has put all that was written on the disk. Whether it has.
    pub(super) fn close(&self) -> bool {
        let opened = self.opened.write().take();
        opened.and_then(Arc::into_inner).map(drop).is_some()
    }

    pub(super) fn open(dir: &Path, options: &DiskOptions) -> Result<Self, EngineError> {
        let opened = Arc::new(Opened::open(dir, options)?);
        Ok(Self {
            opened: RwLock::new(Some(opened)),
            failed: Mutex::default(),
        })
    }

    /// The database, also one that has given up, for reading.
    pub(super) fn current(&self, dir: &Path) -> Result<Arc<Opened>, EngineError> {
        let opened = self.opened.read();
        opened
            .clone()
            .ok_or_else(|| failure::stopped(dir, "it could not be opened again"))
    }

    /// The database, for event loops too: `None` also while it is being replaced.
    pub(super) fn at_once(&self) -> Option<Arc<Opened>> {
        self.opened.try_read()?.clone()
    }

    /// The database, opened again if there is none.
    pub(super) fn working(
        &self,
        dir: &Path,
        options: &DiskOptions,
        cache: &RecordCache,
    ) -> Result<Arc<Opened>, EngineError> {
        match self.current(dir) {
            Ok(opened) => Ok(opened),
            Err(_) => self.reopen(dir, options, cache),
        }
    }

    /// Puts a new database in place of one that has given up. Readers wait for it.
    pub(super) fn reopen(
        &self,
        dir: &Path,
        options: &DiskOptions,
        cache: &RecordCache,
    ) -> Result<Arc<Opened>, EngineError> {
        let mut failed = self.failed.lock();
        match *failed {
            Some((at, is_full)) if at.elapsed() < TRY_AGAIN => {
                return Err(match is_full {
                    true => EngineError::DiskFull { dir: dir.to_owned() },
                    false => failure::stopped(dir, "it could not be opened again a moment ago"),
                });
            }
            _ => {}
        }
        let opened = self.replace(dir, options, cache);
        let is_full = |error: &EngineError| matches!(error, EngineError::DiskFull { .. });
        *failed = opened.as_ref().err().map(|error| (Instant::now(), is_full(error)));
        opened
    }

    fn replace(&self, dir: &Path, options: &DiskOptions, cache: &RecordCache) -> Result<Arc<Opened>, EngineError> {
        let mut slot = self.opened.write();
        let deadline = Instant::now() + LET_GO_MAX;
        while let Some(old) = slot.take() {
            match Arc::try_unwrap(old) {
                Ok(old) => drop(old),
                Err(held) => {
                    *slot = Some(held);
                    if Instant::now() > deadline {
                        return Err(failure::stopped(dir, "a scan holds on to it"));
                    }
                    thread::sleep(POLL);
                }
            }
        }
        // What failed may have been written nevertheless.
        cache.clear();
        let opened = Arc::new(Opened::open(dir, options)?);
        *slot = Some(opened.clone());
        Ok(opened)
    }
}

impl Opened {
    fn open(dir: &Path, options: &DiskOptions) -> Result<Self, EngineError> {
        lists::check(dir)?;
        let builder = Database::builder(dir)
            .cache_size(options.block_cache_bytes)
            .max_journaling_size(options.log_bytes_max.max(64 << 20))
            // Records are mostly small; and what is in the log is to be no more in memory.
            .journal_compression(fjall::CompressionType::None)
            .worker_threads(options.threads.max(1));
        // Its threads inherit how nice the one is that starts them. And a damaged file can make it panic, while it reads
        // its lists of files.
        let open = move || {
            // Where the system refuses, they are as usual.
            let _ = rustix::process::nice(THREADS_NICE);
            builder.open()
        };
        let opening = thread::Builder::new().name("engine-open".to_owned()).spawn(open);
        let opening = opening.map_err(|error| failure::io("start a thread for", dir, error))?;
        let opened = opening.join();
        let opened = opened.map_err(|_| failure::corrupt(dir, "its lists of files cannot be read"))?;
        Ok(Self {
            keyspaces: RwLock::default(),
            tables: Mutex::default(),
            database: opened.map_err(|error| failure::name("open", dir, error))?,
        })
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    pub(super) fn table_names(&self) -> Vec<String> {
        let names = self.database.list_keyspace_names();
        let mut names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
        names.sort();
        names
    }

    /// The tree of a table that is open.
    pub(super) fn keyspace(&self, table: &OpenTable) -> Result<Keyspace, EngineError> {
        table.check()?;
        {
            let keyspaces = self.keyspaces.read();
            if let Some(keyspace) = keyspaces.get(&table.number()) {
                return Ok(keyspace.clone());
            }
        }
        // Opened again since: it is there, under its name.
        if !self.database.keyspace_exists(table.name()) {
            return Err(table.gone());
        }
        let found = self.database.keyspace(table.name(), KeyspaceCreateOptions::default);
        let keyspace = found.map_err(|_| table.gone())?;
        let mut keyspaces = self.keyspaces.write();
        keyspaces.insert(table.number(), keyspace.clone());
        Ok(keyspace)
    }

    /// The tree of a table, made if it is not there.
    pub(super) fn open_keyspace(
        &self,
        dir: &Path,
        options: &DiskOptions,
        table: &OpenTable,
    ) -> Result<(), EngineError> {
        let create = || KeyspaceCreateOptions::default().max_memtable_size(options.table_buffer_bytes);
        let keyspace = self.database.keyspace(table.name(), create);
        let keyspace = keyspace.map_err(|error| failure::name("create a table in", dir, error))?;
        let mut keyspaces = self.keyspaces.write();
        keyspaces.insert(table.number(), keyspace);
        Ok(())
    }

    /// Deletes a tree, if it is there.
    pub(super) fn drop_keyspace(&self, dir: &Path, options: &DiskOptions, name: &str) -> Result<(), EngineError> {
        if !self.database.keyspace_exists(name) {
            return Ok(());
        }
        let failed = |error| failure::name("drop a table in", dir, error);
        let create = || KeyspaceCreateOptions::default().max_memtable_size(options.table_buffer_bytes);
        let keyspace = self.database.keyspace(name, create).map_err(failed)?;
        self.database.delete_keyspace(keyspace).map_err(failed)
    }

    /// Lets go of the tree of a table that was dropped.
    pub(super) fn forget(&self, table: &OpenTable) {
        let mut keyspaces = self.keyspaces.write();
        keyspaces.remove(&table.number());
    }

    /// What writing out and merging may take of the disk before anything is given back: all that is in memory only, and
    /// as many merges as there are threads, which have no more to merge than there is.
    pub(super) fn pending_disk_bytes(&self, threads: usize) -> u64 {
        let merged_bytes = self.table_bytes().min(threads as u64 * MERGE_BYTES);
        self.database.write_buffer_size().saturating_add(merged_bytes)
    }

    fn table_bytes(&self) -> u64 {
        let mut tables = self.tables.lock();
        let (looked, bytes) = &mut *tables;
        if looked.is_none_or(|at| at.elapsed() >= TABLES_LOOK_AGAIN) {
            let keyspaces = self.keyspaces.read();
            *bytes = keyspaces.values().map(Keyspace::disk_space).sum();
            *looked = Some(Instant::now());
        }
        *bytes
    }

    /// Waits until a tree can take more without waiting itself.
    pub(super) fn wait_for_room(&self, dir: &Path, keyspace: &Keyspace) -> Result<(), EngineError> {
        let full = || {
            keyspace.tree.sealed_memtable_count() >= BUFFERS_WAITING_MAX
                || keyspace.tree.l0_run_count() >= RUNS_WAITING_MAX
        };
        let started = Instant::now();
        while full() {
            // Fails if its threads have ended; does nothing otherwise.
            let alive = self.database.persist(PersistMode::Buffer);
            alive.map_err(|error| failure::name("write to", dir, error))?;
            if started.elapsed() > ROOM_WAIT_MAX {
                let waited_seconds = ROOM_WAIT_MAX.as_secs();
                return Err(EngineError::Behind {
                    dir: dir.to_owned(),
                    waited_seconds,
                });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}
