//! Groups the records of the version by their keys: ids of one key become its set. After that the size of the version is
//! known, and so are the numbers of edges, before anything is written.
//!
//! The ids of one set are in memory while it is made.

use std::sync::atomic::Ordering;

use fondaco_model::VALUE_BYTES_MAX;

use super::files::GraphFiles;
use super::options::GraphOptions;
use crate::error::BuildError;
use crate::options::OnDuplicate;
use crate::progress::Progress;
use crate::report::{RowPlace, excerpt};
use crate::samples::Samples;
use crate::sort::{Drain, Part, PartWriter, PartitionTally, Record, RowId, Scratch, Sorted, in_threads};

/// The most ids of a set: 512 MiB of memory. A set with more ids hardly fits into a value.
const IDS_MAX: usize = 1 << 26;

/// With this many ids for the first time, duplicates are removed before more are added.
const IDS_SORTED_AT: usize = 1 << 16;

/// The grouped records.
pub(super) struct Grouped {
    pub(super) sorted: Sorted,
    pub(super) samples: Vec<Vec<u8>>,
    pub(super) counts: Vec<EdgeCounts>,
}

/// The edges of a type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EdgeCounts {
    /// Edges, each once.
    pub(super) edges: u64,
    /// Those from a vertex to itself.
    pub(super) self_loops: u64,
}

/// Groups all records, and keeps them in their order.
pub(super) fn group(
    options: &GraphOptions<'_>,
    files: &GraphFiles,
    sorted: Sorted,
    drain: Drain<'_>,
    sample_values: bool,
    progress: &Progress,
) -> Result<Grouped, BuildError> {
    let (buckets, bits) = (sorted.parts.len(), sorted.layout.bucket_bits);
    let partitions = sorted.tallies.len();
    let all = in_threads(options.build.threads, sorted.parts, |parts| {
        let mut scratch = Scratch::default();
        let mut grouping = Grouping::new(options, files, partitions, sample_values);
        let mut done = Vec::new();
        while let Some((bucket, part)) = parts.next() {
            progress.check()?;
            let records = part.records;
            drain.drain(part, bits, &mut scratch, &mut |record| grouping.add(record))?;
            done.push((bucket, grouping.end_bucket()?));
            progress.records_written.fetch_add(records, Ordering::Relaxed);
        }
        Ok((done, grouping.samples, grouping.tallies, grouping.counts))
    })?;
    let mut parts: Vec<Part> = (0..buckets).map(|_| Part::default()).collect();
    let mut tallies = vec![PartitionTally::default(); partitions];
    let mut counts = vec![EdgeCounts::default(); files.types.len()];
    let mut all_samples = Vec::new();
    for (done, samples, of_thread, counted) in all {
        for (bucket, part) in done {
            parts[bucket] = part;
        }
        for (sum, tally) in tallies.iter_mut().zip(of_thread) {
            sum.add(tally);
        }
        for (sum, counted) in counts.iter_mut().zip(counted) {
            sum.edges += counted.edges;
            sum.self_loops += counted.self_loops;
        }
        all_samples.push(samples);
    }
    Ok(Grouped {
        sorted: Sorted {
            parts,
            tallies,
            ..sorted
        },
        samples: Samples::merge(all_samples),
        counts,
    })
}

/// The kind of value that is made of the records of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A set of their ids.
    Set,
    /// The properties of one of them.
    Edge,
    /// There is only one.
    Single,
}

impl Kind {
    fn of(key: &[u8]) -> Self {
        match key.split(|&byte| byte == b':').next() {
            Some(b"out" | b"in" | b"index" | b"label") => Self::Set,
            Some(b"edge") => Self::Edge,
            _ => Self::Single,
        }
    }
}

/// A key whose records are being taken.
struct Current {
    row: RowId,
    hash: u64,
    partition: u32,
    key: Vec<u8>,
    kind: Kind,
    value: Vec<u8>,
}

/// The state of one thread.
struct Grouping<'a> {
    options: &'a GraphOptions<'a>,
    files: &'a GraphFiles,
    current: Option<Current>,
    /// The ids of the current key, if it has a set.
    ids: Vec<u64>,
    /// With this many ids duplicates are removed.
    ids_sorted_at: usize,
    part: PartWriter<'a>,
    tallies: Vec<PartitionTally>,
    samples: Samples,
    counts: Vec<EdgeCounts>,
}

impl<'a> Grouping<'a> {
    fn new(options: &'a GraphOptions<'a>, files: &'a GraphFiles, partitions: usize, sample_values: bool) -> Self {
        Self {
            options,
            files,
            current: None,
            ids: Vec::new(),
            ids_sorted_at: IDS_SORTED_AT,
            part: PartWriter::new(&options.build.temporary),
            tallies: vec![PartitionTally::default(); partitions],
            samples: Samples::new(sample_values),
            counts: vec![EdgeCounts::default(); files.types.len()],
        }
    }

    /// Takes the next record in the order of keys.
    fn add(&mut self, record: &Record<'_>) -> Result<(), BuildError> {
        let kind = match &mut self.current {
            Some(current) if current.hash == record.hash && current.key == record.key => match current.kind {
                Kind::Set => Kind::Set,
                Kind::Edge => return self.add_same_edge(record),
                Kind::Single => return Err(given_twice(record.key)),
            },
            _ => {
                self.end_key()?;
                let kind = Kind::of(record.key);
                self.current = Some(Current {
                    row: record.row,
                    hash: record.hash,
                    partition: record.partition,
                    key: record.key.to_vec(),
                    kind,
                    value: match kind {
                        Kind::Set => Vec::new(),
                        Kind::Edge | Kind::Single => record.value.to_vec(),
                    },
                });
                kind
            }
        };
        match kind {
            Kind::Set => self.add_id(record),
            Kind::Edge | Kind::Single => Ok(()),
        }
    }

