//! Makes a version of the files of all tasks.

use std::collections::BTreeSet;
use std::time::Duration;

use fondaco_format::{MANIFEST_FILE, Manifest, Schema, format_version, is_version_file};
use fondaco_storage::StorageError;

use super::error::TaskError;
use super::spec::Spec;
use super::write::Written;
use crate::build::built_now;
use crate::error::BuildError;
use crate::increment::IncrementReport;
use crate::input::schema_of;
use crate::options::BuildOptions;
use crate::output::write_dictionary;
use crate::report::BuildReport;

/// How many partitions an error names.
const PARTITIONS_NAMED_MAX: usize = 8;

/// A version that was committed.
#[derive(Debug)]
pub struct Committed {
    /// The options of its build.
    pub options: BuildOptions,
    /// The result, as that of any build.
    pub report: BuildReport,
    /// If the rows changed another version: the result as that of any such build.
    pub increment: Option<IncrementReport>,
}

/// Makes a version of the results of all tasks, each a line of JSON, in any order. Files of other attempts are deleted, and
/// the manifest is written last. A commit that was interrupted may be repeated.
///
/// # Errors
/// A partition is missing or there twice, a file is missing, or the storage fails.
pub fn commit(spec: &Spec, results: &str) -> Result<Committed, BuildError> {
    let (options, base) = spec.with_base(spec.options()?)?;
    let mut tasks = Vec::new();
    for (number, line) in results.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let task: Written = serde_json::from_str(line)
            .map_err(|error| TaskError::commit(format!("line {} is no result of a task: {error}", number + 1)))?;
        tasks.push(task);
    }
    check_partitions(&options, &tasks)?;
    tasks.sort_by_key(|task| task.partitions.first().copied());
    let sum = |of: fn(&Written) -> u64| tasks.iter().map(of).sum::<u64>();
    let records = sum(|task| task.records);
    if records == 0 && !options.allow_empty {
        return Err(BuildError::EmptyInput);
    }
    let mut chunks: Vec<_> = tasks.iter().flat_map(|task| task.chunks.iter().cloned()).collect();
    chunks.sort_by_key(|chunk| (chunk.partition, chunk.chunk));
    let mut patches: Vec<_> = tasks.iter().flat_map(|task| task.patches.iter().cloned()).collect();
    patches.sort_by_key(|patch| (patch.partition, patch.chunk));
    let of_base = base.iter().flat_map(|base| &base.manifest.value_schemas);
    let schema_ids = of_base
        .map(|schema| schema.id)
        .chain(options.declared.written_ids())
        .collect();
    let mut manifest = Manifest {
        format_version: format_version(),
        store: options.store.clone(),
        partitions: options.partitions,
        key_type: options.declared.key_type.clone(),
        value_type: options.declared.value_type,
        value_schemas: options.declared.value_schemas(&schema_ids),
        compression: options.compression,
        dictionary: None,
        records,
        base: base.as_ref().map(|base| base.identity),
        cut_unix_ms: options
            .cut_unix_ms
            .or(base.as_ref().and_then(|base| base.manifest.cut_unix_ms)),
        // Records of tasks have no times of their own: those of the base that have none get the later time.
        undated_unix_ms: base
            .as_ref()
            .and_then(|base| base.manifest.undated_unix_ms)
            .map(|undated_unix_ms| options.cut_unix_ms.unwrap_or(undated_unix_ms)),
        chunks,
        schema: schema(spec, &options, base.as_ref().map(|base| &base.manifest.schema)),
        patches,
        built: built_now(),
    };
    check_files(&options, &manifest)?;
    if let Some(dictionary) = &options.dictionary {
        let name = fondaco_format::dictionary_file_name(fondaco_format::Checksum::of(dictionary));
        options.output.delete_file(&name)?;
        manifest.dictionary = Some(write_dictionary(&options, dictionary)?);
    }
    let bytes = manifest.to_bytes();
    // Not to be found out by the first node that opens it.
    let (_, identity) = Manifest::identified(&bytes).map_err(|error| TaskError::commit(error.to_string()))?;
    match is_committed(&options, identity)? {
        true => {}
        false => {
            delete_others(&options, &manifest)?;
            options.output.write_atomically(MANIFEST_FILE, &bytes)?;
        }
    }
    let (patch_bytes, data_bytes) = (
        manifest.patches.iter().map(|patch| patch.patch.bytes).sum(),
        manifest.data_bytes(),
    );
    let populated: BTreeSet<_> = manifest.chunks.iter().map(|chunk| chunk.partition).collect();
    let report = BuildReport {
        files: 0,
        rows: sum(|task| task.rows),
        records,
        bytes: match base {
            Some(_) => data_bytes,
            None => sum(|task| task.bytes),
        },
        duplicates: sum(|task| task.duplicates),
        bad_rows: 0,
        bad_row_samples: Vec::new(),
        partitions: populated.len() as u32,
        chunks: manifest.chunks.len() as u64,
        spilled_bytes: 0,
        reading: Duration::ZERO,
        writing: Duration::ZERO,
        manifest: Some(manifest),
    };
    let increment = base.map(|_| IncrementReport {
        build: report.clone(),
        deleted: sum(|task| task.deleted),
        absent: sum(|task| task.absent),
        changed_chunks: sum(|task| task.changed_chunks),
        patch_bytes,
    });
    Ok(Committed {
        options,
        report,
        increment,
    })
}

