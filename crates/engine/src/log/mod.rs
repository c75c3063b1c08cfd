//! An engine on disk with all keys in memory: a log, and an index of the place of each record.
//!
//! Each write is appended to the log once. The space of overwritten records is freed later, by moving the live records
//! of a segment to the end of the log. So a write costs an append and a change in memory, and a read of a record that
//! is not in memory costs one disk read. The price is memory for all keys, and reading them when the engine is opened.
//! The idea comes from Bitcask (Sheehy and Smith, A Log-Structured Hash Table for Fast Key/Value Data, 2010). But the
//! index is a tree, for scans in key order. The cleaning is that of log-structured file systems.

mod catalog;
mod cleaner;
mod clock_eviction;
mod damaged;
mod entry;
mod frame;
mod garbage_marks;
mod key_count;
mod key_prefixes;
mod keys;
mod listed;
mod merge;
mod recovery;
mod scan;
mod segment;
mod segment_cleaning;
mod table;
mod tree;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use self::cleaner::{Cleaner, Cleaning};
use self::clock_eviction::ResidentBytes;
use self::damaged::Damaged;
use self::key_count::KeyCount;
use self::keys::{Keys, KeysFile};
use self::listed::Listed;
use self::recovery::{Recovered, recover};
use self::segment::{Ended, Segment};
use self::table::{LogTable, Segments, TableHandle};
use self::tree::Tree;
use self::writer::{Active, Full, SegmentState, Writer};
use crate::batch::WriteBatch;
use crate::budget::CacheBudget;
use crate::directory;
use crate::engine::{Engine, KeyMemory, Table};
use crate::error::EngineError;
use crate::failure;
use crate::high_water::{HighWater, Mark};
use crate::loss::OnLoss;
use crate::name;
use crate::space::Space;
use crate::synced::Synced;

/// The resources that the engine may use.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Memory for values, of all tables together.
    pub cache: CacheBudget,
    /// Memory for keys, which are all in memory: about 110 bytes plus the key's length for each. Beyond it new keys are
    /// refused.
    pub key_bytes_max: u64,
    /// The approximate length of a segment: the unit in which space is freed.
    pub segment_bytes: u64,
    /// The percentage of garbage in the log at which it is cleaned. The log is larger than its live data by that much;
    /// a smaller percentage means that more data is moved per write.
    pub garbage_percent_max: u64,
    /// Writes are refused when the disk has less free space than this plus the [space for
    /// cleaning](Engine::pending_disk_bytes). Batches that only delete may use most of the reserve.
    pub disk_reserve_bytes: u64,
    /// The reaction to a damaged log.
    pub on_loss: OnLoss,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            cache: CacheBudget::new(256 << 20),
            key_bytes_max: u64::MAX,
            segment_bytes: 64 << 20,
            garbage_percent_max: 50,
            disk_reserve_bytes: 1 << 30,
            on_loss: OnLoss::Refuse,
        }
    }
}

/// Tables in a log on disk, with all keys in memory.
pub struct LogEngine {
    shared: Arc<Shared>,
    /// `None` after it has been stopped.
    cleaner: Option<Cleaner>,
}

