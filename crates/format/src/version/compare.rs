//! Compares a partition of two versions of a store: one sequential read of both, in bounded memory.
//!
//! Records of a partition come in the order of their hashes, whatever the numbers of chunks and buckets. So the two
//! sequences are merged. Where both versions have the same number of chunks, a pair of chunks with the same checksum is not read.

use std::collections::VecDeque;
use std::ops::Range;

use fondaco_model::PartitionId;

use super::Version;
use super::scan::Met;
use crate::error::FormatError;
use crate::hash::{chunk_of_hash, key_hash};
use crate::manifest::ChunkEntry;

/// How many records are read at once of each version, unless they are long.
const RECORDS_AT_ONCE: usize = 4096;

/// After so many bytes of differences a step ends.
const STEP_BYTES: usize = 4 << 20;

/// A key with its value in each of the two versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// The key.
    pub key: Vec<u8>,
    /// Its value in the former version.
    pub before: Option<Vec<u8>>,
    /// Its value in the later version.
    pub after: Option<Vec<u8>>,
}

/// The comparison of one partition of two versions.
pub struct Comparison<'v> {
    before: Side<'v>,
    after: Side<'v>,
    /// Pairs of ranges of chunks with the same hashes, those that come last first.
    segments: Vec<(Range<u32>, Range<u32>)>,
    from: u64,
    /// The hash from which on the comparison continues.
    next: Option<u64>,
    /// Whether equal stored values may be compared without decoding.
    same_encoding: bool,
    everything: bool,
}

impl<'v> Comparison<'v> {
    /// The comparison of a partition from a hash on. `everything` also returns the keys whose values are equal.
    ///
    /// # Errors
    /// [`FormatError::Incomparable`] or [`FormatError::NotHeld`].
    pub fn new(
        before: &'v Version,
        after: &'v Version,
        partition: PartitionId,
        from: u64,
        everything: bool,
    ) -> Result<Self, FormatError> {
        check(before, after)?;
        for version in [before, after] {
            if !version.holds(partition) {
                return Err(FormatError::NotHeld { partition });
            }
        }
        let dictionary = |version: &Version| version.manifest.dictionary.as_ref().map(|file| file.checksum);
        let same_encoding =
            before.manifest.compression == after.manifest.compression && dictionary(before) == dictionary(after);
        let range = |version: &Version| {
            let (start, count) = version.chunks_of(partition.get());
            start..start + count
        };
        let (old, new) = (range(before), range(after));
        let mut segments = match old.len() == new.len() {
            true => {
                let entries = |version: &'v Version| {
                    let entries = version.manifest.chunks.iter();
                    entries.filter(move |entry: &&ChunkEntry| entry.partition == partition)
                };
                let pairs = old.zip(new).zip(entries(before).zip(entries(after)));
                let is_read = |one: &ChunkEntry, other: &ChunkEntry| {
                    everything || !same_encoding || one.data.checksum != other.data.checksum
                };
                let pairs = pairs.filter(|(_, (one, other))| is_read(one, other));
                pairs.map(|((old, new), _)| (old..old + 1, new..new + 1)).collect()
            }
            false => vec![(old, new)],
        };
        segments.reverse();
        Ok(Self {
            before: Side::of(before),
            after: Side::of(after),
            segments,
            from,
            next: Some(from),
            same_encoding,
            everything,
        })
    }

    /// The same with an empty version: all records of a partition, as if they had been added.
    ///
    /// # Errors
    /// [`FormatError::NotHeld`].
    pub fn with_nothing(after: &'v Version, partition: PartitionId, from: u64) -> Result<Self, FormatError> {
        if !after.holds(partition) {
            return Err(FormatError::NotHeld { partition });
        }
        let (start, count) = after.chunks_of(partition.get());
        Ok(Self {
            before: Side::of(after),
            after: Side::of(after),
            segments: vec![(0..0, start..start + count)],
            from,
            next: Some(from),
            same_encoding: true,
            everything: false,
        })
    }

    /// Where to continue with another comparison of the same versions; `None` at the end.
    pub fn position(&self) -> Option<u64> {
        self.next
    }

    /// Compares some thousand records. Returns the keys whose values differ, or all of them; `None` at the end.
    ///
    /// # Errors
    /// Corruption, or a failed read.
    pub fn step(&mut self) -> Result<Option<Vec<Compared>>, FormatError> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for _ in 0..RECORDS_AT_ONCE {
            if bytes >= STEP_BYTES {
                break;
            }
            let Some(hash) = self.fill()? else {
                self.next = None;
                return Ok((!found.is_empty()).then_some(found));
            };
            let known = found.len();
            let before = self.before.take(hash);
            let mut after = self.after.take(hash);
            self.next = hash.checked_add(1);
            for old in before {
                let new = after
                    .iter()
                    .position(|new| self.after.key(new) == self.before.key(&old));
                let new = new.map(|at| after.swap_remove(at));
                found.extend(self.compared(Some(&old), new.as_ref())?);
            }
            for new in after {
                found.extend(self.compared(None, Some(&new))?);
            }
            bytes += found[known..].iter().map(Compared::bytes).sum::<usize>();
        }
        Ok(Some(found))
    }

    /// Reads more where a side has no record left; returns the lowest hash, `None` at the end.
    fn fill(&mut self) -> Result<Option<u64>, FormatError> {
        loop {
            self.before.fill(self.from)?;
            self.after.fill(self.from)?;
            let fronts = [&self.before, &self.after].map(|side| side.records.front().map(|record| record.hash));
            if let Some(hash) = fronts.into_iter().flatten().min() {
                return Ok(Some(hash));
            }
            let Some((before, after)) = self.segments.pop() else {
                return Ok(None);
            };
            self.before.enter(before, self.from);
            self.after.enter(after, self.from);
        }
    }

    fn compared(&self, old: Option<&Stored>, new: Option<&Stored>) -> Result<Option<Compared>, FormatError> {
        if let (Some(old), Some(new)) = (old, new)
            && self.same_encoding
            && !self.everything
            && old.is_as_is == new.is_as_is
            && self.before.stored(old) == self.after.stored(new)
        {
            return Ok(None);
        }
        let before = old.map(|old| self.before.value(old)).transpose()?;
        let after = new.map(|new| self.after.value(new)).transpose()?;
        if before == after && !self.everything {
            return Ok(None);
        }
        let of_new = new.map(|new| self.after.key(new));
        let key = of_new.or_else(|| old.map(|old| self.before.key(old)));
        Ok(key.map(|key| Compared {
            key: key.to_vec(),
            before,
            after,
        }))
    }
}

