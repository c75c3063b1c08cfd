//! Builds a version from an earlier one, the *base*, and a difference: records to set and keys to delete.
//!
//! 1. *Reading*: the rows of the difference go into a sort, as those of any build.
//! 2. *Sorting*: the changes of each chunk go into a temporary file, in the form of a patch.
//! 3. *Counting*: partitions with changes are read once, since the sizes of their indexes depend on all their records.
//! 4. *Writing*: changed chunks are made from those of the base and the changes, as nodes make them; patches are put
//!    beside them; all other files are copied.
//!
//! The compression, its dictionary and the number of chunks of each partition stay. So the files are those that a build
//! of all records would write with the same dictionary and the same numbers of chunks, byte for byte.

mod base;
mod changes;
mod rewrite;

pub(crate) use base::{Base, MANIFEST_BYTES_MAX};
pub(crate) use changes::{Changes, Sorting};
pub(crate) use rewrite::{Rewriting, Rewritten};

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

use fondaco_format::{Compression, MANIFEST_FILE, Manifest, Schema};
use fondaco_model::{KeyType, PartitionId};
use fondaco_storage::Location;

use crate::build::{BegunOutput, built_now, check, check_common, check_output, check_rows};
use crate::declaration::Declaration;
use crate::error::BuildError;
use crate::input::{self, BadRows, Batches, InputFiles, RowKind, Source, or_panic};
use crate::memory::Memory;
use crate::options::{BuildOptions, OnDuplicate, ValueSelection};
use crate::output::write_dictionary;
use crate::progress::{Phase, Progress};
use crate::report::{BadRow, BuildReport};
use crate::sort::{Drain, SortOptions, Sorted, Sorter, Winner};

/// A build from an earlier version and a difference.
#[derive(Debug, Clone)]
pub struct IncrementOptions {
    /// The build. Its inputs, which may be none, are the records to set. Partitions, compression and type of values are
    /// those of the base, whatever is here.
    pub build: BuildOptions,
    /// The directory of the earlier version, with all its partitions.
    pub base: PathBuf,
    /// Files, folders and globs with keys to delete: only the columns of the key are read.
    pub deletes: Vec<String>,
    /// Whether the values of the difference are as those of the base, however those were made.
    pub has_final_values: bool,
}

/// The result of an incremental build.
#[derive(Debug, Clone)]
pub struct IncrementReport {
    /// The result as that of any build: rows and duplicates are those of the difference.
    pub build: BuildReport,
    /// How many keys of the base were deleted.
    pub deleted: u64,
    /// How many keys were to be deleted and were not in the base.
    pub absent: u64,
    /// How many chunks have other records than in the base.
    pub changed_chunks: u64,
    /// The length of all patches, in bytes.
    pub patch_bytes: u64,
}

/// Builds a version from an earlier one and a difference. A key that is set and deleted counts as a duplicate: files of
/// keys to delete come after the others.
///
/// # Errors
/// Every [`BuildError`].
pub fn build_increment(options: &IncrementOptions, progress: &Progress) -> Result<IncrementReport, BuildError> {
    build_of(options, None, progress)
}

/// Builds a version as [`build_increment`] does, from records to set that are in memory: the inputs of the build are ignored.
///
/// # Errors
/// Every [`BuildError`]. It names rows by their numbers.
pub fn build_increment_batches(
    options: &IncrementOptions,
    rows: Batches,
    progress: &Progress,
) -> Result<IncrementReport, BuildError> {
    build_of(options, Some(rows), progress)
}

