//! Conversion of values to text where the output of `arrow-json` and `arrow-cast` is wrong or missing: bytes, UUIDs,
//! times, intervals, unions, numbers that readers of JSON round, and floats that JSON does not have.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType,
};
use arrow_array::{Array, FixedSizeBinaryArray, Float16Array, Float32Array, Float64Array, UnionArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, IntervalUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fondaco_schema::Schema;
use parking_lot::Mutex;

use crate::options::{NonFinite, Numbers, ReadOptions};

pub(super) use fondaco_typed::{UUID, is_uuid};

/// The field of the values in a list or a map: `arrow-json` passes on that of the column around them.
fn of_values(field: &Field) -> &Field {
    match field.data_type() {
        DataType::List(inner)
        | DataType::LargeList(inner)
        | DataType::ListView(inner)
        | DataType::LargeListView(inner)
        | DataType::FixedSizeList(inner, _) => of_values(inner),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(entry) if entry.len() == 2 => of_values(&entry[1]),
            _ => field,
        },
        _ => field,
    }
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

/// Scalars without a quicker way to their text.
pub(super) enum Scalars<'a> {
    Formatted(ArrayFormatter<'a>),
    Interval(&'a dyn Array, IntervalUnit),
}

impl<'a> Scalars<'a> {
    pub(super) fn new(array: &'a dyn Array) -> Result<Self, ArrowError> {
        match array.data_type() {
            DataType::Interval(unit) => Ok(Self::Interval(array, *unit)),
            _ => ArrayFormatter::try_new(array, &SCALARS).map(Self::Formatted),
        }
    }

    /// Appends the text of a value.
    ///
    /// # Errors
    /// Why it has none.
    pub(super) fn write(&self, row: usize, text: &mut String) -> Result<(), String> {
        let (months, days, nanos) = match self {
            Self::Formatted(formatter) => {
                let written = formatter.value(row).write(text);
                return written.map_err(|error| format!("cannot be written as text: {error}"));
            }
            Self::Interval(array, IntervalUnit::YearMonth) => {
                (array.as_primitive::<IntervalYearMonthType>().value(row), 0, 0)
            }
            Self::Interval(array, IntervalUnit::DayTime) => {
                let value = array.as_primitive::<IntervalDayTimeType>().value(row);
                (0, value.days, i64::from(value.milliseconds) * 1_000_000)
            }
            Self::Interval(array, IntervalUnit::MonthDayNano) => {
                let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                (value.months, value.days, value.nanoseconds)
            }
        };
        write_interval(months, days, nanos, text);
        Ok(())
    }
}

/// Appends an interval as in ISO 8601: `P14M3DT0.500S`. Its parts stay apart, since months and days differ in length.
fn write_interval(months: i32, days: i32, nanos: i64, text: &mut String) {
    const NANOS: u64 = 1_000_000_000;
    let from = text.len();
    text.push('P');
    // Writing to a string cannot fail.
    if months != 0 {
        let _ = write!(text, "{months}M");
    }
    if days != 0 {
        let _ = write!(text, "{days}D");
    }
    if nanos != 0 || text.len() == from + 1 {
        let sign = if nanos < 0 { "-" } else { "" };
        let (seconds, rest) = (nanos.unsigned_abs() / NANOS, nanos.unsigned_abs() % NANOS);
        let _ = write!(text, "T{sign}{seconds}");
        let _ = match rest {
            0 => Ok(()),
            rest if rest % 1_000_000 == 0 => write!(text, ".{:03}", rest / 1_000_000),
            rest if rest % 1000 == 0 => write!(text, ".{:06}", rest / 1000),
            rest => write!(text, ".{rest:09}"),
        };
        text.push('S');
    }
}

/// A column of floats.
pub(super) enum Floats<'a> {
    Half(&'a Float16Array),
    Single(&'a Float32Array),
    Double(&'a Float64Array),
}

impl<'a> Floats<'a> {
    pub(super) fn of(array: &'a dyn Array) -> Option<Self> {
        match array.data_type() {
            DataType::Float16 => Some(Self::Half(array.as_primitive::<Float16Type>())),
            DataType::Float32 => Some(Self::Single(array.as_primitive::<Float32Type>())),
            DataType::Float64 => Some(Self::Double(array.as_primitive::<Float64Type>())),
            _ => None,
        }
    }

    /// The name of the value if it is NaN or an infinity.
    #[inline]
    pub(super) fn non_finite(&self, row: usize) -> Option<&'static str> {
        let value = match self {
            Self::Half(array) => array.value(row).to_f64(),
            Self::Single(array) => f64::from(array.value(row)),
            Self::Double(array) => array.value(row),
        };
        match value {
            value if value.is_finite() => None,
            value if value.is_nan() => Some("NaN"),
            value if value < 0.0 => Some("-Infinity"),
            _ => Some("Infinity"),
        }
    }
}

/// The text of a value that is not finite; `None` if it is to be null.
pub(super) fn of_non_finite(name: &'static str, choice: NonFinite) -> Result<Option<&'static str>, String> {
    match choice {
        NonFinite::Fail => Err(format!(
            "is {name}, which JSON does not have: use --non-finite null or text"
        )),
        NonFinite::Null => Ok(None),
        NonFinite::Text => Ok(Some(name)),
    }
}

/// Writes JSON with these options; [`check`](Self::check) must be called after each value.
pub(super) struct Json<'a> {
    options: EncoderOptions,
    /// The same, for decimals that a record has as numbers. In records, other decimals are text: JSON rounds long ones.
    options_of_numbers: EncoderOptions,
    schema: Option<&'a Schema>,
    pub(super) non_finite: NonFinite,
    refused: Arc<Refused>,
}

impl<'a> Json<'a> {
    /// Writes JSON, of which records of the schema are made if there is one.
    pub(super) fn new(options: &ReadOptions, schema: Option<&'a Schema>) -> Self {
        let refused = Arc::<Refused>::default();
        // Records have NaN and infinity.
        let non_finite = match (options.non_finite, schema) {
            (NonFinite::Fail, Some(_)) => NonFinite::Text,
            (choice, _) => choice,
        };
        let encoder = |decimals: Numbers| {
            let factory = AsText {
                refused: Arc::clone(&refused),
                numbers: options.numbers,
                decimals,
                non_finite,
            };
            EncoderOptions::default()
                .with_explicit_nulls(true)
                .with_encoder_factory(Arc::new(factory))
        };
        Self {
            options: encoder(if schema.is_some() {
                Numbers::Text
            } else {
                options.numbers
            }),
            options_of_numbers: encoder(options.numbers),
            schema,
            non_finite,
            refused,
        }
    }

    /// The options for a column.
    pub(super) fn options_of(&self, column: &Field) -> &EncoderOptions {
        match self.schema {
            Some(schema) if column.data_type().is_decimal() && !schema.reads_text(Some(column.name())) => {
                &self.options_of_numbers
            }
            _ => &self.options,
        }
    }

    /// Checks that the last value, one of column `column`, was written correctly; the reason otherwise.
    pub(super) fn check(&self, column: &str) -> Result<(), String> {
        let refused = self.refused.take();
        refused.map_or(Ok(()), |reason| Err(format!("{column:?} {reason}")))
    }
}

/// Encodes in JSON the values that the builder writes differently from `arrow-json`. Binary is base64, and UUIDs have
/// their usual form; `arrow-json` writes both as hexadecimal digits. NaN and infinity are written as [`NonFinite`]
/// says; `arrow-json` writes null. For times outside of the calendar's range, `arrow-json` writes an error as the
/// value. Values that cannot be written are noted as [`Refused`].
#[derive(Debug)]
struct AsText {
    refused: Arc<Refused>,
    numbers: Numbers,
    decimals: Numbers,
    non_finite: NonFinite,
}

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

/// The encoder of `arrow-json` itself.
fn usual<'a>(field: &'a FieldRef, array: &'a dyn Array) -> Result<NullableEncoder<'a>, ArrowError> {
    static USUAL: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);
    make_encoder(field, array, &USUAL)
}

impl EncoderFactory for AsText {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        if let Some(floats) = Floats::of(array) {
            let encoder = Float {
                floats,
                usual: usual(field, array)?,
                non_finite: self.non_finite,
                refused: Arc::clone(&self.refused),
            };
            return Ok(Some(NullableEncoder::new(Box::new(encoder), array.nulls().cloned())));
        }
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Binary => Box::new(Base64(array.as_binary::<i32>(), |a, row| a.value(row))),
            DataType::LargeBinary => Box::new(Base64(array.as_binary::<i64>(), |a, row| a.value(row))),
            DataType::BinaryView => Box::new(Base64(array.as_binary_view(), |a, row| a.value(row))),
            DataType::FixedSizeBinary(16) if is_uuid(of_values(field)) => Box::new(Uuid(array.as_fixed_size_binary())),
            DataType::FixedSizeBinary(_) => Box::new(Base64(array.as_fixed_size_binary(), |a, row| a.value(row))),
            time if time.is_temporal() => Box::new(Time {
                scalars: Scalars::new(array)?,
                text: String::new(),
                refused: Arc::clone(&self.refused),
            }),
            DataType::Int64 | DataType::UInt64 if self.numbers == Numbers::Text => {
                Box::new(Quoted(usual(field, array)?))
            }
            decimal if decimal.is_decimal() && self.decimals == Numbers::Text => Box::new(Quoted(usual(field, array)?)),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(parts) if parts.len() == 2 && !is_text(parts[0].data_type()) => {
                    let array = array.as_map();
                    Box::new(Pairs {
                        offsets: array.offsets(),
                        keys: make_encoder(&parts[0], array.keys(), options)?,
                        values: make_encoder(&parts[1], array.values(), options)?,
                        refused: Arc::clone(&self.refused),
                    })
                }
                _ => return Ok(None),
            },
            DataType::Union(members, _) => {
                let array = array.as_union();
                let members = members.iter().map(|(id, member)| {
                    let encoder = make_encoder(member, array.child(id), options)?;
                    Ok((id, encoder))
                });
                Box::new(Union {
                    array,
                    members: members.collect::<Result<_, ArrowError>>()?,
                })
            }
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
    scalars: Scalars<'a>,
    text: String,
    refused: Arc<Refused>,
}

impl Encoder for Time<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        self.text.clear();
        if let Err(reason) = self.scalars.write(row, &mut self.text) {
            return self.refused.note(reason);
        }
        // The text of a time needs no escapes.
        out.push(b'"');
        out.extend_from_slice(self.text.as_bytes());
        out.push(b'"');
    }
}

