//! Keys as Python gives them: a list, an Arrow array, or any object with `tolist()`, such as an array of numpy.
//!
//! Text is UTF-8, and an integer is its decimal digits, as a push writes them. A tuple is a key of several parts.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use bytes::{BufMut, Bytes, BytesMut};
use fondaco_model::{KeyPart, KeyType, StoreName};
use fondaco_protocol::WireKey;
use fondaco_schema::key_of_parts;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString, PyTuple};

use crate::arrow::arrays;
use crate::fault::Fault;
use crate::runtime::type_name;

/// Collects keys of one store, or of those that the keys name themselves, in one buffer.
struct Collector<'a> {
    prefix: &'a [u8],
    buffer: BytesMut,
    keys: Vec<WireKey>,
}

impl Collector<'_> {
    fn add(&mut self, key: &[u8]) -> Result<(), Fault> {
        self.buffer.put_slice(self.prefix);
        self.buffer.put_slice(key);
        self.finish()
    }

    fn add_integer(&mut self, number: impl itoa::Integer) -> Result<(), Fault> {
        self.add(itoa::Buffer::new().format(number).as_bytes())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        match WireKey::parse(self.buffer.split().freeze()) {
            Ok(key) => {
                self.keys.push(key);
                Ok(())
            }
            Err(error) => Err(Fault::new("BADKEY", format!("key {}: {error}", self.keys.len()))),
        }
    }

    fn add_object(&mut self, key: &Bound<'_, PyAny>) -> Result<(), Fault> {
        if let Ok(text) = key.cast::<PyString>() {
            self.add(text.to_str()?.as_bytes())
        } else if let Ok(bytes) = key.cast::<PyBytes>() {
            self.add(bytes.as_bytes())
        } else if key.is_instance_of::<PyBool>() {
            let at = self.keys.len();
            Err(Fault::bad_input(format!(
                "key {at} is a bool: keys are str, bytes or int"
            )))
        } else if key.is_instance_of::<PyInt>() {
            self.buffer.put_slice(self.prefix);
            // Writing to a buffer does not fail.
            let _ = write!(self.buffer, "{}", key.str()?.to_str()?);
            self.finish()
        } else if let Ok(parts) = key.cast::<PyTuple>() {
            self.add_tuple(parts)
        } else if let Ok(number) = key.call_method0("__index__") {
            // A scalar of numpy.
            self.add_object(&number)
        } else {
            let (at, of) = (self.keys.len(), type_name(key));
            Err(Fault::bad_input(match key.is_none() {
                true => format!("key {at} is null: leave it out"),
                false => format!("key {at} is a {of}: keys are str, bytes or int, or tuples of these"),
            }))
        }
    }

    fn add_tuple(&mut self, tuple: &Bound<'_, PyTuple>) -> Result<(), Fault> {
        let (mut types, mut parts) = (Vec::new(), Vec::new());
        for part in tuple.iter() {
            let (part_type, bytes) = if let Ok(text) = part.cast::<PyString>() {
                (KeyPart::String, text.to_str()?.as_bytes().to_vec())
            } else if let Ok(bytes) = part.cast::<PyBytes>() {
                (KeyPart::Bytes, bytes.as_bytes().to_vec())
            } else if part.is_instance_of::<PyInt>() && !part.is_instance_of::<PyBool>() {
                (KeyPart::Integer, part.str()?.to_str()?.as_bytes().to_vec())
            } else {
                let (at, of) = (self.keys.len(), type_name(&part));
                let text = format!("key {at} has a part that is a {of}: parts of keys are str, bytes or int");
                return Err(Fault::bad_input(text));
            };
            types.push(part_type);
            parts.push(bytes);
        }
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let key = key_of_parts(&KeyType::Tuple(types), &parts);
        let key = key.map_err(|(part, error)| {
            let at = self.keys.len();
            Fault::bad_input(format!("key {at}, part {}: {}", part + 1, error.reason))
        })?;
        self.add(&key)
    }

    fn add_array(&mut self, array: &ArrayRef) -> Result<(), Fault> {
        if let Some(null) = (0..array.len()).find(|&row| array.is_null(row)) {
            let at = self.keys.len() + null;
            return Err(Fault::bad_input(format!("key {at} is null: leave it out")));
        }
        macro_rules! bytes {
            ($array:expr) => {
                $array.iter().flatten().try_for_each(|key| self.add(key.as_ref()))
            };
        }
        macro_rules! integers {
            ($kind:ident) => {
                (array.as_primitive::<arrow_array::types::$kind>().values().iter())
                    .try_for_each(|&key| self.add_integer(key))
            };
        }
        match array.data_type() {
            DataType::Utf8 => bytes!(array.as_string::<i32>()),
            DataType::LargeUtf8 => bytes!(array.as_string::<i64>()),
            DataType::Utf8View => bytes!(array.as_string_view()),
            DataType::Binary => bytes!(array.as_binary::<i32>()),
            DataType::LargeBinary => bytes!(array.as_binary::<i64>()),
            DataType::BinaryView => bytes!(array.as_binary_view()),
            DataType::FixedSizeBinary(_) => bytes!(array.as_fixed_size_binary()),
            DataType::Int8 => integers!(Int8Type),
            DataType::Int16 => integers!(Int16Type),
            DataType::Int32 => integers!(Int32Type),
            DataType::Int64 => integers!(Int64Type),
            DataType::UInt8 => integers!(UInt8Type),
            DataType::UInt16 => integers!(UInt16Type),
            DataType::UInt32 => integers!(UInt32Type),
            DataType::UInt64 => integers!(UInt64Type),
            other => Err(Fault::bad_input(format!(
                "keys are an array of {other}: use text, binary or integers"
            ))),
        }
    }
}

