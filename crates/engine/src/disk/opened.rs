//! An open fjall database, and the slot that holds it. When a database has given up, another one replaces it.
//!
//! fjall gives up for good when a write or a merge fails, usually because the disk is full: it refuses every write
//! until it is opened again. If the disk was full, the next write opens it again here, as soon as all readers have
//! released it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use parking_lot::{Mutex, RwLock};

use super::{DiskOptions, failure};
use crate::error::EngineError;
use crate::open_table::OpenTable;
use crate::record_cache::RecordCache;

/// How long to wait until readers release a database that has given up.
const LET_GO_MAX: Duration = Duration::from_millis(200);
/// The interval between attempts to open it again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long a write waits for the disk to catch up.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(60);
/// Flushes and compaction have a lower priority than the threads that serve clients, but not the lowest: they hold
/// locks that writers wait for.
const THREADS_NICE: i32 = 5;
const POLL: Duration = Duration::from_millis(1);

/// fjall makes writers wait when a table has this many buffers to flush, or this many runs to merge: forever, if its
/// threads have ended meanwhile. So this module waits first, and checks whether the threads are alive.
const BUFFERS_WAITING_MAX: usize = 2;
const RUNS_WAITING_MAX: usize = 18;

/// The disk space that a merge needs before it frees the merged files: mostly files of one level and the overlapping
/// files of the next level, which is ten times as large; each file has 64 MiB. If levels are far too large, it may be
/// more.
const MERGE_BYTES: u64 = 1 << 30;
/// How long the measured size of the tables is used before it is measured again.
const TABLES_LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The slot of the database.
pub(super) struct Slot {
    /// Empty while the database is being replaced, or if it could not be opened again.
    opened: RwLock<Option<Arc<Opened>>>,
    /// The last failed attempt to open it again: when, and whether the disk was full.
    failed: Mutex<Option<(Instant, bool)>>,
}

pub(super) struct Opened {
    keyspaces: RwLock<HashMap<u64, Keyspace>>,
    /// The size of the tables' files, and when it was measured.
    tables: Mutex<(Option<Instant>, u64)>,
    database: Database,
}

/// The reason why a database could not be opened.
pub(super) enum OpenFailure {
    /// fjall refuses its log.
    DamagedLog {
        reason: String,
    },
    Other(EngineError),
}

impl From<EngineError> for OpenFailure {
    fn from(error: EngineError) -> Self {
        Self::Other(error)
    }
}

impl OpenFailure {
    pub(super) fn of(self, dir: &Path) -> EngineError {
        match self {
            Self::DamagedLog { reason } => failure::corrupt(dir, reason),
            Self::Other(error) => error,
        }
    }
}

/// The directory of the database; created if it does not exist. A crash while fjall creates a database would leave one
/// that fjall cannot open, so the directory gets its name only when it is complete.
pub(super) fn database_in(dir: &Path, options: &DiskOptions) -> Result<PathBuf, EngineError> {
    let (complete, begun) = (dir.join("fjall"), dir.join("fjall.begun"));
    if complete.exists() {
        return Ok(complete);
    }
    if begun.exists() {
        fs::remove_dir_all(&begun).map_err(|error| failure::io("delete", &begun, error))?;
    }
    drop(Opened::open(&begun, options).map_err(|failure| failure.of(&begun))?);
    let renamed = fondaco_durable::rename(&begun, &complete);
    renamed.map_err(|error| failure::io("create", &complete, error))?;
    Ok(complete)
}

/// Whether there is a database in a directory.
pub(super) fn is_there(dir: &Path) -> bool {
    dir.join("fjall").exists()
}

impl Slot {
    /// Closes the database, which syncs everything that was written. Returns whether it was open and no other thread
    /// used it.
    pub(super) fn close(&self) -> bool {
        let opened = self.opened.write().take();
        opened.and_then(Arc::into_inner).map(drop).is_some()
    }

    pub(super) fn open(dir: &Path, options: &DiskOptions) -> Result<Self, OpenFailure> {
        let opened = Arc::new(Opened::open(dir, options)?);
        Ok(Self {
            opened: RwLock::new(Some(opened)),
            failed: Mutex::default(),
        })
    }

