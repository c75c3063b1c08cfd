//! One build from start to end.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fondaco_format::{Built, Compression, MANIFEST_FILE, Manifest, Schema, format_version, train_dictionary};
use fondaco_model::versioned::TIME_UNIX_MS_MAX;
use fondaco_storage::Location;

use crate::declaration::Fault;
use crate::error::BuildError;
use crate::input::{self, BadRows, Batches, InputFiles, RowKind, Source};
use crate::memory::Memory;
use crate::options::{BuildOptions, OnDuplicate, ValueSelection};
use crate::output::{self, Written};
use crate::progress::{Phase, Progress};
use crate::report::{BadRow, BuildReport};
use crate::sort::{Drain, MEMORY_BYTES_MIN, SortOptions, Sorted, Sorter, Winner};

/// Builds a version.
///
/// It blocks until the version is complete and durable; another thread may watch or cancel it through `progress`. After
/// an error, all written files are deleted.
///
/// # Errors
/// Every [`BuildError`].
pub fn build(options: &BuildOptions, progress: &Progress) -> Result<BuildReport, BuildError> {
    check(options)?;
    build_rows(
        options,
        input::discover(&options.inputs, options.format)?,
        None,
        progress,
    )
}

/// Builds a version of rows in memory, as [`build`] does of those of files: the inputs of the options are ignored. Columns
/// are found by their names.
///
/// # Errors
/// Every [`BuildError`]. It names rows by their numbers.
pub fn build_batches(options: &BuildOptions, rows: Batches, progress: &Progress) -> Result<BuildReport, BuildError> {
    check(options)?;
    build_rows(options, InputFiles::in_memory(), Some(rows), progress)
}

fn build_rows(
    options: &BuildOptions,
    files: InputFiles,
    batches: Option<Batches>,
    progress: &Progress,
) -> Result<BuildReport, BuildError> {
    progress
        .bytes_total
        .store(files.bytes, std::sync::atomic::Ordering::Relaxed);
    check_output(options)?;
    check_space_for(options, &files)?;

    progress.enter(Phase::Reading);
    let started = Instant::now();
    let memory = Memory::of(options);
    let options = &BuildOptions {
        threads: memory.threads,
        ..options.clone()
    };
    let sorter = Sorter::new(SortOptions {
        store: options.store.clone(),
        partitions: options.partitions,
        memory_bytes: memory.sort_bytes,
        threads: options.threads,
        temporary: options.temporary.clone(),
        keys_only: options.dry_run,
    });
    let bad_rows = BadRows::new(options.bad_rows_max, files.paths.clone());
    let source = Source { files: &files, batches };
    let input = input::read(options, RowKind::Record, source, &sorter, memory, &bad_rows, progress)?;
    let sorted = sorter.finish(input.tallies)?;
    let (bad_rows, bad_row_samples) = bad_rows.into_found();
    let records_read: u64 = sorted.tallies.iter().map(|tally| tally.records).sum();
    let bad_row_samples = check_rows(options, records_read, bad_rows, bad_row_samples)?;
    let reading = started.elapsed();

    progress.enter_sorting(Phase::Writing, records_read);
    let started = Instant::now();
    let mut report = BuildReport {
        files: files.paths.len() as u64,
        rows: records_read + bad_rows,
        records: 0,
        bytes: 0,
        duplicates: 0,
        bad_rows,
        bad_row_samples,
        partitions: sorted.tallies.iter().filter(|tally| tally.records > 0).count() as u32,
        chunks: 0,
        spilled_bytes: sorted.spilled_bytes,
        reading,
        writing: started.elapsed(),
        manifest: None,
    };
    let drain = Drain {
        positions: sorted.positions,
        winner: match options.on_duplicate {
            OnDuplicate::Fail => Winner::None,
            OnDuplicate::First => Winner::First,
            OnDuplicate::Last => Winner::Last,
        },
        share_bytes: sorted.layout.share_bytes,
        temporary: &options.temporary,
        files: &files.paths,
    };
    let written = match options.dry_run {
        true => output::write(options, sorted, drain, None, progress)?,
        false => {
            let (written, manifest) = write_version(options, &input.samples, input.schema, sorted, drain, progress)?;
            report.manifest = Some(manifest);
            written
        }
    };
    report.records = written.records;
    report.bytes = written.bytes;
    report.duplicates = written.duplicates;
    report.chunks = written.chunks;
    report.writing = started.elapsed();
    progress.enter(Phase::Done);
    tracing::info!(
        store = %options.store,
        records = report.records,
        bytes = report.bytes,
        spilled_bytes = report.spilled_bytes,
        reading_ms = report.reading.as_millis() as u64,
        writing_ms = report.writing.as_millis() as u64,
        "built"
    );
    Ok(report)
}

