//! What a directory has, as it is opened: the keys of all tables, read from the files of keys, and from the segments
//! that have none, which are those that were written last.
//!
//! What is damaged is left out, and nothing else: batches behind it are taken in. All that can have been lost is found, and
//! nothing is changed here, so that the loss can be noted first.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::catalog::Catalog;
use super::entry::{At, Entry};
use super::frame::{Batch, Found, find_batch, frame_bytes, read_batch};
use super::listed::Listed;
use super::segment::{Ended, Head, Keys, KeysFile, Named, SEGMENT_HEAD_BYTES, Says, Segment};
use super::table::Segments;
use super::tree::Tree;
use super::writer::{Use, batch_number};
use crate::engine::Spot;
use crate::error::EngineError;
use crate::failure;
use crate::high_water::{self, HighWater};
use crate::readable::Readable;

/// What was found.
pub(super) struct Recovered {
    pub(super) catalog: Catalog,
    /// The keys of tables, by their numbers.
    pub(super) trees: HashMap<u32, Tree>,
    pub(super) segments: Segments,
    pub(super) uses: BTreeMap<u32, Use>,
    /// Segments that were read, in order: they have no files of keys, or not the right ones.
    pub(super) read: Vec<Read>,
    /// The last segment, if it has a file of keys.
    pub(super) last_sealed: Option<(Arc<Segment>, KeysFile)>,
    /// Files of keys whose segments are missing.
    pub(super) lone_keys: Vec<PathBuf>,
    /// The identity of the log, if there is one.
    pub(super) identity: Option<u64>,
    /// What is lost, in words.
    pub(super) losses: Vec<String>,
}

/// A segment that was read whole.
pub(super) struct Read {
    pub(super) segment: Arc<Segment>,
    pub(super) ended: Ended,
    pub(super) keys: Keys,
    /// Whether something of it is lost.
    pub(super) is_damaged: bool,
    /// Whether its head is as it was written.
    pub(super) has_head: bool,
}

/// What a segment says, and how much of it cannot be read.
pub(super) struct Scanned {
    pub(super) keys: Keys,
    pub(super) ended: Ended,
    pub(super) damage: Option<Damage>,
    has_head: bool,
}

/// Of a segment.
#[derive(Debug)]
pub(super) struct Damage {
    /// Where the first of it begins.
    from: u32,
    /// How many batches are missing before ones that are there.
    batches: u32,
    reason: Option<String>,
}

/// Reads a directory. Nothing is changed.
///
/// # Errors
/// [`EngineError::Corrupt`] if nothing is to be made of it, or what the operating system says.
pub(super) fn recover(dir: &Path) -> Result<Recovered, EngineError> {
    let Files { segments, lone_keys } = files(dir)?;
    let (known_identity, marks, has_water) = match HighWater::find(dir)? {
        high_water::Found::Nothing => (None, None, false),
        high_water::Found::Something(identity, marks) => (identity, marks, true),
    };
    let catalog = Catalog::read(dir)?;
    let is_new = segments.is_empty() && lone_keys.is_empty() && catalog.is_none();
    let catalog = match catalog {
        Some(catalog) => catalog,
        None if segments.is_empty() => Catalog::default(),
        None => return Err(failure::corrupt(dir, "the names of its tables are missing")),
    };
    let mut found = Recovered {
        trees: catalog
            .numbers
            .values()
            .map(|&number| (number, Tree::default()))
            .collect(),
        catalog,
        segments: Segments::new(),
        uses: BTreeMap::new(),
        read: Vec::new(),
        last_sealed: None,
        lone_keys,
        identity: known_identity,
        losses: Vec::new(),
    };
    for (number, path) in &segments {
        let segment = Arc::new(Segment::open(path, *number)?);
        // One of another version is refused here, before anything is made of the others.
        if let (Head::Whole(identity, _), None) = (segment.head()?, found.identity) {
            found.identity = Some(identity);
        }
        found.segments.insert(*number, segment);
    }
    let mut lengths = BTreeMap::new();
    for segment in found.segments.clone().into_values() {
        let ended = found.take_in(&segment)?;
        lengths.insert(segment.number(), ended.length);
    }
    if has_water || !is_new {
        found.compare_with_listed(dir)?;
        found.compare_with_marks(dir, marks.as_deref(), &lengths);
    }
    found.compare_with_heads()?;
    found.count_live();
    Ok(found)
}

