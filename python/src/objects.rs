//! Rows as Python objects: the value of a row of an Arrow array as the type of Python that is nearest to it.
//!
//! Integers are `int`, text `str`, bytes `bytes`, lists and structs `list` and `dict`; dates, times and decimals are those of
//! `datetime` and `decimal`. A time with nanoseconds that `datetime` cannot have is an error: read it as Arrow.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::fault::Fault;

/// The classes of the standard library.
struct Classes {
    date: Py<PyAny>,
    time: Py<PyAny>,
    delta: Py<PyAny>,
    epoch: Py<PyAny>,
    epoch_utc: Py<PyAny>,
    decimal: Py<PyAny>,
    uuid: Py<PyAny>,
}

fn classes(py: Python<'_>) -> PyResult<&'static Classes> {
    static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let datetime = py.import("datetime")?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        let zero = datetime.getattr("datetime")?;
        Ok(Classes {
            date: datetime.getattr("date")?.unbind(),
            time: datetime.getattr("time")?.unbind(),
            delta: datetime.getattr("timedelta")?.unbind(),
            epoch: zero.call1((1970, 1, 1))?.unbind(),
            epoch_utc: zero.call1((1970, 1, 1, 0, 0, 0, 0, utc))?.unbind(),
            decimal: py.import("decimal")?.getattr("Decimal")?.unbind(),
            uuid: py.import("uuid")?.getattr("UUID")?.unbind(),
        })
    })
}

/// The rows of a batch as dictionaries of columns; rows of one value column, without the key, as that value.
pub fn rows<'py>(py: Python<'py>, batch: &RecordBatch, key_columns: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let schema = batch.schema();
    let is_single = batch.num_columns() == key_columns + 1;
    let names: Vec<Bound<'py, PyString>> = schema
        .fields()
        .iter()
        .map(|field| PyString::intern(py, field.name()))
        .collect();
    let columns = || schema.fields().iter().zip(batch.columns()).skip(key_columns);
    (0..batch.num_rows())
        .map(|row| {
            if is_single && let Some((field, column)) = columns().next() {
                return object(py, field, column, row);
            }
            let object_of_row = PyDict::new(py);
            for ((field, column), name) in columns().zip(&names[key_columns..]) {
                object_of_row.set_item(name, object(py, field, column, row)?)?;
            }
            Ok(object_of_row.into_any())
        })
        .collect()
}

/// The number of units of a time in a second.
fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// A number of units as whole seconds and microseconds.
fn seconds_and_microseconds(number: i64, unit: TimeUnit) -> PyResult<(i64, i64)> {
    let per_second = per_second(unit);
    let (seconds, rest) = (number.div_euclid(per_second), number.rem_euclid(per_second));
    match unit {
        TimeUnit::Nanosecond if rest % 1000 != 0 => Err(Fault::bad_input(format!(
            "{number} ns is no whole number of microseconds, which Python's datetime cannot have: use to_arrow()"
        ))
        .into()),
        _ => Ok((seconds, rest * 1_000_000 / per_second)),
    }
}