/// Refuses an input without a good row, unless that makes an empty version; otherwise the samples of bad rows.
pub(crate) fn check_rows(
    options: &BuildOptions,
    records: u64,
    bad_rows: u64,
    samples: Vec<BadRow>,
) -> Result<Vec<BadRow>, BuildError> {
    match (records, bad_rows) {
        (0, 0) if !options.allow_empty => Err(BuildError::EmptyInput),
        (0, count) if !options.allow_empty => Err(BuildError::BadRows {
            count,
            max: options.bad_rows_max,
            samples,
        }),
        _ => Ok(samples),
    }
}

/// Writes the files of a version, the manifest last.
pub(crate) fn write_version(
    options: &BuildOptions,
    samples: &[Vec<u8>],
    schema: Schema,
    sorted: Sorted,
    drain: Drain<'_>,
    progress: &Progress,
) -> Result<(Written, Manifest), BuildError> {
    let needed_bytes = (options.compression == Compression::None && options.on_duplicate == OnDuplicate::Fail)
        .then(|| sorted.tallies.iter().map(|tally| tally.bytes()).sum());
    let begun = BegunOutput::begin(options, needed_bytes)?;
    let dictionary = match (options.compression, &options.dictionary) {
        (Compression::Zstd, Some(given)) => Some(given.to_vec()),
        (Compression::Zstd, None) => train_dictionary(samples).map_err(|source| BuildError::Chunk {
            output: options.output.to_string(),
            source,
        })?,
        _ => None,
    };
    let dictionary_entry = match &dictionary {
        Some(dictionary) => Some(output::write_dictionary(options, dictionary)?),
        None => None,
    };
    let mut written = output::write(options, sorted, drain, dictionary.as_deref(), progress)?;
    progress.enter(Phase::Finishing);
    progress.check()?;
    let manifest = Manifest {
        format_version: format_version(),
        store: options.store.clone(),
        partitions: options.partitions,
        key_type: options.declared.key_type.clone(),
        value_type: options.declared.value_type,
        value_schemas: options.declared.value_schemas(&options.declared.written_ids()),
        compression: options.compression,
        dictionary: dictionary_entry,
        records: written.records,
        base: None,
        cut_unix_ms: options.cut_unix_ms,
        undated_unix_ms: None,
        chunks: std::mem::take(&mut written.entries),
        schema,
        patches: Vec::new(),
        built: built_now(),
    };
    options.output.write_atomically(MANIFEST_FILE, &manifest.to_bytes())?;
    begun.keep();
    Ok((written, manifest))
}

/// The circumstances of a build that ends now.
pub(crate) fn built_now() -> Built {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Built {
        created_unix_ms: since.map_or(0, |since| since.as_millis() as u64),
        built_by: concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).to_owned(),
    }
}

/// The error for an invalid option.
fn invalid(option: &'static str, value: &dyn std::fmt::Debug, reason: &'static str) -> Result<(), BuildError> {
    Err(BuildError::InvalidOption {
        option,
        value: format!("{value:?}"),
        reason,
    })
}

/// The error for a fault of the [declaration](crate::Declaration).
fn refuse(fault: Option<Fault>) -> Result<(), BuildError> {
    match fault {
        None => Ok(()),
        Some(Fault { option, value, reason }) => Err(BuildError::InvalidOption { option, value, reason }),
    }
}

pub(crate) fn check(options: &BuildOptions) -> Result<(), BuildError> {
    refuse(options.declared.fault(&options.value))?;
    if matches!(&options.value, ValueSelection::Columns(names) if names.is_empty()) {
        return invalid("value columns", &"", "name at least one");
    }
    if !options.reading.exclude.is_empty() && options.value != ValueSelection::AllOthers {
        return invalid(
            "columns to exclude",
            &options.reading.exclude,
            "they are left out of a value of all columns: leave out --value and --values",
        );
    }
    check_common(options)
}