fn build_of(
    options: &IncrementOptions,
    batches: Option<Batches>,
    progress: &Progress,
) -> Result<IncrementReport, BuildError> {
    let base = Base::open(
        &Location::local(&*options.base),
        &options.build.store,
        options.has_final_values,
    )?;
    let mut declared = base.declaration(&options.build.declared)?;
    if options.has_final_values {
        // Its keys are encoded, too.
        declared.key_type = KeyType::default();
    }
    let build = BuildOptions {
        partitions: base.manifest.partitions,
        declared,
        compression: base.manifest.compression,
        ..options.build.clone()
    };
    match build.inputs[..] {
        [] if batches.is_none() => check_common(&build)?,
        // Of any type, each in one column.
        _ if options.has_final_values => check(&BuildOptions {
            declared: Declaration::default(),
            ..build.clone()
        })?,
        _ => check(&build)?,
    }
    check_output(&build)?;
    let build = &BuildOptions {
        threads: Memory::of(&build).threads,
        ..build
    };
    let started = Instant::now();
    let read = read(options, build, batches, progress)?;
    let reading = started.elapsed();
    if let (Some(schema), false) = (&read.schema, options.has_final_values) {
        base.check_schema(schema)?;
    }

    let started = Instant::now();
    let (rows, spilled_bytes) = (read.records + read.bad_rows, read.sorted.spilled_bytes);
    progress.enter_sorting(Phase::Writing, read.records);
    let drain = Drain {
        positions: read.sorted.positions,
        winner: match build.on_duplicate {
            OnDuplicate::Fail => Winner::None,
            OnDuplicate::First => Winner::First,
            OnDuplicate::Last => Winner::Last,
        },
        share_bytes: read.sorted.layout.share_bytes,
        temporary: &build.temporary,
        files: &read.paths,
    };
    let changes = changes::sort_changes(build, &base, read.sorted, drain, read.first_deletion, progress)?;
    let duplicates = changes.duplicates;
    let partitions: Vec<PartitionId> = build.partitions.partitions().collect();
    let rewriting = Rewriting::plan(build, &base, &partitions, changes, progress)?;
    let mut report = IncrementReport {
        deleted: rewriting.deleted,
        absent: rewriting.absent,
        changed_chunks: 0,
        patch_bytes: 0,
        build: BuildReport {
            files: read.paths.len() as u64,
            rows,
            records: rewriting.records,
            bytes: 0,
            duplicates,
            bad_rows: read.bad_rows,
            bad_row_samples: read.bad_row_samples,
            partitions: rewriting.partitions,
            chunks: rewriting.chunks(),
            spilled_bytes,
            reading,
            writing: started.elapsed(),
            manifest: None,
        },
    };
    if !build.dry_run {
        let (manifest, changed) = write(build, &base, &rewriting, read.schema_ids, progress)?;
        report.changed_chunks = changed;
        report.patch_bytes = manifest.patches.iter().map(|patch| patch.patch.bytes).sum();
        report.build.bytes = manifest.data_bytes();
        report.build.manifest = Some(manifest);
    }
    report.build.writing = started.elapsed();
    progress.enter(Phase::Done);
    tracing::info!(
        store = %build.store,
        base = %base.identity,
        records = report.build.records,
        changed_chunks = report.changed_chunks,
        patch_bytes = report.patch_bytes,
        "built from a difference"
    );
    Ok(report)
}

/// The rows of the difference.
struct Read {
    sorted: Sorted,
    paths: Vec<PathBuf>,
    /// The number of the first file with keys to delete.
    first_deletion: u32,
    /// The columns of the records to set; `None` without such records.
    schema: Option<Schema>,
    /// The schemas of the records to set.
    schema_ids: BTreeSet<u16>,
    records: u64,
    bad_rows: u64,
    bad_row_samples: Vec<BadRow>,
}

