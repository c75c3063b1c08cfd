//! The values of many keys, which become Python objects only when they are asked for.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use fondaco_client::{BatchReply, ClientError};
use fondaco_model::StoreName;
use fondaco_protocol::WireKey;
use fondaco_typed::{Decoder, TypedSchema};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PySlice};

use crate::arrow::Table;
use crate::fault::Fault;
use crate::objects::rows;
use crate::schemas::SchemaCache;

/// The values of the keys of one request, in their order: `bytes`, or `None` for a key that does not exist.
///
/// All values of a batch store are of one version. An element that could not be read, which `ReadOptions(partial=True)`
/// allows, raises its error when it is asked for.
#[pyclass(frozen, sequence, module = "fondaco")]
pub struct Values {
    keys: Vec<WireKey>,
    values: Vec<Result<Option<Bytes>, ClientError>>,
    versions: Vec<(String, u64)>,
    columns: Columns,
}

/// The columns that keys and values are decoded to.
pub struct Typed {
    /// Decodes.
    pub decoder: Decoder,
    /// How many columns the key has.
    pub key_columns: usize,
}

impl Typed {
    /// The columns of a schema.
    pub fn new(schema: &TypedSchema) -> Self {
        Self {
            decoder: schema.decoder(),
            key_columns: schema.key_columns(),
        }
    }
}

/// Where the columns are known from.
pub enum Columns {
    /// They are known.
    Known(Arc<Typed>),
    /// The cluster is asked for those of one store when they are needed.
    Asked(Arc<SchemaCache>, StoreName),
    /// Several stores have no common columns.
    None,
}

impl Values {
    /// Values whose columns are known.
    pub fn typed(
        keys: Vec<WireKey>,
        values: Vec<Result<Option<Bytes>, ClientError>>,
        versions: Vec<(String, u64)>,
        typed: Arc<Typed>,
    ) -> Self {
        Self {
            keys,
            values,
            versions,
            columns: Columns::Known(typed),
        }
    }

    /// The columns. It asks the cluster once for each version.
    pub fn columns(&self) -> Result<Arc<Typed>, Fault> {
        match &self.columns {
            Columns::Known(typed) => Ok(Arc::clone(typed)),
            Columns::Asked(cache, store) => cache.columns(store, self.versions.first().map(|(_, version)| *version)),
            Columns::None => Ok(Arc::new(Typed::new(&TypedSchema::raw()))),
        }
    }

    /// Keys and values as columns.
    fn decode(&self, typed: &Typed) -> Result<RecordBatch, Fault> {
        let values = self.values.iter().map(|value| value.as_ref().map(Option::as_deref));
        let values = values
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Fault::from(error.clone()))?;
        let keys: Vec<&[u8]> = match self.columns {
            Columns::None => self.keys.iter().map(|key| &**key.as_bytes()).collect(),
            _ => self.keys.iter().map(WireKey::key).collect(),
        };
        Ok(typed.decoder.decode(&keys, &values)?)
    }

    /// The reply to a request for these keys.
    pub fn new(keys: Vec<WireKey>, reply: BatchReply, columns: Columns) -> Self {
        let versions = reply.stores.iter();
        Self {
            columns,
            versions: versions
                .map(|store| (store.name.to_string(), store.version.get()))
                .collect(),
            values: reply.values,
            keys,
        }
    }

    fn element<'py>(&self, py: Python<'py>, at: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        match &self.values[at] {
            Ok(value) => Ok(value.as_ref().map(|value| PyBytes::new(py, value))),
            Err(error) => Err(Fault::from(error.clone()).into()),
        }
    }
}

#[pymethods]
impl Values {
    fn __len__(&self) -> usize {
        self.values.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, at: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = at.cast::<PySlice>() {
            let range = slice.indices(self.values.len() as isize)?;
            let places = (0..range.slicelength as isize).map(|step| (range.start + step * range.step) as usize);
            let elements = places.map(|at| self.element(py, at)).collect::<PyResult<Vec<_>>>()?;
            return Ok(PyList::new(py, elements)?.into_any());
        }
        let at: isize = at.extract()?;
        let place = if at < 0 { at + self.values.len() as isize } else { at };
        match usize::try_from(place).ok().filter(|&place| place < self.values.len()) {
            Some(place) => Ok(self.element(py, place)?.into_pyobject(py)?.into_any()),
            None => Err(PyIndexError::new_err(format!(
                "there are {} values, and no value {at}",
                self.values.len()
            ))),
        }
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.to_list(py)?.try_iter()
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match other.try_iter() {
            Ok(other) => self
                .to_list(py)?
                .eq(PyList::new(py, other.collect::<PyResult<Vec<_>>>()?)?),
            Err(_) => Ok(false),
        }
    }

    /// All values as a list.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let elements = (0..self.values.len()).map(|at| self.element(py, at));
        PyList::new(py, elements.collect::<PyResult<Vec<_>>>()?)
    }

    /// The errors of the keys that could not be read, by the position of the key.
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let errors = PyDict::new(py);
        for (at, value) in self.values.iter().enumerate() {
            if let Err(error) = value {
                let error: PyErr = Fault::from(error.clone()).into();
                errors.set_item(at, error.into_value(py))?;
            }
        }
        Ok(errors)
    }

    /// The version of each batch store that the values are of.
    #[getter]
    fn versions(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let versions = PyDict::new(py);
        for (store, version) in &self.versions {
            versions.set_item(store, version)?;
        }
        Ok(versions.unbind())
    }

    /// The keys and values as a table, with the columns and types of the pushed rows; with `raw`, as they are stored, in the
    /// binary columns `key` and `value`.
    #[pyo3(signature = (raw=false))]
    fn to_arrow(&self, py: Python<'_>, raw: bool) -> PyResult<Table> {
        let table = py.detach(|| {
            let typed = match raw {
                true => Arc::new(Typed::new(&TypedSchema::raw())),
                false => self.columns()?,
            };
            self.decode(&typed).map(Table::of)
        });
        Ok(table?)
    }

    /// The values as objects of Python: for each key a dictionary of its columns, or the one value, or `None`.
    pub fn rows<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        // A key that does not exist need not be of the key's type.
        let decoded: Result<(RecordBatch, usize), Fault> = py.detach(|| {
            let typed = self.columns()?;
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for (key, value) in self.keys.iter().zip(&self.values) {
                if let Some(value) = value.as_ref().map_err(|error| Fault::from(error.clone()))? {
                    keys.push(key.key());
                    values.push(Some(&**value));
                }
            }
            Ok((typed.decoder.decode(&keys, &values)?, typed.key_columns))
        });
        let (batch, key_columns) = decoded?;
        let mut found = rows(py, &batch, key_columns)?.into_iter();
        let row = |value: &Result<Option<Bytes>, ClientError>| match value {
            Ok(Some(_)) => found.next(),
            _ => None,
        };
        let rows = self.values.iter().map(row);
        Ok(rows
            .map(|row| row.unwrap_or_else(|| py.None().into_bound(py)))
            .collect())
    }

    fn __repr__(&self) -> String {
        format!("<fondaco.Values of {} keys>", self.values.len())
    }
}