struct Shared {
    dir: PathBuf,
    options: LogOptions,
    tables: RwLock<Tables>,
    segments: RwLock<Segments>,
    /// Held while writing. Lock order: writer, then tables, then the other locks.
    writer: Mutex<Writer>,
    synced: Synced,
    /// Full segments that are not synced yet.
    unsynced: Mutex<Vec<Arc<Segment>>>,
    resident_bytes: ResidentBytes,
    keys: KeyCount,
    cleaning: Arc<Cleaning>,
    high_water: HighWater,
    damaged: Damaged,
    /// Held while the list of segments is replaced.
    listing: Mutex<()>,
    /// The lock on the directory.
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
    /// Opens the engine in a directory, reads all keys, and locks the directory. Creates the directory if it does not
    /// exist.
    ///
    /// # Errors
    /// [`EngineError::Locked`] if the directory is in use, [`EngineError::Corrupt`] if it is damaged, or an error of
    /// the operating system.
    pub fn open(dir: &Path, options: LogOptions) -> Result<Self, EngineError> {
        let lock = directory::lock(dir)?;
        options.on_loss.take_former_note(dir)?;
        let mut recovered = recover(dir)?;
        options.on_loss.react(dir, &recovered.losses)?;
        if !recovered.losses.is_empty() {
            set_aside(dir, &recovered)?;
        }
        let (active, ended, full) = tail_of(dir, &mut recovered, options.segment_bytes)?;
        let Recovered {
            catalog,
            mut trees,
            segments,
            uses,
            identity,
            losses,
            ..
        } = recovered;
        if catalog.next == 0 || !losses.is_empty() {
            Listed::of(segments.keys().copied()).write(dir)?;
        }
        let high_water = HighWater::open(dir, identity)?;
        if catalog.next == 0 {
            // So that a directory with a segment always has a catalog.
            catalog.write(dir)?;
        }
        if let (Some(active), None) = (&active, active.as_ref().filter(|active| active.batches > 0)) {
            active.segment.begin(high_water.identity(), ended)?;
        }
        if !losses.is_empty() {
            // So that the same loss is not reported again.
            let last = segments.last_key_value().map(|(&last, _)| Mark {
                number: last.into(),
                length: active.as_ref().map_or(ended.length, |active| active.length).into(),
            });
            high_water.note_durably(last.as_slice())?;
        }
        let mut tables = Tables::default();
        let keys = KeyCount::new(options.key_bytes_max);
        for (name, &number) in &catalog.numbers {
            let tree: Tree = trees.remove(&number).unwrap_or_default();
            tree.iter().for_each(|entry| keys.add(entry.key().len()));
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
            writer: Mutex::new(Writer::new(space, catalog, active, ended, uses)),
            synced: Synced::at_start(),
            unsynced: Mutex::new(unsynced),
            resident_bytes: ResidentBytes::new(&options.cache),
            keys,
            cleaning,
            high_water,
            damaged: Damaged::default(),
            listing: Mutex::default(),
            _lock: lock,
            options,
        });
        Ok(Self {
            cleaner: Some(Cleaner::start(&shared)?),
            shared,
        })
    }

    /// The memory of the cached values, in bytes.
    pub fn cached_bytes(&self) -> u64 {
        self.shared.resident_bytes.bytes()
    }
}

/// Keeps copies of damaged files, before anything in the directory is changed.
fn set_aside(dir: &Path, recovered: &Recovered) -> Result<(), EngineError> {
    for read in recovered.read.values().filter(|read| read.is_damaged) {
        read.segment.set_aside()?;
    }
    for keys in &recovered.lone_keys {
        let renamed = fs::rename(keys, keys.with_extension("keys-damaged"));
        renamed.map_err(|error| failure::io("set aside", keys, error))?;
    }
    directory::sync(dir).map_err(|error| failure::io("keep copies of damaged files in", dir, error))
}

/// The end of the log: the segment to append to, if the last one is neither full nor damaged; how the segment before it
/// ended; and the segments to be sealed.
fn tail_of(
    dir: &Path,
    recovered: &mut Recovered,
    segment_bytes: u64,
) -> Result<(Option<Active>, Ended, Vec<Full>), EngineError> {
    let mut ended = Ended::default();
    let last = recovered.segments.last_key_value().map_or(0, |(&last, _)| last);
    let (mut active, mut full) = (None, Vec::new());
    for read in std::mem::take(&mut recovered.read).into_values() {
        let is_intact = !read.is_damaged && read.has_head;
        if read.segment.number() == last && is_intact {
            read.segment.cut(read.ended.length)?;
            active = Some(Active {
                length: read.ended.length,
                batches: read.ended.batches,
                keys: read.keys,
                segment: read.segment,
            });
            continue;
        }
        if read.segment.number() + 1 >= last {
            ended = read.ended;
        }
        full.push(Full {
            segment: read.segment,
            ended: read.ended,
            keys: read.keys,
            stays_as_it_is: !is_intact,
        });
    }
    if let (Some(sealed), Some(segment)) = (recovered.sealed.get(&last), recovered.segments.get(&last)) {
        ended = sealed.ended;
        // A damaged segment is not written to any more.
        let is_intact = !segment.aside().exists();
        if u64::from(ended.length) < segment_bytes
            && is_intact
            && let Some(keys) = KeysFile::read(segment.path(), last)
        {
            // The segment will be appended to, so its file of keys would become incomplete.
            keys.delete(segment.path())?;
            directory::sync(dir).map_err(|error| failure::io("delete a file of keys in", dir, error))?;
            if let Some(used) = recovered.uses.get_mut(&last) {
                used.state = SegmentState::Open;
            }
            active = Some(Active {
                length: ended.length,
                batches: ended.batches,
                keys: Keys::from(keys),
                segment: Arc::clone(segment),
            });
        }
    }
    Ok((active, ended, full))
}