struct Float<'a> {
    floats: Floats<'a>,
    usual: NullableEncoder<'a>,
    non_finite: NonFinite,
    refused: Arc<Refused>,
}

impl Encoder for Float<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let Some(name) = self.floats.non_finite(row) else {
            return self.usual.encode(row, out);
        };
        match of_non_finite(name, self.non_finite) {
            Err(reason) => self.refused.note(reason),
            Ok(None) => out.extend_from_slice(b"null"),
            Ok(Some(text)) => {
                out.push(b'"');
                out.extend_from_slice(text.as_bytes());
                out.push(b'"');
            }
        }
    }
}

/// Numbers as text.
struct Quoted<'a>(NullableEncoder<'a>);

impl Encoder for Quoted<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.push(b'"');
        self.0.encode(row, out);
        out.push(b'"');
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// A map with keys other than text: a list of pairs, since the names in a JSON object are text.
struct Pairs<'a> {
    offsets: &'a [i32],
    keys: NullableEncoder<'a>,
    values: NullableEncoder<'a>,
    refused: Arc<Refused>,
}

impl Encoder for Pairs<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        // Offsets are not negative.
        let [from, to] = [row, row + 1].map(|place| self.offsets[place] as usize);
        out.push(b'[');
        for entry in from..to {
            if entry > from {
                out.push(b',');
            }
            if self.keys.is_null(entry) {
                return self.refused.note("has a null key in a map".to_owned());
            }
            out.push(b'[');
            self.keys.encode(entry, out);
            out.push(b',');
            match self.values.is_null(entry) {
                true => out.extend_from_slice(b"null"),
                false => self.values.encode(entry, out),
            }
            out.push(b']');
        }
        out.push(b']');
    }
}

/// Values of several types, each as its own type is.
struct Union<'a> {
    array: &'a UnionArray,
    /// By type id.
    members: Vec<(i8, NullableEncoder<'a>)>,
}

impl Encoder for Union<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let (id, row) = (self.array.type_id(row), self.array.value_offset(row));
        match self.members.iter_mut().find(|(member, _)| *member == id) {
            Some((_, encoder)) if !encoder.is_null(row) => encoder.encode(row, out),
            _ => out.extend_from_slice(b"null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_keeps_months_days_and_seconds_apart() {
        for (months, days, nanos, expected) in [
            (0, 0, 0, "PT0S"),
            (14, 0, 0, "P14M"),
            (-1, 40, 0, "P-1M40D"),
            (1, 2, 3_500_000_000, "P1M2DT3.500S"),
            (0, 0, -1_000, "PT-0.000001S"),
            (0, 1, i64::MIN, "P1DT-9223372036.854775808S"),
        ] {
            let mut text = String::new();
            write_interval(months, days, nanos, &mut text);
            assert_eq!(text, expected);
        }
    }
}
