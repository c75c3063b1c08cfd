//! Merges the keys of all segments in order: building the trees from the first key to the last takes a fraction of the
//! time of inserting the keys in random order. Ranges of keys can be merged at the same time.
//!
//! For each segment, one block of keys from its [file](super::keys) is in memory, or all its keys if the segment itself
//! had to be read.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::io;
use std::ops::Range;

use super::key_prefixes::{Head, head_of};
use super::keys::{Keys, KeysReader, Named, Says, named_at};

/// The keys of a segment.
#[derive(Clone)]
pub(super) enum Source<'a> {
    File(KeysReader),
    /// Sorted.
    Memory(&'a Keys),
}

/// The table and the key at which a range begins or ends.
pub(super) type Bound = (u32, Vec<u8>);

/// Bounds that divide the keys of the segments into at most `ranges` ranges, of about the same size if the keys of all
/// segments are distributed alike, and of about `bytes_min` or more. The first range has no lower bound, and the last no
/// upper one.
///
/// # Errors
/// The index of the segment whose keys cannot be read.
pub(super) fn divide(sources: &[Source<'_>], ranges: usize, bytes_min: u64) -> Result<Vec<Bound>, usize> {
    let files = sources.iter().enumerate().filter_map(|(segment, source)| match source {
        Source::File(reader) => Some((segment, reader)),
        Source::Memory(_) => None,
    });
    let bytes: u64 = files.clone().map(|(_, reader)| reader.bytes()).sum();
    let ranges = (bytes / bytes_min).min(ranges as u64) as usize;
    let Some((segment, reader)) = files.max_by_key(|(_, reader)| reader.bytes()).filter(|_| ranges > 1) else {
        return Ok(Vec::new());
    };
    let firsts = reader.first_keys().map_err(|_| segment)?;
    let mut bounds: Vec<Bound> = (1..ranges)
        .filter_map(|range| firsts.get(firsts.len() * range / ranges).cloned())
        .collect();
    bounds.dedup();
    Ok(bounds)
}

/// Calls `tell` for the keys of the segments from one bound on and before another, sorted by table, then by key. The
/// segments must be sorted from the oldest to the newest. The arguments are the index of the segment, the entry, and
/// whether it is the newest frame of its key, which comes before the older ones.
///
/// # Errors
/// The index of the segment whose keys cannot be read.
pub(super) fn merge(
    sources: Vec<Source<'_>>,
    (from, to): (Option<&Bound>, Option<&Bound>),
    mut tell: impl FnMut(usize, Named<'_>, bool),
) -> Result<(), usize> {
    let begin = |(segment, source)| Run::begin(source, from).map_err(|_| segment);
    let runs: Result<Vec<_>, _> = sources.into_iter().enumerate().map(begin).collect();
    let mut tournament = Tournament::of(runs?);
    let mut last_table = None;
    let mut last_key = Vec::new();
    while let Some((segment, named)) = tournament.first() {
        let is_newest = last_table != Some(named.table) || last_key != named.key;
        if is_newest {
            if to.is_some_and(|(table, key)| (named.table, named.key) >= (*table, key)) {
                break;
            }
            last_table = Some(named.table);
            last_key.clear();
            last_key.extend_from_slice(named.key);
        }
        tell(segment, named, is_newest);
        tournament.advance().map_err(|_| segment)?;
    }
    Ok(())
}

/// A tree of losers (Knuth, The Art of Computer Programming, volume 3, section 5.4.1): to find the next key, one key of
/// each level is compared.
struct Tournament<'a> {
    runs: Vec<Run<'a>>,
    /// The winner, then for each match the run that lost it. The match of `n` follows those of `2n` and `2n + 1`.
    losers: Vec<usize>,
}

impl<'a> Tournament<'a> {
    fn of(runs: Vec<Run<'a>>) -> Self {
        // This run does not exist, and wins all matches until every run has played.
        let not_played = runs.len();
        let mut tournament = Self {
            losers: vec![not_played; runs.len().max(1)],
            runs,
        };
        (0..not_played).for_each(|run| tournament.play(run));
        tournament
    }

    /// Plays the matches of a run whose key has changed.
    fn play(&mut self, run: usize) {
        let mut winner = run;
        let mut at = (run + self.runs.len()) / 2;
        while at > 0 {
            let other = self.losers[at];
            if self.is_before(other, winner) {
                self.losers[at] = winner;
                winner = other;
            }
            at /= 2;
        }
        self.losers[0] = winner;
    }

    fn is_before(&self, one: usize, other: usize) -> bool {
        let (Some(one_run), Some(other_run)) = (self.runs.get(one), self.runs.get(other)) else {
            return one == self.runs.len();
        };
        let (Some(now), Some(other_now)) = (&one_run.now, &other_run.now) else {
            return one_run.now.is_some();
        };
        let order = (now.table, now.head).cmp(&(other_now.table, other_now.head));
        // The newest segment first.
        let order = order.then_with(|| (one_run.key(now), other).cmp(&(other_run.key(other_now), one)));
        order == Ordering::Less
    }

    /// The segment with the lowest key, and that key; `None` at the end.
    fn first(&self) -> Option<(usize, Named<'_>)> {
        let run = self.runs.get(self.losers[0])?;
        Some((self.losers[0], run.named()?))
    }

    /// Advances the run that has the lowest key.
    fn advance(&mut self) -> io::Result<()> {
        let winner = self.losers[0];
        self.runs[winner].advance()?;
        self.play(winner);
        Ok(())
    }
}

/// The position in the keys of a segment.
struct Run<'a> {
    /// Keys in memory, and the offset of the next one.
    keys: Cow<'a, [u8]>,
    next: usize,
    /// The rest of the keys.
    rest: Option<KeysReader>,
    /// `None` at the end.
    now: Option<Now>,
}

