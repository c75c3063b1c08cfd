//! `fondaco build`: from input files to a version in a directory.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fondaco_builder::task::read_dictionary;
use fondaco_builder::{BuildOptions, InputFormat, KnownIds, OnDuplicate, ValueSelection};
use fondaco_format::{Compression, Manifest};
use fondaco_model::{PartitionCount, StoreName, ValueType};
use fondaco_push::{BuildResult, BuiltIds, Earlier, IncrementResult, partition_count};
use fondaco_storage::Location;

use super::WrongUsage;
use super::declaration_options::DeclarationOptions;
use super::graph_input::{self, GraphInput};
use super::push_progress::with_job;
use super::read_options::ReadOptions;
use crate::output::{self, Output};
use crate::progress::rate;

/// The default number of partitions.
pub const PARTITIONS_DEFAULT: u32 = 16;

/// With fewer rows, throughput measures only the start-up time of the program.
const FIGURES_ROWS_MIN: u64 = 10_000;

/// Options that `build` and `push` share: the input, and how to build it.
#[derive(Debug, Args)]
pub struct InputOptions {
    /// The store that the version is for
    pub store: StoreName,

    /// Files, folders and globs, or - for standard input; in folders, names that begin with _ or . are skipped
    #[arg(required_unless_present = "delete", value_name = "INPUT")]
    pub inputs: Vec<String>,

    /// Files, folders and globs with keys to delete: only the columns of --key are read
    #[arg(long, value_name = "INPUT", requires = "incremental")]
    pub delete: Vec<String>,

    /// The column with the key; several columns are the parts of a tuple, or else are joined as text with ":"; a.b is member b of column a
    #[arg(
        long,
        value_name = "COLUMN,…",
        value_delimiter = ',',
        required_unless_present = "edges"
    )]
    pub key: Vec<String>,

    /// The column whose content is the value, unchanged
    #[arg(long, value_name = "COLUMN", conflicts_with = "values")]
    pub value: Option<String>,

    /// The columns that make up the value, as a JSON object; the default is all columns except the key
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub values: Option<Vec<String>>,

    /// The type of values: bytes; string, integer, json or messagepack; avro or protobuf, records of a schema; or ids, lists of numbers
    /// such as 5,1,9 or [5, 1, 9], which become sorted sets; push takes that of the store
    #[arg(long, value_name = "TYPE")]
    pub value_type: Option<ValueType>,

    #[command(flatten)]
    pub declared: DeclarationOptions,

    /// The format of the input: parquet, avro, jsonl, csv or arrow; the default follows the file names
    #[arg(long)]
    pub format: Option<InputFormat>,

    /// The field separator of CSV, for instance ';' or '\t'; the default is a tab in .tsv files and a comma in others
    #[arg(long, value_name = "CHARACTER", value_parser = parse_delimiter)]
    pub delimiter: Option<u8>,

    #[command(flatten)]
    pub reading: ReadOptions,

    #[command(flatten)]
    pub graph: GraphInput,

    /// Of a hybrid store: the version contains all events up to this time, and later ones count on top of it. A time
    /// such as 2026-11-26T08:00:00Z, or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = unix_ms)]
    pub as_of: Option<u64>,

    /// The reaction to rows with the same key: fail, or keep the first or the last
    #[arg(long, default_value = "fail", value_name = "fail|first|last")]
    pub on_duplicate: OnDuplicate,

    /// How many bad rows to skip before giving up
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub max_bad_rows: u64,

    /// Allow an input without rows, which gives an empty version
    #[arg(long)]
    pub allow_empty: bool,

    /// How to compress values
    #[arg(long, default_value = "none", value_name = "none|lz4|zstd")]
    pub compress: Compression,

    /// The dictionary of zstd: a file dictionary-….zstd of a version, as a path or a URL; the default is made of a sample
    #[arg(long, value_name = "FILE")]
    pub dictionary: Option<String>,

    /// How much memory to use, for instance 512MiB or 4GiB; the process takes up to 256MiB more
    #[arg(long, default_value = "1GiB", value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: u64,

    /// The number of threads; the default is one per core
    #[arg(long, value_name = "COUNT")]
    pub threads: Option<usize>,

    /// The maximum size of a chunk
    #[arg(long, default_value = "1GiB", value_name = "BYTES", value_parser = parse_bytes)]
    pub chunk_size: u64,

    /// The directory for temporary files
    #[arg(long, value_name = "DIRECTORY", env = "TMPDIR")]
    pub work: Option<PathBuf>,

    /// Check the whole input, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