impl Shared {
    fn sync(&self) -> Result<(), EngineError> {
        self.synced.sync(&self.dir, || {
            let (active, mark) = {
                let writer = self.writer.lock();
                let active = writer.active.as_ref();
                let mark = active.map(|active| Mark {
                    number: active.segment.number().into(),
                    length: active.length.into(),
                });
                (active.map(|active| Arc::clone(&active.segment)), mark)
            };
            let full = self.unsynced.lock().clone();
            for segment in full.iter().chain(&active) {
                let synced = segment.sync();
                synced.map_err(|error| self.synced.failed(&self.dir, &error))?;
            }
            if let Some(mark) = mark {
                // The data is on the disk, noted or not.
                let _ = self.high_water.note(&[mark]);
            }
            Ok(())
        })
    }

    /// Writes the list of segments, except one that is about to be deleted.
    fn list_segments(&self, without: Option<u32>) -> Result<(), EngineError> {
        let _listing = self.listing.lock();
        let segments = self.segments.read();
        let listed = Listed::of(segments.keys().copied().filter(|number| Some(*number) != without));
        drop(segments);
        listed.write(&self.dir)
    }

    /// Two segments: the one that is created in advance, and the live records of the one being cleaned, which are moved
    /// before it is deleted.
    fn pending_disk_bytes(&self) -> u64 {
        let segments = self.segments.read();
        match segments.is_empty() {
            true => 0,
            false => 2 * self.options.segment_bytes,
        }
    }

    fn open_table(self: &Arc<Self>, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        name::check(name)?;
        let mut writer = self.writer.lock();
        let known = self.tables.read().by_name.get(name).cloned();
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
                let mut tables = self.tables.write();
                tables.insert(Arc::clone(&table));
                table
            }
        };
        Ok(Arc::new(TableHandle::new(Arc::clone(self), table)))
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        let mut writer = self.writer.lock();
        let mut catalog = writer.catalog.clone();
        if catalog.numbers.remove(name).is_none() {
            return Ok(());
        }
        catalog.write(&self.dir)?;
        writer.catalog = catalog;
        let table = {
            let mut tables = self.tables.write();
            let table = tables.by_name.remove(name);
            table.inspect(|table| drop(tables.by_number.remove(&table.number)))
        };
        let Some(table) = table else { return Ok(()) };
        table.open.set_dropped();
        let mut contents = table.write();
        let segments = self.segments.read();
        contents.segments = Some(segments.clone());
        drop(segments);
        let mut hot_bytes = 0;
        for entry in contents.tree.iter() {
            writer.unused(entry);
            self.keys.remove(entry.key().len());
            hot_bytes += entry.hot_bytes();
        }
        self.resident_bytes.remove(hot_bytes);
        self.cleaning.wrote(&mut writer, self.options.segment_bytes);
        // Open scans keep the table alive; nothing else uses it any more.
        Ok(())
    }
}

impl Drop for LogEngine {
    /// Prepares the next start. If that fails, the next start works without it.
    fn drop(&mut self) {
        self.cleaner.take();
        let sealed = self.shared.sync().and_then(|()| {
            while let Some(full) = self.shared.cleaning.take_full() {
                self.shared.seal(full)?;
            }
            let active = self.shared.writer.lock().active.take();
            let active = active.filter(|active| active.batches > 0);
            active.map_or(Ok(()), |active| self.shared.seal(active.into()))
        });
        // If a sync failed, the callers that requested a sync have received the error; the keys are also in the
        // segment.
        drop(sealed);
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
        Ok(self.shared.writer.lock().catalog.numbers.keys().cloned().collect())
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

    fn live_bytes(&self) -> u64 {
        let writer = self.shared.writer.lock();
        writer.uses.values().map(|used| used.live_bytes).sum()
    }

    fn writes_at_once(&self) -> bool {
        !self.shared.cleaning.is_behind()
    }

    fn identity(&self) -> Option<u64> {
        Some(self.shared.high_water.identity())
    }

    fn damage(&self) -> Option<String> {
        self.shared.describe_damage()
    }

    fn make_room(&self) {
        self.shared.cleaning.hurry();
    }

    fn is_local(&self) -> bool {
        true
    }

    fn pending_disk_bytes(&self) -> u64 {
        self.shared.pending_disk_bytes()
    }

    fn key_memory(&self) -> Option<KeyMemory> {
        Some(self.shared.keys.memory())
    }

    fn is_durable(&self) -> bool {
        true
    }
}
