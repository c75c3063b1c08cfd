//! Joins both ends of each edge, and makes the records of the version: those of vertices, and one for each id of a set of
//! ids, which are grouped afterwards.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use fondaco_graph::Vertex;
use fondaco_graph::keys::{self, Direction};
use fondaco_model::{PartitionCount, SlotPrefix, VALUE_BYTES_MAX};
use serde_json::{Map, Number, Value};

use super::files::{GraphFiles, TypeOptions};
use super::ids::{GivenId, NewIds};
use super::mention::{End, NewVertex, Side};
use super::options::GraphOptions;
use crate::error::BuildError;
use crate::progress::Progress;
use crate::report::excerpt;
use crate::sort::{Appender, Drain, PartitionTally, Record, RowId, Scratch, Sorted, Sorter, in_threads};

/// How many different names of properties vertices may have: the description of a graph lists them.
const PROPERTIES_MAX: usize = 10_000;

/// The property with a vertex's name.
const NAME: &str = "name";

/// The joined edges.
#[derive(Default)]
pub(super) struct Joined {
    pub(super) tallies: Vec<Vec<PartitionTally>>,
    /// The rows of each edge type.
    pub(super) rows: Vec<u64>,
    /// Rows that were left out because of an unknown vertex.
    pub(super) skipped: u64,
    /// The names of properties of vertices.
    pub(super) properties: BTreeSet<String>,
}

/// Joins all edges, and appends the records of the version to the last sort.
pub(super) fn join_edges(
    options: &GraphOptions<'_>,
    files: &GraphFiles,
    ids: &NewIds,
    sorted: Sorted,
    drain: Drain<'_>,
    next: &Sorter,
    progress: &Progress,
) -> Result<Joined, BuildError> {
    let bits = sorted.layout.bucket_bits;
    let tags = keys::tags(options.build.partitions);
    let all = in_threads(options.build.threads, sorted.parts, |parts| {
        let mut scratch = Scratch::default();
        let mut joining = Joining {
            options,
            files,
            ids,
            records: Records {
                next: next.appender(),
                slots: SlotPrefix::of(&options.build.store),
                partitions: options.build.partitions,
                tags: &tags,
            },
            half: None,
            joined: Joined {
                rows: vec![0; files.types.len()],
                ..Joined::default()
            },
        };
        while let Some((_, part)) = parts.next() {
            progress.check()?;
            let records = part.records;
            drain.drain(part, bits, &mut scratch, &mut |record| joining.add(record))?;
            progress.records_written.fetch_add(records, Ordering::Relaxed);
        }
        joining.close()
    })?;
    let nothing = Joined {
        rows: vec![0; files.types.len()],
        ..Joined::default()
    };
    Ok(all.into_iter().fold(nothing, Joined::with))
}

impl Joined {
    fn with(mut self, other: Self) -> Self {
        self.tallies.extend(other.tallies);
        for (sum, rows) in self.rows.iter_mut().zip(other.rows) {
            *sum += rows;
        }
        self.skipped += other.skipped;
        self.properties.extend(other.properties);
        self
    }
}

/// The end of an edge whose other end has not come yet.
struct Half {
    row: RowId,
    side: Side,
    id: GivenId,
    properties: Vec<u8>,
}

/// The state of one thread.
struct Joining<'a> {
    options: &'a GraphOptions<'a>,
    files: &'a GraphFiles,
    ids: &'a NewIds,
    records: Records<'a>,
    half: Option<Half>,
    joined: Joined,
}

impl Joining<'_> {
    /// Takes the next record: a vertex, or an end of an edge, whose other end is next to it.
    fn add(&mut self, record: &Record<'_>) -> Result<(), BuildError> {
        if let [b'v', id @ ..] = record.key
            && let Some(id) = id.first_chunk::<8>()
        {
            let vertex = NewVertex::read(record.value).ok_or_else(|| self.damaged())?;
            return match self.ids.resolve(GivenId::from_bytes(*id)) {
                Some(id) => self.add_vertex(record.row, id, vertex),
                None => Err(self.damaged()),
            };
        }
        let end = End::read(record.value).ok_or_else(|| self.damaged())?;
        let Some(half) = self.half.take() else {
            self.half = Some(Half {
                row: record.row,
                side: end.side,
                id: end.id,
                properties: end.properties.to_vec(),
            });
            return Ok(());
        };
        if half.row != record.row || half.side == end.side {
            return Err(self.damaged());
        }
        let (from, to, properties) = match half.side {
            Side::From => (half.id, end.id, &half.properties[..]),
            Side::To | Side::Vertex => (end.id, half.id, end.properties),
        };
        let edge_type = self.files.edge_type(record.row).ok_or_else(|| self.damaged())?;
        self.joined.rows[edge_type] += 1;
        match (self.ids.resolve(from), self.ids.resolve(to)) {
            (Some(from), Some(to)) => {
                let edge_type = &self.files.types[edge_type];
                self.records.add_edge(record.row, edge_type, from, to, properties)
            }
            _ => {
                self.joined.rows[edge_type] -= 1;
                self.joined.skipped += 1;
                Ok(())
            }
        }
    }

    fn add_vertex(&mut self, row: RowId, id: u64, vertex: NewVertex<'_>) -> Result<(), BuildError> {
        let mut properties: Map<String, Value> = match vertex.properties {
            [] => Map::new(),
            json => serde_json::from_slice(json).map_err(|_| self.damaged())?,
        };
        if properties.contains_key(NAME) {
            return Err(BuildError::NameColumn {
                column: self.options.vertex_name.clone(),
            });
        }
        properties.retain(|_, value| !value.is_null());
        for name in properties.keys() {
            if !self.joined.properties.contains(name) {
                self.joined.properties.insert(name.clone());
            }
        }
        if self.joined.properties.len() > PROPERTIES_MAX {
            return Err(BuildError::TooManyProperties { max: PROPERTIES_MAX });
        }
        let name = str::from_utf8(vertex.name).map_err(|_| self.damaged())?;
        properties.insert(NAME.to_owned(), name_property(name, vertex.is_number));
        let label = self.files.label(row);
        let record = Vertex {
            labels: label.map(str::to_owned).into_iter().collect(),
            properties,
        };
        // A map of JSON values is written without errors.
        let record = serde_json::to_vec(&record).map_err(|_| self.damaged())?;
        self.records.add_vertex(row, id, vertex.name, &record, label)
    }

    fn damaged(&self) -> BuildError {
        BuildError::temporary_damaged(&self.options.build.temporary)
    }

    fn close(mut self) -> Result<Joined, BuildError> {
        if self.half.is_some() {
            return Err(self.damaged());
        }
        self.joined.tallies = vec![self.records.next.close()];
        Ok(self.joined)
    }
}

