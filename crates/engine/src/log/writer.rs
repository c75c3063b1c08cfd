//! Appends batches to the active segment until it is full.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Shared;
use super::catalog::Catalog;
use super::entry::{At, Entry};
use super::frame::{BATCH_BYTES_MAX, BatchBuffer, Content, Frame, frame_bytes};
use super::garbage_marks::GarbageMarks;
use super::keys::Keys;
use super::segment::{Ended, SEGMENT_HEAD_BYTES, Segment};
use super::table::LogTable;
use crate::batch::{Change, WriteBatch};
use crate::error::EngineError;
use crate::failure;
use crate::space::Space;

/// State that only the writer uses.
pub(super) struct Writer {
    pub(super) space: Space,
    pub(super) catalog: Catalog,
    /// `None` before the first write.
    pub(super) active: Option<Active>,
    /// The end of the last segment if no segment is active; all zeros if it is not known.
    ended: Ended,
    /// The number of the last segment; 0 before the first.
    pub(super) last: u32,
    pub(super) batch: BatchBuffer,
    /// All segments.
    pub(super) uses: BTreeMap<u32, Use>,
    /// The garbage that was created since the cleaner was last notified.
    pub(super) garbage_made_bytes: u64,
    /// A write failed: the segment may end with a partial batch.
    is_torn: bool,
}

/// The segment that batches are appended to.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) segment: Arc<Segment>,
    pub(super) length: u32,
    pub(super) batches: u32,
    pub(super) keys: Keys,
}

/// A full segment.
#[derive(Debug)]
pub(super) struct Full {
    pub(super) segment: Arc<Segment>,
    pub(super) ended: Ended,
    pub(super) keys: Keys,
    /// Whether a part of the segment is damaged: then the file is not truncated, so that it can be examined.
    pub(super) stays_as_it_is: bool,
}

impl From<Active> for Full {
    fn from(active: Active) -> Self {
        Self {
            ended: active.ended(),
            segment: active.segment,
            keys: active.keys,
            stays_as_it_is: false,
        }
    }
}

/// How much of a segment is still live.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) bytes: u64,
    /// The bytes of live frames.
    pub(super) live_bytes: u64,
    /// The bytes of tombstones. Obsolete tombstones are not subtracted: memory does not know the places of tombstones.
    deletion_bytes: u64,
    /// The newest segment that any of them covers.
    deleted_since: u32,
    /// Garbage frames that are long enough to have a mark.
    pub(super) dead: GarbageMarks,
    pub(super) state: SegmentState,
}

/// The state of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SegmentState {
    /// It is being written, or was until a moment ago.
    Open,
    /// It is full and synced.
    Sealed,
    /// Some of its records cannot be read: it stays until all of them are overwritten. All other records have been
    /// moved.
    Damaged,
    /// Its content cannot be read to the end: it stays.
    Unreadable,
    /// All that is needed of it is in later segments, and synced: its file is being deleted, which is tried again and
    /// again.
    Emptied,
}

impl Use {
    pub(super) fn open(bytes: u32) -> Self {
        Self {
            bytes: bytes.into(),
            live_bytes: 0,
            deletion_bytes: 0,
            deleted_since: 0,
            dead: GarbageMarks::default(),
            state: SegmentState::Open,
        }
    }

    pub(super) fn sealed(bytes: u32) -> Self {
        Self {
            state: SegmentState::Sealed,
            ..Self::open(bytes)
        }
    }

    /// Adds the frames of other keys of the same segment.
    pub(super) fn add(&mut self, others: &Self) {
        self.live_bytes += others.live_bytes;
        self.deleted(others.deleted_since, others.deletion_bytes);
    }

    /// Adds a tombstone that covers the segments up to `since`.
    pub(super) fn deleted(&mut self, since: u32, bytes: u64) {
        self.deletion_bytes += bytes;
        self.deleted_since = self.deleted_since.max(since);
    }

    /// The garbage that cleaning can free. Writers wait for it, so it must not include frames that are still needed.
    /// The real garbage may be more (obsolete tombstones) but never less: otherwise cleaning would not terminate.
    pub(super) fn garbage_bytes(&self, age: &Age) -> u64 {
        match self.goes() {
            true => {
                let used_bytes = self.live_bytes + self.kept_deletion_bytes(age);
                self.bytes.saturating_sub(used_bytes)
            }
            false => 0,
        }
    }