/// Reads a segment batch by batch, and tells what each says of its keys.
///
/// # Errors
/// [`EngineError::Corrupt`] if it is of another version, or what the operating system says.
pub(super) fn scan(segment: &Segment, identity: u64, mut tell: impl FnMut(Named<'_>)) -> Result<Scanned, EngineError> {
    let Readable { bytes, unreadable } = segment.read_all()?;
    let head = segment.head_in(&bytes)?;
    let mut scanned = Scanned {
        keys: Keys::of(segment.number()),
        ended: Ended {
            length: SEGMENT_HEAD_BYTES,
            batches: 0,
        },
        damage: None,
        has_head: matches!(head, Head::Whole(..)),
    };
    let mut at = SEGMENT_HEAD_BYTES as usize;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let expected = batch_number(segment.number(), scanned.ended.batches);
        let skipped = match read_batch(rest, identity) {
            Found::End => break,
            Found::Batch(Batch { number, frames, bytes }) if number == expected => {
                for (offset, frame) in frames {
                    let offset = at as u32 + offset;
                    scanned.keys.push(&frame, offset);
                    tell(Named {
                        table: frame.table,
                        offset,
                        key: frame.key,
                        says: frame.content.into(),
                    });
                }
                at += bytes;
                scanned.ended.length = at as u32;
                scanned.ended.batches += 1;
                continue;
            }
            Found::Batch(batch) if batch.number > expected => 0,
            Found::Batch(_) => 1,
            Found::Damage(bytes) => bytes,
        };
        let damage = scanned.damage.get_or_insert(Damage {
            from: at as u32,
            batches: 0,
            reason: None,
        });
        let Some(next) = find_batch(&bytes, at + skipped, expected, identity) else {
            break;
        };
        if let Found::Batch(batch) = read_batch(&bytes[next..], identity) {
            damage.batches += (batch.number - expected) as u32;
            // The lower half is the place of the batch in the segment.
            scanned.ended.batches = batch.number as u32;
        }
        at = next;
    }
    if let Some(error) = unreadable {
        let damage = scanned.damage.get_or_insert(Damage {
            from: scanned.ended.length,
            batches: 0,
            reason: None,
        });
        damage.reason = Some(error.to_string());
    }
    Ok(scanned)
}

impl Damage {
    fn describe(&self, segment: &Segment) -> String {
        let reason = self.reason.as_deref().map(|reason| format!(" ({reason})"));
        let batches = match self.batches {
            0 => String::new(),
            count => format!(", and at least {count} batches of writes before its end are lost"),
        };
        let (path, from) = (segment.path(), self.from);
        format!(
            "the log {path:?} is damaged at byte {from}{}{batches}",
            reason.unwrap_or_default()
        )
    }
}

impl Recovered {
    /// Takes in what a segment says.
    fn take_in(&mut self, segment: &Arc<Segment>) -> Result<Ended, EngineError> {
        let number = segment.number();
        if let Some(keys) = KeysFile::read(segment.path(), number)
            && segment.file_bytes()? >= keys.ended.length.into()
        {
            let ended = keys.ended;
            self.uses.insert(number, Use::sealed(ended.length));
            for named in keys.iter() {
                self.apply(number, named);
            }
            let is_last = self.segments.last_key_value().is_some_and(|(last, _)| *last == number);
            self.last_sealed = is_last.then(|| (Arc::clone(segment), keys));
            return Ok(ended);
        }
        self.uses.insert(number, Use::open(SEGMENT_HEAD_BYTES));
        // Without an identity nothing is found to be whole.
        let identity = self.identity.unwrap_or_default();
        let scanned = scan(segment, identity, |named| self.apply(number, named))?;
        let Scanned {
            keys,
            ended,
            damage,
            has_head,
        } = scanned;
        if let Some(used) = self.uses.get_mut(&number) {
            used.bytes = ended.length.into();
        }
        if let Some(damage) = &damage {
            self.losses.push(damage.describe(segment));
        }
        self.read.push(Read {
            segment: Arc::clone(segment),
            ended,
            keys,
            is_damaged: damage.is_some(),
            has_head,
        });
        Ok(ended)
    }