/// Checks what versions of all types of values need.
pub(crate) fn check_common(options: &BuildOptions) -> Result<(), BuildError> {
    if options.threads == 0 || options.threads > 1024 {
        return invalid("threads", &options.threads, "use 1 to 1024");
    }
    if options.memory_bytes < MEMORY_BYTES_MIN {
        return invalid("memory", &options.memory_bytes, "use at least 1 MiB");
    }
    if options.chunk_bytes_target == 0 || options.chunk_bytes_target > BuildOptions::CHUNK_BYTES_TARGET_MAX {
        return invalid("chunk size", &options.chunk_bytes_target, "use 1 byte to 2 GiB");
    }
    let each_once = |names: &[String]| {
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort();
        sorted.windows(2).all(|pair| pair[0] != pair[1])
    };
    if options.key.is_empty() || !each_once(&options.key) {
        return invalid("key columns", &options.key, "name at least one, and each once");
    }
    refuse(options.declared.fault_of_key(&options.key))?;
    if let ValueSelection::Columns(names) = &options.value
        && !each_once(names)
    {
        return invalid("value columns", names, "name each once");
    }
    if let Some(cut) = options.cut_unix_ms.filter(|cut| *cut > TIME_UNIX_MS_MAX) {
        return invalid(
            "cut",
            &cut,
            "use a time before the year 10000, in milliseconds since 1970",
        );
    }
    if let Some(delimiter) = options.delimiter
        && (!delimiter.is_ascii() || matches!(delimiter, b'"' | b'\r' | b'\n'))
    {
        return invalid(
            "delimiter",
            &char::from(delimiter),
            "use one ASCII character except a quote or a line break",
        );
    }
    if options.dictionary.is_some() && options.compression != Compression::Zstd {
        return invalid(
            "dictionary",
            &options.compression.to_string(),
            "only zstd has a dictionary: use --compress zstd, or leave it out",
        );
    }
    if !options.temporary.is_dir() {
        return invalid("temporary directory", &options.temporary, "it must exist");
    }
    Ok(())
}

pub(crate) fn check_output(options: &BuildOptions) -> Result<(), BuildError> {
    let output = &options.output;
    if output.is_vacant()? {
        return Ok(());
    }
    // A directory that cannot be listed is not empty all the same.
    let files = output.list().unwrap_or_default();
    let unfinished =
        files.iter().any(|file| file.name.ends_with(".data")) && files.iter().all(|file| file.name != MANIFEST_FILE);
    Err(BuildError::OutputNotEmpty {
        output: output.to_string(),
        unfinished,
    })
}

/// A check before anything is read. If all columns are kept uncompressed, the output is hardly smaller than the
/// input, and the part that does not fit into memory goes through temporary files.
fn check_space_for(options: &BuildOptions, files: &InputFiles) -> Result<(), BuildError> {
    if options.value != ValueSelection::AllOthers || options.compression != Compression::None || options.dry_run {
        return Ok(());
    }
    check_space(
        &Location::local(&options.temporary),
        files.bytes.saturating_sub(options.memory_bytes),
    )?;
    check_space(&options.output, files.bytes)
}

fn check_space(place: &Location, needed_bytes: u64) -> Result<(), BuildError> {
    match place.free_bytes()? {
        Some(free_bytes) if free_bytes < needed_bytes => Err(BuildError::NotEnoughSpace {
            place: place.to_string(),
            free_bytes,
            needed_bytes,
        }),
        _ => Ok(()),
    }
}

/// An output directory without a manifest, deleted on drop unless it is kept.
pub(crate) struct BegunOutput<'a> {
    output: &'a Location,
    existed: bool,
    kept: bool,
}

impl<'a> BegunOutput<'a> {
    /// Makes the directory, if there is enough space for the known amount of data.
    pub(crate) fn begin(options: &'a BuildOptions, needed_bytes: Option<u64>) -> Result<Self, BuildError> {
        if let Some(needed_bytes) = needed_bytes {
            check_space(&options.output, needed_bytes)?;
        }
        // Reading may have taken hours, in which another build may have used the directory.
        check_output(options)?;
        let output = &options.output;
        let existed = output.local_path().is_some_and(std::path::Path::exists);
        output.create_directory()?;
        Ok(Self {
            output,
            existed,
            kept: false,
        })
    }

    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for BegunOutput<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let deleted = self.output.delete_tree();
        let restored = if self.existed {
            self.output.create_directory()
        } else {
            Ok(())
        };
        if let Err(e) = deleted.and(restored) {
            tracing::warn!(output = %self.output, error = %e, "cannot delete the files of a failed build");
        }
    }
}