impl InputOptions {
    /// The options of the build. Without a location, which a push chooses itself, it is that of a dry run.
    pub fn build_options(
        &self,
        partitions: PartitionCount,
        location: Option<&Location>,
    ) -> anyhow::Result<BuildOptions> {
        let is_graph = self.graph.edges.is_some();
        let other_type = self.value_type.filter(|value_type| *value_type != ValueType::Graph);
        if let (true, Some(other)) = (is_graph, other_type) {
            let usage = format!("--edges builds a graph, and the type of values is {other}: leave out --value-type");
            return Err(WrongUsage(usage).into());
        }
        let work = self.work.clone().unwrap_or_else(std::env::temp_dir);
        Ok(BuildOptions {
            store: self.store.clone(),
            inputs: self.inputs.clone(),
            format: self.format,
            delimiter: self.delimiter,
            reading: self.reading.options(),
            key: self.key.clone(),
            value: match (&self.value, &self.values) {
                (Some(column), _) => ValueSelection::Column(column.clone()),
                (None, Some(columns)) => ValueSelection::Columns(columns.clone()),
                (None, None) if is_graph => ValueSelection::Columns(Vec::new()),
                (None, None) => ValueSelection::AllOthers,
            },
            declared: self.declared.declaration(self.value_type)?,
            on_duplicate: self.on_duplicate,
            bad_rows_max: self.max_bad_rows,
            allow_empty: self.allow_empty,
            memory_bytes: self.memory,
            threads: self.threads.unwrap_or_else(threads_default),
            partitions,
            cut_unix_ms: self.as_of,
            times: None,
            compression: self.compress,
            chunk_bytes_target: self.chunk_size,
            // A dry run uses the directory only to check that it is empty. A path below a file is always empty.
            output: location
                .cloned()
                .unwrap_or_else(|| Location::local(work.join("fondaco-dry-run"))),
            temporary: work,
            dry_run: self.dry_run,
            dictionary: self.dictionary.as_deref().map(read_dictionary).transpose()?,
        })
    }
}

/// `fondaco build`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco build pymk 'connections/*.parquet' --key member --value candidates --output /data/pymk-1
  fondaco deploy pymk /data/pymk-1
  fondaco build pymk changed.parquet --delete gone.csv --key member --value candidates \\
    --base /data/pymk-1 --output /data/pymk-2
  fondaco build users users.parquet --key id --value-type avro --schema user.avsc --schema-id 1 --output /data/users-1
  fondaco build social KNOWS=knows.csv --edges from,to --symmetric --output /data/social-1
  zcat rows.tsv.gz | fondaco build pymk - --format csv --delimiter '\\t' --key country,id --output /data/pymk-2")]
pub struct BuildCommandOptions {
    #[command(flatten)]
    pub input: InputOptions,

    /// The destination: a directory that is empty or missing, as a path or a file:// URL
    #[arg(long, value_name = "URL", required_unless_present = "dry_run")]
    pub output: Option<Location>,

    /// The number of partitions of the cluster that will serve the version, as fondaco status shows it
    #[arg(long, env = "FONDACO_PARTITIONS", default_value_t = PARTITIONS_DEFAULT, value_name = "COUNT")]
    pub partitions: u32,

    /// The version to change, in a directory: the input is a difference to it, and compression, dictionary and the numbers
    /// of partitions and chunks stay. push takes it from the cluster, with --incremental
    #[arg(
        id = "incremental",
        long = "base",
        value_name = "DIRECTORY",
        conflicts_with_all = ["edges", "compress", "dictionary", "chunk_size", "value_type", "key_type"]
    )]
    pub base: Option<PathBuf>,

    /// The last built version of the graph: its vertices keep their ids. push takes them from the cluster
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "key", help_heading = "Graphs")]
    pub ids_of: Option<PathBuf>,
}

/// Runs `fondaco build`.
pub fn build(mut options: BuildCommandOptions, output: &Output) -> anyhow::Result<()> {
    if let Some(base) = options.base.as_ref().filter(|_| options.input.declared.has_schema()) {
        options.input.value_type = Some(Manifest::read(base)?.value_type);
    }
    let partitions = partition_count(options.partitions)?;
    let (input, location) = (&options.input, &options.output);
    let build = input.build_options(partitions, location.as_ref())?;
    let known = options.ids_of.as_deref().map(BuiltIds::open).transpose()?;
    let from = Earlier {
        known: known.as_ref().map(|known| known as &dyn KnownIds),
        base: options.base.as_deref(),
        ..Earlier::default()
    };
    prepare_build(build.threads);
    let result = with_job(output, |job| {
        fondaco_push::build(&build, &input.graph.rows(), &input.delete, from, job)
    })?;
    output.result(&result, |result| {
        let mut text = text(result);
        if let Some(location) = &location {
            text.push_str(&format!("next: fondaco deploy {} {location}\n", result.store));
        }
        text
    })
}

/// A thread per core.
pub fn threads_default() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// With up to this many threads, a build keeps freed memory within a phase. With 16 it would exceed its memory limit (measured: 1304 MiB
/// at `--memory 1GiB`, where 1280 are allowed; with 8 it took 1243).
const KEEPING_THREADS_MAX: usize = 8;

