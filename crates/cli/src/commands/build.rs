//! `fondaco build`: from input files to a version in a directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use fondaco_builder::{
    BuildError, BuildOptions, BuildReport, GraphReport, IncrementOptions, InputFormat, KnownIds, OnDuplicate, Phase,
    Progress, ValueSelection,
};
use fondaco_format::{Compression, Manifest};
use fondaco_model::{PartitionCount, StoreName, ValueType};
use fondaco_storage::Location;
use serde::Serialize;

use super::graph_ids::BuiltIds;
use super::graph_input::{GraphInput, GraphResult};
use super::increment::IncrementResult;
use super::read_options::ReadOptions;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Display, INTERVAL, rate};

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

    /// The column with the key; several columns are joined as text with ":"; a.b is member b of column a
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

    /// The type of values: bytes; or ids, lists of numbers such as 5,1,9 or [5, 1, 9], which become sorted sets; push takes
    /// that of the store
    #[arg(long, value_name = "TYPE")]
    pub value_type: Option<ValueType>,

    /// The format of the input: parquet, avro, jsonl or csv; the default follows the file names
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

    /// What to do about rows with the same key: fail, or keep the first or the last
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
    /// The type of values that the options ask for; `None` if they leave it open.
    pub fn wanted_type(&self) -> Option<ValueType> {
        match self.graph.edges {
            Some(_) => Some(ValueType::Graph),
            None => self.value_type,
        }
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
        conflicts_with_all = ["edges", "compress", "chunk_size", "value_type"]
    )]
    pub base: Option<PathBuf>,

    /// The last built version of the graph: its vertices keep their ids. push takes them from the cluster
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "key", help_heading = "Graphs")]
    pub ids_of: Option<PathBuf>,
}

/// The result of a build, as JSON.
#[derive(Debug, Serialize)]
pub struct BuildResult {
    store: String,
    output: Option<String>,
    dry_run: bool,
    files: u64,
    rows: u64,
    records: u64,
    bytes: u64,
    duplicates: u64,
    bad_rows: u64,
    bad_row_samples: Vec<String>,
    partitions: u32,
    chunks: u64,
    spilled_bytes: u64,
    files_bytes: Option<u64>,
    index_bytes: Option<u64>,
    reading_ms: u64,
    writing_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<GraphResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    increment: Option<IncrementResult>,
}

/// Runs `fondaco build`.
pub fn build(options: BuildCommandOptions, output: &Output) -> anyhow::Result<()> {
    let partitions = partition_count(options.partitions)?;
    let interrupt = Interrupt::listen()?;
    let location = options.output;
    let known = options.ids_of.as_deref().map(BuiltIds::open).transpose()?;
    let from = Earlier {
        known: known.as_ref().map(|known| known as &dyn KnownIds),
        base: options.base.as_deref(),
        has_final_values: false,
    };
    let result = run(&options.input, partitions, from, location.as_ref(), &interrupt, output)?;
    output.result(&result, |result| {
        let mut text = result.text();
        if let Some(location) = &location {
            text.push_str(&format!("next: fondaco deploy {} {location}\n", result.store));
        }
        text
    })
}

/// The earlier version that a build goes on from.
#[derive(Clone, Copy, Default)]
pub struct Earlier<'a> {
    /// Of a graph: vertices keep these ids.
    pub known: Option<&'a dyn KnownIds>,
    /// The version that the input is a difference to.
    pub base: Option<&'a Path>,
    /// Whether values of the difference are as those of that version, however those were made.
    pub has_final_values: bool,
}

