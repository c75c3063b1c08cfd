//! How bytes that are no text are written where only text can stand: base64, and UUIDs in their
//! usual form.

use arrow_array::cast::AsArray;
use arrow_array::{Array, FixedSizeBinaryArray};
use arrow_json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder};
use arrow_schema::{ArrowError, DataType, FieldRef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Whether a column of 16 bytes holds UUIDs.
pub(super) fn is_uuid(field: &arrow_schema::Field) -> bool {
    field.extension_type_name() == Some("arrow.uuid")
        || field
            .metadata()
            .get("logicalType")
            .is_some_and(|logical| logical == "uuid")
}

/// Appends a UUID as it is usually written.
pub(super) fn write_uuid(bytes: &[u8], out: &mut Vec<u8>) {
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Has binary in JSON written as base64, and UUIDs as they are usually written; `arrow-json`
/// writes both as hexadecimal digits.
#[derive(Debug)]
pub(super) struct BinaryAsText;

impl EncoderFactory for BinaryAsText {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Binary => Box::new(Base64(array.as_binary::<i32>(), |a, row| a.value(row))),
            DataType::LargeBinary => Box::new(Base64(array.as_binary::<i64>(), |a, row| a.value(row))),
            DataType::BinaryView => Box::new(Base64(array.as_binary_view(), |a, row| a.value(row))),
            DataType::FixedSizeBinary(16) if is_uuid(field) => Box::new(Uuid(array.as_fixed_size_binary())),
            DataType::FixedSizeBinary(_) => Box::new(Base64(array.as_fixed_size_binary(), |a, row| a.value(row))),
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

struct Base64<'a, A>(&'a A, fn(&A, usize) -> &[u8]);

impl<A> Encoder for Base64<'_, A> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.push(b'"');
        out.extend_from_slice(STANDARD.encode(self.1(self.0, row)).as_bytes());
        out.push(b'"');
    }
}

struct Uuid<'a>(&'a FixedSizeBinaryArray);

impl Encoder for Uuid<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.push(b'"');
        write_uuid(self.0.value(row), out);
        out.push(b'"');
    }
}
