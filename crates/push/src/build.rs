//! The build of a version: from input files to a directory.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use fondaco_builder::{
    Batches, BuildError, BuildOptions, BuildReport, GraphOptions, GraphReport, IncrementOptions, IncrementReport,
    KnownIds, SchemaChange, Types, UnknownVertices, build_batches, build_graph, build_increment,
    build_increment_batches,
};
use fondaco_format::{Manifest, Schema};
use fondaco_graph::EdgeType;
use fondaco_model::PartitionCount;
use serde::Serialize;

use crate::error::PushError;
use crate::observer::{INTERVAL, Job, Note, Progress};

/// The meaning of the rows of the input.
#[derive(Debug, Clone)]
pub enum Rows {
    /// Each row is a record.
    Records,
    /// Each row is an edge of a graph.
    Edges(Edges),
    /// The rows are in memory, and each is a record.
    InMemory(RowsInMemory),
}

/// Batches of rows in memory, which are read once.
#[derive(Clone)]
pub struct RowsInMemory(Arc<Mutex<Option<Batches>>>);

impl RowsInMemory {
    /// Rows for one build.
    pub fn new(batches: Batches) -> Self {
        Self(Arc::new(Mutex::new(Some(batches))))
    }

    fn take(&self) -> Result<Batches, PushError> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| PushError::WrongOptions("the rows in memory were read already: give new ones".to_owned()))
    }
}

impl fmt::Debug for RowsInMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowsInMemory")
    }
}

/// The input of a graph.
#[derive(Debug, Clone)]
pub struct Edges {
    /// The column with the name of the vertex that an edge leads from.
    pub from: String,
    /// The column with the name of the vertex that an edge leads to.
    pub to: String,
    /// The type of the edges in files that name none.
    pub edge_type: String,
    /// The types of edges that lead both ways.
    pub symmetric: Types,
    /// The types of edges with an index of the vertices that have an edge to a vertex.
    pub indexed: Types,
    /// Files of vertices, each perhaps with a label: `LABEL=FILE`.
    pub vertices: Vec<String>,
    /// The column with the name of a vertex, in files of vertices.
    pub vertex_name: String,
    /// The treatment of edges to vertices that no file of vertices has.
    pub unknown_vertices: UnknownVertices,
}

impl Edges {
    fn options<'a>(&self, build: BuildOptions, known: Option<&'a dyn KnownIds>) -> GraphOptions<'a> {
        GraphOptions {
            build: BuildOptions {
                key: vec![self.from.clone(), self.to.clone()],
                ..build
            },
            edge_type: self.edge_type.clone(),
            symmetric: self.symmetric.clone(),
            indexed: self.indexed.clone(),
            vertices: self.vertices.clone(),
            vertex_name: self.vertex_name.clone(),
            unknown_vertices: self.unknown_vertices,
            known,
        }
    }
}

/// The earlier version that a build starts from.
#[derive(Clone, Copy, Default)]
pub struct Earlier<'a> {
    /// Of a graph: vertices keep these ids.
    pub known: Option<&'a dyn KnownIds>,
    /// The version that the input is a difference to, in a directory.
    pub base: Option<&'a Path>,
    /// Of a version that replaces another one: the columns of that.
    pub replaced: Option<&'a Schema>,
    /// Whether values of the difference are as those of that version, however those were made.
    pub has_final_values: bool,
}

