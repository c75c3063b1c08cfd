//! Cleaning a segment: what it says and is still so is appended to the log, and the segment is deleted when all of that
//! is on the disk.

use std::sync::{Arc, PoisonError};

use super::Shared;
use super::entry::{At, Entry};
use super::frame::{Content, Frame, frame_bytes};
use super::marks::Marks;
use super::recovery::{Scanned, scan};
use super::segment::{KeysFile, Named, Says, Segment};
use super::table::{Held, held};
use super::writer::SegmentState;
use crate::batch::Pair;
use crate::error::EngineError;
use crate::failure;

/// How much is moved at a time: writers wait for that.
const MOVED_RECORDS: usize = 64;
const MOVED_BYTES: usize = 256 << 10;

impl Shared {
    /// Moves what is left of a segment, and deletes it.
    pub(super) fn clean_segment(&self, segment: &Arc<Segment>) -> Result<(), EngineError> {
        let number = segment.number();
        let used = self
            .writer()
            .uses
            .get_mut(&number)
            .map(|used| std::mem::take(&mut used.dead));
        let mut moving = Moving {
            dead: used.unwrap_or_default(),
            ..Moving::default()
        };
        let mut result = Ok(());
        let mut take = |named: Named<'_>| {
            if result.is_ok() {
                result = self.take_along(number, named, &mut moving);
            }
        };
        match KeysFile::read(segment.path(), number) {
            Some(keys) => keys.iter().for_each(take),
            None => {
                let Scanned { is_damaged, .. } = scan(segment, &mut take)?;
                if is_damaged {
                    result = Err(failure::corrupt(segment.path(), "it cannot be read to its end"));
                }
            }
        }
        let result = result.and_then(|()| self.move_records(number, &mut moving));
        match result {
            // What cannot be read stays, and is an error to whoever asks for it.
            Err(EngineError::Corrupt { .. }) => {
                self.set_state(number, SegmentState::Damaged);
                return Ok(());
            }
            result => result?,
        }
        self.sync()?;
        let mut writer = self.writer();
        if writer.uses.get(&number).is_some_and(|used| used.live_bytes > 0) {
            debug_assert!(false, "segment {number} is still used");
            drop(writer);
            self.set_state(number, SegmentState::Damaged);
            return Ok(());
        }
        segment.delete()?;
        writer.uses.remove(&number);
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        segments.remove(&number);
        Ok(())
    }

    fn set_state(&self, segment: u32, state: SegmentState) {
        if let Some(used) = self.writer().uses.get_mut(&segment) {
            used.state = state;
        }
    }

    /// Takes along what a frame says, if it is still so.
    fn take_along(&self, segment: u32, named: Named<'_>, moving: &mut Moving) -> Result<(), EngineError> {
        if let Says::ValueOf(value_bytes) = named.says
            && moving.dead.has(named.offset, frame_bytes(named.key.len(), value_bytes))
        {
            return Ok(());
        }
        let table = self.tables().by_number.get(&named.table).cloned();
        let Some(table) = table else { return Ok(()) };
        let at = At {
            segment,
            offset: named.offset,
        };
        match named.says {
            Says::ValueOf(_) => {
                let found = {
                    let contents = table.read();
                    let entry = contents.tree.get(named.key).filter(|entry| entry.at() == at);
                    entry.and_then(|entry| held(entry, table.number, &self.segments))
                };
                let Some(found) = found.map(Held::read).transpose()? else {
                    return Ok(());
                };
                moving.push(named.table, at, Moved::Record(found));
            }
            Says::NoneSince(since) => moving.push(named.table, at, Moved::Deletion(named.key.to_vec(), since)),
        }
        match moving.records.len() >= MOVED_RECORDS || moving.bytes >= MOVED_BYTES {
            true => self.move_records(segment, moving),
            false => Ok(()),
        }
    }

    /// Appends what was taken along, as far as it is still so.
    fn move_records(&self, from: u32, moving: &mut Moving) -> Result<(), EngineError> {
        let records = std::mem::take(&mut moving.records);
        moving.bytes = 0;
        let mut writer = self.writer();
        let writer = &mut *writer;
        self.synced.check(&self.dir)?;
        writer.batch.clear();
        let mut moved = Vec::with_capacity(records.len());
        for (number, at, record) in &records {
            let Some(table) = self.tables().by_number.get(number).cloned() else {
                continue;
            };
            let has = table.read().tree.get(record.key()).map(Entry::at);
            let is_so = match record {
                Moved::Record(_) => has == Some(*at),
                // It is past when no segment is left that it is about, or the key has a record that is newer.
                Moved::Deletion(_, since) => {
                    has.is_none() && writer.uses.range(..=since).any(|(&older, _)| older != from)
                }
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
            let mut contents = table.write();
            if let Moved::Record(pair) = record
                && let Some(entry) = contents.tree.get_mut(pair.key())
            {
                writer.unused(entry);
                entry.move_to(at);
                writer.used(at.segment, entry.frame_bytes());
            }
        }
        Ok(())
    }
}

/// What is moved together.
#[derive(Default)]
struct Moving {
    /// What of the segment need not be looked for.
    dead: Marks,
    records: Vec<(u32, At, Moved)>,
    bytes: usize,
}

enum Moved {
    Record(Pair),
    /// Of a key, since a segment.
    Deletion(Vec<u8>, u32),
}

impl Moving {
    fn push(&mut self, table: u32, at: At, moved: Moved) {
        self.bytes += moved.frame(table).bytes();
        self.records.push((table, at, moved));
    }
}

impl Moved {
    fn key(&self) -> &[u8] {
        match self {
            Self::Record(pair) => pair.key(),
            Self::Deletion(key, _) => key,
        }
    }

    fn frame(&self, table: u32) -> Frame<'_> {
        let content = match self {
            Self::Record(pair) => Content::Value(pair.value()),
            Self::Deletion(_, since) => Content::NoneSince(*since),
        };
        Frame {
            table,
            key: self.key(),
            content,
        }
    }
}