/// Builds a version at `location`, which may be `None` for a dry run, and shows progress.
pub fn run(
    options: &InputOptions,
    partitions: PartitionCount,
    from: Earlier<'_>,
    location: Option<&Location>,
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<BuildResult> {
    let build = build_options(options, partitions, location)?;
    crate::allocator::return_freed_memory();
    // Data that does not fit into memory is spread over many files.
    fondaco_os::process::raise_open_files_limit();
    let progress = Progress::new();
    let mut increment = None;
    let (report, graph) = match (&options.graph.edges, from.base) {
        (None, None) => (
            watched(&progress, interrupt, output, || {
                fondaco_builder::build(&build, &progress)
            })?,
            None,
        ),
        (None, Some(base)) => {
            let options = IncrementOptions {
                build: build.clone(),
                base: base.to_owned(),
                deletes: options.delete.clone(),
                has_final_values: from.has_final_values,
            };
            let report = watched(&progress, interrupt, output, || {
                fondaco_builder::build_increment(&options, &progress)
            })?;
            increment = Some(IncrementResult::from(&report));
            (report.build, None)
        }
        (Some(edges), _) => {
            let graph = options.graph.options(edges, build.clone(), from.known);
            let report: GraphReport = watched(&progress, interrupt, output, || {
                fondaco_builder::build_graph(&graph, &progress)
            })?;
            let result = GraphResult::from(&report);
            (report.build, Some(result))
        }
    };
    for bad in report.bad_row_samples.iter().filter(|_| !output.is_json()) {
        output.note(&format!("skipped: {bad}"));
    }
    Ok(BuildResult {
        increment,
        ..BuildResult::new(&build, report, graph)
    })
}

/// The options that all builds share.
fn build_options(
    options: &InputOptions,
    partitions: PartitionCount,
    location: Option<&Location>,
) -> anyhow::Result<BuildOptions> {
    let is_graph = options.graph.edges.is_some();
    let other_type = options.value_type.filter(|value_type| *value_type != ValueType::Graph);
    if let (true, Some(other)) = (is_graph, other_type) {
        let usage = format!("--edges builds a graph, and the type of values is {other}: leave out --value-type");
        return Err(super::WrongUsage(usage).into());
    }
    let work = options.work.clone().unwrap_or_else(std::env::temp_dir);
    Ok(BuildOptions {
        store: options.store.clone(),
        inputs: options.inputs.clone(),
        format: options.format,
        delimiter: options.delimiter,
        reading: options.reading.options(),
        key: options.key.clone(),
        value: match (&options.value, &options.values) {
            (Some(column), _) => ValueSelection::Column(column.clone()),
            (None, Some(columns)) => ValueSelection::Columns(columns.clone()),
            (None, None) if is_graph => ValueSelection::Columns(Vec::new()),
            (None, None) => ValueSelection::AllOthers,
        },
        value_type: options.value_type.unwrap_or_default(),
        on_duplicate: options.on_duplicate,
        bad_rows_max: options.max_bad_rows,
        allow_empty: options.allow_empty,
        memory_bytes: options.memory,
        threads: options
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        partitions,
        cut_unix_ms: options.as_of,
        compression: options.compress,
        chunk_bytes_target: options.chunk_size,
        // A dry run uses the directory only to check that it is empty. A path below a file is always empty.
        output: location
            .cloned()
            .unwrap_or_else(|| Location::local(work.join("fondaco-dry-run"))),
        temporary: work,
        dry_run: options.dry_run,
    })
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

/// Runs a build in a thread of its own, shows its progress, and cancels it after an interrupt.
fn watched<R: Send>(
    progress: &Progress,
    interrupt: &Interrupt,
    output: &Output,
    build: impl FnOnce() -> Result<R, BuildError> + Send,
) -> anyhow::Result<R> {
    std::thread::scope(|scope| {
        let building = std::thread::Builder::new()
            .name("build".into())
            .spawn_scoped(scope, build)
            .context("cannot start the thread that builds")?;
        let mut display = Display::new(output.is_quiet());
        while !building.is_finished() {
            if interrupt.is_asked() {
                progress.cancel();
            }
            show(&mut display, progress);
            std::thread::park_timeout(INTERVAL);
        }
        drop(display);
        match building.join() {
            Ok(report) => Ok(report?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn show(display: &mut Display, progress: &Progress) {
    let now = progress.snapshot();
    let fraction = now.phase_fraction();
    let sorting = |display: &mut Display, phase, what: &str| {
        let details = format!(
            "{} of {} {what}, {} {what}/s",
            output::count(now.records_written),
            output::count(now.records_total),
            output::count(rate(now.records_written, display.phase_time()))
        );
        display.show(phase, fraction, &details);
    };
    match now.phase {
        Phase::Preparing => display.show("preparing", 0.0, "looking for input"),
        Phase::Reading => {
            let details = format!(
                "{} rows, {} of {}, {} rows/s",
                output::count(now.rows_read),
                output::bytes(now.bytes_read),
                output::bytes(now.bytes_total),
                output::count(rate(now.rows_read, display.phase_time()))
            );
            display.show("reading", fraction, &details);
        }
        Phase::Naming => sorting(display, "numbering", "names"),
        Phase::Joining => sorting(display, "joining", "vertices and ends of edges"),
        Phase::Grouping => sorting(display, "grouping", "neighbours"),
        Phase::Writing => sorting(display, "writing", "records"),
        Phase::Finishing | Phase::Done => display.show("finishing", 1.0, "waiting for the disk"),
    }
}

impl BuildResult {
    fn new(options: &BuildOptions, report: BuildReport, graph: Option<GraphResult>) -> Self {
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
            files_bytes: manifest.map(|manifest| manifest.files_bytes()),
            index_bytes: manifest.map(Manifest::index_bytes),
            reading_ms: report.reading.as_millis() as u64,
            writing_ms: report.writing.as_millis() as u64,
            graph,
            increment: None,
        }
    }

    /// Whether it is built from a difference to another version.
    pub fn is_difference(&self) -> bool {
        self.increment.is_some()
    }

    /// The size of the keys and values, before compression.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The result as text.
    pub fn text(&self) -> String {
        let time = Duration::from_millis(self.reading_ms + self.writing_ms);
        let figures = self.rows >= FIGURES_ROWS_MIN;
        let mut text = format!(
            "{} {} records{} of {} rows in {} file(s), {} of {}, in {}{}\n",
            if self.dry_run { "checked:" } else { "built:" },
            output::count(self.records),
            self.increment.as_ref().map_or("", |_| " of an earlier version and"),
            output::count(self.rows),
            output::count(self.files),
            output::bytes(self.bytes),
            self.increment.as_ref().map_or("keys and values", |_| "data"),
            output::duration(time),
            match figures {
                true => format!(" ({} rows/s)", output::count(rate(self.rows, time))),
                false => String::new(),
            },
        );
        if let Some(increment) = &self.increment {
            text.push_str(&increment.text(self.chunks));
        }
        if let Some(graph) = &self.graph {
            text.push_str(&graph.text());
        } else if self.duplicates > 0 {
            text.push_str(&format!("dropped: {} duplicates\n", output::count(self.duplicates)));
        }
        if self.bad_rows > 0 {
            text.push_str(&format!("skipped: {} bad rows\n", output::count(self.bad_rows)));
        }
        if let (Some(files_bytes), Some(index_bytes)) = (self.files_bytes, self.index_bytes) {
            text.push_str(&format!(
                "version: {} in {} chunks, of which indexes {}{}\n",
                output::bytes(files_bytes),
                output::count(self.chunks),
                output::bytes(index_bytes),
                match figures {
                    true => format!(" ({:.2} bytes a key)", index_bytes as f64 / self.records.max(1) as f64),
                    false => String::new(),
                },
            ));
        }
        text
    }
}

/// Checks the number of partitions.
pub fn partition_count(number: u32) -> anyhow::Result<PartitionCount> {
    PartitionCount::try_from(number).map_err(|error| super::WrongUsage(error.to_string()).into())
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
