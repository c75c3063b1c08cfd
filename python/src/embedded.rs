//! The embedded reader: a version within the process, or a store of a cluster that is followed.

use std::collections::BTreeMap;
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

/// Reads a version of a batch or hybrid store within this process.
#[pyclass(frozen, module = "fondaco._native")]
pub struct Reader {
    reader: Arc<Inner>,
    /// The columns of the present version, with its checksum.
    decoder: Mutex<Option<(String, Arc<Typed>)>>,
}

/// Lag in seconds, records yet to be read, records read, keys with events, lost records, and the last error.
type StreamParts = (f64, Option<u64>, u64, u64, Vec<(u32, u64, u64)>, Option<String>);

/// Opens the directory of a version.
#[pyfunction]
pub fn open_version(py: Python<'_>, directory: PathBuf) -> PyResult<Reader> {
    let reader = py.detach(|| Inner::open(&directory)).map_err(Fault::from)?;
    Ok(Reader::of(reader))
}

/// Follows a store of a cluster.
#[pyfunction]
#[pyo3(signature = (store, *, http, directory, user, password, token, ca, keep, rate_limit_bytes_per_second, poll_ms, fallback, kafka, events_memory_bytes))]
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
    fallback: bool,
    kafka: BTreeMap<String, String>,
    events_memory_bytes: u64,
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
    options.fallback = fallback;
    options.kafka = kafka;
    options.events_memory_bytes = events_memory_bytes;
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
        let key = wire_key(self.reader.store(), key)?;
        let value = py.detach(|| self.reader.get(key.key())).map_err(Fault::from)?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// The values of many keys.
    fn get_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Values> {
        let keys = wire_keys(Some(self.reader.store()), keys)?;
        let values = py.detach(|| {
            let keys: Vec<&[u8]> = keys.iter().map(|key| key.key()).collect();
            self.reader.get_many(&keys)
        });
        let values = values.map_err(Fault::from)?;
        let version = values.version();
        // Before the first version is here, the columns are unknown.
        let typed = match self.reader.snapshot() {
            Ok(snapshot) => self.typed(&snapshot),
            Err(_) => Arc::new(Typed::new(&TypedSchema::raw())),
        };
        let (bytes, places) = values.into_parts();
        let bytes = Bytes::from(bytes);
        let values = places
            .into_iter()
            .map(|place| Ok(place.map(|place| bytes.slice(place))))
            .collect();
        let versions = version.map(|version| (self.reader.store().to_string(), version.get()));
        Ok(Values::typed(keys, values, versions.into_iter().collect(), typed))
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
    fn store(&self) -> String {
        self.reader.store().to_string()
    }

    /// The number of the present version.
    #[getter]
    fn version(&self) -> Option<u64> {
        self.reader.version().map(VersionNumber::get)
    }

    /// The state, the version that it reads, that of the cluster, the last error, and the progress of the stream.
    fn status(
        &self,
    ) -> (
        &'static str,
        Option<u64>,
        Option<u64>,
        Option<String>,
        Option<StreamParts>,
    ) {
        let status = self.reader.status();
        let number = |version: Option<VersionNumber>| version.map(VersionNumber::get);
        (
            status.state.as_str(),
            number(status.version),
            number(status.target),
            status.error,
            status.stream.map(|stream| {
                let lost = stream.lost.iter().map(|lost| (lost.partition, lost.from, lost.to));
                (
                    stream.lag.as_secs_f64(),
                    stream.lag_records,
                    stream.records_read,
                    stream.keys,
                    lost.collect(),
                    stream.error,
                )
            }),
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