    fn apply(&mut self, segment: u32, named: Named<'_>) {
        // Otherwise the table was dropped.
        let Some(tree) = self.trees.get_mut(&named.table) else {
            return;
        };
        match named.says {
            Says::ValueOf(bytes) => {
                let offset = named.offset;
                tree.put(Entry::cold(named.key, bytes, At { segment, offset }), Spot::default());
            }
            Says::NoneSince(since) => {
                tree.remove(named.key);
                if let Some(used) = self.uses.get_mut(&segment) {
                    used.deleted(since, frame_bytes(named.key.len(), 0));
                }
            }
        }
    }

    /// Looks for segments that were there.
    fn compare_with_listed(&mut self, dir: &Path) -> Result<(), EngineError> {
        match Listed::read(dir)? {
            Some(listed) => {
                let missing = listed.numbers().filter(|number| !self.segments.contains_key(number));
                self.losses
                    .extend(missing.map(|number| format!("segment {number} of the log in {dir:?} is missing")));
            }
            None => self.losses.push(format!(
                "the list of the segments of the log in {dir:?} is missing or damaged"
            )),
        }
        for keys in &self.lone_keys {
            self.losses.push(format!("the segment of {keys:?} is missing"));
        }
        Ok(())
    }

    /// Looks whether the log goes as far as it did.
    fn compare_with_marks(&mut self, dir: &Path, marks: Option<&[high_water::Mark]>, lengths: &BTreeMap<u32, u32>) {
        let Some(marks) = marks else {
            let lost = format!("how long the log in {dir:?} was is not known: what says so is missing or damaged");
            return self.losses.push(lost);
        };
        let last = lengths.last_key_value().map_or(0, |(&last, _)| u64::from(last));
        for mark in marks {
            let length = lengths.iter().find(|&(&number, _)| u64::from(number) == mark.number);
            match length.map(|(_, &length)| u64::from(length)) {
                Some(length) if length < mark.length => self.losses.push(format!(
                    "segment {} of the log in {dir:?} ends at byte {length}, and at byte {} when it was synced last",
                    mark.number, mark.length
                )),
                None if mark.number > last => self.losses.push(format!(
                    "segment {} of the log in {dir:?} is missing, the last one that was synced",
                    mark.number
                )),
                _ => {}
            }
        }
    }

    /// Looks whether segments end as those behind them say. One with a file of keys was whole when that was made.
    fn compare_with_heads(&mut self) -> Result<(), EngineError> {
        for read in &mut self.read {
            let Some(next) = self.segments.get(&(read.segment.number() + 1)) else {
                continue;
            };
            if let Head::Whole(_, Some(ended)) = next.head()?
                && !read.is_damaged
                && (ended.length > read.ended.length || ended.batches > read.ended.batches)
            {
                read.is_damaged = true;
                self.losses.push(format!(
                    "the log {:?} ends at byte {}, and at byte {} when the next one was begun",
                    read.segment.path(),
                    read.ended.length,
                    ended.length
                ));
            }
        }
        Ok(())
    }

    fn count_live(&mut self) {
        for entry in self.trees.values().flat_map(Tree::iter) {
            if let Some(used) = self.uses.get_mut(&entry.at().segment) {
                used.live_bytes += entry.frame_bytes();
            }
        }
    }
}

struct Files {
    /// In order.
    segments: Vec<(u32, PathBuf)>,
    /// Files of keys without segments.
    lone_keys: Vec<PathBuf>,
}

/// The files of the log in a directory.
fn files(dir: &Path) -> Result<Files, EngineError> {
    let failed = |error| failure::io("list", dir, error);
    let (mut segments, mut keys) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok());
        match (number, path.extension().and_then(|extension| extension.to_str())) {
            (Some(number), Some("segment")) => segments.push((number, path)),
            (Some(number), Some("keys")) => keys.push((number, path)),
            (Some(_), Some("keys-begun")) => {
                fs::remove_file(&path).map_err(|error| failure::io("delete", &path, error))?;
            }
            _ => {}
        }
    }
    segments.sort();
    keys.sort();
    let is_there = |number: u32| segments.binary_search_by_key(&number, |(number, _)| *number).is_ok();
    let lone = keys.into_iter().filter(|(number, _)| !is_there(*number));
    Ok(Files {
        lone_keys: lone.map(|(_, path)| path).collect(),
        segments,
    })
}
