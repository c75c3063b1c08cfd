//! What an engine is: sorted tables, changed by atomic batches. Every call may wait for a disk or a network,
//! but for [`Table::get_hot`] and [`Table::look_at_hot`]; none is for an event loop.

use std::sync::Arc;

use bytes::Bytes;

use crate::batch::WriteBatch;
use crate::error::EngineError;

/// Sorted tables of byte strings, all of one node and one kind of storage.
///
/// What one call of [`write`](Self::write) changes, any reader sees either whole or not at all, also after a
/// crash. A batch that failed may still be found after the next start, whole: its outcome is unknown.
pub trait Engine: Send + Sync + 'static {
    /// Opens a table, and makes it if it is not there.
    ///
    /// # Errors
    /// [`EngineError::InvalidTableName`], or what the storage says.
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError>;

    /// Deletes a table with all that is in it; one that is not there is no error. Handles to it fail from then
    /// on, also after a new one of its name was made. Its space is freed when the last handle and scan are gone.
    ///
    /// # Errors
    /// What the storage says.
    fn drop_table(&self, name: &str) -> Result<(), EngineError>;

    /// The names of all tables, sorted.
    ///
    /// # Errors
    /// What the storage says.
    fn tables(&self) -> Result<Vec<String>, EngineError>;

    /// Makes all changes of a batch, over all of its tables, or none. When this returns, a durable engine has
    /// handed them to the operating system or the server: they survive the end of this process, however it
    /// ends. May wait while the storage catches up.
    ///
    /// # Errors
    /// [`EngineError::DiskFull`] while there is no space, or too little for what does more than delete;
    /// [`EngineError::KeysFull`] if there is no memory for new keys;
    /// [`EngineError::NoTable`] if one was dropped; [`EngineError::KeyTooLong`] and [`EngineError::ValueTooLong`]; or what
    /// the storage says.
    fn write(&self, batch: WriteBatch) -> Result<(), EngineError>;

    /// Waits until all that was written before survives a loss of power. Calls at the same time share one wait.
    ///
    /// # Errors
    /// What the storage says. What was written since the last sync that succeeded may then be lost, and an engine on
    /// disk writes nothing more: [`EngineError::SyncFailed`].
    fn sync(&self) -> Result<(), EngineError>;

    /// The space on disk, in bytes, that the engine takes, its logs included; of a volatile engine, in memory.
    fn disk_bytes(&self) -> u64;

    /// Gives back, as soon as it can, what space is worth it: writes are refused for want of some.
    fn make_room(&self) {}

    /// How much more of the disk, in bytes, it may take for a while without any further write: to write out what is in
    /// memory, and to merge or move what is there. Writes stop while the disk has less than the reserve besides this.
    fn pending_disk_bytes(&self) -> u64 {
        0
    }

    /// How much memory its keys take, and may; `None` where that does not grow with their number.
    fn key_memory(&self) -> Option<KeyMemory> {
        None
    }

    /// Whether keys that are not there may be added. [`write`](Self::write) lets through a little more than this, so that
    /// batches for which this was asked before can be finished.
    ///
    /// # Errors
    /// [`EngineError::KeysFull`].
    fn check_new_keys(&self) -> Result<(), EngineError> {
        match self.key_memory() {
            Some(memory) if memory.is_full() => Err(memory.refusal()),
            _ => Ok(()),
        }
    }

    /// A number that was drawn when the engine's directory or database was made: another one in its place has another number.
    /// `None` for an engine that has neither.
    fn identity(&self) -> Option<u64> {
        None
    }

    /// What was lost of what was acknowledged, in words, as it was found when the engine was opened: damage in the log, a
    /// log that is shorter than it was, or a database that went back. It is remembered until [`forget_loss`](Self::forget_loss). The end of a process,
    /// however it ends, loses nothing; a loss of power may lose what was not synced, and does not always leave a trace.
    fn lost_writes(&self) -> Option<String> {
        None
    }

    /// Remembers something that was lost, as [`lost_writes`](Self::lost_writes) then says.
    ///
    /// # Errors
    /// What the storage says.
    fn note_loss(&self, lost: &str) -> Result<(), EngineError> {
        let _ = lost;
        Ok(())
    }

    /// What was lost was had from elsewhere, or is given up.
    ///
    /// # Errors
    /// What the storage says: then it is still remembered.
    fn forget_loss(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Whether its tables are on disks of this machine, in the node's data directory: an older copy of that has older tables,
    /// and a loss of power takes what was not synced.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether it refuses everything, since it was found while it was in use that something is lost, as
    /// [`lost_writes`](Self::lost_writes) says: until [`go_on`](Self::go_on).
    fn waits_after_loss(&self) -> bool {
        false
    }

    /// Reads and writes again after such a loss, what is there now.
    ///
    /// # Errors
    /// What the storage says: then it still refuses.
    fn go_on(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// What is stored and known to be unreadable now, in words. Records that are overwritten are not any more.
    fn damage(&self) -> Option<String> {
        None
    }

    /// Whether [`write`](Self::write) only hands what it is given to memory or to the operating system, and never waits
    /// for the storage to catch up, or for a network: then small batches cost no more than large ones.
    fn writes_at_once(&self) -> bool {
        false
    }

    /// Whether anything is left when the process ends.
    fn is_durable(&self) -> bool;
}

/// One table of an engine. Keys have 1 to [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) bytes.
pub trait Table: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// The value of a key; `None` if there is none.
    ///
    /// # Errors
    /// [`EngineError::Corrupt`] if what the storage has is not what was written; [`EngineError::NoTable`] if
    /// the table was dropped; or what the storage says.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// What is known of a key without waiting for a disk or a network: fit for an event loop.
    ///
    /// # Errors
    /// [`EngineError::NoTable`] if the table was dropped.
    fn get_hot(&self, key: &[u8]) -> Result<Hot<Bytes>, EngineError>;

    /// The same of several keys, one after the other, until `look` has seen enough and says so by false. What it is
    /// shown is not copied for it, with the spot for a write of the key, and memory may be asked for all of them at once,
    /// as much of each as is [looked at](Extent). Writers may wait until it returns.
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

    /// These keys are looked at soon: memory may be asked for what is known of them, of all at once.
    fn prefetch(&self, keys: &[&[u8]]) {
        let _ = keys;
    }

    /// All keys and their values from a key, that one included, to another, that one not, in order: as they
    /// were when this was called, whatever is written meanwhile. A cache alone shows changes that are made
    /// during the scan. Holding a scan holds up the storage's cleaning: take it in pieces where it lasts.
    ///
    /// # Errors
    /// As for [`get`](Self::get). After an [`EngineError::Corrupt`] that names a key the scan goes on with the next one, so
    /// that it gives each key of the table, with its value or with such an error. After any other error it ends. An engine
    /// that keeps many records in one block, as [`DiskEngine`](crate::DiskEngine) does, names none.
    fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError>;

    /// About how many keys it has: an estimate that takes no time.
    fn approximate_len(&self) -> u64;
}

/// What the keys of an engine that keeps them in memory take of it, about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMemory {
    /// How many there are.
    pub keys: u64,
    /// What they take, in bytes.
    pub bytes: u64,
    /// What they may take before new keys are refused.
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

/// Keys and values, in the order of keys.
pub type Scan = Box<dyn Iterator<Item = Result<(Bytes, Bytes), EngineError>> + Send>;

/// Where a table has a key, as it says who looks at it: a [write](crate::WriteBatch::put_pair_at) of the key that says it
/// again finds it sooner. Any other does no harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot(pub(crate) u64);

/// How much of values is looked at, mostly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Their first bytes.
    Beginning,
    /// All of them.
    Whole,
}

/// What memory knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hot<V> {
    /// Its value.
    Found(V),
    /// There is none.
    Absent,
    /// Nothing: [`Table::get`] knows.
    Cold,
}
