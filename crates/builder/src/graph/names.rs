//! Gives each name its id: the names of a bucket are taken in the order of the sort, each with all its mentions.
//!
//! Names are looked up in the current version in batches. So the mentions of some names wait for their ids; a name with
//! very many mentions does not wait for the last of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use fondaco_graph::Description;

use super::files::GraphFiles;
use super::ids::GivenId;
use super::mention::{End, Mention, NewVertex, Side};
use super::options::{GraphOptions, UnknownVertices};
use crate::error::BuildError;
use crate::options::OnDuplicate;
use crate::progress::Progress;
use crate::report::{RowPlace, excerpt};
use crate::sort::{Appender, Drain, PartitionTally, Record, RowId, Scratch, Sorted, Sorter, in_threads};

/// How many names are looked up at a time.
const NAMES_AT_ONCE: usize = 4096;

/// How many bytes of names and mentions wait for a look-up.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// The named vertices.
#[derive(Default)]
pub(super) struct Named {
    pub(super) tallies: Vec<Vec<PartitionTally>>,
    /// How many new names each bucket has.
    pub(super) new_in_buckets: Vec<u64>,
    pub(super) vertices: u64,
    /// Rows of vertices that were dropped for others of the same name.
    pub(super) duplicate_vertices: u64,
    pub(super) labels: BTreeMap<String, u64>,
    /// How many names no file of vertices has.
    pub(super) unknown: u64,
    /// The first of them, if that is an error.
    first_unknown: Option<(RowId, Vec<u8>)>,
}

/// Gives ids to all names, and appends the ends of edges and the vertices to the next sort.
pub(super) fn name_vertices(
    options: &GraphOptions<'_>,
    files: &GraphFiles,
    sorted: Sorted,
    drain: Drain<'_>,
    next: &Sorter,
    progress: &Progress,
) -> Result<Named, BuildError> {
    let buckets = sorted.parts.len();
    let bits = sorted.layout.bucket_bits;
    let all = in_threads(options.build.threads, sorted.parts, |parts| {
        let mut scratch = Scratch::default();
        let mut naming = Naming::new(options, files, next.appender(), buckets);
        while let Some((bucket, part)) = parts.next() {
            progress.check()?;
            let records = part.records;
            naming.bucket = bucket;
            drain.drain(part, bits, &mut scratch, &mut |record| naming.add(record))?;
            naming.end_bucket()?;
            progress.records_written.fetch_add(records, Ordering::Relaxed);
        }
        Ok(naming.close())
    })?;
    let nothing = Named {
        new_in_buckets: vec![0; buckets],
        ..Named::default()
    };
    let named = all.into_iter().fold(nothing, Named::with);
    match &named.first_unknown {
        Some((row, name)) => Err(BuildError::UnknownVertices {
            count: named.unknown,
            name: excerpt(name),
            place: RowPlace::of(&files.paths, *row),
        }),
        None => Ok(named),
    }
}

impl Named {
    fn with(mut self, other: Self) -> Self {
        self.tallies.extend(other.tallies);
        for (sum, new) in self.new_in_buckets.iter_mut().zip(other.new_in_buckets) {
            *sum += new;
        }
        self.vertices += other.vertices;
        self.duplicate_vertices += other.duplicate_vertices;
        for (label, vertices) in other.labels {
            *self.labels.entry(label).or_default() += vertices;
        }
        self.unknown += other.unknown;
        self.first_unknown = self.first_unknown.into_iter().chain(other.first_unknown).min();
        self
    }
}

/// A name, and what is known of its vertex.
struct Name {
    name: Vec<u8>,
    id: Option<GivenId>,
    /// The first mention, which is that of a file of vertices if there is one.
    first: RowId,
    first_side: Side,
    /// Whether the row that is kept has a number as the name.
    is_number: bool,
    /// The row of the vertex's properties.
    row: RowId,
    properties: Vec<u8>,
}

