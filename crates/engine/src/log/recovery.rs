//! Reads the directory when the engine is opened: the keys of all tables, from the files of keys, and from the segments
//! without one, which were written last. All are merged in key order.
//!
//! Damaged batches are skipped, and nothing else: the batches after them are read. Every possible loss is detected, and
//! this module changes nothing, so that the loss can be noted first.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use super::catalog::Catalog;
use super::entry::{At, Entry};
use super::frame::{Batch, Found, find_batch, frame_bytes, read_batch};
use super::keys::{Keys, KeysReader, Named, Says};
use super::listed::Listed;
use super::merge::{Bound, Source, divide, merge};
use super::segment::{Ended, Head, SEGMENT_HEAD_BYTES, Segment};
use super::table::Segments;
use super::tree::Tree;
use super::writer::{Use, batch_number};
use crate::error::EngineError;
use crate::failure;
use crate::high_water::{self, HighWater};
use crate::readable::Readable;

/// At most this many threads merge keys.
const THREADS_MAX: usize = 8;

/// Beyond the first, a thread merges at least this many bytes of files of keys: with fewer, it is not worth its start.
const THREAD_BYTES_MIN: u64 = 4 << 20;

/// The content of the directory.
pub(super) struct Recovered {
    pub(super) catalog: Catalog,
    /// The trees of the tables, by their numbers.
    pub(super) trees: HashMap<u32, Tree>,
    pub(super) segments: Segments,
    pub(super) uses: BTreeMap<u32, Use>,
    /// Segments that were read, by their numbers: they have no valid file of keys.
    pub(super) read: BTreeMap<u32, Read>,
    /// The files of keys of the other segments.
    pub(super) sealed: BTreeMap<u32, KeysReader>,
    /// Files of keys without a segment.
    pub(super) lone_keys: Vec<PathBuf>,
    /// The identity of the log, if it has one.
    pub(super) identity: Option<u64>,
    /// Descriptions of the losses.
    pub(super) losses: Vec<String>,
}

/// A segment that was read as a whole.
pub(super) struct Read {
    pub(super) segment: Arc<Segment>,
    pub(super) ended: Ended,
    pub(super) keys: Keys,
    /// Whether a part of it is lost.
    pub(super) is_damaged: bool,
    /// Whether its head is valid.
    pub(super) has_head: bool,
}

/// The content of a segment, and its damage.
pub(super) struct Scanned {
    pub(super) keys: Keys,
    pub(super) ended: Ended,
    pub(super) damage: Option<Damage>,
    has_head: bool,
}

/// The damage of a segment.
#[derive(Debug)]
pub(super) struct Damage {
    /// The offset of the first damage.
    from: u32,
    /// How many batches are missing before intact ones.
    batches: u32,
    reason: Option<String>,
}

/// Reads a directory. Changes nothing.
///
/// # Errors
/// [`EngineError::Corrupt`] if the directory cannot be used, or an error of the operating system.
pub(super) fn recover(dir: &Path) -> Result<Recovered, EngineError> {
    let Files { segments, lone_keys } = files(dir)?;
    let water = HighWater::find(dir)?;
    let was_made = water.is_whole();
    let (known_identity, marks) = match water {
        high_water::Found::Nothing => (None, None),
        high_water::Found::Something(identity, marks) => (identity, marks),
    };
    let catalog = Catalog::read(dir)?;
    let is_new = segments.is_empty() && lone_keys.is_empty() && catalog.is_none();
    let catalog = match catalog {
        Some(catalog) => catalog,
        None if segments.is_empty() => Catalog::default(),
        None => return Err(failure::corrupt(dir, "the names of its tables are missing")),
    };
    let mut found = Recovered {
        catalog,
        trees: HashMap::new(),
        segments: Segments::new(),
        uses: BTreeMap::new(),
        read: BTreeMap::new(),
        sealed: BTreeMap::new(),
        lone_keys,
        identity: known_identity,
        losses: Vec::new(),
    };
    for (number, path) in &segments {
        let segment = Arc::new(Segment::open(path, *number)?);
        // A segment of another version is refused here, before other segments are used.
        if let (Head::Whole(identity, _), None) = (segment.head()?, found.identity) {
            found.identity = Some(identity);
        }
        found.segments.insert(*number, segment);
    }
    for segment in found.segments.clone().into_values() {
        match KeysReader::open(segment.path(), segment.number()) {
            Some(keys) if segment.file_bytes()? >= keys.ended.length.into() => {
                found.sealed.insert(segment.number(), keys);
            }
            _ => found.read_segment(&segment)?,
        }
    }
    while let Err(number) = found.gather() {
        // The file of keys of this segment is damaged.
        found.sealed.remove(&number);
        let segment = found.segments.get(&number).cloned();
        segment.map_or(Ok(()), |segment| found.read_segment(&segment))?;
    }
    // Nothing is written before the making of the directory has ended.
    if was_made || !is_new {
        found.compare_with_listed(dir)?;
        found.compare_with_marks(dir, marks.as_deref());
    }
    found.compare_with_heads()?;
    Ok(found)
}