/// Sets the limits of a process that builds with this many threads.
pub fn prepare_build(threads: usize) {
    if threads > KEEPING_THREADS_MAX {
        return prepare_process();
    }
    fondaco_builder::call_before_sorting(crate::allocator::return_freed_memory);
    fondaco_os::process::raise_open_files_limit();
}

/// Sets the limits of other processes that sort.
pub fn prepare_process() {
    crate::allocator::always_return_freed_memory();
    // Data that does not fit into memory is spread over many files.
    fondaco_os::process::raise_open_files_limit();
}

/// A time as RFC 3339 or as milliseconds since 1970.
pub(super) fn unix_ms(text: &str) -> Result<u64, String> {
    if let Ok(ms) = text.parse() {
        return Ok(ms);
    }
    let time = humantime::parse_rfc3339_weak(text).map_err(|error| error.to_string())?;
    let since = time
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(|error| error.to_string())?;
    Ok(since.as_millis() as u64)
}

/// The result of a build, as text.
pub fn text(result: &BuildResult) -> String {
    let time = Duration::from_millis(result.reading_ms + result.writing_ms);
    let figures = result.rows >= FIGURES_ROWS_MIN;
    let mut text = format!(
        "{} {} records{} of {} rows in {} file(s), {} of {}, in {}{}\n",
        if result.dry_run { "checked:" } else { "built:" },
        output::count(result.records),
        result.increment.as_ref().map_or("", |_| " of an earlier version and"),
        output::count(result.rows),
        output::count(result.files),
        output::bytes(result.bytes),
        result.increment.as_ref().map_or("keys and values", |_| "data"),
        output::duration(time),
        match figures {
            true => format!(" ({} rows/s)", output::count(rate(result.rows, time))),
            false => String::new(),
        },
    );
    if let Some(increment) = &result.increment {
        text.push_str(&increment_text(increment, result.chunks));
    }
    if let Some(change) = &result.schema_change {
        text.push_str(&format!("columns changed: {change}\n"));
    }
    if let Some(graph) = &result.graph {
        text.push_str(&graph_input::text(graph));
    } else if result.duplicates > 0 {
        text.push_str(&format!("dropped: {} duplicates\n", output::count(result.duplicates)));
    }
    if result.bad_rows > 0 {
        text.push_str(&format!("skipped: {} bad rows\n", output::count(result.bad_rows)));
    }
    if let (Some(files_bytes), Some(index_bytes)) = (result.files_bytes, result.index_bytes) {
        text.push_str(&format!(
            "version: {} in {} chunks, with indexes of {}{}\n",
            output::bytes(files_bytes),
            output::count(result.chunks),
            output::bytes(index_bytes),
            match figures {
                true => format!(
                    " ({:.2} bytes a key)",
                    index_bytes as f64 / result.records.max(1) as f64
                ),
                false => String::new(),
            },
        ));
    }
    text
}

/// The part of the text that only differences have, of a version with this number of chunks.
fn increment_text(increment: &IncrementResult, chunks: u64) -> String {
    let absent = match increment.absent {
        0 => String::new(),
        absent => format!(" ({} not found)", output::count(absent)),
    };
    format!(
        "changed: {} of {} chunks, with patches of {}; deleted: {} keys{absent}\n",
        output::count(increment.changed_chunks),
        output::count(chunks),
        output::bytes(increment.patch_bytes),
        output::count(increment.deleted)
    )
}

/// Parses a delimiter of CSV: a character, or `\t`.
fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\r' | b'\n') => Ok(*byte),
        _ => Err("use one character except a quote, for instance ';', or '\\t' for a tab".to_owned()),
    }
}

/// Parses a size in bytes: `1048576`, `512KiB`, `1.5GiB`, `1GB`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = text[digits.len()..].trim();
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("unknown unit {unit:?}: use KiB, MiB, GiB or TiB")),
    };
    let invalid = || "use a number of bytes, for instance 512MiB".to_owned();
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(invalid);
    }
    let number: f64 = digits.parse().map_err(|_| invalid())?;
    let bytes = number * scale as f64;
    match (0.0..u64::MAX as f64).contains(&bytes) {
        true => Ok(bytes as u64),
        false => Err(invalid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delimiter_is_one_character() {
        for (text, delimiter) in [(";", b';'), ("\\t", b'\t'), ("\t", b'\t'), ("|", b'|')] {
            assert_eq!(parse_delimiter(text), Ok(delimiter));
        }
        for text in ["", ";;", "\"", "\n", "ä", "\\n"] {
            assert!(parse_delimiter(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_in_bytes_have_units() {
        assert_eq!(parse_bytes("1048576"), Ok(1 << 20));
        assert_eq!(parse_bytes("512MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("2gb"), Ok(2_000_000_000));
        for text in ["", "x", "-1", "1 XB", "1e400", "99999999TiB", "NaN"] {
            assert!(parse_bytes(text).is_err(), "{text:?}");
        }
    }
}