    fn add_id(&mut self, record: &Record<'_>) -> Result<(), BuildError> {
        let id = record.value.first_chunk().ok_or_else(|| self.damaged())?;
        self.ids.push(u64::from_le_bytes(*id));
        if self.ids.len() < self.ids_sorted_at {
            return Ok(());
        }
        self.sort_ids();
        if self.ids.len() >= IDS_MAX {
            return Err(too_long(record.key, VALUE_BYTES_MAX + 1));
        }
        self.ids_sorted_at = (self.ids.len() * 2).clamp(IDS_SORTED_AT, IDS_MAX);
        Ok(())
    }

    fn sort_ids(&mut self) {
        self.ids.sort_unstable();
        self.ids.dedup();
    }

    /// Another row of the current edge, which has properties.
    fn add_same_edge(&mut self, record: &Record<'_>) -> Result<(), BuildError> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        let is_kept = match self.options.build.on_duplicate {
            OnDuplicate::Fail => {
                let (first, second) = (current.row.min(record.row), current.row.max(record.row));
                let number = self.files.edge_type(record.row).unwrap_or(0);
                return Err(BuildError::DuplicateEdge {
                    edge_type: self.files.types[number].name.clone(),
                    first: RowPlace::of(&self.files.paths, first),
                    second: RowPlace::of(&self.files.paths, second),
                });
            }
            OnDuplicate::First => record.row < current.row,
            OnDuplicate::Last => record.row > current.row,
        };
        if is_kept {
            current.row = record.row;
            current.value = record.value.to_vec();
        }
        Ok(())
    }

    /// Ends the current key: all of its records were taken.
    fn end_key(&mut self) -> Result<(), BuildError> {
        let Some(mut current) = self.current.take() else {
            return Ok(());
        };
        if current.kind == Kind::Set {
            self.sort_ids();
            self.count_edges(&current.key)?;
            current.value = fondaco_ids::encode(&self.ids).map_err(|_| self.damaged())?;
            self.ids.clear();
            self.ids.shrink_to(IDS_SORTED_AT);
            self.ids_sorted_at = IDS_SORTED_AT;
        }
        if current.value.len() > VALUE_BYTES_MAX {
            return Err(too_long(&current.key, current.value.len()));
        }
        let bytes = (current.key.len() + current.value.len()) as u64;
        self.tallies[current.partition as usize].count(current.hash, bytes);
        self.samples.offer(current.hash, current.row, &current.value);
        let length = (current.value.len() as u32).to_le_bytes();
        self.part.add(&Record {
            row: current.row,
            hash: current.hash,
            partition: current.partition,
            key: &current.key,
            value: match self.options.build.dry_run {
                true => &length,
                false => &current.value,
            },
        })
    }

    /// Counts the edges in a set of neighbours: those of a symmetric type are in the sets of both ends, and count at the
    /// lower one.
    fn count_edges(&mut self, key: &[u8]) -> Result<(), BuildError> {
        let Some((name, id)) = neighbours_of(key) else {
            return Ok(());
        };
        let number = self.files.types.iter().position(|known| known.name == name);
        let number = number.ok_or_else(|| self.damaged())?;
        let lower = match self.files.types[number].symmetric {
            true => self.ids.partition_point(|&neighbour| neighbour < id),
            false => 0,
        };
        self.counts[number].edges += (self.ids.len() - lower) as u64;
        self.counts[number].self_loops += u64::from(self.ids.binary_search(&id).is_ok());
        Ok(())
    }

    fn end_bucket(&mut self) -> Result<Part, BuildError> {
        self.end_key()?;
        let next = PartWriter::new(&self.options.build.temporary);
        std::mem::replace(&mut self.part, next).finish()
    }

    fn damaged(&self) -> BuildError {
        BuildError::temporary_damaged(&self.options.build.temporary)
    }
}

/// The type and the vertex of a key `out:TYPE{ID}`.
fn neighbours_of(key: &[u8]) -> Option<(&str, u64)> {
    let key = str::from_utf8(key.strip_prefix(b"out:")?).ok()?;
    let (name, id) = key.strip_suffix('}')?.split_once('{')?;
    Some((name, id.parse().ok()?))
}

fn too_long(key: &[u8], bytes: usize) -> BuildError {
    BuildError::ValueTooLong {
        key: excerpt(key),
        bytes,
        max: VALUE_BYTES_MAX,
    }
}

fn given_twice(key: &[u8]) -> BuildError {
    BuildError::KnownIds {
        reason: format!(
            "{:?} would have the names of two vertices: push the graph under another name",
            excerpt(key)
        ),
    }
}

#[cfg(test)]
mod tests {
    use fondaco_graph::keys::{self, Direction};

    use super::*;

    #[test]
    fn keys_have_the_kind_of_their_values() {
        for (key, kind) in [
            (keys::neighbours("KNOWS", Direction::Out, 1), Kind::Set),
            (keys::neighbours("KNOWS", Direction::In, 1), Kind::Set),
            (keys::index("KNOWS", "7", 1), Kind::Set),
            (keys::label("7", ""), Kind::Set),
            (keys::edge("KNOWS", 1, 2), Kind::Edge),
            (keys::vertex(1), Kind::Single),
            (keys::id(b"out:KNOWS{1}"), Kind::Single),
            (keys::DESCRIPTION.to_vec(), Kind::Single),
        ] {
            assert_eq!(Kind::of(&key), kind, "{}", excerpt(&key));
        }
        let key = keys::neighbours("KNOWS", Direction::Out, 12);
        assert_eq!(neighbours_of(&key), Some(("KNOWS", 12)));
        assert_eq!(neighbours_of(b"in:KNOWS{12}"), None);
    }
}
