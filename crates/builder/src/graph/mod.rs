//! Builds a version of a graph from lists of edges, with memory that does not grow with the graph.
//!
//! 1. *Reading*: each end of an edge goes into a sort by names; so do vertices with files of their own.
//! 2. *Naming*: all mentions of a name are together, and get its id. They go into a sort by rows.
//! 3. *Joining*: both ends of an edge are together, and become records of the version: `out:…`, `in:…`, `index:…` for one
//!    id each. They go into the sort of the version.
//! 4. *Grouping*: all records of a key are together, and become its value.
//! 5. *Writing*, as for any version. The description is added when all edges are counted.
//!
//! Each step reads one sort and fills the next one, so that two of them share the memory. The keys are defined in
//! crate `graph`.

mod files;
mod group;
mod ids;
mod join;
mod mention;
mod names;
mod options;
mod report;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fondaco_format::{Compression, Schema, key_hash};
use fondaco_graph::{Description, EdgeType, keys};
use fondaco_model::{PartitionCount, SlotPrefix, ValueType};

pub(crate) use mention::{Mention, NAME_BYTES_MAX, Side};
pub use options::{GraphOptions, KnownIds, Types, UnknownVertices};
pub use report::GraphReport;

use crate::build::{check_common, check_output, check_rows, write_version};
use crate::error::BuildError;
use crate::input::{self, BadRows, InputFiles, RowKind, Source};
use crate::memory::Memory;
use crate::options::{BuildOptions, ValueSelection};
use crate::output;
use crate::progress::{Phase, Progress};
use crate::report::{BadRow, BuildReport};
use crate::sort::{Drain, Record, RowId, SortOptions, Sorted, Sorter, Winner};
use files::GraphFiles;
use group::{EdgeCounts, Grouped};
use ids::NewIds;
use join::Joined;
use names::Named;

/// Builds a version of a graph, as [`build`](crate::build) does of other stores.
///
/// # Errors
/// Every [`BuildError`].
pub fn build_graph(options: &GraphOptions<'_>, progress: &Progress) -> Result<GraphReport, BuildError> {
    check(options)?;
    let files = GraphFiles::find(options)?;
    progress
        .bytes_total
        .store(files.vertices.bytes + files.edges.bytes, Ordering::Relaxed);
    check_output(&options.build)?;
    let memory = Memory::of(&options.build);
    let options = &GraphOptions {
        build: BuildOptions {
            threads: memory.threads,
            declared: ValueType::Graph.into(),
            ..options.build.clone()
        },
        ..options.clone()
    };
    let building = Building {
        options,
        files: &files,
        memory: memory.of_two_sorts(),
        progress,
    };
    let started = Instant::now();
    let read = building.read()?;
    let reading = started.elapsed();

    let started = Instant::now();
    let made = building.make_records(read.sorted)?;
    let mut report = building.report(&made, read.bad_rows, read.bad_row_samples);
    let sorted = made.grouped.sorted;
    report.build.spilled_bytes = read.spilled_bytes + made.spilled_bytes;
    report.build.partitions = sorted.tallies.iter().filter(|tally| tally.records > 0).count() as u32;
    let records = sorted.tallies.iter().map(|tally| tally.records).sum();
    progress.enter_sorting(Phase::Writing, records);
    let drain = building.drain(&sorted, Winner::None);
    let written = match options.build.dry_run {
        true => output::write(&options.build, sorted, drain, None, progress)?,
        false => {
            let samples = &made.grouped.samples;
            let (written, manifest) = write_version(&options.build, samples, read.schema, sorted, drain, progress)?;
            report.build.manifest = Some(manifest);
            written
        }
    };
    report.build.records = written.records;
    report.build.bytes = written.bytes;
    report.build.chunks = written.chunks;
    report.build.reading = reading;
    report.build.writing = started.elapsed();
    progress.enter(Phase::Done);
    tracing::info!(
        store = %options.build.store,
        vertices = report.description.vertices,
        edges = report.edges,
        spilled_bytes = report.build.spilled_bytes,
        reading_ms = report.build.reading.as_millis() as u64,
        writing_ms = report.build.writing.as_millis() as u64,
        "built a graph"
    );
    Ok(report)
}