/// The current key of a run.
struct Now {
    table: u32,
    head: Head,
    key: Range<usize>,
    offset: u32,
    says: Says,
}

impl<'a> Run<'a> {
    /// A run at its first key from a bound on.
    fn begin(source: Source<'a>, from: Option<&Bound>) -> io::Result<Self> {
        let (keys, mut rest) = match source {
            Source::File(reader) => (Cow::Owned(Vec::new()), Some(reader)),
            Source::Memory(keys) => (Cow::Borrowed(keys.bytes()), None),
        };
        if let (Some(rest), Some(from)) = (&mut rest, from) {
            rest.skip_to(from)?;
        }
        let mut run = Self {
            keys,
            next: 0,
            rest,
            now: None,
        };
        run.advance()?;
        if let Some((table, key)) = from {
            while run
                .named()
                .is_some_and(|named| (named.table, named.key) < (*table, key))
            {
                run.advance()?;
            }
        }
        Ok(run)
    }

    /// Advances to the next key.
    fn advance(&mut self) -> io::Result<()> {
        loop {
            if let Some(named) = named_at(&self.keys, self.next) {
                let end = self.next + named.stored_bytes();
                self.now = Some(Now {
                    table: named.table,
                    head: head_of(named.key),
                    key: end - named.key.len()..end,
                    offset: named.offset,
                    says: named.says,
                });
                self.next = end;
                return Ok(());
            }
            self.now = None;
            let Some(rest) = &mut self.rest else { return Ok(()) };
            let keys = self.keys.to_mut();
            keys.clear();
            self.next = 0;
            if !rest.read_block(keys)? {
                return Ok(());
            }
        }
    }

