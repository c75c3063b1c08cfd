//! Arrow's C data interface, by capsules: arrays come in and batches go out without a copy, and without pyarrow.

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, from_ffi, to_ffi};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator, StructArray, make_array};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::fault::Fault;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

impl From<ArrowError> for Fault {
    fn from(error: ArrowError) -> Self {
        Self::bad_input(format!("the Arrow data cannot be used: {error}"))
    }
}

/// The arrays of an object that has an Arrow array or a stream of arrays; `None` if it is no such object.
pub fn arrays(object: &Bound<'_, PyAny>) -> Result<Option<Vec<ArrayRef>>, Fault> {
    if object.hasattr("__arrow_c_array__")? {
        let capsules = object.call_method0("__arrow_c_array__")?;
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = capsules.extract()?;
        return Ok(Some(vec![import_array(&schema, &array)?]));
    }
    if !object.hasattr("__arrow_c_stream__")? {
        return Ok(None);
    }
    let Ok(capsule) = object.call_method0("__arrow_c_stream__") else {
        // pandas has the method also where pyarrow, which it needs for it, is missing.
        return Ok(None);
    };
    let arrays = ArrayStreamReader::try_new(take_stream(&capsule)?)?;
    Ok(Some(arrays.collect::<Result<Vec<_>, _>>()?))
}

/// The rows of an object that has a stream of Arrow batches, or one batch.
pub fn reader(object: &Bound<'_, PyAny>) -> Result<Box<dyn arrow_array::RecordBatchReader + Send>, Fault> {
    if object.hasattr("__arrow_c_stream__")? {
        let capsule = object.call_method0("__arrow_c_stream__")?;
        return Ok(Box::new(RecordBatchStreamReader::try_new(take_stream(&capsule)?)?));
    }
    let arrays = arrays(object)?.unwrap_or_default();
    let Some(rows) = arrays
        .first()
        .and_then(|array| array.as_any().downcast_ref::<StructArray>())
    else {
        return Err(Fault::bad_input(format!(
            "a {} has no Arrow stream: give a DataFrame of pandas (2.2 or later, with pyarrow) or Polars, a table or a \
             RecordBatchReader of pyarrow, or any object with __arrow_c_stream__",
            crate::runtime::type_name(object)
        )));
    };
    let batch = RecordBatch::from(rows);
    let schema = batch.schema();
    Ok(Box::new(RecordBatchIterator::new([Ok(batch)], schema)))
}

fn take_stream(capsule: &Bound<'_, PyAny>) -> Result<FFI_ArrowArrayStream, Fault> {
    let capsule = capsule.cast::<PyCapsule>().map_err(PyErr::from)?;
    let stream = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name has such a structure, and it is moved out: an empty one stays.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) })
}

fn import_array(schema: &Bound<'_, PyCapsule>, array: &Bound<'_, PyCapsule>) -> Result<ArrayRef, Fault> {
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: capsules of these names have such structures; the array is moved out: an empty one stays. The producer
    // promises that the array has the schema.
    let data = unsafe {
        let array = FFI_ArrowArray::from_raw(array.as_ptr());
        from_ffi(array, schema.as_ref())
    }?;
    Ok(make_array(data))
}

fn export_schema<'py>(py: Python<'py>, schema: &SchemaRef) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(&**schema).map_err(Fault::from)?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// A batch of rows, as columns. pyarrow, Polars and pandas take it without a copy: `pyarrow.record_batch(batch)`.
#[pyclass(frozen, module = "fondaco")]
pub struct Batch(pub RecordBatch);

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        names(&self.0.schema())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        export_schema(py, &self.0.schema())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // A consumer casts what it gets.
        drop(requested_schema);
        let rows = StructArray::from(self.0.clone());
        let (array, _) = to_ffi(&rows.to_data()).map_err(Fault::from)?;
        let schema = export_schema(py, &self.0.schema())?;
        PyTuple::new(py, [schema, PyCapsule::new_with_value(py, array, ARRAY)?])
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        stream(py, self.0.schema(), vec![self.0.clone()])
    }

    fn __repr__(&self) -> String {
        format!(
            "<fondaco.Batch of {} rows: {}>",
            self.0.num_rows(),
            names(&self.0.schema()).join(", ")
        )
    }
}

/// Rows as columns, in batches. pyarrow, Polars and pandas take it without a copy: `pyarrow.table(table)`,
/// `polars.DataFrame(table)`.
#[pyclass(frozen, module = "fondaco")]
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    /// A table of batches with this schema.
    pub fn of_batches(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }

    /// A table of one batch.
    pub fn of(batch: RecordBatch) -> Self {
        Self {
            schema: batch.schema(),
            batches: vec![batch],
        }
    }
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        names(&self.schema)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        export_schema(py, &self.schema)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        stream(py, Arc::clone(&self.schema), self.batches.clone())
    }

    /// As a table of pyarrow.
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("table", (slf,))
    }

    /// As a DataFrame of pandas, by pyarrow.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::to_pyarrow(slf)?.call_method0("to_pandas")
    }

    /// As a DataFrame of Polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("polars")?.call_method1("DataFrame", (slf,))
    }

    fn __repr__(&self) -> String {
        format!(
            "<fondaco.Table of {} rows: {}>",
            self.__len__(),
            names(&self.schema).join(", ")
        )
    }
}

/// An Arrow schema: `pyarrow.schema(schema)` takes it.
#[pyclass(frozen, module = "fondaco", name = "Schema")]
pub struct SchemaCapsule(pub SchemaRef);

#[pymethods]
impl SchemaCapsule {
    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        names(&self.0)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        export_schema(py, &self.0)
    }

    fn __repr__(&self) -> String {
        let field = |field: &arrow_schema::FieldRef| format!("{}: {}", field.name(), fondaco_typed::type_text(field));
        let fields: Vec<String> = self.0.fields().iter().map(field).collect();
        format!("<fondaco.Schema {}>", fields.join(", "))
    }
}

fn names(schema: &SchemaRef) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

fn stream(py: Python<'_>, schema: SchemaRef, batches: Vec<RecordBatch>) -> PyResult<Bound<'_, PyCapsule>> {
    let reader = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
}
