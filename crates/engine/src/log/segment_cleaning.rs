//! Cleaning a segment: its live records are appended to the log, and the segment is deleted after they have been
//! synced.

use std::ops::Range;
use std::sync::Arc;

use super::Shared;
use super::entry::{At, Entry};
use super::frame::{Content, Frame, frame_bytes};
use super::garbage_marks::GarbageMarks;
use super::keys::{KeysFile, Named, Says};
use super::recovery::{Scanned, scan};
use super::segment::Segment;
use super::table::held;
use super::writer::SegmentState;
use crate::batch::Pair;
use crate::engine::{Extent, Spot};
use crate::error::EngineError;

/// How much is moved at a time: writers wait meanwhile.
const MOVED_RECORDS: usize = 64;
const MOVED_BYTES: usize = 256 << 10;

impl Shared {
    /// Moves the live records of a segment, and deletes it.
    pub(super) fn clean_segment(&self, segment: &Arc<Segment>) -> Result<(), EngineError> {
        let number = segment.number();
        let mut moving = self.begin_moving(number);
        let oldest_other = moving.oldest_other;
        let mut result = Ok(());
        let mut take = |named: Named<'_>| {
            if result.is_ok() {
                result = self.take_along(number, named, &mut moving);
            }
        };
        match KeysFile::read(segment.path(), number) {
            Some(keys) => {
                let repeated = keys.repeated_deletions(oldest_other);
                let is_repeated = |named: &Named<'_>| repeated.contains(&named.offset);
                keys.by_offset().filter(|named| !is_repeated(named)).for_each(take);
            }
            None => match scan(segment, self.high_water.identity(), &mut take) {
                Ok(Scanned { damage: None, .. }) => {}
                // The segment stays, and reads of its records fail. If it were retried again and again, nothing else
                // would be cleaned.
                Ok(_) | Err(EngineError::Corrupt { .. }) => {
                    self.set_state(number, SegmentState::Unreadable);
                    return Ok(());
                }
                // The process may have too many files open, for a moment.
                Err(error) => return Err(error),
            },
        }
        result.and_then(|()| self.take_and_move(&mut moving))?;
        if moving.is_damaged {
            self.set_state(number, SegmentState::Damaged);
            return Ok(());
        }
        self.sync()?;
        let writer = self.writer.lock();
        if writer.uses.get(&number).is_some_and(|used| used.live_bytes > 0) {
            debug_assert!(false, "segment {number} is still used");
            drop(writer);
            self.set_state(number, SegmentState::Unreadable);
            return Ok(());
        }
        drop(writer);
        self.set_state(number, SegmentState::Emptied);
        self.delete_segment(segment)
    }

    /// Deletes a segment that no key needs. If that fails it is tried again, and until then tombstones of its records
    /// stay: a restart would find it.
    fn delete_segment(&self, segment: &Arc<Segment>) -> Result<(), EngineError> {
        let number = segment.number();
        let writer = self.writer.lock();
        if writer.last == number {
            // No segment follows yet, so the next start may begin with this number again: it must not miss what was synced.
            self.high_water.note_durably(&[])?;
        }
        drop(writer);
        self.list_segments(Some(number))?;
        if let Err(error) = segment.delete()
            && segment.path().exists()
        {
            return Err(error);
        }
        self.writer.lock().uses.remove(&number);
        self.segments.write().remove(&number);
        Ok(())
    }

    /// Tries again to delete segments that could not be deleted.
    pub(super) fn delete_emptied(&self) -> Result<(), EngineError> {
        let emptied: Vec<u32> = {
            let writer = self.writer.lock();
            let uses = writer.uses.iter();
            let emptied = uses.filter(|(_, used)| used.state == SegmentState::Emptied);
            emptied.map(|(&number, _)| number).collect()
        };
        for number in emptied {
            let segment = self.segments.read().get(&number).cloned();
            segment.map_or(Ok(()), |segment| self.delete_segment(&segment))?;
        }
        Ok(())
    }

    fn begin_moving(&self, segment: u32) -> SegmentMove {
        let mut writer = self.writer.lock();
        let oldest_other = writer.uses.keys().copied().find(|&other| other != segment);
        let used = writer.uses.get_mut(&segment);
        SegmentMove {
            dead: used.map(|used| std::mem::take(&mut used.dead)).unwrap_or_default(),
            // New segments have higher numbers, and segments are only deleted while nothing is moved.
            oldest_other: oldest_other.unwrap_or(u32::MAX),
            ..SegmentMove::default()
        }
    }

    fn set_state(&self, segment: u32, state: SegmentState) {
        if let Some(used) = self.writer.lock().uses.get_mut(&segment) {
            used.state = state;
        }
    }

    /// Adds a frame that may have to be moved.
    fn take_along(&self, segment: u32, named: Named<'_>, moving: &mut SegmentMove) -> Result<(), EngineError> {
        let at = At {
            segment,
            offset: named.offset,
        };
        match named.says {
            Says::ValueOf(value_bytes) => {
                let bytes = frame_bytes(named.key.len(), value_bytes);
                if !moving.dead.has(named.offset, bytes) {
                    moving.candidates.push(named.table, at, named.key, bytes);
                }
            }
            // Otherwise all segments that the tombstone covers are gone.
            Says::NoneSince(since) if since >= moving.oldest_other => {
                moving.push(named.table, at, Moved::Deletion(named.key.to_vec(), since));
            }
            Says::NoneSince(_) => {}
        }
        let records = moving.records.len() + moving.candidates.frames.len();
        match records >= MOVED_RECORDS || moving.bytes + moving.candidates.bytes >= MOVED_BYTES as u64 {
            true => self.take_and_move(moving),
            false => Ok(()),
        }
    }

    /// Looks up the candidates, and moves those that are live.
    fn take_and_move(&self, moving: &mut SegmentMove) -> Result<(), EngineError> {
        let candidates = std::mem::take(&mut moving.candidates);
        for frames in candidates.frames.chunk_by(|one, other| one.table == other.table) {
            let Some(table) = self.tables.read().by_number.get(&frames[0].table).cloned() else {
                continue;
            };
            let keys: Vec<&[u8]> = frames.iter().map(|frame| &candidates.keys[frame.key.clone()]).collect();
            let mut found = Vec::new();
            let mut frames = frames.iter();
            table.read().tree.get_all(&keys, Extent::Beginning, |entry, spot| {
                if let Some(frame) = frames.next()
                    && let Some(entry) = entry.filter(|entry| entry.at() == frame.at)
                    && let Some(held) = held(entry, table.number, &self.segments)
                {
                    found.push((frame.at, spot, held));
                }
                true
            });
            for (at, spot, held) in found {
                match held.read() {
                    Ok(record) => moving.push(table.number, at, Moved::Record(record, spot)),
                    Err(_) => {
                        moving.is_damaged = true;
                        self.damaged.found(at);
                    }
                }
            }
        }
        self.move_records(moving)
    }

    /// Appends the collected records that are still live.
    fn move_records(&self, moving: &mut SegmentMove) -> Result<(), EngineError> {
        let records = std::mem::take(&mut moving.records);
        moving.bytes = 0;
        let mut writer = self.writer.lock();
        let writer = &mut *writer;
        self.synced.check(&self.dir)?;
        writer.batch.clear();
        let mut moved = Vec::with_capacity(records.len());
        for (number, at, record) in &records {
            let Some(table) = self.tables.read().by_number.get(number).cloned() else {
                continue;
            };
            let has = table.read().tree.get_on(record.spot(), record.key()).map(Entry::at);
            let is_so = match record {
                Moved::Record(..) => has == Some(*at),
                // Otherwise the key has a newer record.
                Moved::Deletion(..) => has.is_none(),
            };
            if is_so {
                let offset = writer.batch.push(&record.frame(*number));
                moved.push((table, offset, record));
            }
        }
        if writer.batch.is_empty() {
            return Ok(());
        }
        let (segment, base) = self.append(writer)?;
        self.synced.wrote();
        for (table, offset, record) in moved {
            let at = At {
                segment,
                offset: base + offset,
            };
            writer.note(&record.frame(table.number), at);
            match record {
                Moved::Record(pair, spot) => {
                    let mut contents = table.write();
                    if let Some(entry) = contents.tree.get_mut_on(*spot, pair.key()) {
                        writer.unused(entry);
                        entry.move_to(at);
                        writer.used(at.segment, entry.frame_bytes());
                    }
                }
                Moved::Deletion(key, since) => writer.deleted(at.segment, *since, frame_bytes(key.len(), 0)),
            }
        }
        Ok(())
    }
}

