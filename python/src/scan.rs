//! All rows of a store or of a version, in batches; and exports of them to files.

use std::path::PathBuf;
use std::sync::Arc;

use fondaco_admin::Endpoint;
use fondaco_export::{Format, Output, Rows, Selection, Source, export};
use fondaco_model::StoreName;
use fondaco_push::{CancelToken, Job, Quiet};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::arrow::{Batch, SchemaCapsule, Table};
use crate::client::{blocking, store_name};
use crate::fault::Fault;
use crate::push::{Reporter, run};
use crate::runtime::{promise, wait, wait_for_job};
use crate::schemas::selection;

/// Where batches come from.
enum Batches {
    /// A store of a cluster, or a version somewhere.
    Rows(Box<Rows>),
    /// A version within this process.
    Embedded(Box<fondaco_embedded::Scan>, fondaco_typed::Decoder),
}

/// Batches, and the one that was read for a call that was interrupted.
struct Reading {
    batches: Batches,
    ready: Option<Option<Batch>>,
}

impl Reading {
    fn of(batches: Batches) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { batches, ready: None }))
    }

    /// The next batch. When this future is dropped, the batch is kept for the next call.
    async fn next(reading: Arc<Mutex<Self>>) -> Result<Option<Batch>, Fault> {
        let mut reading = reading.lock_owned().await;
        let mut reading = blocking(move || {
            if reading.ready.is_none() {
                reading.ready = Some(reading.batches.read()?);
            }
            Ok(reading)
        })
        .await?;
        Ok(reading.ready.take().flatten())
    }
}

impl Batches {
    fn read(&mut self) -> Result<Option<Batch>, Fault> {
        match self {
            Self::Rows(rows) => Ok(rows.next().transpose()?.map(Batch)),
            Self::Embedded(scan, decoder) => {
                let Some(records) = scan.next() else {
                    return Ok(None);
                };
                let records = records?;
                let keys: Vec<&[u8]> = records.iter().map(|(key, _)| &key[..]).collect();
                let values: Vec<Option<&[u8]>> = records.iter().map(|(_, value)| Some(&value[..])).collect();
                Ok(Some(Batch(decoder.decode(&keys, &values)?)))
            }
        }
    }
}

/// All rows, in batches: an iterator, or an asynchronous one. It is read once.
#[pyclass(frozen, module = "fondaco")]
pub struct Scan {
    schema: arrow_schema::SchemaRef,
    total: Option<u64>,
    version: Option<u64>,
    reading: Arc<Mutex<Reading>>,
}

impl Scan {
    /// The rows of a store. It blocks.
    pub fn open(store: &StoreName, endpoint: &Endpoint, raw: bool, cancel: &CancelToken) -> Result<Self, Fault> {
        let selection = Selection {
            raw,
            ..selection(store, endpoint)
        };
        Self::of_selection(&selection, cancel)
    }

    fn of_selection(selection: &Selection, cancel: &CancelToken) -> Result<Self, Fault> {
        let rows = Rows::open(
            selection,
            Job {
                observer: &Quiet,
                cancel,
            },
        )?;
        Ok(Self {
            schema: Arc::clone(rows.schema().arrow()),
            total: rows.total(),
            version: rows.version(),
            reading: Reading::of(Batches::Rows(Box::new(rows))),
        })
    }

    /// The rows of a version within this process.
    pub fn embedded(
        scan: fondaco_embedded::Scan,
        decoder: fondaco_typed::Decoder,
        total: u64,
        version: Option<u64>,
    ) -> Self {
        Self {
            schema: Arc::clone(decoder.schema()),
            total: Some(total),
            version,
            reading: Reading::of(Batches::Embedded(Box::new(scan), decoder)),
        }
    }
}

#[pymethods]
impl Scan {
    /// The batches: an iterator of `Batch`, or an asynchronous one.
    fn to_batches(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        wait(py, Reading::next(Arc::clone(&self.reading)))
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let reading = Arc::clone(&self.reading);
        promise(py, async move {
            match Reading::next(reading).await? {
                Some(batch) => Ok(batch),
                None => Err(Fault::Python(PyStopAsyncIteration::new_err(()))),
            }
        })
    }

    /// All rows in one table.
    fn to_arrow(&self, py: Python<'_>) -> PyResult<Table> {
        let mut batches = Vec::new();
        while let Some(batch) = self.__next__(py)? {
            batches.push(batch.0);
        }
        Ok(Table::of_batches(Arc::clone(&self.schema), batches))
    }

    /// The columns.
    #[getter]
    fn schema(&self) -> SchemaCapsule {
        SchemaCapsule(Arc::clone(&self.schema))
    }

    /// The number of rows, if it is known.
    #[getter]
    fn total(&self) -> Option<u64> {
        self.total
    }

    /// The version that the rows are of, if the cluster numbers it.
    #[getter]
    fn version(&self) -> Option<u64> {
        self.version
    }
}

/// A source of rows in words: a store of a cluster, or the place of a version.
pub fn export_rows(
    selection: &Selection,
    path: PathBuf,
    format: &str,
    job: Job<'_>,
) -> Result<serde_json::Value, Fault> {
    let format = match format {
        "parquet" => Format::Parquet,
        "arrow" => Format::Arrow,
        other => {
            return Err(Fault::bad_input(format!(
                "format {other:?}: use \"parquet\" or \"arrow\""
            )));
        }
    };
    let rows = Rows::open(selection, job)?;
    let report = export(rows, format, Output::File(path), job)?;
    serde_json::to_value(report).map_err(|error| Fault::bad_input(error.to_string()))
}

/// Exports a version to a file; returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (source, path, format, raw, progress=None))]
pub fn export_version(
    py: Python<'_>,
    source: &str,
    path: PathBuf,
    format: String,
    raw: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let location: fondaco_storage::Location = source.parse().map_err(|error| Fault::bad_input(format!("{error}")))?;
    let selection = Selection {
        raw,
        ..Selection::all_of(Source::Version(location))
    };
    let cancel = CancelToken::default();
    let reporter = Reporter::new(progress, cancel.clone());
    let exporting = run(reporter, move |job| export_rows(&selection, path, &format, job));
    let report = wait_for_job(py, exporting, &cancel)?;
    Ok(report.to_string())
}

/// A scan of a version somewhere.
#[pyfunction]
#[pyo3(signature = (source, raw=false))]
pub fn scan_version(py: Python<'_>, source: &str, raw: bool) -> PyResult<Scan> {
    let location: fondaco_storage::Location = source.parse().map_err(|error| Fault::bad_input(format!("{error}")))?;
    let selection = Selection {
        raw,
        ..Selection::all_of(Source::Version(location))
    };
    wait(
        py,
        blocking(move || Scan::of_selection(&selection, &CancelToken::default())),
    )
}

/// The selection of a store, for an export.
pub fn of_store(store: &str, endpoint: &Endpoint, raw: bool) -> Result<Selection, Fault> {
    Ok(Selection {
        raw,
        ..selection(&store_name(store)?, endpoint)
    })
}