/// The result of a build. Sizes are in bytes.
#[derive(Debug, Clone, Serialize)]
pub struct BuildResult {
    /// The store.
    pub store: String,
    /// The location of the version; `None` after a dry run.
    pub output: Option<String>,
    /// Whether the input was only checked.
    pub dry_run: bool,
    /// The number of input files.
    pub files: u64,
    /// The number of rows.
    pub rows: u64,
    /// The number of records of the version.
    pub records: u64,
    /// The size of the keys and values, before compression.
    pub bytes: u64,
    /// The number of rows that were dropped because another one had the same key.
    pub duplicates: u64,
    /// The number of rows that were skipped.
    pub bad_rows: u64,
    /// Some of these rows, with the reasons.
    pub bad_row_samples: Vec<String>,
    /// The number of partitions.
    pub partitions: u32,
    /// The number of chunks.
    pub chunks: u64,
    /// The size of the temporary files.
    pub spilled_bytes: u64,
    /// The checksum that identifies the version; `None` after a dry run.
    pub checksum: Option<String>,
    /// The size of the version; `None` after a dry run.
    pub files_bytes: Option<u64>,
    /// The size of its indexes; `None` after a dry run.
    pub index_bytes: Option<u64>,
    /// The time that reading took, in milliseconds.
    pub reading_ms: u64,
    /// The time that sorting and writing took, in milliseconds.
    pub writing_ms: u64,
    /// Of records that replace those of a version with other columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_change: Option<SchemaChange>,
    /// Of a graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<GraphResult>,
    /// Of a difference to another version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increment: Option<IncrementResult>,
}

/// The part of a build's result that only graphs have.
#[derive(Debug, Clone, Serialize)]
pub struct GraphResult {
    /// The number of vertices.
    pub vertices: u64,
    /// The number of vertices that the earlier version did not have.
    pub new_vertices: u64,
    /// The number of edges.
    pub edges: u64,
    /// The number of edges that were merged with an equal one.
    pub duplicate_edges: u64,
    /// The number of rows of vertices that were dropped because another one had the same name.
    pub duplicate_vertices: u64,
    /// The number of edges from a vertex to itself.
    pub self_loops: u64,
    /// The number of names that no file of vertices has.
    pub unknown_vertices: u64,
    /// The number of edges to such names that were skipped.
    pub skipped_edges: u64,
    /// The number of vertices of each label.
    pub labels: BTreeMap<String, u64>,
    /// The types of edges.
    pub types: BTreeMap<String, EdgeType>,
}

/// The part of a build's result that only differences to another version have.
#[derive(Debug, Clone, Serialize)]
pub struct IncrementResult {
    /// The number of keys that were deleted.
    pub deleted: u64,
    /// The number of keys that were to be deleted, and are not in the other version.
    pub absent: u64,
    /// The number of chunks that have changed.
    pub changed_chunks: u64,
    /// The size of the patches, in bytes.
    pub patch_bytes: u64,
}

impl From<&GraphReport> for GraphResult {
    fn from(report: &GraphReport) -> Self {
        Self {
            vertices: report.description.vertices,
            new_vertices: report.new_vertices,
            edges: report.edges,
            duplicate_edges: report.duplicate_edges,
            duplicate_vertices: report.duplicate_vertices,
            self_loops: report.self_loops,
            unknown_vertices: report.unknown_vertices,
            skipped_edges: report.skipped_edges,
            labels: report.description.labels.clone(),
            types: report.description.types.clone(),
        }
    }
}

impl From<&IncrementReport> for IncrementResult {
    fn from(report: &IncrementReport) -> Self {
        Self {
            deleted: report.deleted,
            absent: report.absent,
            changed_chunks: report.changed_chunks,
            patch_bytes: report.patch_bytes,
        }
    }
}

impl BuildResult {
    pub(crate) fn new(options: &BuildOptions, report: &BuildReport) -> Self {
        let manifest = report.manifest.as_ref();
        Self {
            store: options.store.to_string(),
            output: (!options.dry_run).then(|| options.output.to_string()),
            dry_run: options.dry_run,
            files: report.files,
            rows: report.rows,
            records: report.records,
            bytes: report.bytes,
            duplicates: report.duplicates,
            bad_rows: report.bad_rows,
            bad_row_samples: report.bad_row_samples.iter().map(ToString::to_string).collect(),
            partitions: report.partitions,
            chunks: report.chunks,
            spilled_bytes: report.spilled_bytes,
            checksum: manifest.map(|manifest| manifest.checksum().to_string()),
            files_bytes: manifest.map(|manifest| manifest.files_bytes()),
            index_bytes: manifest.map(Manifest::index_bytes),
            reading_ms: report.reading.as_millis() as u64,
            writing_ms: report.writing.as_millis() as u64,
            schema_change: None,
            graph: None,
            increment: None,
        }
    }

