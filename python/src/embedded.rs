//! The embedded reader: a version within the process, or a store of a cluster that is followed.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fondaco_admin::Endpoint;
use fondaco_embedded::{FollowOptions, Reader as Inner, Snapshot};
use fondaco_model::{StoreName, VersionNumber};
use fondaco_typed::TypedSchema;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrow::SchemaCapsule;
use crate::client::blocking;
use crate::fault::Fault;
use crate::keys::{wire_key, wire_keys};
use crate::options::milliseconds;
use crate::runtime::wait;
use crate::scan::Scan;
use crate::values::{Typed, Values};

/// Reads a version of a batch store within this process.
#[pyclass(frozen, module = "fondaco._native")]
pub struct Reader {
    reader: Arc<Inner>,
    /// The columns of the present version, with its checksum.
    decoder: Mutex<Option<(String, Arc<Typed>)>>,
}

/// Opens the directory of a version.
#[pyfunction]
pub fn open_version(py: Python<'_>, directory: PathBuf) -> PyResult<Reader> {
    let reader = py.detach(|| Inner::open(&directory)).map_err(Fault::from)?;
    Ok(Reader::of(reader))
}

/// Follows a store of a cluster.
#[pyfunction]
#[pyo3(signature = (store, *, http, directory, user, password, token, ca, keep, rate_limit_bytes_per_second, poll_ms))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
pub fn follow_store(
    py: Python<'_>,
    store: &str,
    http: Vec<String>,
    directory: PathBuf,
    user: Option<String>,
    password: Option<String>,
    token: Option<String>,
    ca: Option<PathBuf>,
    keep: usize,
    rate_limit_bytes_per_second: Option<u64>,
    poll_ms: f64,
) -> PyResult<Reader> {
    let store: StoreName = store.parse().map_err(|error| Fault::bad_input(format!("{error}")))?;
    let endpoint = |address: String| Endpoint {
        user: user.clone(),
        password: password.clone(),
        token: token.clone(),
        ca: ca.clone(),
        ..Endpoint::of_http(address)
    };
    let mut endpoints = http.into_iter().map(endpoint);
    let first = endpoints.next().ok_or_else(|| {
        Fault::bad_input("name the control port of a process of the cluster: http=\"127.0.0.1:6580\"")
    })?;
    let mut options = FollowOptions::new(first, store, directory);
    options.endpoints.extend(endpoints);
    options.keep = keep;
    options.rate_limit_bytes_per_second = rate_limit_bytes_per_second;
    options.poll_interval = milliseconds(poll_ms)?;
    let reader = py.detach(|| Inner::follow(options)).map_err(Fault::from)?;
    Ok(Reader::of(reader))
}

impl Reader {
    fn of(reader: Inner) -> Self {
        Self {
            reader: Arc::new(reader),
            decoder: Mutex::new(None),
        }
    }

    fn snapshot(&self) -> PyResult<Snapshot> {
        Ok(self.reader.snapshot().map_err(Fault::from)?)
    }

    /// The columns of a version.
    fn typed(&self, snapshot: &Snapshot) -> Arc<Typed> {
        let checksum = snapshot.checksum().to_string();
        let mut known = self.decoder.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((of, typed)) if *of == checksum => Arc::clone(typed),
            _ => {
                let schema = TypedSchema::of_version(snapshot.manifest());
                let typed = Arc::new(Typed::new(&schema));
                *known = Some((checksum, Arc::clone(&typed)));
                typed
            }
        }
    }

    /// Waits for something that blocks, and heeds signals.
    fn wait_for(
        &self,
        py: Python<'_>,
        timeout_ms: f64,
        holds: impl Fn(&Inner, Duration) -> Result<(), fondaco_embedded::EmbeddedError> + Send + 'static,
    ) -> PyResult<()> {
        let (reader, timeout) = (Arc::clone(&self.reader), milliseconds(timeout_ms)?);
        wait(py, blocking(move || holds(&reader, timeout).map_err(Fault::from)))
    }
}

#[pymethods]
impl Reader {
    /// The value of a key.
    fn get<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let snapshot = self.snapshot()?;
        let key = wire_key(&snapshot.manifest().store, key)?;
        let value = py.detach(|| snapshot.get_owned(key.key())).map_err(Fault::from)?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// The values of many keys.
    fn get_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Values> {
        let snapshot = self.snapshot()?;
        let keys = wire_keys(Some(&snapshot.manifest().store), keys)?;
        let values = py.detach(|| {
            let keys: Vec<&[u8]> = keys.iter().map(|key| key.key()).collect();
            snapshot.get_many(&keys)
        });
        let (bytes, places) = values.map_err(Fault::from)?.into_parts();
        let bytes = Bytes::from(bytes);
        let values = places
            .into_iter()
            .map(|place| Ok(place.map(|place| bytes.slice(place))))
            .collect();
        let version = snapshot
            .version()
            .map(|version| (snapshot.manifest().store.to_string(), version.get()));
        let versions = version.into_iter().collect();
        Ok(Values::typed(keys, values, versions, self.typed(&snapshot)))
    }

    /// All rows, in batches.
    #[pyo3(signature = (raw=false))]
    fn scan(&self, raw: bool) -> PyResult<Scan> {
        let snapshot = self.snapshot()?;
        let decoder = match raw {
            true => TypedSchema::raw().decoder(),
            false => self.typed(&snapshot).decoder.clone(),
        };
        let scan = snapshot.scan(None).map_err(Fault::from)?;
        let version = snapshot.version().map(VersionNumber::get);
        Ok(Scan::embedded(scan, decoder, snapshot.records(), version))
    }

    /// The columns of the rows, as an object with an Arrow schema.
    fn schema(&self) -> PyResult<SchemaCapsule> {
        Ok(SchemaCapsule(Arc::clone(
            self.typed(&self.snapshot()?).decoder.schema(),
        )))
    }

    /// The number of rows of the present version.
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.snapshot()?.records() as usize)
    }

    /// The store.
    #[getter]
    fn store(&self) -> PyResult<String> {
        Ok(self.snapshot()?.manifest().store.to_string())
    }

    /// The number of the present version.
    #[getter]
    fn version(&self) -> Option<u64> {
        self.reader.version().map(VersionNumber::get)
    }

    /// The state, the version that it reads, that of the cluster, and the last error.
    fn status(&self) -> (&'static str, Option<u64>, Option<u64>, Option<String>) {
        let status = self.reader.status();
        let number = |version: Option<VersionNumber>| version.map(VersionNumber::get);
        (
            status.state.as_str(),
            number(status.version),
            number(status.target),
            status.error,
        )
    }

    /// Reads all indexes into memory.
    fn warm(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.reader.warm()).map_err(Fault::from)?)
    }

    /// Waits until it reads a version, or this one.
    #[pyo3(signature = (version, timeout_ms))]
    fn wait(&self, py: Python<'_>, version: Option<u64>, timeout_ms: f64) -> PyResult<()> {
        let version = version
            .map(|number| VersionNumber::new(number).ok_or_else(|| Fault::bad_input("versions are numbered from 1")));
        match version.transpose()? {
            None => self.wait_for(py, timeout_ms, |reader, timeout| reader.wait_ready(timeout)),
            Some(version) => self.wait_for(py, timeout_ms, move |reader, timeout| reader.wait_for(version, timeout)),
        }
    }
}