fn delta(py: Python<'_>, number: i64, unit: TimeUnit) -> PyResult<Bound<'_, PyAny>> {
    let (seconds, microseconds) = seconds_and_microseconds(number, unit)?;
    classes(py)?.delta.bind(py).call1((0, seconds, microseconds))
}

fn time_of_day(py: Python<'_>, number: i64, unit: TimeUnit) -> PyResult<Bound<'_, PyAny>> {
    let (seconds, microseconds) = seconds_and_microseconds(number, unit)?;
    let time = classes(py)?.time.bind(py);
    time.call1((seconds / 3600, seconds / 60 % 60, seconds % 60, microseconds))
}

/// The value of a row.
fn object<'py>(py: Python<'py>, field: &Field, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if array.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    macro_rules! number {
        ($kind:ident) => {
            array
                .as_primitive::<$kind>()
                .value(row)
                .into_pyobject(py)?
                .into_any()
        };
    }
    macro_rules! time {
        ($kind:ident) => {
            i64::from(array.as_primitive::<$kind>().value(row))
        };
    }
    macro_rules! decimal {
        ($kind:ident) => {
            classes(py)?
                .decimal
                .bind(py)
                .call1((array.as_primitive::<$kind>().value_as_string(row),))?
        };
    }
    let list = |items: ArrayRef, field: &Field| -> PyResult<Bound<'py, PyAny>> {
        let items = (0..items.len()).map(|row| object(py, field, &items, row));
        Ok(PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any())
    };
    Ok(match array.data_type() {
        DataType::Null => py.None().into_bound(py),
        DataType::Boolean => array.as_boolean().value(row).into_pyobject(py)?.to_owned().into_any(),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float16 => array
            .as_primitive::<Float16Type>()
            .value(row)
            .to_f64()
            .into_pyobject(py)?
            .into_any(),
        DataType::Float32 => number!(Float32Type),
        DataType::Float64 => number!(Float64Type),
        DataType::Utf8 => PyString::new(py, array.as_string::<i32>().value(row)).into_any(),
        DataType::LargeUtf8 => PyString::new(py, array.as_string::<i64>().value(row)).into_any(),
        DataType::Binary => PyBytes::new(py, array.as_binary::<i32>().value(row)).into_any(),
        DataType::LargeBinary => PyBytes::new(py, array.as_binary::<i64>().value(row)).into_any(),
        DataType::FixedSizeBinary(_) => {
            let bytes = PyBytes::new(py, array.as_fixed_size_binary().value(row));
            match fondaco_typed::is_uuid(field) {
                true => classes(py)?.uuid.bind(py).call1((py.None(), bytes))?,
                false => bytes.into_any(),
            }
        }
        DataType::Date32 => {
            let epoch_ordinal = 719_163;
            let ordinal = time!(Date32Type) + epoch_ordinal;
            classes(py)?.date.bind(py).call_method1("fromordinal", (ordinal,))?
        }
        DataType::Date64 => {
            let since = delta(py, time!(Date64Type), TimeUnit::Millisecond)?;
            classes(py)?.epoch.bind(py).add(since)?
        }
        DataType::Timestamp(unit, zone) => {
            let number = match unit {
                TimeUnit::Second => time!(TimestampSecondType),
                TimeUnit::Millisecond => time!(TimestampMillisecondType),
                TimeUnit::Microsecond => time!(TimestampMicrosecondType),
                TimeUnit::Nanosecond => time!(TimestampNanosecondType),
            };
            let epoch = match zone {
                Some(_) => &classes(py)?.epoch_utc,
                None => &classes(py)?.epoch,
            };
            epoch.bind(py).add(delta(py, number, *unit)?)?
        }
        DataType::Time32(TimeUnit::Second) => time_of_day(py, time!(Time32SecondType), TimeUnit::Second)?,
        DataType::Time32(unit) => time_of_day(py, time!(Time32MillisecondType), *unit)?,
        DataType::Time64(TimeUnit::Microsecond) => {
            time_of_day(py, time!(Time64MicrosecondType), TimeUnit::Microsecond)?
        }
        DataType::Time64(unit) => time_of_day(py, time!(Time64NanosecondType), *unit)?,
        DataType::Duration(TimeUnit::Second) => delta(py, time!(DurationSecondType), TimeUnit::Second)?,
        DataType::Duration(TimeUnit::Millisecond) => delta(py, time!(DurationMillisecondType), TimeUnit::Millisecond)?,
        DataType::Duration(TimeUnit::Microsecond) => delta(py, time!(DurationMicrosecondType), TimeUnit::Microsecond)?,
        DataType::Duration(TimeUnit::Nanosecond) => delta(py, time!(DurationNanosecondType), TimeUnit::Nanosecond)?,
        DataType::Interval(unit) => {
            // Months, days and nanoseconds: Python has no such type.
            let parts = match unit {
                IntervalUnit::YearMonth => (array.as_primitive::<IntervalYearMonthType>().value(row), 0, 0),
                IntervalUnit::DayTime => {
                    let value = array.as_primitive::<IntervalDayTimeType>().value(row);
                    (0, value.days, i64::from(value.milliseconds) * 1_000_000)
                }
                IntervalUnit::MonthDayNano => {
                    let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                    (value.months, value.days, value.nanoseconds)
                }
            };
            parts.into_pyobject(py)?.into_any()
        }
        DataType::Decimal128(..) => decimal!(Decimal128Type),
        DataType::Decimal256(..) => decimal!(Decimal256Type),
        DataType::List(item) => list(array.as_list::<i32>().value(row), item)?,
        DataType::LargeList(item) => list(array.as_list::<i64>().value(row), item)?,
        DataType::FixedSizeList(item, _) => list(array.as_fixed_size_list().value(row), item)?,
        DataType::Struct(fields) => {
            let members = PyDict::new(py);
            for (field, column) in fields.iter().zip(array.as_struct().columns()) {
                members.set_item(field.name(), object(py, field, column, row)?)?;
            }
            members.into_any()
        }
        DataType::Map(_, _) => {
            // A list of pairs: keys of a map need not be hashable in Python.
            let entries = array.as_map().value(row);
            let fields = entries.fields();
            let pairs = (0..entries.len()).map(|row| {
                let key = object(py, &fields[0], entries.column(0), row)?;
                let value = object(py, &fields[1], entries.column(1), row)?;
                (key, value).into_pyobject(py)
            });
            PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        other => {
            return Err(Fault::bad_input(format!(
                "column {:?} has the type {other}, which has no type of Python: use to_arrow()",
                field.name()
            ))
            .into());
        }
    })
}