/// Deletes the output of tasks, unless it is a version.
///
/// # Errors
/// It is a version, or the storage fails.
pub fn abort(spec: &Spec) -> Result<(), BuildError> {
    let output = spec.location()?;
    if output.exists(MANIFEST_FILE)? {
        let output = output.to_string();
        return Err(TaskError::CompleteVersion { output }.into());
    }
    let files = match output.list() {
        Ok(files) => files,
        Err(StorageError::NotFound { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if let Some(other) = files.iter().find(|file| !is_of_task(&file.name)) {
        let reason = format!(
            "{output:?} has the file {:?}, which no task wrote: delete it yourself",
            other.name
        );
        return Err(TaskError::commit(reason).into());
    }
    Ok(output.delete_tree()?)
}

/// The columns for the manifest.
fn schema(spec: &Spec, options: &BuildOptions, of_base: Option<&Schema>) -> Schema {
    match (of_base, &spec.schema) {
        (Some(schema), _) | (None, Some(schema)) => schema.clone(),
        (None, None) => schema_of(options, |_| String::from("unknown")),
    }
}

/// Each partition is in the result of exactly one task.
fn check_partitions(options: &BuildOptions, tasks: &[Written]) -> Result<(), BuildError> {
    let mut found = vec![0_u32; options.partitions.get() as usize];
    for task in tasks {
        for &partition in &task.partitions {
            let Some(count) = found.get_mut(partition as usize) else {
                let reason = format!(
                    "attempt {:?} has partition {partition} of {}",
                    task.attempt, options.partitions
                );
                return Err(TaskError::commit(reason).into());
            };
            *count += 1;
        }
        let others = task
            .chunks
            .iter()
            .find(|chunk| !task.partitions.contains(&chunk.partition.get()));
        if let Some(chunk) = others {
            let reason = format!(
                "attempt {:?} has a chunk of partition {}, which is not one of its own",
                task.attempt, chunk.partition
            );
            return Err(TaskError::commit(reason).into());
        }
    }
    let with = |wanted: fn(u32) -> bool| {
        let numbers: Vec<String> = found
            .iter()
            .enumerate()
            .filter(|(_, count)| wanted(**count))
            .map(|(partition, _)| partition.to_string())
            .collect();
        match numbers.len() {
            0 => None,
            1..=PARTITIONS_NAMED_MAX => Some(numbers.join(", ")),
            more => Some(format!(
                "{} and {} more",
                numbers[..PARTITIONS_NAMED_MAX].join(", "),
                more - PARTITIONS_NAMED_MAX
            )),
        }
    };
    if let Some(missing) = with(|count| count == 0) {
        let reason = format!(
            "no task has partition {missing}: a task writes each partition, also one without rows; pass on the result of each"
        );
        return Err(TaskError::commit(reason).into());
    }
    match with(|count| count > 1) {
        Some(twice) => {
            let reason =
                format!("several tasks have partition {twice}: pass on the result of one attempt of each task");
            Err(TaskError::commit(reason).into())
        }
        None => Ok(()),
    }
}

/// Each file of the tasks is in the output.
fn check_files(options: &BuildOptions, manifest: &Manifest) -> Result<(), BuildError> {
    let output = &options.output;
    let files = match output.list() {
        Err(StorageError::NotFound { .. }) => Vec::new(),
        files => files?,
    };
    for file in manifest.files_with_patches() {
        let place = files.binary_search_by(|found| found.name.cmp(&file.name));
        let found = place.ok().map(|place| files[place].bytes);
        if found != Some(file.bytes) {
            let reason = match found {
                Some(bytes) => format!("{:?} in {output:?} has {bytes} bytes, not {}", file.name, file.bytes),
                None => format!(
                    "{:?}, which a task wrote, is not in {output:?}: the output must be a place that all tasks and the commit share",
                    file.name
                ),
            };
            return Err(TaskError::commit(reason).into());
        }
    }
    Ok(())
}

/// Whether the output is this version already.
fn is_committed(options: &BuildOptions, identity: fondaco_format::Checksum) -> Result<bool, BuildError> {
    let output = &options.output;
    if !output.exists(MANIFEST_FILE)? {
        return Ok(false);
    }
    let bytes = output.read_whole(MANIFEST_FILE, crate::increment::MANIFEST_BYTES_MAX)?;
    match Manifest::identity(&bytes) {
        Ok(found) if found == identity => Ok(true),
        _ => Err(BuildError::OutputNotEmpty {
            output: output.to_string(),
            unfinished: false,
        }),
    }
}

/// Deletes what lost attempts left.
fn delete_others(options: &BuildOptions, manifest: &Manifest) -> Result<(), BuildError> {
    let kept: BTreeSet<&str> = manifest.files_with_patches().map(|file| &*file.name).collect();
    let files = match options.output.list() {
        Err(StorageError::NotFound { .. }) => Vec::new(),
        files => files?,
    };
    for file in files.iter().filter(|file| !kept.contains(&*file.name)) {
        options.output.delete_file(&file.name)?;
    }
    Ok(())
}

/// Whether a task can have written a file of this name.
fn is_of_task(name: &str) -> bool {
    is_version_file(name) || name.trim_start_matches('.').starts_with("attempt-")
}