/// Reads a segment batch by batch, and calls `tell` for each frame.
///
/// # Errors
/// [`EngineError::Corrupt`] if the segment has another version, or an error of the operating system.
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
            // The lower half of the number is the index of the batch in the segment.
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
    /// Reads a segment that has no file of keys.
    fn read_segment(&mut self, segment: &Arc<Segment>) -> Result<(), EngineError> {
        // Without an identity no batch is valid.
        let identity = self.identity.unwrap_or_default();
        let Scanned {
            mut keys,
            ended,
            damage,
            has_head,
        } = scan(segment, identity, |_| {})?;
        if let Some(damage) = &damage {
            self.losses.push(damage.describe(segment));
        }
        keys.sort();
        let read = Read {
            segment: Arc::clone(segment),
            ended,
            keys,
            is_damaged: damage.is_some(),
            has_head,
        };
        self.read.insert(segment.number(), read);
        Ok(())
    }

    /// Builds the trees of all tables, and sums up how much of each segment is live.
    ///
    /// # Errors
    /// The number of a segment whose file of keys is damaged. The caller must then read the segment and call this
    /// again.
    fn gather(&mut self) -> Result<(), u32> {
        let sealed = self.sealed.iter().map(|(&number, keys)| {
            let used = Use::sealed(keys.ended.length);
            (number, (used, Source::File(keys.clone())))
        });
        let read = self.read.iter().map(|(&number, read)| {
            let used = Use::open(read.ended.length);
            (number, (used, Source::Memory(&read.keys)))
        });
        let (numbers, sources): (Vec<u32>, Vec<_>) = sealed.chain(read).collect::<BTreeMap<_, _>>().into_iter().unzip();
        let (mut uses, sources): (Vec<Use>, Vec<Source<'_>>) = sources.into_iter().unzip();
        let mut tables: Vec<u32> = self.catalog.numbers.values().copied().collect();
        tables.sort_unstable();
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let bounds = divide(&sources, threads, THREAD_BYTES_MIN).map_err(|source| numbers[source])?;
        let gather = |from, to| gather_between(sources.clone(), (from, to), &numbers, &tables);
        let parts: Vec<Result<Part, usize>> = thread::scope(|scope| {
            let starts = [None].into_iter().chain(bounds.iter().map(Some));
            let ends = bounds.iter().map(Some).chain([None]);
            let mut ranges = starts.zip(ends);
            // This thread takes the first range.
            let first = ranges.next();
            let others: Vec<_> = ranges.map(|(from, to)| scope.spawn(move || gather(from, to))).collect();
            let joined =
                |part: thread::ScopedJoinHandle<'_, _>| part.join().unwrap_or_else(|panic| resume_unwind(panic));
            let first = first.map(|(from, to)| gather(from, to));
            first.into_iter().chain(others.into_iter().map(joined)).collect()
        });
        let mut trees: Vec<Tree> = tables.iter().map(|_| Tree::default()).collect();
        for part in parts {
            let part = part.map_err(|source| numbers[source])?;
            trees
                .iter_mut()
                .zip(part.trees)
                .for_each(|(tree, part)| tree.append(part));
            uses.iter_mut().zip(&part.uses).for_each(|(used, part)| used.add(part));
        }
        self.trees = tables.into_iter().zip(trees).collect();
        self.uses = numbers.into_iter().zip(uses).collect();
        Ok(())
    }

    /// The end of the valid part of a segment.
    pub(super) fn ended(&self, number: u32) -> Option<Ended> {
        let read = self.read.get(&number).map(|read| read.ended);
        read.or_else(|| self.sealed.get(&number).map(|keys| keys.ended))
    }

    /// Checks that all listed segments exist.
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

    /// Checks that the log is at least as long as its marks say.
    fn compare_with_marks(&mut self, dir: &Path, marks: Option<&[high_water::Mark]>) {
        let Some(marks) = marks else {
            let lost =
                format!("the length of the log in {dir:?} is not known: its high-water file is missing or damaged");
            return self.losses.push(lost);
        };
        let last = self.segments.last_key_value().map_or(0, |(&last, _)| u64::from(last));
        for mark in marks {
            let ended = u32::try_from(mark.number).ok().and_then(|number| self.ended(number));
            match ended.map(|ended| u64::from(ended.length)) {
                Some(length) if length < mark.length => self.losses.push(format!(
                    "segment {} of the log in {dir:?} ends at byte {length}, and at byte {} when it was synced last",
                    mark.number, mark.length
                )),
                None if mark.number > last => self.losses.push(format!(
                    "segment {} of the log in {dir:?} is missing; it was synced last",
                    mark.number
                )),
                _ => {}
            }
        }
    }

    /// Checks that segments end where the next one says. A segment with a file of keys was intact when that was
    /// written.
    fn compare_with_heads(&mut self) -> Result<(), EngineError> {
        for read in self.read.values_mut() {
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
}

/// The keys of a range: their trees, in the order of the tables, and how much of each segment is theirs.
struct Part {
    trees: Vec<Tree>,
    uses: Vec<Use>,
}

/// Builds the trees of all tables for a range of keys. `numbers` are those of the segments.
///
/// # Errors
/// The index of the segment whose keys cannot be read.
fn gather_between(
    sources: Vec<Source<'_>>,
    range: (Option<&Bound>, Option<&Bound>),
    numbers: &[u32],
    tables: &[u32],
) -> Result<Part, usize> {
    let mut trees: Vec<Tree> = tables.iter().map(|_| Tree::default()).collect();
    let mut uses: Vec<Use> = numbers.iter().map(|_| Use::open(0)).collect();
    let mut at = 0;
    merge(sources, range, |source, named, is_newest| {
        while tables.get(at).is_some_and(|number| *number < named.table) {
            at += 1;
        }
        // Otherwise the table was dropped.
        if tables.get(at) != Some(&named.table) {
            return;
        }
        let used = &mut uses[source];
        match named.says {
            Says::ValueOf(bytes) if is_newest => {
                let (segment, offset) = (numbers[source], named.offset);
                let entry = Entry::cold(named.key, bytes, At { segment, offset });
                used.live_bytes += entry.frame_bytes();
                trees[at].push(entry);
            }
            Says::ValueOf(_) => {}
            Says::NoneSince(since) => used.deleted(since, frame_bytes(named.key.len(), 0)),
        }
    })?;
    Ok(Part { trees, uses })
}

struct Files {
    /// Sorted by number.
    segments: Vec<(u32, PathBuf)>,
    /// Files of keys without a segment.
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

#[cfg(test)]
mod tests {
    use super::super::writer::Age;
    use super::super::{LogEngine, LogOptions};
    use super::*;
    use crate::batch::WriteBatch;
    use crate::engine::Engine;

    /// The place of each key of each table, and the live bytes of each segment.
    fn found(dir: &Path) -> impl PartialEq {
        let found = recover(dir).unwrap();
        assert_eq!(found.losses, [""; 0]);
        let trees: BTreeMap<u32, Vec<_>> = found
            .trees
            .iter()
            .map(|(&number, tree)| {
                let entries = tree
                    .iter()
                    .map(|entry| (entry.key().to_vec(), entry.at(), entry.value_bytes()));
                (number, entries.collect())
            })
            .collect();
        let age = |number| Age { number, oldest: 0 };
        let used = |(&number, used): (&u32, &Use)| {
            (
                number,
                used.bytes,
                used.live_bytes,
                used.kept_deletion_bytes(&age(number)),
            )
        };
        (trees, found.uses.iter().map(used).collect::<Vec<_>>())
    }

    #[test]
    fn recovery_finds_the_same_with_and_without_files_of_keys() {
        let dir = tempfile::tempdir().unwrap();
        let options = LogOptions {
            segment_bytes: 64 << 10,
            disk_reserve_bytes: 0,
            ..LogOptions::default()
        };
        let mut random = fastrand::Rng::with_seed(7);
        let engine = LogEngine::open(dir.path(), options).unwrap();
        let tables = ["one", "two", "dropped"].map(|name| engine.open_table(name).unwrap());
        for _ in 0..5000 {
            let mut batch = WriteBatch::new();
            for _ in 0..random.usize(1..6) {
                let table = &*tables[random.usize(..tables.len())];
                let key = random.u16(..500).to_be_bytes().to_vec().into();
                match random.u8(..4) {
                    0 => batch.delete(table, key),
                    _ => batch.put(table, key, vec![1; random.usize(..200)].into()),
                }
            }
            engine.write(batch).unwrap();
        }
        engine.drop_table("dropped").unwrap();
        drop((tables, engine));

        let first = found(dir.path());
        let keys = || {
            let paths = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
            let mut keys: Vec<_> = paths
                .filter(|path| path.extension().is_some_and(|name| name == "keys"))
                .collect();
            keys.sort();
            keys
        };
        assert!(keys().len() > 4, "{:?}", keys());
        // A flipped last bit is noticed only after much of the file was already merged.
        let damaged = &keys()[2];
        let mut bytes = fs::read(damaged).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(damaged, bytes).unwrap();
        assert!(found(dir.path()) == first, "a damaged file of keys makes a difference");
        for path in keys() {
            fs::remove_file(path).unwrap();
            assert!(found(dir.path()) == first, "a missing file of keys makes a difference");
        }
    }
}