    /// Compares the columns with those of the version that this one replaces.
    fn compared(mut self, report: &BuildReport, replaced: Option<&Schema>) -> Self {
        let made = report.manifest.as_ref().zip(replaced);
        self.schema_change = made.and_then(|(made, from)| SchemaChange::between(from, &made.schema, made.value_type));
        self
    }

    /// Whether it is built from a difference to another version.
    pub fn is_difference(&self) -> bool {
        self.increment.is_some()
    }
}

/// Builds a version at the output of the options. With a base in `from`, the input is a difference to that, and `deletes` are
/// files, folders and globs with keys to delete.
///
/// Data that does not fit into memory is spread over many files: raise the limit of open files of the process first.
///
/// # Errors
/// The input or the options are invalid, the output cannot be written, or the job is cancelled: then nothing is kept.
pub fn build(
    options: &BuildOptions,
    rows: &Rows,
    deletes: &[String],
    from: Earlier<'_>,
    job: Job<'_>,
) -> Result<BuildResult, PushError> {
    let result = match (rows, from.base) {
        (Rows::Records, None) => {
            let report = watched(job, |progress| fondaco_builder::build(options, progress))?;
            BuildResult::new(options, &report).compared(&report, from.replaced)
        }
        (Rows::InMemory(rows), None) => {
            let rows = rows.take()?;
            let report = watched(job, |progress| build_batches(options, rows, progress))?;
            BuildResult::new(options, &report).compared(&report, from.replaced)
        }
        (Rows::Records | Rows::InMemory(_), Some(base)) => {
            let increment = IncrementOptions {
                build: options.clone(),
                base: base.to_owned(),
                deletes: deletes.to_owned(),
                has_final_values: from.has_final_values,
            };
            let rows = match rows {
                Rows::InMemory(rows) => Some(rows.take()?),
                _ => None,
            };
            let report = watched(job, |progress| match rows {
                Some(rows) => build_increment_batches(&increment, rows, progress),
                None => build_increment(&increment, progress),
            })?;
            BuildResult {
                increment: Some(IncrementResult::from(&report)),
                ..BuildResult::new(options, &report.build)
            }
        }
        (Rows::Edges(edges), _) => {
            let graph = edges.options(options.clone(), from.known);
            let report = watched(job, |progress| build_graph(&graph, progress))?;
            BuildResult {
                graph: Some(GraphResult::from(&report)),
                ..BuildResult::new(options, &report.build)
            }
        }
    };
    for bad in &result.bad_row_samples {
        job.note(Note::RowSkipped(bad));
    }
    Ok(result)
}

/// Runs a build in a thread of its own, reports its progress, and cancels it if the job is cancelled.
pub(crate) fn watched<R: Send>(
    job: Job<'_>,
    build: impl FnOnce(&fondaco_builder::Progress) -> Result<R, BuildError> + Send,
) -> Result<R, PushError> {
    let progress = fondaco_builder::Progress::new();
    thread::scope(|scope| {
        let building = thread::Builder::new()
            .name("build".into())
            .spawn_scoped(scope, || build(&progress))
            .map_err(|source| PushError::Damaged(format!("cannot start the thread that builds: {source}")))?;
        let step = job.step();
        while !building.is_finished() {
            if job.is_cancelled() {
                progress.cancel();
            }
            step.show(Progress::Building(&progress.snapshot()));
            thread::park_timeout(INTERVAL);
        }
        drop(step);
        match building.join() {
            Ok(report) => Ok(report?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Checks a number of partitions.
///
/// # Errors
/// It is not a number of partitions that a cluster can have.
pub fn partition_count(number: u32) -> Result<PartitionCount, PushError> {
    PartitionCount::try_from(number).map_err(|error| PushError::WrongOptions(error.to_string()))
}
