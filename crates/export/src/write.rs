//! Writes rows as Parquet or Arrow IPC.
//!
//! A file appears under its name when it is complete: until then it has another name, and is deleted if the export fails.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;
use fondaco_push::{INTERVAL, Job, Progress};
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde::Serialize;

use crate::error::ExportError;
use crate::rows::Rows;

/// The bytes after which a row group of Parquet is complete: so many are in memory.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// The bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;

/// The metadata of an Arrow stream's schema that has the number of partitions: so programs that read partitions apart know how
/// many there are.
const PARTITIONS: &str = "fondaco.partitions";

/// The format of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Parquet, compressed with zstd.
    Parquet,
    /// A stream of Arrow IPC, not compressed.
    Arrow,
}

/// The destination of an export.
pub enum Output {
    /// A file, which is replaced if it exists.
    File(PathBuf),
    /// A stream.
    Stream(Box<dyn Write + Send>),
}

/// The result of an export. Sizes are in bytes.
#[derive(Debug, Clone, Serialize)]
pub struct ExportReport {
    /// The store.
    pub store: String,
    /// The number of the store's current version; `None` if there is none, or the version was given by its location.
    pub version: Option<u64>,
    /// The number of rows.
    pub records: u64,
    /// The size of the output.
    pub bytes: u64,
    /// The columns, with their types as in manifests.
    pub columns: Vec<ExportedColumn>,
    /// The columns that are not exported as they were built, and why.
    pub notes: Vec<String>,
    /// The time that it took, in milliseconds.
    pub elapsed_ms: u64,
}

/// A column of an export.
#[derive(Debug, Clone, Serialize)]
pub struct ExportedColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub r#type: String,
}

/// Batches of one schema that are written.
pub(crate) struct Table<I> {
    pub(crate) schema: SchemaRef,
    pub(crate) partitions: u32,
    /// The number of all rows, if it is known.
    pub(crate) total: Option<u64>,
    pub(crate) batches: I,
}

/// Writes rows to an output.
///
/// # Errors
/// The rows cannot be read, or not written; or the job was cancelled. A file is left as it was; a pipe or a device may have got
/// some of the bytes.
pub fn export(rows: Rows, format: Format, output: Output, job: Job<'_>) -> Result<ExportReport, ExportError> {
    let began = Instant::now();
    let fields = rows.schema().arrow().fields().iter();
    let columns = fields.map(|field| ExportedColumn {
        name: field.name().clone(),
        r#type: fondaco_typed::type_text(field),
    });
    let mut report = ExportReport {
        store: rows.store().to_string(),
        version: rows.version(),
        records: 0,
        bytes: 0,
        columns: columns.collect(),
        notes: rows.schema().notes().to_vec(),
        elapsed_ms: 0,
    };
    let rows = Table {
        schema: Arc::clone(rows.schema().arrow()),
        partitions: rows.partitions(),
        total: rows.total(),
        batches: rows,
    };
    (report.records, report.bytes) = match output {
        Output::Stream(stream) => write_rows(rows, format, stream, job, ExportError::Stream)?,
        Output::File(path) => write_file(rows, format, &path, job)?,
    };
    report.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(report)
}

/// Writes to a file, which is replaced if it exists. Returns the number of rows and bytes.
pub(crate) fn write_file(
    rows: Table<impl Iterator<Item = Result<RecordBatch, ExportError>>>,
    format: Format,
    path: &Path,
    job: Job<'_>,
) -> Result<(u64, u64), ExportError> {
    let failed = |error| ExportError::file(path)(error);
    let name = path
        .file_name()
        .ok_or_else(|| failed(io::ErrorKind::IsADirectory.into()))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match path.metadata() {
        Ok(found) if found.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
        // A pipe or a device takes the bytes: a file in its place would take it from all others.
        Ok(found) if !found.is_file() => {
            let special = File::options().write(true).open(path).map_err(failed)?;
            return write_rows(rows, format, Box::new(special), job, failed);
        }
        _ => {}
    }
    let temporary = tempfile::Builder::new()
        .prefix(&format!(".{}.", name.to_string_lossy()))
        .suffix(".part")
        // Less the umask: the file is for the same users as any other.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent)
        .map_err(failed)?;
    let file = temporary.as_file().try_clone().map_err(failed)?;
    let written = write_rows(rows, format, Box::new(file), job, failed)?;
    temporary.as_file().sync_all().map_err(failed)?;
    temporary.persist(path).map_err(|error| failed(error.error))?;
    File::open(parent)
        .and_then(|parent| parent.sync_all())
        .map_err(failed)?;
    Ok(written)
}

