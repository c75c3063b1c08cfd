//! The events of a stream on top of one version of a hybrid store, on one node.
//!
//! The order of its [records](record) is that of the version below: by its partitions, and by XXH3 of the keys. Of
//! all whole values and deletions of a key, the one with the latest event time counts. At equal times that of the data center with
//! the greatest rank counts; of one data center a deletion, or else the greatest value. Updates apply [on top](merge), in the order of their times. So all replicas
//! that have read the same events are equal, in whatever order they came. The offsets that were read are written in
//! the batch that has the events' effects, so that each event takes effect once.

mod beginning;
mod changes;
mod expiry;
mod holding;
mod located;
mod loss;
mod merge;
mod options;
mod record;
mod seen;
mod settled;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};

use arc_swap::ArcSwap;
use bytes::{Buf, BufMut, Bytes};
use fondaco_engine::{Engine, Extent, Hot, Table, WriteBatch};
use fondaco_model::{PartitionId, PartitionSet, SlotPrefix};
use fondaco_os::priority::give_way;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use self::changes::{Changes, NotAdded};
use self::holding::GivenUp;
use self::located::Located;
use self::record::{MERGED_HEADER_BYTES, PLACE_BYTES, Record, RecordHead, place};
use self::seen::Seen;
use crate::clock::ClockReading;
use crate::error::StreamError;
use crate::filter::Filter;
use crate::progress::{LostRecords, Progress, begun, poisoned};
use crate::rules::{LiveRules, Missing};
use crate::source::Batch;
use crate::topics::Terms;

pub use self::expiry::Clock;
pub use self::loss::{drop_after_loss, drop_after_losses};
pub use self::options::OverlayOptions;
pub use self::record::EVENT_KEY_BYTES_MAX;
pub(crate) use self::record::EVENT_VALUE_BYTES_MAX;
pub use self::settled::SettledPage;

/// How many malformed records are listed. More are only counted.
const POISON_MAX: u64 = 1000;
/// How many records of a stream have their effects in one batch: look-ups may wait for the whole batch.
const BATCH_MAX: usize = 64;
/// About how many bytes these effects have, or those of one record.
const BATCH_BYTES: usize = 4 << 20;
/// How many records one batch deletes.
const DELETED_MAX: usize = 4096;
/// For how many keys, and how many bytes of them, [`Overlay::find_hot`] allocates only the answers.
const TOGETHER: usize = 32;
const TOGETHER_BYTES: usize = 1024;
/// How many bytes of records [`Overlay::find_hot`] copies.
const HOT_BYTES_MAX: usize = 1 << 20;
/// About how many bytes [`Overlay::keys`] reads.
const SCANNED_BYTES_MAX: usize = 4 << 20;
/// How many bits of a hash are in the position at which [`Overlay::keys`] ends.
const SCAN_BITS: u32 = 34;

/// Returns the value of a key in the version below, expired or not, with the time of its record if that has one; or why it cannot be
/// read.
pub type Below = Arc<dyn Fn(&[u8]) -> Result<Option<(Bytes, Option<u64>)>, String> + Send + Sync>;

/// See the [module](self).
pub struct Overlay {
    options: OverlayOptions,
    slots: SlotPrefix,
    engine: Arc<dyn Engine>,
    table: Arc<dyn Table>,
    /// How far it has come.
    notes: Arc<dyn Table>,
    /// Updates, and what they apply to.
    events: Arc<dyn Table>,
    base: Below,
    /// Of its values.
    rules: Arc<LiveRules>,
    clock: Clock,
    filter: ArcSwap<Filter>,
    /// Locked while events are applied.
    progress: Mutex<Progress>,
    /// Whether a write has failed since then: it is unknown whether it took effect.
    is_unsure: AtomicBool,
    /// The partitions that answer.
    ready: ArcSwap<PartitionSet>,
    /// Whether all partitions of the store answer.
    is_ready: AtomicBool,
    /// The partitions that it holds.
    held: ArcSwap<PartitionSet>,
    /// Locked before the progress.
    given_up: Mutex<GivenUp>,
    /// The number of the next group: none is used again.
    next_group: AtomicU32,
    keys: AtomicU64,
    counts: Mutex<Applied>,
    lost: Mutex<Vec<LostRecords>>,
    /// The first offset of each topic partition.
    begun: Mutex<BTreeMap<u32, u64>>,
    seen: Seen,
}