/// The state of one thread.
struct Naming<'a> {
    options: &'a GraphOptions<'a>,
    files: &'a GraphFiles,
    next: Appender<'a>,
    bucket: usize,
    /// Names without ids, and the current one as the last.
    names: Vec<Name>,
    /// Mentions in edges that wait for ids: the index of the name, the row, and where the mention is in `bytes`.
    waiting: Vec<(usize, RowId, Range<usize>)>,
    bytes: Vec<u8>,
    names_bytes: usize,
    written: Vec<u8>,
    named: Named,
}

impl<'a> Naming<'a> {
    fn new(options: &'a GraphOptions<'a>, files: &'a GraphFiles, next: Appender<'a>, buckets: usize) -> Self {
        Self {
            options,
            files,
            next,
            bucket: 0,
            names: Vec::new(),
            waiting: Vec::new(),
            bytes: Vec::new(),
            names_bytes: 0,
            written: Vec::new(),
            named: Named {
                new_in_buckets: vec![0; buckets],
                ..Named::default()
            },
        }
    }

    /// Takes the next mention in the order of names.
    fn add(&mut self, record: &Record<'_>) -> Result<(), BuildError> {
        let temporary = &self.options.build.temporary;
        let mention = Mention::read(record.value).ok_or_else(|| BuildError::temporary_damaged(temporary))?;
        if self.names.last().is_none_or(|last| last.name != record.key) {
            if self.names.len() >= NAMES_AT_ONCE || self.waits_for_too_much() {
                self.look_up()?;
            }
            self.names_bytes += record.key.len() + mention.properties.len();
            self.names.push(Name {
                name: record.key.to_vec(),
                id: None,
                first: record.row,
                first_side: mention.side,
                is_number: mention.is_number,
                row: record.row,
                properties: match mention.side {
                    Side::Vertex => mention.properties.to_vec(),
                    Side::From | Side::To => Vec::new(),
                },
            });
            if mention.side == Side::Vertex {
                return Ok(());
            }
        }
        if mention.side == Side::Vertex {
            return self.add_vertex(record.row, mention);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record.value);
        let place = start..self.bytes.len();
        self.waiting.push((self.names.len() - 1, record.row, place));
        match self.waits_for_too_much() {
            true => self.look_up(),
            false => Ok(()),
        }
    }

    fn waits_for_too_much(&self) -> bool {
        const WAITING_BYTES: usize = size_of::<(usize, RowId, Range<usize>)>();
        self.names_bytes + self.bytes.len() + self.waiting.len() * WAITING_BYTES > WAITING_BYTES_MAX
    }

    /// Another row of the current vertex.
    fn add_vertex(&mut self, row: RowId, mention: Mention<'_>) -> Result<(), BuildError> {
        let Some(name) = self.names.last_mut() else {
            return Ok(());
        };
        let is_kept = match self.options.build.on_duplicate {
            OnDuplicate::Fail => {
                let (first, second) = (name.row.min(row), name.row.max(row));
                return Err(BuildError::DuplicateVertex {
                    name: excerpt(&name.name),
                    first: RowPlace::of(&self.files.paths, first),
                    second: RowPlace::of(&self.files.paths, second),
                });
            }
            OnDuplicate::First => row < name.row,
            OnDuplicate::Last => row > name.row,
        };
        self.named.duplicate_vertices += 1;
        if is_kept {
            name.row = row;
            name.is_number = mention.is_number;
            name.properties = mention.properties.to_vec();
        }
        Ok(())
    }

    /// Gives ids to the names without one, and hands over everything but the vertex of the last name: it may have more
    /// rows.
    fn look_up(&mut self) -> Result<(), BuildError> {
        self.give_ids()?;
        for (name, row, place) in self.waiting.drain(..) {
            let mention = Mention::read(&self.bytes[place]);
            let (Some(id), Some(mention)) = (self.names[name].id, mention) else {
                return Err(BuildError::temporary_damaged(&self.options.build.temporary));
            };
            let end = End {
                side: mention.side,
                id,
                properties: mention.properties,
            };
            self.written.clear();
            end.write_to(&mut self.written);
            self.next.append(row, &row.number().to_be_bytes(), &self.written)?;
        }
        self.bytes.clear();
        let last = self.names.pop();
        for name in std::mem::take(&mut self.names) {
            self.end_name(&name)?;
        }
        self.names_bytes = last.as_ref().map_or(0, |last| last.name.len() + last.properties.len());
        self.names.extend(last);
        Ok(())
    }

