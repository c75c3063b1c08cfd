//! The text of one value to the value, for every type without parts.
//!
//! Each parser accepts what the builder writes, and little more. None of them rounds.

use std::str::FromStr;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, PrimitiveBuilder, StringBuilder,
};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_buffer::{IntervalDayTime, IntervalMonthDayNano, i256};
use arrow_json::reader::{Tape, TapeElement};
use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::canonical::{JSON_TEXT, is_uuid};
use crate::json;
use crate::time::{date, duration_nanos, interval, nanos_in, time_of_day_nanos, timestamp_nanos};

/// The values of one column, one after the other.
pub(crate) trait Scalars: Send {
    fn append_null(&mut self);

    /// Appends the value with this text. Returns whether there is such a value.
    fn append(&mut self, text: &[u8]) -> bool;

    /// Appends a value of JSON. Returns whether it is one of this type.
    fn append_element(&mut self, tape: &Tape<'_>, place: u32) -> bool {
        match tape.get(place) {
            TapeElement::Null => {
                self.append_null();
                true
            }
            TapeElement::String(text) | TapeElement::Number(text) => self.append(tape.get_string(text).as_bytes()),
            TapeElement::True => self.append(b"true"),
            TapeElement::False => self.append(b"false"),
            _ => false,
        }
    }

    /// Appends the values at these places. Fails with the first value that is not of this type.
    fn append_elements(&mut self, tape: &Tape<'_>, places: &[u32]) -> Result<(), u32> {
        let unfit = places.iter().find(|&&place| !self.append_element(tape, place));
        unfit.map_or(Ok(()), |&place| Err(place))
    }

    fn finish(&mut self) -> ArrayRef;
}

/// The form that values have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A key, or a value that is one column: binary as it is.
    Raw,
    /// Within JSON: binary as base64.
    Json,
}

