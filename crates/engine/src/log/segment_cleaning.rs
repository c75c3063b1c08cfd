//! Cleaning a segment: what it says and is still so is appended to the log, and the segment is deleted when all of that
//! is on the disk.

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

/// How much is moved at a time: writers wait for that.
const MOVED_RECORDS: usize = 64;
const MOVED_BYTES: usize = 256 << 10;

impl Shared {
    /// Moves what is left of a segment, and deletes it.
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
                // It stays, whatever the reason is that it cannot be read, and is an error to readers of what is in it:
                // were it tried again and again, nothing else would be cleaned.
                Ok(_) | Err(_) => {
                    self.set_state(number, SegmentState::Unreadable);
                    return Ok(());
                }
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
        // From here on no key needs it. A deletion that fails is tried again.
        self.list_segments(Some(number))?;
        self.writer.lock().uses.remove(&number);
        let mut segments = self.segments.write();
        segments.remove(&number);
        drop(segments);
        // What comes back when power is lost before the directory is on the disk is older than what it was moved to.
        segment.delete()
    }

    fn begin_moving(&self, segment: u32) -> SegmentMove {
        let mut writer = self.writer.lock();
        let oldest_other = writer.uses.keys().copied().find(|&other| other != segment);
        let used = writer.uses.get_mut(&segment);
        SegmentMove {
            dead: used.map(|used| std::mem::take(&mut used.dead)).unwrap_or_default(),
            // Those that come are newer, and others go only while nothing is moved.
            oldest_other: oldest_other.unwrap_or(u32::MAX),
            ..SegmentMove::default()
        }
    }

    fn set_state(&self, segment: u32, state: SegmentState) {
        if let Some(used) = self.writer.lock().uses.get_mut(&segment) {
            used.state = state;
        }
    }

    /// Takes note of what a frame says, which may be taken along.
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
            // Otherwise no segment is left that it is about.
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

    /// Moves what was taken note of, as far as it is still so.
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

    /// Appends what was taken along, as far as it is still so.
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
                // Otherwise the key has a record that is newer.
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

/// What is moved together.
#[derive(Default)]
struct SegmentMove {
    /// What of the segment need not be looked for.
    dead: GarbageMarks,
    /// The number of the oldest segment but for this one.
    oldest_other: u32,
    /// Whether a record could not be read.
    is_damaged: bool,
    candidates: Candidates,
    records: Vec<(u32, At, Moved)>,
    bytes: u64,
}

/// Frames with values that may still be so.
#[derive(Default)]
struct Candidates {
    /// The keys of all, one behind the other.
    keys: Vec<u8>,
    frames: Vec<Candidate>,
    /// How long the frames are together.
    bytes: u64,
}

struct Candidate {
    table: u32,
    at: At,
    key: Range<usize>,
}

enum Moved {
    /// Where it was seen.
    Record(Pair, Spot),
    /// Of a key, since a segment.
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
