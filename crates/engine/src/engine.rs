//! The interface of an engine: sorted tables, changed by atomic batches. Every call may wait for a disk or a network,
//! except [`Table::get_hot`], [`Table::look_at_hot`] and [`Table::look_at_beginnings`]; do not call the others on an
//! event loop.

use std::sync::Arc;

use bytes::Bytes;

use crate::batch::WriteBatch;
use crate::error::EngineError;

/// Sorted tables of byte strings of one node, in one kind of storage.
///
/// A reader sees either all changes of one call of [`write`](Self::write) or none of them, also after a crash. A batch
/// that failed may still be there after the next start, but then all of it: its outcome is unknown.
pub trait Engine: Send + Sync + 'static {
    /// Opens a table; creates it if it does not exist.
    ///
    /// # Errors
    /// [`EngineError::InvalidTableName`], or an error of the storage.
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError>;

    /// Deletes a table with all its content; a missing table is no error. From then on, handles to it fail, even if a
    /// new table has the same name. The space is freed when the last handle and scan are dropped.
    /// # Errors
    /// An error of the storage.
    fn drop_table(&self, name: &str) -> Result<(), EngineError>;

    /// The names of all tables, sorted.
    ///
    /// # Errors
    /// An error of the storage.
    fn tables(&self) -> Result<Vec<String>, EngineError>;

    /// Applies all changes of a batch, over all its tables, or none. When this returns, a durable engine has handed
    /// them to the operating system or the server: they survive the end of this process, even a crash. May wait while
    /// the storage catches up.
    ///
    /// # Errors
    /// [`EngineError::DiskFull`] while the disk has no space, or too little for a batch that does more than delete;
    /// [`EngineError::KeysFull`] if there is no memory for new keys; [`EngineError::NoTable`] if a table was dropped;
    /// [`EngineError::KeyTooLong`] and [`EngineError::ValueTooLong`]; or an error of the storage.
    fn write(&self, batch: WriteBatch) -> Result<(), EngineError>;

    /// Waits until all previous writes would survive a loss of power. Concurrent calls share one sync (group commit).
    ///
    /// # Errors
    /// An error of the storage. Writes since the last successful sync may then be lost, and an engine on disk refuses
    /// further writes: [`EngineError::SyncFailed`].
    fn sync(&self) -> Result<(), EngineError>;

    /// The disk space that the engine uses, in bytes, including its logs; for a volatile engine, the memory.
    fn disk_bytes(&self) -> u64;

    /// The bytes of the records that are live, as far as the engine counts them; otherwise the [space](Self::disk_bytes) that it uses.
    fn live_bytes(&self) -> u64 {
        self.disk_bytes()
    }

    /// Asks the engine to free space as soon as possible, where it is worth the work: writes are refused because the
    /// disk is full.
    fn make_room(&self) {}

    /// How much more disk space, in bytes, the engine may need for a while even without new writes: to flush its
    /// memory, and to merge or move stored data. Writes stop while the disk has less free space than the reserve plus
    /// this.
    fn pending_disk_bytes(&self) -> u64 {
        0
    }

    /// The memory that the keys use, and their limit; `None` if the memory does not grow with the number of keys.
    fn key_memory(&self) -> Option<KeyMemory> {
        None
    }

    /// Fails if new keys are refused. [`write`](Self::write) itself accepts slightly more, so that batches which passed
    /// this check can complete.
    ///
    /// # Errors
    /// [`EngineError::KeysFull`].
    fn check_new_keys(&self) -> Result<(), EngineError> {
        match self.key_memory() {
            Some(memory) if memory.is_full() => Err(memory.refusal()),
            _ => Ok(()),
        }
    }

    /// A random number drawn when the engine's directory or database was created: a replacement has another number.
    /// `None` for an engine without directory and database.
    fn identity(&self) -> Option<u64> {
        None
    }

    /// Whether the tables are on disks of this machine, in the node's data directory. If so, an older copy of the
    /// directory has older tables, and a loss of power loses writes that were not synced.
    fn is_local(&self) -> bool {
        false
    }

    /// Describes acknowledged writes that were found lost while the engine was in use. It refuses all operations until
    /// [`resume`](Self::resume). The engine reports what it finds lost when it is opened to [`OnLoss`](crate::OnLoss).
    fn pending_loss(&self) -> Option<String> {
        None
    }

    /// Resumes reads and writes after such a loss, with the data that is there now. The caller has noted the loss.
    ///
    /// # Errors
    /// An error of the storage; the engine then still refuses all operations.
    fn resume(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Describes the stored data that is currently unreadable. Overwritten records no longer count.
    fn damage(&self) -> Option<String> {
        None
    }

    /// Whether [`write`](Self::write) only hands the data to memory or to the operating system. It then never waits
    /// for the storage or for a network, and small batches cost no more than large ones.
    fn writes_at_once(&self) -> bool {
        false
    }

    /// Whether the data survives the end of the process.
    fn is_durable(&self) -> bool;
}