/// The column for a type of canonical form; `None` if the type has parts, or no values at all.
pub(crate) fn scalars(field: &Field, form: Form) -> Option<Box<dyn Scalars>> {
    Some(match field.data_type() {
        DataType::Boolean => Box::new(Booleans(BooleanBuilder::new())),
        DataType::Int8 => primitive::<Int8Type>(field, number),
        DataType::Int16 => primitive::<Int16Type>(field, number),
        DataType::Int32 => primitive::<Int32Type>(field, number),
        DataType::Int64 => primitive::<Int64Type>(field, number),
        DataType::UInt8 => primitive::<UInt8Type>(field, number),
        DataType::UInt16 => primitive::<UInt16Type>(field, number),
        DataType::UInt32 => primitive::<UInt32Type>(field, number),
        DataType::UInt64 => primitive::<UInt64Type>(field, number),
        DataType::Float16 => primitive::<Float16Type>(field, |text| {
            let wide = float::<f32>(text, f32::is_infinite)?;
            let half = half::f16::from_f32(wide);
            (half.is_infinite() == wide.is_infinite()).then_some(half)
        }),
        DataType::Float32 => primitive::<Float32Type>(field, |text| float(text, f32::is_infinite)),
        DataType::Float64 => primitive::<Float64Type>(field, |text| float(text, f64::is_infinite)),
        &DataType::Decimal128(precision, scale) => primitive::<Decimal128Type>(field, move |text| {
            let digits = decimal_digits(text, precision, scale)?;
            digits.parse().ok()
        }),
        &DataType::Decimal256(precision, scale) => primitive::<Decimal256Type>(field, move |text| {
            let digits = decimal_digits(text, precision, scale)?;
            i256::from_string(&digits)
        }),
        DataType::Utf8 if field.metadata().contains_key(JSON_TEXT) => Box::new(AnyJson {
            builder: StringBuilder::new(),
            text: String::new(),
        }),
        DataType::Utf8 => Box::new(Texts(StringBuilder::new())),
        DataType::FixedSizeBinary(16) if is_uuid(field) => Box::new(Fixed {
            builder: FixedSizeBinaryBuilder::new(16),
            decode: |text, out| uuid(text).map(|bytes| out.extend_from_slice(&bytes)).is_some(),
            length: 16,
            decoded: Vec::new(),
        }),
        DataType::FixedSizeBinary(length) => Box::new(Fixed {
            builder: FixedSizeBinaryBuilder::new(*length),
            decode: binary(form),
            length: usize::try_from(*length).ok()?,
            decoded: Vec::new(),
        }),
        DataType::Binary => match form {
            Form::Raw => Box::new(Bytes(BinaryBuilder::new())),
            Form::Json => Box::new(Base64 {
                builder: BinaryBuilder::new(),
                decoded: Vec::new(),
            }),
        },
        DataType::Date32 => primitive::<Date32Type>(field, |text| i32::try_from(date(text)?).ok()),
        DataType::Date64 => primitive::<Date64Type>(field, |text| {
            nanos_in(TimeUnit::Millisecond, timestamp_nanos(text, false)?)
        }),
        DataType::Time32(unit) => match unit {
            TimeUnit::Second => primitive::<Time32SecondType>(field, time_of_day(TimeUnit::Second)),
            _ => primitive::<Time32MillisecondType>(field, time_of_day(TimeUnit::Millisecond)),
        },
        DataType::Time64(unit) => match unit {
            TimeUnit::Microsecond => primitive::<Time64MicrosecondType>(field, time_of_day(TimeUnit::Microsecond)),
            _ => primitive::<Time64NanosecondType>(field, time_of_day(TimeUnit::Nanosecond)),
        },
        DataType::Timestamp(unit, zone) => {
            let is_instant = zone.is_some();
            let unit = *unit;
            let parse = move |text: &[u8]| nanos_in(unit, timestamp_nanos(text, is_instant)?);
            match unit {
                TimeUnit::Second => primitive::<TimestampSecondType>(field, parse),
                TimeUnit::Millisecond => primitive::<TimestampMillisecondType>(field, parse),
                TimeUnit::Microsecond => primitive::<TimestampMicrosecondType>(field, parse),
                TimeUnit::Nanosecond => primitive::<TimestampNanosecondType>(field, parse),
            }
        }
        DataType::Duration(unit) => {
            let unit = *unit;
            let parse = move |text: &[u8]| nanos_in(unit, duration_nanos(text)?);
            match unit {
                TimeUnit::Second => primitive::<DurationSecondType>(field, parse),
                TimeUnit::Millisecond => primitive::<DurationMillisecondType>(field, parse),
                TimeUnit::Microsecond => primitive::<DurationMicrosecondType>(field, parse),
                TimeUnit::Nanosecond => primitive::<DurationNanosecondType>(field, parse),
            }
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            primitive::<IntervalYearMonthType>(field, |text| match interval(text)? {
                (months, 0, 0) => Some(months),
                _ => None,
            })
        }
        DataType::Interval(IntervalUnit::DayTime) => primitive::<IntervalDayTimeType>(field, |text| {
            let (0, days, nanos) = interval(text)? else { return None };
            let millis = i32::try_from(nanos_in(TimeUnit::Millisecond, i128::from(nanos))?).ok()?;
            Some(IntervalDayTime::new(days, millis))
        }),
        DataType::Interval(IntervalUnit::MonthDayNano) => primitive::<IntervalMonthDayNanoType>(field, |text| {
            let (months, days, nanos) = interval(text)?;
            Some(IntervalMonthDayNano::new(months, days, nanos))
        }),
        _ => return None,
    })
}

struct Primitives<P: ArrowPrimitiveType, F> {
    builder: PrimitiveBuilder<P>,
    parse: F,
}

fn primitive<P: ArrowPrimitiveType>(
    field: &Field,
    parse: impl Fn(&[u8]) -> Option<P::Native> + Send + 'static,
) -> Box<dyn Scalars> {
    let builder = PrimitiveBuilder::<P>::new().with_data_type(field.data_type().clone());
    Box::new(Primitives { builder, parse })
}