    /// The database for reading, even if it has given up.
    pub(super) fn current(&self, dir: &Path) -> Result<Arc<Opened>, EngineError> {
        let opened = self.opened.read();
        opened
            .clone()
            .ok_or_else(|| failure::stopped(dir, "it could not be opened again"))
    }

    /// The database, for event loops: `None` also while it is being replaced.
    pub(super) fn at_once(&self) -> Option<Arc<Opened>> {
        self.opened.try_read()?.clone()
    }

    /// The database; opens it again if it was closed.
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

    /// Replaces a database that has given up by a new one. Readers wait meanwhile.
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
                        return Err(failure::stopped(dir, "a scan still uses it"));
                    }
                    thread::sleep(POLL);
                }
            }
        }
        // The failed write may have been written nevertheless.
        cache.clear();
        let opened = Opened::open(dir, options).map_err(|failure| failure.of(dir))?;
        let opened = Arc::new(opened);
        *slot = Some(opened.clone());
        Ok(opened)
    }
}

impl Opened {
    fn open(dir: &Path, options: &DiskOptions) -> Result<Self, OpenFailure> {
        let builder = Database::builder(dir)
            .cache_size(options.block_cache_bytes)
            .max_journaling_size(options.log_bytes_max.max(64 << 20))
            // Records are usually small; and without compression the size of the log bounds the data in memory.
            .journal_compression(fjall::CompressionType::None)
            .worker_threads(options.threads.max(1));
        // The threads of fjall inherit the niceness of the thread that starts them. Also, a damaged file can make fjall
        // panic while it reads its lists of files.
        let open = move || {
            // If the system refuses, the threads keep the normal priority.
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
            database: opened.map_err(|error| failure::opening(dir, error))?,
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

    /// The tree of an open table.
    pub(super) fn keyspace(&self, table: &OpenTable) -> Result<Keyspace, EngineError> {
        table.check()?;
        {
            let keyspaces = self.keyspaces.read();
            if let Some(keyspace) = keyspaces.get(&table.number()) {
                return Ok(keyspace.clone());
            }
        }
        // The database was opened again since: the tree exists under its name.
        if !self.database.keyspace_exists(table.name()) {
            return Err(table.gone());
        }
        let found = self.database.keyspace(table.name(), KeyspaceCreateOptions::default);
        let keyspace = found.map_err(|_| table.gone())?;
        let mut keyspaces = self.keyspaces.write();
        keyspaces.insert(table.number(), keyspace.clone());
        Ok(keyspace)
    }

    /// Opens the tree of a table; creates it if it does not exist.
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

    /// Deletes a tree, if it exists.
    pub(super) fn drop_keyspace(&self, dir: &Path, options: &DiskOptions, name: &str) -> Result<(), EngineError> {
        if !self.database.keyspace_exists(name) {
            return Ok(());
        }
        let failed = |error| failure::name("drop a table in", dir, error);
        let create = || KeyspaceCreateOptions::default().max_memtable_size(options.table_buffer_bytes);
        let keyspace = self.database.keyspace(name, create).map_err(failed)?;
        self.database.delete_keyspace(keyspace).map_err(failed)
    }

    /// Releases the tree of a dropped table.
    pub(super) fn forget(&self, table: &OpenTable) {
        let mut keyspaces = self.keyspaces.write();
        keyspaces.remove(&table.number());
    }

    /// The disk space that flushes and compaction may need before they free any: all data that is only in memory, and
    /// one merge per thread, but at most the size of the tables.
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

    /// Waits until a write to the tree will not block.
    pub(super) fn wait_for_room(&self, dir: &Path, keyspace: &Keyspace) -> Result<(), EngineError> {
        let full = || {
            keyspace.tree.sealed_memtable_count() >= BUFFERS_WAITING_MAX
                || keyspace.tree.l0_run_count() >= RUNS_WAITING_MAX
        };
        let started = Instant::now();
        while full() {
            // Fails if fjall's threads have ended; does nothing otherwise.
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
