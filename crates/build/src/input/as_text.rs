//! Conversion of non-text values to text: bytes as base64, UUIDs in their usual form, and times as calendar dates. Some
//! times are outside of the calendar's range.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, FixedSizeBinaryArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder};
use arrow_schema::{ArrowError, DataType, FieldRef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;

/// Whether a column of 16 bytes holds UUIDs.
pub(super) fn is_uuid(field: &arrow_schema::Field) -> bool {
    field.extension_type_name() == Some("arrow.uuid")
        || field
            .metadata()
            .get("logicalType")
            .is_some_and(|logical| logical == "uuid")
}

/// Appends a UUID in its usual form.
pub(super) fn write_uuid(bytes: &[u8], out: &mut Vec<u8>) {
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The format of dates, times and decimals.
pub(super) const SCALARS: FormatOptions<'static> = FormatOptions::new();

/// Writes JSON with these options; [`check`](Self::check) must be called after each value.
pub(super) struct Json {
    pub(super) options: EncoderOptions,
    refused: Arc<Refused>,
}

impl Default for Json {
    fn default() -> Self {
        let refused = Arc::<Refused>::default();
        let factory = AsText(Arc::clone(&refused));
        let options = EncoderOptions::default()
            .with_explicit_nulls(true)
            .with_encoder_factory(Arc::new(factory));
        Self { options, refused }
    }
}

impl Json {
    /// Checks that the last value was written correctly; the reason otherwise.
    pub(super) fn check(&self) -> Result<(), String> {
        self.refused.take().map_or(Ok(()), Err)
    }
}

/// Encodes binary in JSON as base64, and UUIDs in their usual form; `arrow-json` writes both as hexadecimal digits. For
/// times outside of the calendar's range, `arrow-json` writes an error as the value; such times are noted as
/// [`Refused`].
#[derive(Debug)]
struct AsText(Arc<Refused>);

/// Why the last value cannot be written: encoders cannot return an error.
#[derive(Debug, Default)]
struct Refused(Mutex<Option<String>>);

impl Refused {
    fn note(&self, reason: String) {
        *self.0.lock() = Some(reason);
    }

    /// The note since the last call.
    fn take(&self) -> Option<String> {
        self.0.lock().take()
    }
}

/// The error for a column with a value that cannot be written as text.
pub(super) fn no_text(field: &arrow_schema::Field, error: &ArrowError) -> String {
    format!("{:?} cannot be written as text: {error}", field.name())
}

impl EncoderFactory for AsText {
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
            time if time.is_temporal() => Box::new(Time {
                field,
                formatter: ArrayFormatter::try_new(array, &SCALARS)?,
                text: String::new(),
                refused: Arc::clone(&self.0),
            }),
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

struct Time<'a> {
    field: &'a FieldRef,
    formatter: ArrayFormatter<'a>,
    text: String,
    refused: Arc<Refused>,
}

impl Encoder for Time<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        self.text.clear();
        if let Err(error) = self.formatter.value(row).write(&mut self.text) {
            return self.refused.note(no_text(self.field, &error));
        }
        // The text of a time needs no escapes.
        out.push(b'"');
        out.extend_from_slice(self.text.as_bytes());
        out.push(b'"');
    }
}