impl<P: ArrowPrimitiveType, F: Fn(&[u8]) -> Option<P::Native> + Send> Scalars for Primitives<P, F> {
    fn append_null(&mut self) {
        self.builder.append_null();
    }

    #[inline]
    fn append(&mut self, text: &[u8]) -> bool {
        let value = (self.parse)(text);
        if let Some(value) = value {
            self.builder.append_value(value);
        }
        value.is_some()
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.builder.finish())
    }
}

/// Implements the parts of [`Scalars`] that all builders have alike.
macro_rules! of_builder {
    ($($builder:tt)+) => {
        fn append_null(&mut self) {
            self.$($builder)+.append_null();
        }

        fn finish(&mut self) -> ArrayRef {
            ArrayBuilder::finish(&mut self.$($builder)+)
        }
    };
}

struct Booleans(BooleanBuilder);

impl Scalars for Booleans {
    of_builder!(0);

    fn append(&mut self, text: &[u8]) -> bool {
        match text {
            b"true" => self.0.append_value(true),
            b"false" => self.0.append_value(false),
            _ => return false,
        }
        true
    }
}

struct Texts(StringBuilder);

impl Scalars for Texts {
    of_builder!(0);

    #[inline]
    fn append(&mut self, text: &[u8]) -> bool {
        let text = std::str::from_utf8(text);
        if let Ok(text) = text {
            self.0.append_value(text);
        }
        text.is_ok()
    }

    #[inline]
    fn append_element(&mut self, tape: &Tape<'_>, place: u32) -> bool {
        match tape.get(place) {
            TapeElement::String(text) => self.0.append_value(tape.get_string(text)),
            TapeElement::Null => self.0.append_null(),
            _ => return false,
        }
        true
    }
}

/// Texts of any JSON: a string without its quotes, everything else as it is written.
struct AnyJson {
    builder: StringBuilder,
    text: String,
}

impl Scalars for AnyJson {
    of_builder!(builder);

    fn append(&mut self, text: &[u8]) -> bool {
        let text = std::str::from_utf8(text);
        if let Ok(text) = text {
            self.builder.append_value(text);
        }
        text.is_ok()
    }

    fn append_element(&mut self, tape: &Tape<'_>, place: u32) -> bool {
        match tape.get(place) {
            TapeElement::Null => self.builder.append_null(),
            TapeElement::String(text) => self.builder.append_value(tape.get_string(text)),
            _ => {
                self.text.clear();
                json::write(tape, place, &mut self.text);
                self.builder.append_value(&self.text);
            }
        }
        true
    }
}

struct Bytes(BinaryBuilder);

impl Scalars for Bytes {
    of_builder!(0);

    #[inline]
    fn append(&mut self, text: &[u8]) -> bool {
        self.0.append_value(text);
        true
    }
}

struct Base64 {
    builder: BinaryBuilder,
    decoded: Vec<u8>,
}

impl Scalars for Base64 {
    of_builder!(builder);

    fn append(&mut self, text: &[u8]) -> bool {
        self.decoded.clear();
        let decoded = STANDARD.decode_vec(text, &mut self.decoded).is_ok();
        if decoded {
            self.builder.append_value(&self.decoded);
        }
        decoded
    }
}

/// Appends the bytes that a text stands for. Returns whether it stands for any.
type Decode = fn(&[u8], &mut Vec<u8>) -> bool;

struct Fixed {
    builder: FixedSizeBinaryBuilder,
    decode: Decode,
    length: usize,
    decoded: Vec<u8>,
}

impl Scalars for Fixed {
    of_builder!(builder);

    fn append(&mut self, text: &[u8]) -> bool {
        self.decoded.clear();
        (self.decode)(text, &mut self.decoded)
            && self.decoded.len() == self.length
            && self.builder.append_value(&self.decoded).is_ok()
    }
}