    /// Whether the segment can be deleted after its live records are moved.
    pub(super) fn goes(&self) -> bool {
        match self.state {
            SegmentState::Sealed => true,
            SegmentState::Damaged => self.live_bytes == 0,
            SegmentState::Open | SegmentState::Unreadable | SegmentState::Emptied => false,
        }
    }

    /// The bytes of tombstones that may still be needed: the segments that they cover still exist.
    pub(super) fn kept_deletion_bytes(&self, age: &Age) -> u64 {
        match age.number > age.oldest && self.deleted_since >= age.oldest {
            true => self.deletion_bytes,
            false => 0,
        }
    }
}

/// The age of a segment relative to the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Age {
    pub(super) number: u32,
    /// The number of the oldest existing segment.
    pub(super) oldest: u32,
}

/// The number of a batch, from its segment and its index there.
pub(super) fn batch_number(segment: u32, batch: u32) -> u64 {
    u64::from(segment) << 32 | u64::from(batch)
}

impl Active {
    pub(super) fn begin(segment: Arc<Segment>) -> Self {
        Self {
            length: SEGMENT_HEAD_BYTES,
            batches: 0,
            keys: Keys::of(segment.number()),
            segment,
        }
    }

    fn ended(&self) -> Ended {
        Ended {
            length: self.length,
            batches: self.batches,
        }
    }
}

impl Writer {
    pub(super) fn new(
        space: Space,
        catalog: Catalog,
        active: Option<Active>,
        ended: Ended,
        uses: BTreeMap<u32, Use>,
    ) -> Self {
        Self {
            space,
            catalog,
            active,
            ended,
            last: uses.last_key_value().map_or(0, |(last, _)| *last),
            batch: BatchBuffer::default(),
            uses,
            garbage_made_bytes: 0,
            is_torn: false,
        }
    }

    /// Records that a frame was written.
    pub(super) fn note(&mut self, frame: &Frame<'_>, at: At) {
        if let Some(active) = &mut self.active {
            active.keys.push(frame, at.offset);
        }
    }

    /// Adds live bytes to a segment.
    pub(super) fn used(&mut self, segment: u32, bytes: u64) {
        if let Some(used) = self.uses.get_mut(&segment) {
            used.live_bytes += bytes;
        }
    }

    /// Adds tombstones to a segment that cover the segments up to `since`.
    pub(super) fn deleted(&mut self, segment: u32, since: u32, bytes: u64) {
        if let Some(used) = self.uses.get_mut(&segment) {
            used.deleted(since, bytes);
        }
    }

    /// All segments, with their ages.
    pub(super) fn uses_by_age(&self) -> impl Iterator<Item = (Age, &Use)> {
        let oldest = self.uses.first_key_value().map_or(0, |(oldest, _)| *oldest);
        self.uses
            .iter()
            .map(move |(&number, used)| (Age { number, oldest }, used))
    }

    /// Records that a frame became garbage.
    pub(super) fn unused(&mut self, entry: &Entry) {
        let (At { segment, offset }, bytes) = (entry.at(), entry.frame_bytes());
        if let Some(used) = self.uses.get_mut(&segment) {
            used.live_bytes = used.live_bytes.saturating_sub(bytes);
            self.garbage_made_bytes += bytes;
            used.dead.set(offset, bytes);
        }
    }
}