/// One table of an engine. Keys have 1 to [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) bytes.
pub trait Table: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// The value of a key; `None` if the key has none.
    ///
    /// # Errors
    /// [`EngineError::Corrupt`] if the stored data is not what was written; [`EngineError::NoTable`] if the table was
    /// dropped; or an error of the storage.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// Looks up a key without waiting for a disk or a network; may be called on an event loop.
    ///
    /// # Errors
    /// [`EngineError::NoTable`] if the table was dropped.
    fn get_hot(&self, key: &[u8]) -> Result<Hot<Bytes>, EngineError>;

    /// Looks up several keys like [`get_hot`](Self::get_hot), one after the other, until `look` returns false. `look`
    /// receives the value without a copy, and the spot for a later write of the key. The engine may prefetch all the
    /// keys, as much of each value as the [extent](Extent) says. Writers may have to wait until this returns.
    ///
    /// # Errors
    /// As for [`get_hot`](Self::get_hot).
    fn look_at_hot(
        &self,
        keys: &[&[u8]],
        extent: Extent,
        look: &mut dyn FnMut(Hot<&[u8]>, Spot) -> bool,
    ) -> Result<(), EngineError> {
        let _ = extent;
        for key in keys {
            let wants_more = match self.get_hot(key)? {
                Hot::Found(value) => look(Hot::Found(&value), Spot::default()),
                Hot::Absent => look(Hot::Absent, Spot::default()),
                Hot::Cold => look(Hot::Cold, Spot::default()),
            };
            if !wants_more {
                break;
            }
        }
        Ok(())
    }

    /// Looks up several keys like [`look_at_hot`](Self::look_at_hot), for a caller that needs only the first `bytes` bytes
    /// of each value: `look` receives these, or all of a shorter value, and perhaps more. They may be in memory where the
    /// value is not, if the caller has asked for [that](Self::keep_beginnings). The look need not count as a use of the
    /// value.
    ///
    /// # Errors
    /// As for [`get_hot`](Self::get_hot).
    fn look_at_beginnings(
        &self,
        keys: &[&[u8]],
        bytes: usize,
        look: &mut dyn FnMut(Hot<&[u8]>, Spot) -> bool,
    ) -> Result<(), EngineError> {
        let _ = bytes;
        self.look_at_hot(keys, Extent::Beginning, look)
    }

    /// Asks the engine to keep the first `bytes` bytes of each value in memory when it evicts the value, if it keeps the
    /// keys in memory anyway. A value that was evicted before, or is found at the start, lacks them until it is read or
    /// written again.
    fn keep_beginnings(&self, bytes: usize) {
        let _ = bytes;
    }

    /// All keys from `from`, inclusive, to `to`, exclusive, with their values, in order: a snapshot at the time of the
    /// call. Only a cache shows changes made during the scan. An open scan delays the storage's cleaning: split long
    /// scans into pieces.
    ///
    /// # Errors
    /// As for [`get`](Self::get). After an [`EngineError::Corrupt`] that names a key, the scan continues with the next
    /// key, so it returns every key of the table, with its value or with such an error. After any other error the scan
    /// ends. An engine that keeps many records in one block, as [`DiskEngine`](crate::DiskEngine) does, names no key.
    fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError>;

    /// Passes all keys to `each`, in order; an engine that keeps the keys in memory reads no values. It is no snapshot: a
    /// key that is added or deleted meanwhile may be passed or not. `each` must not use the table.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    fn each_key(&self, each: &mut dyn FnMut(&[u8])) -> Result<(), EngineError> {
        for entry in self.scan(&[], None)? {
            each(&entry?.0);
        }
        Ok(())
    }

    /// The approximate number of keys: an estimate that takes no time.
    fn approximate_len(&self) -> u64;
}

/// The approximate memory that the keys use, in an engine that keeps all keys in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMemory {
    /// The number of keys.
    pub keys: u64,
    /// The memory that the keys use, in bytes.
    pub bytes: u64,
    /// The memory at which new keys are refused, in bytes.
    pub bytes_max: u64,
}

impl KeyMemory {
    /// Whether new keys are refused.
    pub fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max
    }

    pub(crate) fn refusal(self) -> EngineError {
        EngineError::KeysFull {
            keys: self.keys,
            bytes: self.bytes,
            bytes_max: self.bytes_max,
        }
    }
}

/// Keys and values, sorted by key.
pub type Scan = Box<dyn Iterator<Item = Result<(Bytes, Bytes), EngineError>> + Send>;

/// The place of a key in a table, as [`look_at_hot`](Table::look_at_hot) reports it: a
/// [write](crate::WriteBatch::put_pair_at) of the key with this hint finds the key faster. A wrong spot does no harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot(pub(crate) u64);

/// How much of each value the caller usually reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Their first bytes.
    Beginning,
    /// All of them.
    Whole,
}

/// The state of a key in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hot<V> {
    /// Its value.
    Found(V),
    /// The key has no value.
    Absent,
    /// Unknown: use [`Table::get`].
    Cold,
}