    fn named(&self) -> Option<Named<'_>> {
        let now = self.now.as_ref()?;
        Some(Named {
            table: now.table,
            offset: now.offset,
            key: self.key(now),
            says: now.says,
        })
    }

    fn key(&self, now: &Now) -> &[u8] {
        &self.keys[now.key.clone()]
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::frame::{Content, Frame};
    use super::super::keys::keys_path;
    use super::super::segment::Ended;
    use super::*;

    /// The keys of seven segments; the last one has no file.
    fn write(dir: &Path) -> (Vec<Source<'static>>, Keys) {
        let mut random = fastrand::Rng::with_seed(3);
        let mut of = |segment: u32| {
            let mut keys = Keys::of(segment);
            for offset in 0..6000 {
                let (table, key) = (
                    random.u32(1..4),
                    random.u16(..10_000).to_string().repeat(random.usize(1..8)),
                );
                let content = match random.u8(..4) {
                    0 => Content::NoneSince(segment),
                    _ => Content::Value(b"value"),
                };
                let key = key.as_bytes();
                keys.push(&Frame { table, key, content }, offset);
            }
            keys
        };
        let ended = Ended { length: 1, batches: 1 };
        let files = (1..7).map(|segment| {
            let path = dir.join(segment.to_string());
            of(segment).write(&path, ended).unwrap();
            Source::File(KeysReader::open(&path, segment).unwrap())
        });
        let files = files.collect();
        let mut last = of(7);
        last.sort();
        (files, last)
    }

    type Told = (usize, u32, Vec<u8>, u32, bool);

    /// Merges ranges one after the other.
    fn merged(sources: &[Source<'_>], ranges: usize) -> Result<Vec<Told>, usize> {
        let bounds = divide(sources, ranges, 1)?;
        let starts = [None].into_iter().chain(bounds.iter().map(Some));
        let mut all = Vec::new();
        for range in starts.zip(bounds.iter().map(Some).chain([None])) {
            merge(sources.to_vec(), range, |segment, named, is_newest| {
                all.push((segment, named.table, named.key.to_vec(), named.offset, is_newest));
            })?;
        }
        Ok(all)
    }

    #[test]
    fn ranges_have_all_keys_once_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let (mut sources, last) = write(dir.path());
        sources.push(Source::Memory(&last));
        let whole = merged(&sources, 1).unwrap();
        assert_eq!(whole.len(), 7 * 6000);
        let place = |told: &Told| (told.1, told.2.clone(), usize::MAX - told.0);
        assert!(whole.is_sorted_by_key(place));
        let is_first = |at: usize| at == 0 || (whole[at - 1].1, &whole[at - 1].2) != (whole[at].1, &whole[at].2);
        assert!((0..whole.len()).all(|at| whole[at].4 == is_first(at)));
        for ranges in [2, 3, 8, 100] {
            let bounds = divide(&sources, ranges, 1).unwrap().len();
            assert!(bounds >= ranges.min(5) - 1 && bounds < ranges, "{ranges}, {bounds}");
            assert!(merged(&sources, ranges).unwrap() == whole, "{ranges}");
        }
        assert_eq!(divide(&sources, 8, u64::MAX).unwrap().len(), 0);
        assert_eq!(merged(&sources[..0], 8).unwrap().len(), 0);
    }

    #[test]
    fn damage_is_noticed_in_every_range() {
        let dir = tempfile::tempdir().unwrap();
        let (sources, _) = write(dir.path());
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..60 {
            let damaged = random.usize(..sources.len());
            let path = keys_path(&dir.path().join((damaged + 1).to_string()));
            let sound = fs::read(&path).unwrap();
            let mut bytes = sound.clone();
            // Heads of blocks more often than chance would.
            let at = match random.bool() {
                true => random.usize(40..bytes.len()),
                false => 40 + random.usize(..80),
            };
            bytes[at] ^= 1 << random.u8(..8);
            fs::write(&path, bytes).unwrap();
            for ranges in [1, 3, 8] {
                assert_eq!(merged(&sources, ranges).err(), Some(damaged), "{ranges}, byte {at}");
            }
            fs::write(&path, sound).unwrap();
        }
    }
}
