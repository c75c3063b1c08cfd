//! What a directory has, as it is opened: the keys of all tables, read from the files of keys, and from the segments
//! that have none, which are those that were written last.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::catalog::Catalog;
use super::entry::{At, Entry};
use super::frame::{Batch, Found, frame_bytes, read_batch};
use super::segment::{Keys, KeysFile, Named, SEGMENT_HEAD_BYTES, Says, Segment, keys_path};
use super::table::Segments;
use super::tree::Tree;
use super::writer::{Active, Full, Use, batch_number};
use crate::directory::{self, DamagedLog};
use crate::engine::Spot;
use crate::error::EngineError;
use crate::failure;

/// What was found.
pub(super) struct Recovered {
    pub(super) catalog: Catalog,
    /// The keys of tables, by their numbers.
    pub(super) trees: HashMap<u32, Tree>,
    pub(super) segments: Segments,
    pub(super) uses: BTreeMap<u32, Use>,
    /// The last segment, if it is not full.
    pub(super) active: Option<Active>,
    /// Segments that are full, and have no files of keys.
    pub(super) full: Vec<Full>,
    /// Where the log was damaged, if it was.
    pub(super) damage: Option<String>,
}

/// A segment that was read whole.
pub(super) struct Scanned {
    pub(super) keys: Keys,
    pub(super) length: u32,
    pub(super) batches: u32,
    pub(super) is_damaged: bool,
}

/// Reads a directory.
///
/// # Errors
/// [`EngineError::Corrupt`], or what the operating system says.
pub(super) fn recover(dir: &Path, damaged_log: DamagedLog) -> Result<Recovered, EngineError> {
    let files = files(dir)?;
    let catalog = match Catalog::read(dir)? {
        Some(catalog) => catalog,
        None if files.is_empty() => Catalog::default(),
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
        active: None,
        full: Vec::new(),
        damage: None,
    };
    for (at, (number, path)) in files.iter().enumerate() {
        let segment = Arc::new(Segment::open(path, *number)?);
        found.segments.insert(*number, Arc::clone(&segment));
        if let Some(keys) = KeysFile::read(path, *number) {
            found.uses.insert(*number, Use::sealed(keys.length));
            for named in keys.iter() {
                found.apply(*number, named);
            }
            continue;
        }
        found.uses.insert(*number, Use::open(SEGMENT_HEAD_BYTES));
        let scanned = scan(&segment, |named| found.apply(*number, named))?;
        let is_last = at + 1 == files.len() || scanned.is_damaged;
        if let Some(used) = found.uses.get_mut(number) {
            used.bytes = scanned.length.into();
        }
        if scanned.is_damaged {
            found.damaged(dir, &segment, scanned.length, &files[at + 1..], damaged_log)?;
        }
        match is_last {
            true => {
                segment.cut(scanned.length)?;
                found.active = Some(Active {
                    segment,
                    length: scanned.length,
                    batches: scanned.batches,
                    keys: scanned.keys,
                });
                break;
            }
            false => found.full.push(Full {
                segment,
                length: scanned.length,
                keys: scanned.keys,
            }),
        }
    }
    found.count_live();
    Ok(found)
}

/// Reads a segment batch by batch, and tells what each says of its keys.
///
/// # Errors
/// [`EngineError::Corrupt`] if it is none, or what the operating system says.
pub(super) fn scan(segment: &Segment, mut tell: impl FnMut(Named<'_>)) -> Result<Scanned, EngineError> {
    let bytes = segment.read_all()?;
    segment.check_head(&bytes)?;
    let mut scanned = Scanned {
        keys: Keys::of(segment.number()),
        length: SEGMENT_HEAD_BYTES,
        batches: 0,
        is_damaged: false,
    };
    loop {
        let rest = bytes.get(scanned.length as usize..).unwrap_or_default();
        let expected = batch_number(segment.number(), scanned.batches);
        match read_batch(rest) {
            Found::End => return Ok(scanned),
            Found::Batch(Batch { number, frames, bytes }) if number == expected => {
                for (offset, frame) in frames {
                    let offset = scanned.length + offset;
                    scanned.keys.push(&frame, offset);
                    tell(Named {
                        table: frame.table,
                        offset,
                        key: frame.key,
                        says: frame.content.into(),
                    });
                }
                scanned.length += bytes as u32;
                scanned.batches += 1;
            }
            Found::Batch(_) | Found::Damage => {
                scanned.is_damaged = true;
                return Ok(scanned);
            }
        }
    }
}

impl Recovered {
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

    /// A segment is damaged after so many bytes: what comes later is left out, or nothing is opened.
    fn damaged(
        &mut self,
        dir: &Path,
        segment: &Segment,
        length: u32,
        later: &[(u32, PathBuf)],
        damaged_log: DamagedLog,
    ) -> Result<(), EngineError> {
        let damage = format!("the log {:?} is damaged at byte {length}", segment.path());
        if damaged_log == DamagedLog::Refuse {
            return Err(failure::corrupt(segment.path(), damage));
        }
        for (_, path) in later {
            let _ = fs::remove_file(keys_path(path));
            let renamed = fs::rename(path, path.with_extension("segment-damaged"));
            renamed.map_err(|error| failure::io("cut off the log", path, error))?;
        }
        // Where this is cut, the next one would seem to go on.
        let synced = directory::sync(dir);
        synced.map_err(|error| failure::io("cut off the log in", dir, error))?;
        self.damage = Some(damage);
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

/// The segments in a directory, in order.
fn files(dir: &Path) -> Result<Vec<(u32, PathBuf)>, EngineError> {
    let failed = |error| failure::io("list", dir, error);
    let (mut segments, mut keys) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok());
        match (number, path.extension().and_then(|extension| extension.to_str())) {
            (Some(number), Some("segment")) => segments.push((number, path)),
            (Some(number), Some("keys")) => keys.push(number),
            (Some(_), Some("keys-begun")) => {
                fs::remove_file(&path).map_err(|error| failure::io("delete", &path, error))?;
            }
            _ => {}
        }
    }
    segments.sort();
    let is_there = |number: &u32| segments.binary_search_by_key(number, |(number, _)| *number).is_ok();
    match keys.iter().find(|number| !is_there(number)) {
        Some(missing) => Err(failure::corrupt(dir, format!("segment {missing} is missing"))),
        None => Ok(segments),
    }
}