/// Returns the number of rows and bytes.
fn write_rows(
    rows: Table<impl Iterator<Item = Result<RecordBatch, ExportError>>>,
    format: Format,
    output: Box<dyn Write + Send>,
    job: Job<'_>,
    failed: impl Fn(io::Error) -> ExportError,
) -> Result<(u64, u64), ExportError> {
    let noted = Arc::new(Mutex::new(Noted::default()));
    let output = Watched {
        output: BufWriter::with_capacity(BUFFER_BYTES, output),
        noted: Arc::clone(&noted),
    };
    let written = Writer::new(format, &rows, output).and_then(|writer| write_batches(rows, writer, job));
    job.observer.step_ended();
    let mut noted = noted.lock();
    match (written, noted.error.take()) {
        // Writers wrap it.
        (Err(_), Some(error)) => Err(failed(error)),
        (written, _) => Ok((written?, noted.bytes)),
    }
}

fn write_batches(
    rows: Table<impl Iterator<Item = Result<RecordBatch, ExportError>>>,
    mut writer: Writer,
    job: Job<'_>,
) -> Result<u64, ExportError> {
    let (records_total, mut records, mut shown) = (rows.total, 0, Instant::now());
    for batch in rows.batches {
        if job.cancel.is_cancelled() {
            return Err(ExportError::Cancelled);
        }
        let batch = batch?;
        writer.write(&batch)?;
        records += batch.num_rows() as u64;
        if shown.elapsed() >= INTERVAL {
            shown = Instant::now();
            job.observer.progress(Progress::Exporting { records, records_total });
        }
    }
    writer.finish()?;
    Ok(records)
}

enum Writer {
    Parquet(Box<ArrowWriter<Watched>>),
    Arrow(Box<StreamWriter<Watched>>),
}

impl Writer {
    fn new<I>(format: Format, rows: &Table<I>, output: Watched) -> Result<Self, ExportError> {
        let schema = &rows.schema;
        Ok(match format {
            Format::Parquet => {
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::default()))
                    .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
                    .build();
                let writer = ArrowWriter::try_new(output, Arc::clone(schema), Some(properties));
                Self::Parquet(Box::new(writer.map_err(ExportError::Parquet)?))
            }
            Format::Arrow => {
                let mut metadata = schema.metadata().clone();
                metadata.insert(PARTITIONS.to_owned(), rows.partitions.to_string());
                let schema = schema.as_ref().clone().with_metadata(metadata);
                let writer = StreamWriter::try_new(output, &schema);
                Self::Arrow(Box::new(writer.map_err(ExportError::Arrow)?))
            }
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), ExportError> {
        match self {
            Self::Parquet(writer) => writer.write(batch).map_err(ExportError::Parquet),
            Self::Arrow(writer) => writer.write(batch).map_err(ExportError::Arrow),
        }
    }

    fn finish(self) -> Result<(), ExportError> {
        match self {
            Self::Parquet(writer) => {
                let mut output = writer.into_inner().map_err(ExportError::Parquet)?;
                output.flush().map_err(ExportError::Stream)
            }
            Self::Arrow(mut writer) => {
                writer.finish().map_err(ExportError::Arrow)?;
                writer.get_mut().flush().map_err(ExportError::Stream)
            }
        }
    }
}

/// The bytes that an output has taken, and the first error.
#[derive(Default)]
struct Noted {
    bytes: u64,
    error: Option<io::Error>,
}

/// An output whose errors are kept: the writers of the formats wrap them.
struct Watched {
    output: BufWriter<Box<dyn Write + Send>>,
    noted: Arc<Mutex<Noted>>,
}

impl Watched {
    fn note<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| {
            let kind = error.kind();
            self.noted.lock().error.get_or_insert(error);
            kind.into()
        })
    }
}

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.output.write(bytes);
        let written = self.note(written)?;
        self.noted.lock().bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.output.flush();
        self.note(flushed)
    }
}