fn read(
    options: &IncrementOptions,
    build: &BuildOptions,
    batches: Option<Batches>,
    progress: &Progress,
) -> Result<Read, BuildError> {
    let discover = |inputs: &[String]| match inputs {
        [] => Ok(InputFiles::default()),
        inputs => input::discover(inputs, build.format),
    };
    let sets = match batches {
        Some(_) => InputFiles::in_memory(),
        None => discover(&build.inputs)?,
    };
    let mut deletes = discover(&options.deletes)?;
    deletes.first = sets.paths.len() as u32;
    let bytes = sets.bytes + deletes.bytes;
    progress.bytes_total.store(bytes, Ordering::Relaxed);
    progress.enter(Phase::Reading);
    let memory = Memory::of(build);
    let sorter = Sorter::new(SortOptions {
        store: build.store.clone(),
        partitions: build.partitions,
        memory_bytes: memory.sort_bytes,
        threads: build.threads,
        temporary: build.temporary.clone(),
        keys_only: false,
    });
    let paths: Vec<PathBuf> = sets.paths.iter().chain(&deletes.paths).cloned().collect();
    let bad_rows = BadRows::new(build.bad_rows_max, paths.clone());
    let read = |kind: RowKind, value: &ValueSelection, files: &InputFiles, batches: Option<Batches>| {
        let without_samples = BuildOptions {
            compression: Compression::None,
            value: value.clone(),
            ..build.clone()
        };
        input::read(
            &without_samples,
            kind,
            Source { files, batches },
            &sorter,
            memory,
            &bad_rows,
            progress,
        )
    };
    let (mut tallies, mut schema, mut schema_ids) = (Vec::new(), None, BTreeSet::new());
    let kind = match options.has_final_values {
        true => RowKind::Stored,
        false => RowKind::Record,
    };
    if !sets.paths.is_empty() {
        let input = read(kind, &build.value, &sets, batches)?;
        schema_ids = match kind {
            RowKind::Stored => input.schema_ids,
            _ => build.declared.written_ids(),
        };
        tallies = input.tallies;
        let rows: u64 = tallies.iter().flatten().map(|tally| tally.records).sum();
        schema = (rows > 0).then_some(input.schema);
    }
    if !deletes.paths.is_empty() {
        let no_columns = ValueSelection::Columns(Vec::new());
        tallies.extend(read(RowKind::Deletion, &no_columns, &deletes, None)?.tallies);
    }
    let sorted = sorter.finish(tallies)?;
    let records = sorted.tallies.iter().map(|tally| tally.records).sum();
    let (bad_rows, samples) = bad_rows.into_found();
    Ok(Read {
        bad_row_samples: check_rows(build, records, bad_rows, samples)?,
        sorted,
        paths,
        first_deletion: deletes.first,
        schema,
        schema_ids,
        records,
        bad_rows,
    })
}

/// Writes the version. Returns its manifest, and how many chunks have other records.
fn write(
    options: &BuildOptions,
    base: &Base,
    rewriting: &Rewriting<'_>,
    mut schema_ids: BTreeSet<u16>,
    progress: &Progress,
) -> Result<(Manifest, u64), BuildError> {
    let begun = BegunOutput::begin(options, Some(base.manifest.files_bytes()))?;
    if let Some(dictionary) = &base.dictionary {
        write_dictionary(options, dictionary)?;
    }
    let Rewritten {
        chunks,
        patches,
        changed,
    } = rewriting.run("", progress)?;
    progress.enter(Phase::Finishing);
    progress.check()?;
    schema_ids.extend(base.manifest.value_schemas.iter().map(|schema| schema.id));
    let manifest = Manifest {
        value_schemas: options.declared.value_schemas(&schema_ids),
        records: rewriting.records,
        base: Some(base.identity),
        // Events that the earlier version did not contain count on top of this one, unless it says otherwise.
        cut_unix_ms: options.cut_unix_ms.or(base.manifest.cut_unix_ms),
        undated_unix_ms: match options.times {
            Some(times) => Some(times.undated_unix_ms),
            None => base.manifest.undated_unix_ms,
        },
        chunks,
        patches,
        built: built_now(),
        ..base.manifest.clone()
    };
    options.output.write_atomically(MANIFEST_FILE, &manifest.to_bytes())?;
    begun.keep();
    Ok((manifest, changed))
}

/// Does a piece of work for each number, in some threads, each with a state of its own. Returns the results in order.
fn each<S, R: Send>(
    threads: usize,
    count: usize,
    begin: impl Fn() -> Result<S, BuildError> + Sync,
    work: impl Fn(usize, &mut S) -> Result<R, BuildError> + Sync,
) -> Result<Vec<R>, BuildError> {
    let next = AtomicUsize::new(0);
    let run = || {
        let (mut state, mut done) = (begin()?, Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(done);
            }
            let result = work(number, &mut state);
            if result.is_err() {
                next.store(count, Ordering::Relaxed);
            }
            done.push((number, result?));
        }
    };
    let results: Vec<Result<_, BuildError>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(count)).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(ScopedJoinHandle::join).map(or_panic).collect()
    });
    let mut done = Vec::with_capacity(count);
    for result in results {
        done.extend(result?);
    }
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