fn check(options: &GraphOptions<'_>) -> Result<(), BuildError> {
    let invalid = |option, value: String, reason| Err(BuildError::InvalidOption { option, value, reason });
    let build = &options.build;
    if build.key.len() != 2 {
        return invalid(
            "columns of edges",
            format!("{:?}", build.key),
            "name the column that edges lead from, then the one that they lead to",
        );
    }
    if !matches!(build.value, ValueSelection::Columns(_)) {
        return invalid(
            "value of edges",
            format!("{:?}", build.value),
            "name the columns of their properties with --values",
        );
    }
    if !build.reading.exclude.is_empty() && options.vertices.is_empty() {
        return invalid(
            "columns to exclude",
            format!("{:?}", build.reading.exclude),
            "they are left out of the properties of vertices: name a file of them with --vertices",
        );
    }
    check_common(build)
}

/// A running build.
#[derive(Clone, Copy)]
struct Building<'a> {
    options: &'a GraphOptions<'a>,
    files: &'a GraphFiles,
    memory: Memory,
    progress: &'a Progress,
}

/// The rows, sorted by the names in them.
struct Read {
    sorted: Sorted,
    schema: Schema,
    bad_rows: u64,
    bad_row_samples: Vec<BadRow>,
    spilled_bytes: u64,
}

/// The records of the version.
struct Made {
    grouped: Grouped,
    description: Description,
    named: Named,
    joined: Joined,
    new_vertices: u64,
    spilled_bytes: u64,
}