/// Counts of events by their outcome, since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// Changed a key.
    pub applied: u64,
    /// Were earlier than the key's value.
    pub superseded: u64,
    /// Were at or before the time that the version goes up to.
    pub cut: u64,
    /// Were logged too late.
    pub late: u64,
    /// Were no events.
    pub poison: u64,
    /// Belonged to partitions that the node does not hold.
    pub elsewhere: u64,
    /// Had an identifier that was known.
    pub repeated: u64,
    /// Updates with operations that do not fit the value, counted each time they are applied.
    pub unfit: u64,
}

/// How far records were applied.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How many were applied, or do not count.
    pub(crate) applied: usize,
    /// The schemas that are missing before the next event can be applied.
    pub(crate) missing: Option<Missing>,
}

/// Keys, each with whether it has a value, and the place of the next one.
pub type Keys = (Vec<(Bytes, bool)>, Option<(PartitionId, u64)>);

/// Keys, each with its value, `None` for a deleted key, and the place of the next one.
pub type Records = (Vec<(Bytes, Option<Bytes>)>, Option<(PartitionId, u64)>);

/// The answer of an overlay for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing: the version below answers.
    Nothing,
    /// The key has this value.
    Value(Bytes),
    /// The key was deleted.
    Deleted,
    /// The answer is on the disk: call [`Overlay::find`].
    Unknown,
    /// The key's partition has yet to read its stream, or is not held here.
    Behind,
}