impl Shared {
    /// Applies a batch.
    pub(super) fn write(&self, batch: WriteBatch) -> Result<(), EngineError> {
        self.wait_for_room()?;
        let mut writer = self.writer.lock();
        let writer = &mut *writer;
        self.synced.check(&self.dir)?;
        let tables = self.tables_of(&batch)?;
        self.check_keys_of(&tables, &batch)?;
        if let Err(full) = writer.space.claim(&batch, || self.pending_disk_bytes()) {
            self.cleaning.hurry();
            return Err(full);
        }
        // The last segment that can contain records of the deleted keys, even if this batch begins the next segment.
        let since = writer.last;
        let offsets = gather(writer, &tables, &batch, since);
        if writer.batch.is_empty() {
            return Ok(());
        }
        let (segment, base) = self.append(writer)?;
        self.synced.wrote();
        let place = |offset: u32| At {
            segment,
            offset: base + offset,
        };
        // Look-ups wait for the tables, and for nothing else: not while the list of keys grows by megabytes, nor while old
        // records are freed.
        let mut places = offsets.iter();
        for (table, (_, changes)) in tables.iter().zip(batch.tables()) {
            for (change, offset) in changes.iter().zip(&mut places) {
                if let Some(offset) = offset {
                    writer.note(&frame_of(table, change, since), place(*offset));
                }
            }
        }
        let mut replaced = Vec::with_capacity(offsets.len());
        let mut guards: Vec<_> = tables.iter().map(|table| table.write()).collect();
        let mut offsets = offsets.into_iter();
        let (mut heated, mut cooled, mut used_bytes, mut deletion_bytes) = (0, 0, 0, 0);
        for ((table, changes), contents) in tables.iter().zip(batch.into_tables()).zip(&mut guards) {
            for (change, offset) in changes.into_changes().zip(&mut offsets) {
                let Some(offset) = offset else { continue };
                let spot = change.spot();
                let before = match change.into_parts() {
                    (pair, true) => {
                        let entry = Entry::hot(pair, place(offset));
                        heated += entry.hot_bytes();
                        used_bytes += entry.frame_bytes();
                        let key_bytes = entry.key().len();
                        let before = contents.put(entry, spot, table.number, &self.segments);
                        if before.is_none() {
                            self.keys.add(key_bytes);
                        }
                        before
                    }
                    (pair, false) => {
                        deletion_bytes += frame_bytes(pair.key().len(), 0);
                        let before = contents.remove(pair.key(), table.number, &self.segments);
                        if before.is_some() {
                            self.keys.remove(pair.key().len());
                        }
                        before
                    }
                };
                replaced.extend(before);
            }
        }
        // Before another thread can subtract it.
        self.resident_bytes.add(heated);
        drop(guards);
        for before in replaced {
            cooled += before.hot_bytes();
            writer.unused(&before);
            self.damaged.is_gone(before.at());
        }
        writer.used(segment, used_bytes);
        if deletion_bytes > 0 {
            writer.deleted(segment, since, deletion_bytes);
        }
        self.resident_bytes.remove(cooled);
        self.cleaning.wrote(writer, self.options.segment_bytes);
        self.cool();
        Ok(())
    }

    /// The tables of a batch.
    fn tables_of(&self, batch: &WriteBatch) -> Result<Vec<Arc<LogTable>>, EngineError> {
        let tables = self.tables.read();
        let find = |name: &str| {
            let no_table = || EngineError::NoTable { table: name.to_owned() };
            tables.by_name.get(name).cloned().ok_or_else(no_table)
        };
        batch.tables().map(|(name, _)| find(name)).collect()
    }

    /// Refuses a batch with new keys if there is no memory for them.
    fn check_keys_of(&self, tables: &[Arc<LogTable>], batch: &WriteBatch) -> Result<(), EngineError> {
        let Some(refusal) = self.keys.refusal() else {
            return Ok(());
        };
        let mut changes = tables.iter().zip(batch.tables());
        let has_new = changes.any(|(table, (_, changes))| {
            let tree = &table.read().tree;
            let is_new = |change: &Change| change.pair().is_some() && tree.get(change.key()).is_none();
            changes.iter().any(is_new)
        });
        match has_new {
            true => Err(refusal),
            false => Ok(()),
        }
    }