impl Compared {
    fn bytes(&self) -> usize {
        let values = self.before.iter().chain(&self.after);
        self.key.len() + values.map(Vec::len).sum::<usize>()
    }
}

/// Refuses versions whose partitions have different keys.
fn check(before: &Version, after: &Version) -> Result<(), FormatError> {
    let (old, new) = (&before.manifest, &after.manifest);
    let differ = |what: &str, old: &dyn std::fmt::Display, new: &dyn std::fmt::Display| FormatError::Incomparable {
        before: before.dir.clone(),
        after: after.dir.clone(),
        reason: format!("{what} {old}, and {what} {new}"),
    };
    if old.store != new.store {
        return Err(differ("store", &old.store, &new.store));
    }
    if old.partitions != new.partitions {
        return Err(differ("partitions:", &old.partitions, &new.partitions));
    }
    if old.key_type != new.key_type {
        return Err(differ("keys of type", &old.key_type, &new.key_type));
    }
    Ok(())
}

/// A record in the memory of a side.
struct Stored {
    hash: u64,
    chunk: u32,
    key: Range<usize>,
    value: Range<usize>,
    is_as_is: bool,
}

/// The records of one of the versions, some at a time.
struct Side<'v> {
    version: &'v Version,
    /// The chunks that are not read yet, of which the first is read from `bucket` on.
    chunks: Range<u32>,
    bucket: u32,
    bytes: Vec<u8>,
    records: VecDeque<Stored>,
}

impl<'v> Side<'v> {
    fn of(version: &'v Version) -> Self {
        Self {
            version,
            chunks: 0..0,
            bucket: 0,
            bytes: Vec::new(),
            records: VecDeque::new(),
        }
    }

    /// Continues with these chunks of one partition, from a hash on.
    fn enter(&mut self, chunks: Range<u32>, from: u64) {
        (self.chunks, self.bucket) = (chunks, 0);
        if self.chunks.is_empty() {
            return;
        }
        let (start, count) = self
            .version
            .chunks_of(self.version.chunks[self.chunks.start as usize].partition().get());
        let first = start + chunk_of_hash(from, count);
        if first >= self.chunks.end {
            self.chunks.start = self.chunks.end;
        } else if first >= self.chunks.start {
            self.chunks.start = first;
            self.bucket = self.version.chunks[first as usize].bucket_of(from);
        }
    }

    /// Reads the next records, if all those in memory are used up.
    fn fill(&mut self, from: u64) -> Result<(), FormatError> {
        let version = self.version;
        while self.records.is_empty() && !self.chunks.is_empty() {
            self.bytes.clear();
            let number = self.chunks.start;
            let (bytes, records) = (&mut self.bytes, &mut self.records);
            let mut met = Met::default();
            let walked = version.walk_buckets(number, self.bucket, RECORDS_AT_ONCE, &mut met, |key, stored| {
                let hash = key_hash(key);
                if hash < from {
                    return Ok(());
                }
                let key_at = bytes.len();
                bytes.extend_from_slice(key);
                let value_at = bytes.len();
                bytes.extend_from_slice(stored.bytes);
                records.push_back(Stored {
                    hash,
                    chunk: number,
                    key: key_at..value_at,
                    value: value_at..bytes.len(),
                    is_as_is: stored.stored_as_is,
                });
                Ok(())
            });
            self.bucket = walked.inspect_err(|error| version.note(number, error))?;
            if self.bucket >= version.chunks[number as usize].bucket_count() {
                self.chunks.start += 1;
                self.bucket = 0;
            }
        }
        Ok(())
    }

    /// Takes the next records with this hash: they are in one bucket, so all of them are in memory.
    fn take(&mut self, hash: u64) -> Vec<Stored> {
        let mut taken = Vec::new();
        while self.records.front().is_some_and(|record| record.hash == hash) {
            taken.extend(self.records.pop_front());
        }
        taken
    }

    fn key(&self, record: &Stored) -> &[u8] {
        &self.bytes[record.key.clone()]
    }

    fn stored(&self, record: &Stored) -> &[u8] {
        &self.bytes[record.value.clone()]
    }

    fn value(&self, record: &Stored) -> Result<Vec<u8>, FormatError> {
        let stored = self.stored(record);
        let chunk = &self.version.chunks[record.chunk as usize];
        let decoded = self.version.decode(chunk, stored, record.is_as_is)?;
        Ok(decoded.unwrap_or_else(|| stored.to_vec()))
    }
}