/// The property of a name: a number if the column has numbers, and JSON can have this one.
fn name_property(name: &str, is_number: bool) -> Value {
    let number = is_number.then(|| name.parse::<Number>().ok()).flatten();
    let is_exact = |number: &Number| !number.is_f64() || name.contains(['.', 'e', 'E']);
    match number.filter(is_exact) {
        Some(number) => Value::Number(number),
        None => Value::String(name.to_owned()),
    }
}

/// Appends the records of the version.
struct Records<'a> {
    next: Appender<'a>,
    slots: SlotPrefix,
    partitions: PartitionCount,
    tags: &'a [String],
}

impl<'a> Records<'a> {
    fn add_vertex(
        &mut self,
        row: RowId,
        id: u64,
        name: &[u8],
        record: &[u8],
        label: Option<&str>,
    ) -> Result<(), BuildError> {
        let key = keys::vertex(id);
        if record.len() > VALUE_BYTES_MAX {
            return Err(BuildError::ValueTooLong {
                key: format!("{} with the name {:?}", excerpt(&key), excerpt(name)),
                bytes: record.len(),
                max: VALUE_BYTES_MAX,
            });
        }
        self.next.append(row, &keys::id(name), id.to_string().as_bytes())?;
        self.next.append(row, &key, record)?;
        let tag = self.tag_of(&key);
        self.add_id(row, &keys::label(tag, ""), id)?;
        match label {
            Some(label) => self.add_id(row, &keys::label(tag, label), id),
            None => Ok(()),
        }
    }

    fn add_edge(
        &mut self,
        row: RowId,
        edge_type: &TypeOptions,
        from: u64,
        to: u64,
        properties: &[u8],
    ) -> Result<(), BuildError> {
        self.add_neighbour(row, edge_type, from, to)?;
        if !edge_type.symmetric {
            self.add_id(row, &keys::neighbours(&edge_type.name, Direction::In, to), from)?;
        } else if from != to {
            self.add_neighbour(row, edge_type, to, from)?;
        }
        if properties.is_empty() {
            return Ok(());
        }
        let (from, to) = keys::ends(edge_type.symmetric, from, to);
        self.next
            .append(row, &keys::edge(&edge_type.name, from, to), properties)
            .map(drop)
    }

    /// Adds `to` to the set of `from`, and `from` to the index of `to`.
    fn add_neighbour(&mut self, row: RowId, edge_type: &TypeOptions, from: u64, to: u64) -> Result<(), BuildError> {
        let key = keys::neighbours(&edge_type.name, Direction::Out, from);
        self.add_id(row, &key, to)?;
        match edge_type.indexed {
            true => self.add_id(row, &keys::index(&edge_type.name, self.tag_of(&key), to), from),
            false => Ok(()),
        }
    }

    fn add_id(&mut self, row: RowId, key: &[u8], id: u64) -> Result<(), BuildError> {
        self.next.append(row, key, &id.to_le_bytes()).map(drop)
    }

    /// The tag of the partition that has a key.
    fn tag_of(&self, key: &[u8]) -> &'a str {
        let partition = self.partitions.partition_of(self.slots.slot(key));
        &self.tags[partition.get() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_column_of_numbers_is_a_number() {
        assert_eq!(name_property("7", true), Value::from(7));
        assert_eq!(name_property("-7.5", true), Value::from(-7.5));
        assert_eq!(name_property("7", false), Value::from("7"));
        assert_eq!(name_property("NaN", true), Value::from("NaN"));
        let large = "123456789012345678901234567890";
        assert_eq!(name_property(large, true), Value::from(large));
    }
}
