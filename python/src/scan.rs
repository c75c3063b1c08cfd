//! All rows of a store or of a version, in batches; and exports of them to files.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;

use crate::arrow::{Batch, SchemaCapsule, Table};
use crate::client::blocking;
use crate::fault::Fault;
use crate::runtime::promise;

/// Where batches come from.
enum Batches {
    /// A version within this process.
    Embedded(Box<fondaco_embedded::Scan>, fondaco_typed::Decoder),
}

impl Batches {
    fn read(&mut self) -> Result<Option<Batch>, Fault> {
        match self {
            Self::Embedded(scan, decoder) => {
                let Some(records) = scan.next() else {
                    return Ok(None);
                };
                let records = records?;
                let keys: Vec<&[u8]> = records.iter().map(|record| &*record.key).collect();
                let values: Vec<Option<&[u8]>> = records.iter().map(|record| Some(&*record.value)).collect();
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
    batches: Arc<Mutex<Batches>>,
}

impl Scan {
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
            batches: Arc::new(Mutex::new(Batches::Embedded(Box::new(scan), decoder))),
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
        let batches = &self.batches;
        Ok(py.detach(|| batches.lock().unwrap_or_else(PoisonError::into_inner).read())?)
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let batches = Arc::clone(&self.batches);
        promise(py, async move {
            let read = blocking(move || batches.lock().unwrap_or_else(PoisonError::into_inner).read());
            match read.await? {
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
            py.check_signals()?;
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
