//! How what is no text is written where only text can stand: bytes as base64, UUIDs in their usual form, and times by the
//! calendar, which does not have all of them.

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

/// How dates, times and decimals are written.
pub(super) const SCALARS: FormatOptions<'static> = FormatOptions::new();

/// How JSON is written: by these options, and [checked](Self::check) after each value.
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
    /// Whether what was written last is what was to be written; why not, otherwise.
    pub(super) fn check(&self) -> Result<(), String> {
        self.refused.take().map_or(Ok(()), Err)
    }
}

/// Has binary in JSON written as base64, and UUIDs as they are usually written; `arrow-json` writes both as hexadecimal
/// digits. Has times that no calendar has noted as [`Refused`], for which it writes an error as if that was the value.
#[derive(Debug)]
struct AsText(Arc<Refused>);

/// Why what was written last cannot be: encoders have no other way to say so.
#[derive(Debug, Default)]
struct Refused(Mutex<Option<String>>);

impl Refused {
    fn note(&self, reason: String) {
        *self.0.lock() = Some(reason);
    }

    /// What was noted since this was asked last.
    fn take(&self) -> Option<String> {
        self.0.lock().take()
    }
}

/// What is said of a column with a value that has no text.
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
        // What times are written with needs no escapes.
        out.push(b'"');
        out.extend_from_slice(self.text.as_bytes());
        out.push(b'"');
    }
}