fn binary(form: Form) -> Decode {
    match form {
        Form::Raw => |text, out| {
            out.extend_from_slice(text);
            true
        },
        Form::Json => |text, out| STANDARD.decode_vec(text, out).is_ok(),
    }
}

fn number<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A float; the only texts of values that are not finite are those that the builder writes.
fn float<T: FromStr + Copy>(text: &[u8], is_infinite: fn(T) -> bool) -> Option<T> {
    match text {
        b"NaN" => return number(text),
        b"Infinity" => return number(b"inf"),
        b"-Infinity" => return number(b"-inf"),
        _ => {}
    }
    let starts_as_number = matches!(text, [b'0'..=b'9', ..] | [b'-', b'0'..=b'9', ..]);
    number::<T>(text).filter(|&value| starts_as_number && !is_infinite(value))
}

/// The digits of the unscaled integer of a decimal, with its sign; `None` if it has more digits than its type.
fn decimal_digits(text: &[u8], precision: u8, scale: i8) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let places = usize::from(scale.unsigned_abs());
    let (kept, dropped) = match scale >= 0 {
        true => {
            let (kept, dropped) = fraction.split_at(fraction.len().min(places));
            let zeros = "0".repeat(places - kept.len());
            (format!("{whole}{kept}{zeros}"), dropped.to_owned())
        }
        // The last digits of the integer are zeros that are not kept.
        false => {
            let (kept, dropped) = whole.split_at(whole.len().saturating_sub(places));
            (kept.to_owned(), format!("{dropped}{fraction}"))
        }
    };
    let digits = kept.trim_start_matches('0');
    if dropped.bytes().any(|byte| byte != b'0') || digits.len() > usize::from(precision) {
        return None;
    }
    Some(match digits {
        "" => "0".to_owned(),
        digits => format!("{sign}{digits}"),
    })
}

/// The bytes of a UUID in its usual form.
fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = [0; 16];
    let mut rest = text;
    for (place, byte) in bytes.iter_mut().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            rest = rest.strip_prefix(b"-")?;
        }
        let (&[high, low], after) = rest.split_first_chunk()?;
        *byte = u8::try_from(digit(high)? * 16 + digit(low)?).ok()?;
        rest = after;
    }
    rest.is_empty().then_some(bytes)
}

fn time_of_day<N: TryFrom<i64>>(unit: TimeUnit) -> impl Fn(&[u8]) -> Option<N> + Send {
    move |text| nanos_in(unit, i128::from(time_of_day_nanos(text)?)).and_then(|value| N::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_has_every_digit_of_its_scale() {
        for (text, scale, expected) in [
            ("12.50", 2, Some("1250")),
            ("-0.01", 2, Some("-1")),
            ("-0.00", 2, Some("0")),
            ("7", 2, Some("700")),
            ("12500", -2, Some("125")),
            ("0", -2, Some("0")),
            ("12.500", 2, Some("1250")),
            ("12.505", 2, None),
            ("12501", -2, None),
            ("1234567.00", 2, None),
            (".5", 2, None),
            ("1e3", 2, None),
            ("", 2, None),
        ] {
            assert_eq!(decimal_digits(text.as_bytes(), 6, scale).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn no_text_of_a_float_becomes_another_value() {
        let double = |text: &str| float::<f64>(text.as_bytes(), f64::is_infinite);
        assert_eq!(double("-1.5e-300"), Some(-1.5e-300));
        assert_eq!(double("-0.0").map(f64::to_bits), Some((-0.0_f64).to_bits()));
        assert_eq!(double("Infinity"), Some(f64::INFINITY));
        assert_eq!(double("-Infinity"), Some(f64::NEG_INFINITY));
        assert!(double("NaN").unwrap().is_nan());
        for text in ["1e999", "inf", "nan", "infinity", "+1", "", "-", "0x1", " 1"] {
            assert_eq!(double(text), None, "{text}");
        }
    }
}