    fn give_ids(&mut self) -> Result<(), BuildError> {
        let skips = self.files.have_vertices() && self.options.unknown_vertices != UnknownVertices::Add;
        let fails = self.options.unknown_vertices == UnknownVertices::Fail;
        let mut wanted = Vec::new();
        for (number, name) in self.names.iter_mut().enumerate().filter(|(_, name)| name.id.is_none()) {
            if self.files.have_vertices() && name.first_side != Side::Vertex {
                self.named.unknown += 1;
            }
            if skips && name.first_side != Side::Vertex {
                name.id = Some(GivenId::SKIPPED);
                let first = self.named.first_unknown.as_ref();
                if fails && first.is_none_or(|first| (name.first, &name.name) < (first.0, &first.1)) {
                    self.named.first_unknown = Some((name.first, name.name.clone()));
                }
            } else {
                wanted.push(number);
            }
        }
        let known = self.known_ids(&wanted)?;
        for (number, known) in wanted.into_iter().zip(known) {
            let new = &mut self.named.new_in_buckets[self.bucket];
            self.names[number].id = Some(known.unwrap_or_else(|| {
                *new += 1;
                GivenId::new(self.bucket, *new - 1)
            }));
        }
        Ok(())
    }

    /// The ids that names have in the graph's current version.
    fn known_ids(&self, wanted: &[usize]) -> Result<Vec<Option<GivenId>>, BuildError> {
        let Some(known) = self.options.known.filter(|_| !wanted.is_empty()) else {
            return Ok(vec![None; wanted.len()]);
        };
        let names: Vec<Vec<u8>> = wanted.iter().map(|&number| self.names[number].name.clone()).collect();
        let failed = |reason| BuildError::KnownIds { reason };
        let ids = known.look_up(&names).map_err(failed)?;
        if ids.len() != names.len() {
            return Err(failed(format!(
                "{} ids were found for {} names",
                ids.len(),
                names.len()
            )));
        }
        let next = known.description().next_id;
        let checked = ids.into_iter().zip(&names).map(|(id, name)| match id {
            // One that an event has made, in a hybrid graph, has a hash of its name.
            Some(id) if id >= next && id < Description::FIRST_ID_OF_EVENTS => Err(failed(format!(
                "{:?} has the id {id}, but the graph has given only ids below {next}: push it under another name",
                excerpt(name)
            ))),
            id => Ok(id.map(GivenId::known)),
        });
        checked.collect()
    }

    /// Hands over a vertex all of whose rows were seen.
    fn end_name(&mut self, name: &Name) -> Result<(), BuildError> {
        let id = name.id.filter(|id| *id != GivenId::SKIPPED);
        let Some(id) = id else {
            return Ok(());
        };
        self.named.vertices += 1;
        if let Some(label) = self.files.label(name.row) {
            match self.named.labels.get_mut(label) {
                Some(vertices) => *vertices += 1,
                None => {
                    self.named.labels.insert(label.to_owned(), 1);
                }
            }
        }
        self.written.clear();
        let vertex = NewVertex {
            is_number: name.is_number,
            name: &name.name,
            properties: &name.properties,
        };
        vertex.write_to(&mut self.written);
        // A byte more than the key of an edge has.
        let key = [&b"v"[..], &id.to_bytes()].concat();
        self.next.append(name.row, &key, &self.written)?;
        Ok(())
    }

    fn end_bucket(&mut self) -> Result<(), BuildError> {
        self.look_up()?;
        if let Some(last) = self.names.pop() {
            self.end_name(&last)?;
        }
        self.names_bytes = 0;
        Ok(())
    }

    fn close(mut self) -> Named {
        self.named.tallies = vec![self.next.close()];
        self.named
    }
}