/// The state of moving one segment.
#[derive(Default)]
struct SegmentMove {
    /// The frames of the segment that are known to be garbage.
    dead: GarbageMarks,
    /// The number of the oldest other segment.
    oldest_other: u32,
    /// Whether a record could not be read.
    is_damaged: bool,
    candidates: Candidates,
    records: Vec<(u32, At, Moved)>,
    bytes: u64,
}

/// Frames with values that may be live.
#[derive(Default)]
struct Candidates {
    /// The concatenated keys.
    keys: Vec<u8>,
    frames: Vec<Candidate>,
    /// The total length of the frames.
    bytes: u64,
}

struct Candidate {
    table: u32,
    at: At,
    key: Range<usize>,
}

enum Moved {
    /// A record, and the spot at which it was found.
    Record(Pair, Spot),
    /// A tombstone of a key, and the last segment that it covers.
    Deletion(Vec<u8>, u32),
}

impl Candidates {
    fn push(&mut self, table: u32, at: At, key: &[u8], bytes: u64) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.frames.push(Candidate {
            table,
            at,
            key: start..self.keys.len(),
        });
        self.bytes += bytes;
    }
}

impl SegmentMove {
    fn push(&mut self, table: u32, at: At, moved: Moved) {
        self.bytes += moved.frame(table).bytes() as u64;
        self.records.push((table, at, moved));
    }
}

impl Moved {
    fn key(&self) -> &[u8] {
        match self {
            Self::Record(pair, _) => pair.key(),
            Self::Deletion(key, _) => key,
        }
    }

    fn spot(&self) -> Spot {
        match self {
            Self::Record(_, spot) => *spot,
            Self::Deletion(..) => Spot::default(),
        }
    }

    fn frame(&self, table: u32) -> Frame<'_> {
        let content = match self {
            Self::Record(pair, _) => Content::Value(pair.value()),
            Self::Deletion(_, since) => Content::NoneSince(*since),
        };
        Frame {
            table,
            key: self.key(),
            content,
        }
    }
}
