//! `fondaco export`: the rows of a store or of a version, with their types.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fondaco_export::{ExportError, ExportReport, Format, Output as Destination, Rows, Selection, Source};
use fondaco_model::{PartitionSet, StoreName};
use fondaco_storage::Location;

use super::WrongUsage;
use super::build::prepare_process;
use super::push_progress::with_job;
use crate::control_port::ControlPort;
use crate::output::{self, Output, Results};

/// The name of standard output.
const STANDARD_OUTPUT: &str = "-";

/// `fondaco export`.
#[derive(Debug, Args)]
#[command(after_help = "\
The columns are those of the key, then those of the value, with the types of the input. A batch store is its current
version, which is fetched to --work unless this machine has it. The rows of hybrid and versioned stores are looked up at
a node; what is written meanwhile may be in the export or not.

Example:
  fondaco export pymk --output pymk.parquet
  fondaco export --from s3://versions/pymk-7 --partitions 0-3 --output part.parquet
  fondaco export pymk --format arrow | python -c 'import pyarrow as pa, sys; print(pa.ipc.open_stream(sys.stdin.buffer).read_all())'")]
pub struct ExportOptions {
    /// The store
    #[arg(required_unless_present = "from")]
    store: Option<StoreName>,

    /// Export the version at this location, a directory or a URL, without a cluster
    #[arg(long, value_name = "URL", conflicts_with = "store")]
    from: Option<Location>,

    /// Export only these partitions: 0-3,7
    #[arg(long, value_name = "LIST")]
    partitions: Option<PartitionSet>,

    /// The format of the output
    #[arg(long, value_enum, default_value_t = FormatName::Parquet)]
    format: FormatName,

    /// The file, which is replaced once the export is complete; - is standard output
    #[arg(long, value_name = "FILE", default_value = STANDARD_OUTPUT)]
    output: PathBuf,

    /// Export key and value as they are, in the columns "key" and "value"
    #[arg(long)]
    raw: bool,

    /// Export the columns, and no rows
    #[arg(long)]
    schema: bool,

    /// The directory for a version that has to be fetched
    #[arg(long, value_name = "DIRECTORY", env = "TMPDIR")]
    work: Option<PathBuf>,

    #[command(flatten)]
    node: ControlPort,
}

/// The name of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// Parquet, compressed with zstd
    Parquet,
    /// A stream of Arrow IPC
    Arrow,
}

/// Runs `fondaco export`.
pub fn export(options: ExportOptions, output: &Output) -> anyhow::Result<()> {
    let source = match (options.from, options.store) {
        (Some(location), _) => Source::Version(location),
        (None, Some(name)) => Source::Store {
            name,
            endpoint: options.node.endpoint(),
        },
        (None, None) => return Err(WrongUsage("name a store, or a version with --from".to_owned()).into()),
    };
    let is_stream = options.output.as_os_str() == STANDARD_OUTPUT;
    if is_stream && io::stdout().is_terminal() {
        let message = "the rows are binary, and standard output is a terminal: name a file with --output, or pipe it";
        return Err(WrongUsage(message.to_owned()).into());
    }
    let destination = match is_stream {
        true => Destination::Stream(Box::new(Piped)),
        false => Destination::File(options.output.clone()),
    };
    let format = match options.format {
        FormatName::Parquet => Format::Parquet,
        FormatName::Arrow => Format::Arrow,
    };
    let selection = Selection {
        source,
        partitions: options.partitions,
        raw: options.raw,
        work: options.work.unwrap_or_else(std::env::temp_dir),
    };
    prepare_process();
    let exported = with_job(output, |job| {
        let rows = match options.schema {
            true => Rows::none_of(&selection)?,
            false => Rows::open(&selection, job)?,
        };
        for note in rows.schema().notes() {
            output.note(note);
        }
        fondaco_export::export(rows, format, destination, job)
    });
    let report = exported.map_err(|error| match error.downcast::<ExportError>() {
        // So that a reader that has gone is known.
        Ok(ExportError::Stream(error)) => error.into(),
        Ok(error) => error.into(),
        Err(error) => error,
    })?;
    match is_stream {
        // Standard output has the rows.
        true => output.note(text(&report, "standard output").trim_end()),
        false => output.result(&report, |report| text(report, &options.output.display().to_string()))?,
    }
    Ok(())
}

fn text(report: &ExportReport, destination: &str) -> String {
    let version = report
        .version
        .map_or_else(String::new, |version| format!(", version {version}"));
    format!(
        "exported {} rows of store {}{version} to {destination}: {} columns, {}\n",
        output::count(report.records),
        report.store,
        report.columns.len(),
        output::bytes(report.bytes),
    )
}

/// Standard output, which other threads may write to.
struct Piped;

impl Write for Piped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Results::begin().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Results::begin().flush()
    }
}