    /// Appends the collected batch. Returns its segment and its offset there.
    pub(super) fn append(&self, writer: &mut Writer) -> Result<(u32, u32), EngineError> {
        let bytes = writer.batch.len();
        if bytes > BATCH_BYTES_MAX {
            return Err(EngineError::BatchTooLong { bytes });
        }
        if writer.is_torn
            && let Some(active) = &writer.active
        {
            active.segment.cut(active.length)?;
            writer.is_torn = false;
        }
        let has_room = writer.active.as_ref().is_some_and(|active| {
            let end = u64::from(active.length) + bytes as u64;
            active.length == SEGMENT_HEAD_BYTES || end <= self.options.segment_bytes
        });
        if !has_room {
            self.begin_segment(writer)?;
        }
        let Writer {
            active: Some(active),
            batch,
            ..
        } = writer
        else {
            return Err(failure::stopped(&self.dir, "it has no segment to write to"));
        };
        let bytes = batch.finish(batch_number(writer.last, active.batches), self.high_water.identity());
        let base = active.length;
        if let Err(error) = active.segment.write_at(bytes, base) {
            // The partial batch must not pass for a written one.
            writer.is_torn = active.segment.cut(base).is_err();
            return Err(error);
        }
        active.length += bytes.len() as u32;
        active.batches += 1;
        let half = self.options.segment_bytes / 2;
        if u64::from(base) < half && u64::from(active.length) >= half {
            self.cleaning.prepare(writer.last + 1);
        }
        if let Some(used) = writer.uses.get_mut(&writer.last) {
            used.bytes = active.length.into();
        }
        Ok((writer.last, base))
    }

    /// Begins a new segment.
    fn begin_segment(&self, writer: &mut Writer) -> Result<(), EngineError> {
        let number = writer.last + 1;
        let segment = match self.cleaning.take_prepared(number) {
            Some(segment) => segment,
            None => Segment::create(
                &self.dir,
                number,
                self.high_water.identity(),
                self.options.segment_bytes,
            )?,
        };
        let ended = writer.active.as_ref().map_or(writer.ended, Active::ended);
        if let Err(error) = segment.begin(self.high_water.identity(), ended) {
            // It is created again at the next attempt.
            let _ = segment.delete();
            return Err(error);
        }
        let segment = Arc::new(segment);
        let mut segments = self.segments.write();
        segments.insert(number, Arc::clone(&segment));
        drop(segments);
        writer.uses.insert(number, Use::open(SEGMENT_HEAD_BYTES));
        writer.last = number;
        if let Some(full) = writer.active.replace(Active::begin(segment)) {
            self.unsynced.lock().push(Arc::clone(&full.segment));
            self.cleaning.seal(full.into());
        }
        Ok(())
    }
}

/// Encodes the changes into the buffer. Returns the offset of each in the batch; `None` for a change without effect.
fn gather(writer: &mut Writer, tables: &[Arc<LogTable>], batch: &WriteBatch, since: u32) -> Vec<Option<u32>> {
    writer.batch.clear();
    let mut offsets = Vec::with_capacity(batch.len());
    for (table, (_, changes)) in tables.iter().zip(batch.tables()) {
        for change in changes.iter() {
            let is_idle = change.pair().is_none() && table.read().tree.get(change.key()).is_none();
            let frame = frame_of(table, change, since);
            offsets.push((!is_idle).then(|| writer.batch.push(&frame)));
        }
    }
    offsets
}

fn frame_of<'a>(table: &LogTable, change: &'a Change, since: u32) -> Frame<'a> {
    Frame {
        table: table.number,
        key: change.key(),
        content: match change.pair() {
            Some(pair) => Content::Value(pair.value()),
            None => Content::NoneSince(since),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_do_not_wait_for_garbage_in_the_active_segment() {
        // The active segment becomes full only when the next batch does not fit, and can be cleaned only then.
        let age = Age { number: 2, oldest: 1 };
        assert_eq!(Use::open(1 << 20).garbage_bytes(&age), 0);
        let mut sealed = Use::sealed(1 << 20);
        sealed.live_bytes = 1 << 10;
        assert_eq!(sealed.garbage_bytes(&age), (1 << 20) - (1 << 10));
    }

    #[test]
    fn a_tombstone_that_covers_no_older_segment_is_garbage() {
        let mut sealed = Use::sealed(1000);
        sealed.deleted(3, 100);
        sealed.deleted(2, 100);
        let garbage_bytes = |number, oldest| sealed.garbage_bytes(&Age { number, oldest });
        assert_eq!(garbage_bytes(5, 1), 800);
        assert_eq!(garbage_bytes(5, 3), 800);
        assert_eq!(garbage_bytes(5, 4), 1000);
        // There is no older segment, and the frames of this one that the tombstone covers are deleted with it.
        assert_eq!(garbage_bytes(3, 3), 1000);
    }
}