impl Overlay {
    /// Opens an overlay, or creates it if it does not exist. Reads all its keys. If the engine has lost writes since
    /// the overlay was created, call [`drop_after_loss`] first.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub fn open(
        engine: Arc<dyn Engine>,
        options: OverlayOptions,
        base: Below,
        rules: Arc<LiveRules>,
    ) -> Result<Self, StreamError> {
        let [table, notes, events] = options.tables();
        let (table, notes) = (engine.open_table(&table)?, engine.open_table(&notes)?);
        let events = engine.open_table(&events)?;
        // They decide which of two events is later, whether or not there is memory for the values.
        table.keep_beginnings(RecordHead::BYTES);
        let overlay = Self {
            slots: SlotPrefix::of(&options.store),
            progress: Mutex::new(Progress::read(&*notes, options.partitions)?),
            ready: ArcSwap::default(),
            is_ready: AtomicBool::new(false),
            held: ArcSwap::default(),
            given_up: Mutex::default(),
            next_group: AtomicU32::new(0),
            filter: ArcSwap::from_pointee(Filter::with_room_for(0)),
            keys: AtomicU64::new(0),
            counts: Mutex::default(),
            lost: Mutex::new(LostRecords::read(&*notes)?),
            begun: Mutex::new(begun(&*notes)?),
            seen: Seen::default(),
            options,
            engine,
            table,
            notes,
            events,
            base,
            rules,
            clock: Box::new(|| ClockReading::now().unix_ms),
            is_unsure: AtomicBool::new(false),
        };
        let mut hashes = Vec::new();
        for entry in overlay.table.scan(&[], None)? {
            hashes.extend(entry?.0.get(PLACE_BYTES..).map(xxh3_64));
        }
        let filter = Filter::with_room_for(hashes.len() * 2);
        hashes.iter().for_each(|&hash| filter.add(hash));
        overlay.keys.store(hashes.len() as u64, Relaxed);
        overlay.filter.store(Arc::new(filter));
        overlay.counts.lock().poison = poisoned(&*overlay.notes)?.len() as u64;
        {
            let progress = overlay.progress.lock();
            let last = progress.groups.last_key_value();
            overlay.next_group.store(last.map_or(0, |(&last, _)| last + 1), Relaxed);
            let held = progress.partitions();
            overlay.given_up.lock().partitions = overlay.stored()?.without(&held);
            overlay.held.store(Arc::new(held));
            overlay.note_ready(&progress);
            overlay.seen.note(&progress);
        }
        Ok(overlay)
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &OverlayOptions {
        &self.options
    }

    /// The rules for the values of its store.
    pub fn rules(&self) -> &Arc<LiveRules> {
        &self.rules
    }

    /// Looks up keys in memory only: one answer for each, in order. A value that is longer than about
    /// `value_bytes_max`, or that brings the sum above a megabyte, is [`Found::Unknown`]. Never waits for the disk;
    /// the accesses to memory of all keys overlap.
    pub fn find_hot(&self, keys: &[&[u8]], value_bytes_max: usize) -> SmallVec<[Found; 1]> {
        let filter = self.filter.load();
        // The filter is asked for all keys before a branch depends on an answer: its accesses to memory overlap.
        let hashes: SmallVec<[(u64, bool); TOGETHER]> = keys
            .iter()
            .map(|key| {
                let hash = xxh3_64(key);
                (hash, filter.may_have(hash))
            })
            .collect();
        let mut table_keys = SmallVec::<[u8; TOGETHER_BYTES]>::new();
        let mut ends = SmallVec::<[_; TOGETHER]>::new();
        let mut found = SmallVec::with_capacity(keys.len());
        for (at, (key, &(hash, may_have))) in keys.iter().zip(&hashes).enumerate() {
            if may_have {
                table_keys.extend_from_slice(&self.place_of(key, hash));
                table_keys.extend_from_slice(key);
                ends.push((at, table_keys.len()));
            }
            found.push(Found::Nothing);
        }
        if !ends.is_empty() {
            let record_bytes_max = value_bytes_max.saturating_add(MERGED_HEADER_BYTES);
            self.look_at_hot(&table_keys, &ends, record_bytes_max, &mut found);
        }
        if !self.is_ready.load(Acquire) {
            let each = found.iter_mut().zip(keys);
            let behind = each.filter(|(_, key)| !self.answers(key));
            behind.for_each(|(found, _)| *found = Found::Behind);
        }
        found
    }

    /// Looks up keys of the table, which are concatenated in `table_keys`: `ends` has the index of each answer, and
    /// the end of the key.
    fn look_at_hot(&self, table_keys: &[u8], ends: &[(usize, usize)], record_bytes_max: usize, found: &mut [Found]) {
        let starts = std::iter::once(0).chain(ends.iter().map(|&(_, end)| end));
        let each = starts.zip(ends).map(|(start, &(_, end))| &table_keys[start..end]);
        let mut places = ends.iter().map(|&(at, _)| at);
        let table_keys: SmallVec<[_; TOGETHER]> = each.collect();
        let mut bytes = 0;
        let now_ms = self.read_ms();
        let looked = self.table.look_at_hot(&table_keys, Extent::Whole, &mut |hot, _| {
            let said = match hot {
                Hot::Found(record) if record.len() > record_bytes_max => None,
                Hot::Found(record) => {
                    bytes += record.len();
                    match bytes > HOT_BYTES_MAX {
                        true => None,
                        false => Record::decode(Bytes::copy_from_slice(record))
                            .map(|record| record.found(&self.options, now_ms)),
                    }
                }
                Hot::Absent => Some(Found::Nothing),
                Hot::Cold => None,
            };
            if let Some(at) = places.next() {
                found[at] = said.unwrap_or(Found::Unknown);
            }
            true
        });
        if looked.is_err() {
            // The lookup on the disk reports a dropped table.
            places.for_each(|at| found[at] = Found::Unknown);
        }
    }

    /// Looks up a key. May read the disk.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub fn find(&self, key: &[u8]) -> Result<Found, StreamError> {
        let record = self.record(key)?;
        let found = record.map_or(Found::Nothing, |record| record.found(&self.options, self.read_ms()));
        // Checked after the lookup: the records of a partition are deleted after it has ceased to answer.
        Ok(if self.answers(key) { found } else { Found::Behind })
    }

    /// The record of a key.
    fn record(&self, key: &[u8]) -> Result<Option<Record>, StreamError> {
        let record = self.table.get(&self.table_key(key, xxh3_64(key)))?;
        let decode = |record| Record::decode(record).ok_or_else(|| self.damaged(key));
        record.map(decode).transpose()
    }

    /// The time of the latest event of a key, whether its value is one whole event's, and the value; `None` if it has no events.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub(crate) fn known_value(&self, key: &[u8]) -> Result<Option<(u64, bool, Option<Bytes>)>, StreamError> {
        let record = self.record(key)?.map(|record| {
            let is_whole = record.merged.is_none() && !record.is_folded;
            let lives = self.read_ms() < self.options.expires_ms(record.time_ms);
            (record.time_ms, is_whole, record.value.filter(|_| lives))
        });
        Ok(record)
    }

    /// Whether a key has events.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub fn has_events(&self, key: &[u8]) -> Result<bool, StreamError> {
        let hash = xxh3_64(key);
        Ok(self.filter.load().may_have(hash) && self.table.get(&self.table_key(key, hash))?.is_some())
    }

    /// The partitions whose lag was once within the bound of their feed: they answer.
    pub fn ready(&self) -> Arc<PartitionSet> {
        self.ready.load_full()
    }

    /// Whether the lag of a key's partition was once within the bound of its feed.
    #[inline]
    pub fn answers(&self, key: &[u8]) -> bool {
        let partition = || self.options.partitions.partition_of(self.slots.slot(key));
        self.is_ready.load(Acquire) || self.ready.load().contains(partition())
    }

    /// Counts of events by their outcome.
    pub fn applied(&self) -> Applied {
        *self.counts.lock()
    }

    /// How many keys have events, and how much memory the filter takes, in bytes.
    pub fn size(&self) -> (u64, usize) {
        (self.keys.load(Relaxed), self.filter.load().bytes())
    }

    /// The records that are no events: topic partition, offset, reason.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub fn poisoned(&self) -> Result<Vec<(u32, u64, String)>, StreamError> {
        poisoned(&*self.notes)
    }

    /// One page of the keys that have events, each with whether it has a value, in the order of partitions and
    /// hashes. The page begins at `from`. It ends at `to`, after `count` keys, or when enough bytes were read.
    /// Returns the position of the next page, if there is one.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub fn keys(
        &self,
        from: (PartitionId, u64),
        to: Option<(PartitionId, u64)>,
        count: usize,
    ) -> Result<Keys, StreamError> {
        let mut keys = Vec::new();
        let next = self.walk(from, to, count, |key, value| keys.push((key, value.is_some())))?;
        Ok((keys, next))
    }

    /// The same with the values.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub fn records(
        &self,
        from: (PartitionId, u64),
        to: Option<(PartitionId, u64)>,
        count: usize,
    ) -> Result<Records, StreamError> {
        let mut records = Vec::new();
        let next = self.walk(from, to, count, |key, value| records.push((key, value)))?;
        Ok((records, next))
    }

    /// Hands over the present values of keys of a partition, from a hash on: of about this many keys, or fewer at the end. Returns
    /// the next hash; `None` at the end of the partition. It reads the disk.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub fn each_value(
        &self,
        (partition, hash): (PartitionId, u64),
        count: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Option<u64>, StreamError> {
        let end = (PartitionId::new(partition.get() + 1), 0);
        let next = self.walk((partition, hash), Some(end), count, |_, value| {
            value.iter().for_each(|value| each(value));
        })?;
        Ok(next.map(|(_, hash)| hash))
    }

    /// Hands over keys and their present values, `None` for a key without one, from a place on; returns the next place.
    fn walk(
        &self,
        from: (PartitionId, u64),
        to: Option<(PartitionId, u64)>,
        count: usize,
        mut each: impl FnMut(Bytes, Option<Bytes>),
    ) -> Result<Option<(PartitionId, u64)>, StreamError> {
        let end = to.map(|(partition, hash)| place(partition, hash));
        let (mut keys, mut bytes) = (0, 0);
        let (mut last, now_ms) = (None, self.read_ms());
        let begin = place(from.0, from.1);
        for entry in self.table.scan(&begin, end.as_ref().map(|end| &end[..]))? {
            let (table_key, record) = entry?;
            let Some((mut head, key)) = table_key.split_at_checked(PLACE_BYTES) else {
                return Err(self.damaged(&table_key));
            };
            let partition = PartitionId::new(head.get_u16().into());
            let hash = head.get_u64() >> (64 - SCAN_BITS) << (64 - SCAN_BITS);
            if (keys >= count || bytes >= SCANNED_BYTES_MAX) && last.is_some_and(|last| last != (partition, hash)) {
                return Ok(Some((partition, hash)));
            }
            last = Some((partition, hash));
            keys += 1;
            bytes += table_key.len() + record.len();
            // A damaged record counts as a key without a value: reading it reports the damage.
            let record = Record::decode(record).filter(|record| now_ms < self.options.expires_ms(record.time_ms));
            each(table_key.slice_ref(key), record.and_then(|record| record.value));
        }
        Ok(None)
    }

    /// Locks the progress. No events are applied while it is locked.
    fn lock(&self) -> Result<MutexGuard<'_, Progress>, StreamError> {
        let mut progress = self.progress.lock();
        if self.is_unsure.load(Relaxed) {
            *progress = Progress::read(&*self.notes, self.options.partitions)?;
            *self.lost.lock() = LostRecords::read(&*self.notes)?;
            *self.begun.lock() = begun(&*self.notes)?;
            self.is_unsure.store(false, Relaxed);
            self.note_ready(&progress);
        }
        Ok(progress)
    }

    fn write(&self, batch: WriteBatch) -> Result<(), StreamError> {
        let written = self.engine.write(batch);
        if written.is_err() {
            self.is_unsure.store(true, Relaxed);
        }
        Ok(written?)
    }

    /// Applies records of a topic partition from an offset on to a group. Does nothing if the group is no longer at that
    /// offset.
    ///
    /// # Errors
    /// An error of the engine: records up to the group's offset are applied.
    pub(crate) fn apply(
        &self,
        (group, partition): (u32, u32),
        from: u64,
        read: &Batch,
        terms: Terms,
    ) -> Result<Outcome, StreamError> {
        let mut outcome = Outcome::default();
        let mut progress = self.lock()?;
        let Some(known) = progress.groups.get(&group) else {
            return Ok(outcome);
        };
        if known.offsets.get(&partition) != Some(&from) {
            return Ok(outcome);
        }
        if read.next == from {
            return Ok(outcome);
        }
        let limit = progress.limit(group, partition).unwrap_or(u64::MAX);
        let at = |offset| read.records.partition_point(|record| record.offset < offset);
        let mut rest = read.records.get(at(from)..at(limit)).unwrap_or_default();
        let count = rest.len();
        while let Some(known) = progress.groups.get(&group) {
            let held = known.partitions.clone();
            let batch = &rest[..rest.len().min(BATCH_MAX)];
            let located = Located::of(self, batch, &held);
            let mut changes = Changes::new(self, progress.counts.clone());
            for (record, key) in batch.iter().zip(located.iter()) {
                match changes.add(partition, record, key, terms, &held) {
                    Ok(()) => {}
                    Err(NotAdded::Failed(error)) => return Err(error),
                    Err(NotAdded::Unknown(missing)) => {
                        outcome.missing = Some(missing);
                        break;
                    }
                }
                rest = &rest[1..];
                if changes.bytes > BATCH_BYTES {
                    break;
                }
            }
            let next = rest
                .first()
                .map_or(read.next.min(limit).max(from), |record| record.offset);
            self.write_changes(&mut progress, changes, (group, partition, next))?;
            if rest.is_empty() || outcome.missing.is_some() {
                break;
            }
            give_way();
        }
        outcome.applied = count - rest.len();
        Ok(outcome)
    }

    /// Writes the changes of events, and the next offset of a group in a topic partition.
    fn write_changes(
        &self,
        progress: &mut Progress,
        mut changes: Changes<'_>,
        (group, partition, next): (u32, u32, u64),
    ) -> Result<(), StreamError> {
        changes.merge_all()?;
        let Changes {
            mut batch,
            new_keys,
            counted,
            ..
        } = changes;
        let mut after = progress.clone();
        if let Some(known) = after.groups.get_mut(&group) {
            known.offsets.insert(partition, next);
        }
        after.join();
        after.write_changes(progress, &*self.notes, &mut batch);
        self.make_room_in_filter(new_keys.len())?;
        // Before they are written: a reader must not miss them.
        let filter = self.filter.load();
        new_keys.iter().for_each(|&hash| filter.add(hash));
        if !batch.is_empty() {
            self.write(batch)?;
        }
        let has_joined = after.groups.len() != progress.groups.len();
        *progress = after;
        self.seen.note(progress);
        if has_joined {
            self.note_ready(progress);
        }
        self.keys.fetch_add(new_keys.len() as u64, Relaxed);
        self.counts.lock().add(&counted);
        Ok(())
    }

    /// The partition of a key in the table.
    fn partition_of(&self, table_key: &[u8]) -> PartitionId {
        let key = table_key.get(PLACE_BYTES..).unwrap_or_default();
        self.options.partitions.partition_of(self.slots.slot(key))
    }

    /// Makes the filter larger if this number of further keys needs it.
    fn make_room_in_filter(&self, more: usize) -> Result<(), StreamError> {
        let keys = self.keys.load(Relaxed) as usize + more;
        if keys <= self.filter.load().room() {
            return Ok(());
        }
        let filter = Filter::with_room_for(keys * 2);
        self.table.each_key(&mut |table_key| {
            if let Some(key) = table_key.get(PLACE_BYTES..) {
                filter.add(xxh3_64(key));
            }
        })?;
        self.filter.store(Arc::new(filter));
        Ok(())
    }

    fn table_key(&self, key: &[u8], hash: u64) -> Bytes {
        let mut bytes = Vec::with_capacity(PLACE_BYTES + key.len());
        bytes.put_slice(&self.place_of(key, hash));
        bytes.put_slice(key);
        bytes.into()
    }

    fn place_of(&self, key: &[u8], hash: u64) -> [u8; PLACE_BYTES] {
        place(self.options.partitions.partition_of(self.slots.slot(key)), hash)
    }

    /// Counts keys that have no events any more. It is unknown how many keys a failed write has added.
    fn count_deleted(&self, deleted: u64) {
        self.keys.update(Relaxed, Relaxed, |keys| keys.saturating_sub(deleted));
    }

    fn damaged(&self, key: &[u8]) -> StreamError {
        StreamError::Damaged {
            what: "record",
            stream: self.table.name().to_owned(),
            detail: format!("key {:?}", String::from_utf8_lossy(key)),
        }
    }
}

impl Applied {
    fn add(&mut self, new: &Self) {
        let Self {
            applied,
            superseded,
            cut,
            late,
            poison,
            elsewhere,
            repeated,
            unfit,
        } = self;
        *applied += new.applied;
        *superseded += new.superseded;
        *cut += new.cut;
        *late += new.late;
        *poison += new.poison;
        *elsewhere += new.elsewhere;
        *repeated += new.repeated;
        *unfit += new.unfit;
    }
}