impl Building<'_> {
    fn sorter(&self, partitions: PartitionCount) -> Sorter {
        Sorter::new(SortOptions {
            store: self.options.build.store.clone(),
            partitions,
            memory_bytes: self.memory.sort_bytes,
            threads: self.options.build.threads,
            temporary: self.options.build.temporary.clone(),
            keys_only: false,
        })
    }

    fn drain<'s>(&'s self, sorted: &Sorted, winner: Winner) -> Drain<'s> {
        Drain {
            positions: sorted.positions,
            winner,
            share_bytes: sorted.layout.share_bytes,
            temporary: &self.options.build.temporary,
            files: &self.files.paths,
        }
    }

    /// Reads all vertices and edges.
    fn read(&self) -> Result<Read, BuildError> {
        self.progress.enter(Phase::Reading);
        let (options, files) = (self.options, self.files);
        let sorter = self.sorter(PartitionCount::ONE);
        let bad_rows = BadRows::new(options.build.bad_rows_max, files.paths.clone());
        let read = |options: &BuildOptions, kind, files: &InputFiles| {
            let samples_unwanted = BuildOptions {
                compression: Compression::None,
                ..options.clone()
            };
            input::read(
                &samples_unwanted,
                kind,
                Source::from(files),
                &sorter,
                self.memory,
                &bad_rows,
                self.progress,
            )
        };
        let mut tallies = Vec::new();
        if files.have_vertices() {
            let vertices = BuildOptions {
                key: vec![options.vertex_name.clone()],
                value: ValueSelection::AllOthers,
                ..options.build.clone()
            };
            tallies = read(&vertices, RowKind::Vertex, &files.vertices)?.tallies;
        }
        let edges = read(&options.build, RowKind::Edge, &files.edges)?;
        tallies.extend(edges.tallies);
        let sorted = sorter.finish(tallies)?;
        let (bad_rows, bad_row_samples) = bad_rows.into_found();
        let bad_row_samples = check_rows(&options.build, records_of(&sorted), bad_rows, bad_row_samples)?;
        Ok(Read {
            spilled_bytes: sorted.spilled_bytes,
            sorted,
            schema: edges.schema,
            bad_rows,
            bad_row_samples,
        })
    }

    /// Names vertices, joins edges and groups records.
    fn make_records(&self, by_name: Sorted) -> Result<Made, BuildError> {
        let (options, files, progress) = (self.options, self.files, self.progress);
        progress.enter_sorting(Phase::Naming, records_of(&by_name));
        let next = self.sorter(PartitionCount::ONE);
        let drain = self.drain(&by_name, Winner::All);
        let mut named = names::name_vertices(options, files, by_name, drain, &next, progress)?;
        let by_row = next.finish(std::mem::take(&mut named.tallies))?;
        let first_id = options.known.map_or(0, |known| known.description().next_id);
        let ids = NewIds::number(first_id, &named.new_in_buckets)?;

        progress.enter_sorting(Phase::Joining, records_of(&by_row));
        let next = self.sorter(options.build.partitions);
        let drain = self.drain(&by_row, Winner::All);
        let mut spilled_bytes = by_row.spilled_bytes;
        let mut joined = join::join_edges(options, files, &ids, by_row, drain, &next, progress)?;
        let by_key = next.finish(std::mem::take(&mut joined.tallies))?;

        progress.enter_sorting(Phase::Grouping, records_of(&by_key));
        spilled_bytes += by_key.spilled_bytes;
        let drain = self.drain(&by_key, Winner::All);
        let sample_values = options.build.compression == Compression::Zstd && !options.build.dry_run;
        let mut grouped = group::group(options, files, by_key, drain, sample_values, progress)?;
        let description = self.describe(&named, &joined, &grouped.counts, ids.next);
        self.add_description(&mut grouped.sorted, &description)?;
        Ok(Made {
            grouped,
            description,
            named,
            joined,
            new_vertices: ids.next - first_id,
            spilled_bytes,
        })
    }

    fn describe(&self, named: &Named, joined: &Joined, counts: &[EdgeCounts], next_id: u64) -> Description {
        let of_edges: &[String] = match &self.options.build.value {
            ValueSelection::Columns(names) => names,
            ValueSelection::Column(_) | ValueSelection::AllOthers => &[],
        };
        let mut properties: BTreeSet<String> = joined.properties.clone();
        properties.extend(of_edges.iter().cloned());
        properties.insert("name".to_owned());
        let types = self.files.types.iter().zip(counts).map(|(edge_type, counts)| {
            let described = EdgeType {
                symmetric: edge_type.symmetric,
                indexed: edge_type.indexed,
                properties: !of_edges.is_empty(),
                edges: counts.edges,
            };
            (edge_type.name.clone(), described)
        });
        Description {
            is_versioned: false,
            vertices: named.vertices,
            next_id,
            partitions: self.options.build.partitions,
            labels: named.labels.clone(),
            types: types.collect(),
            properties: properties.into_iter().collect(),
        }
    }

    /// Adds the record of the description, which is known last.
    fn add_description(&self, sorted: &mut Sorted, description: &Description) -> Result<(), BuildError> {
        let build = &self.options.build;
        // A description is written as JSON without errors.
        let value = serde_json::to_vec(description).map_err(|_| BuildError::temporary_damaged(&build.temporary))?;
        let slot = SlotPrefix::of(&build.store).slot(keys::DESCRIPTION);
        let length = (value.len() as u32).to_le_bytes();
        let record = Record {
            row: RowId::new(0, 0),
            hash: key_hash(keys::DESCRIPTION),
            partition: build.partitions.partition_of(slot).get(),
            key: keys::DESCRIPTION,
            value: match build.dry_run {
                true => &length,
                false => &value,
            },
        };
        let bytes = (record.key.len() + value.len()) as u64;
        sorted.tallies[record.partition as usize].count(record.hash, bytes);
        let bucket = sorted.positions.of(&record) >> (u64::BITS - sorted.layout.bucket_bits);
        let part = &mut sorted.parts[bucket as usize];
        let mut block = Vec::new();
        record.write_to(&mut block);
        part.blocks.push(block);
        part.records += 1;
        Ok(())
    }

    fn report(&self, made: &Made, bad_rows: u64, bad_row_samples: Vec<BadRow>) -> GraphReport {
        let edges = made.grouped.counts.iter().map(|counts| counts.edges).sum();
        let duplicate_edges = made.joined.rows.iter().sum::<u64>() - edges;
        GraphReport {
            build: BuildReport {
                files: self.files.paths.len() as u64,
                rows: self.progress.rows_read.load(Ordering::Relaxed),
                records: 0,
                bytes: 0,
                duplicates: duplicate_edges + made.named.duplicate_vertices,
                bad_rows,
                bad_row_samples,
                partitions: 0,
                chunks: 0,
                spilled_bytes: 0,
                reading: std::time::Duration::ZERO,
                writing: std::time::Duration::ZERO,
                manifest: None,
            },
            description: made.description.clone(),
            edges,
            new_vertices: made.new_vertices,
            duplicate_edges,
            duplicate_vertices: made.named.duplicate_vertices,
            self_loops: made.grouped.counts.iter().map(|counts| counts.self_loops).sum(),
            unknown_vertices: made.named.unknown,
            skipped_edges: made.joined.skipped,
        }
    }
}

/// How many records a sort has.
fn records_of(sorted: &Sorted) -> u64 {
    sorted.tallies.iter().map(|tally| tally.records).sum()
}
