//! The values of many keys, which become Python objects only when they are asked for.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Schema};
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

    /// The value of a key; `None` if it does not exist, or is late and may be.
    fn value(found: &Result<Option<Bytes>, ClientError>, may_be_late: bool) -> Result<Option<&[u8]>, Fault> {
        match found {
            Ok(value) => Ok(value.as_deref()),
            Err(error) if may_be_late && error.is_late() => Ok(None),
            Err(error) => Err(error.clone().into()),
        }
    }

    /// Keys and values as columns; with a name, a column behind them says which keys are late.
    fn decode(&self, typed: &Typed, late: Option<&str>) -> Result<RecordBatch, Fault> {
        let values = self.values.iter().map(|found| Self::value(found, late.is_some()));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let keys: Vec<&[u8]> = match self.columns {
            Columns::None => self.keys.iter().map(|key| &**key.as_bytes()).collect(),
            _ => self.keys.iter().map(WireKey::key).collect(),
        };
        let batch = typed.decoder.decode(&keys, &values)?;
        match late {
            None => Ok(batch),
            Some(name) => self.with_late(batch, name),
        }
    }

    /// A batch with a further column that says which keys are late.
    fn with_late(&self, batch: RecordBatch, name: &str) -> Result<RecordBatch, Fault> {
        if batch.schema().field_with_name(name).is_ok() {
            let message = format!("there is a column {name:?} already: give another name for the column of late keys");
            return Err(Fault::bad_input(message));
        }
        let (schema, mut columns, _) = batch.into_parts();
        let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(name, DataType::Boolean, false)));
        let late: BooleanArray = self.values.iter().map(|found| Some(is_late(found))).collect();
        columns.push(Arc::new(late));
        let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
        Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
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

    fn element<'py>(&self, py: Python<'py>, at: usize, late: bool) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = Self::value(&self.values[at], late)?;
        Ok(value.map(|value| PyBytes::new(py, value)))
    }
}

/// Whether a key has no answer.
fn is_late(found: &Result<Option<Bytes>, ClientError>) -> bool {
    found.as_ref().is_err_and(ClientError::is_late)
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
            let elements = places
                .map(|at| self.element(py, at, false))
                .collect::<PyResult<Vec<_>>>()?;
            return Ok(PyList::new(py, elements)?.into_any());
        }
        let at: isize = at.extract()?;
        let place = if at < 0 { at + self.values.len() as isize } else { at };
        match usize::try_from(place).ok().filter(|&place| place < self.values.len()) {
            Some(place) => Ok(self.element(py, place, false)?.into_pyobject(py)?.into_any()),
            None => Err(PyIndexError::new_err(format!(
                "there are {} values, and no value {at}",
                self.values.len()
            ))),
        }
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.to_list(py, false)?.try_iter()
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match other.try_iter() {
            Ok(other) => self
                .to_list(py, false)?
                .eq(PyList::new(py, other.collect::<PyResult<Vec<_>>>()?)?),
            Err(_) => Ok(false),
        }
    }

    /// All values as a list. With `late`, keys without an answer are `None`, too.
    #[pyo3(signature = (*, late=false))]
    fn to_list<'py>(&self, py: Python<'py>, late: bool) -> PyResult<Bound<'py, PyList>> {
        let elements = (0..self.values.len()).map(|at| self.element(py, at, late));
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

    /// The positions of the keys without an answer, because nodes were slow, gone or overloaded: they may exist or not.
    #[getter]
    fn late(&self) -> Vec<usize> {
        let values = self.values.iter().enumerate();
        values.filter_map(|(at, found)| is_late(found).then_some(at)).collect()
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
    /// binary columns `key` and `value`. With `late`, keys without an answer have null, and `True` in a further column of this
    /// name.
    #[pyo3(signature = (raw=false, *, late=None))]
    fn to_arrow(&self, py: Python<'_>, raw: bool, late: Option<&str>) -> PyResult<Table> {
        let table = py.detach(|| {
            let typed = match raw {
                true => Arc::new(Typed::new(&TypedSchema::raw())),
                false => self.columns()?,
            };
            self.decode(&typed, late).map(Table::of)
        });
        Ok(table?)
    }

    /// The values as objects of Python: for each key a dictionary of its columns, or the one value, or `None`. With `late`, keys
    /// without an answer are `None`, too.
    #[pyo3(signature = (*, late=false))]
    pub fn rows<'py>(&self, py: Python<'py>, late: bool) -> PyResult<Vec<Bound<'py, PyAny>>> {
        // A key that does not exist need not be of the key's type.
        let decoded: Result<(RecordBatch, usize), Fault> = py.detach(|| {
            let typed = self.columns()?;
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for (key, value) in self.keys.iter().zip(&self.values) {
                if let Some(value) = Self::value(value, late)? {
                    keys.push(key.key());
                    values.push(Some(value));
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