/// One key of a store.
pub fn wire_key(store: &StoreName, key: &Bound<'_, PyAny>) -> Result<WireKey, Fault> {
    let prefix = prefix(Some(store));
    let mut collector = collector(&prefix);
    collector.add_object(key)?;
    collector.keys.pop().ok_or_else(|| Fault::bad_input("no key"))
}

/// Keys of a store; without one, each key names its own, as `store:key`.
pub fn wire_keys(store: Option<&StoreName>, keys: &Bound<'_, PyAny>) -> Result<Vec<WireKey>, Fault> {
    let prefix = prefix(store);
    let mut collector = collector(&prefix);
    if keys.is_instance_of::<PyString>() || keys.is_instance_of::<PyBytes>() {
        return Err(Fault::bad_input(
            "give several keys as a list, or call the method for one key",
        ));
    }
    if let Some(arrays) = arrays(keys)? {
        for array in arrays {
            collector.add_array(&array)?;
        }
        return Ok(collector.keys);
    }
    let listed = match keys.hasattr("tolist")? {
        true => keys.call_method0("tolist")?,
        false => keys.clone(),
    };
    for key in listed.try_iter()? {
        collector.add_object(&key?)?;
    }
    Ok(collector.keys)
}

/// A value as Python gives it: bytes, text, or any buffer.
pub fn value(given: &Bound<'_, PyAny>) -> Result<Bytes, Fault> {
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(Bytes::copy_from_slice(bytes.as_bytes()));
    }
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(Bytes::copy_from_slice(text.to_str()?.as_bytes()));
    }
    let of = type_name(given);
    match of.as_str() {
        "bytearray" | "memoryview" => Ok(Bytes::from(
            given
                .call_method0("__bytes__")
                .or_else(|_| {
                    let bytes = given.py().get_type::<PyBytes>();
                    bytes.call1((given,))
                })?
                .extract::<Vec<u8>>()?,
        )),
        _ => Err(Fault::bad_input(format!("a value is a {of}: values are bytes or str"))),
    }
}

fn prefix(store: Option<&StoreName>) -> Vec<u8> {
    store.map_or_else(Vec::new, |store| format!("{store}:").into_bytes())
}

fn collector(prefix: &[u8]) -> Collector<'_> {
    Collector {
        prefix,
        buffer: BytesMut::with_capacity(4096),
        keys: Vec::new(),
    }
}
