//! The texts of dates, times, decimals and UUIDs, as exports have them.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta};

use super::{Logical, Unit};

impl Unit {
    fn per_second(self) -> i64 {
        match self {
            Self::Milliseconds => 1_000,
            Self::Microseconds => 1_000_000,
            Self::Nanoseconds => 1_000_000_000,
        }
    }

    fn split(self, value: i64) -> (i64, u32) {
        let per_second = self.per_second();
        (
            value.div_euclid(per_second),
            (value.rem_euclid(per_second) * (1_000_000_000 / per_second)) as u32,
        )
    }

    /// `None` if digits would be lost, or the number does not fit.
    fn join(self, seconds: i64, nanoseconds: u32) -> Option<i64> {
        let per_unit = 1_000_000_000 / self.per_second();
        if i64::from(nanoseconds) % per_unit != 0 {
            return None;
        }
        let value = i128::from(seconds) * i128::from(self.per_second()) + i128::from(i64::from(nanoseconds) / per_unit);
        i64::try_from(value).ok()
    }
}

/// The text of an int or a long; `None` beyond the calendar: the number itself is its JSON form then.
pub(crate) fn number_text(logical: Logical, value: i64) -> Option<String> {
    match logical {
        Logical::Date => Some(format!(
            "{:?}",
            NaiveDate::default().checked_add_signed(TimeDelta::try_days(value)?)?
        )),
        Logical::Time(unit) => {
            let (seconds, nanoseconds) = unit.split(value);
            let time = NaiveTime::from_num_seconds_from_midnight_opt(u32::try_from(seconds).ok()?, nanoseconds)?;
            Some(format!("{time:?}"))
        }
        Logical::Timestamp(unit) | Logical::LocalTimestamp(unit) => {
            let (seconds, nanoseconds) = unit.split(value);
            let zone = if matches!(logical, Logical::Timestamp(_)) {
                "Z"
            } else {
                ""
            };
            Some(format!(
                "{:?}{zone}",
                DateTime::from_timestamp(seconds, nanoseconds)?.naive_utc()
            ))
        }
        Logical::Decimal { .. } | Logical::Uuid => None,
    }
}

/// The number of such a text.
pub(crate) fn parse_number(logical: Logical, text: &str) -> Option<i64> {
    match logical {
        Logical::Date => Some(
            text.parse::<NaiveDate>()
                .ok()?
                .signed_duration_since(NaiveDate::default())
                .num_days(),
        ),
        Logical::Time(unit) => {
            let time = text.parse::<NaiveTime>().ok()?.signed_duration_since(NaiveTime::MIN);
            unit.join(time.num_seconds(), u32::try_from(time.subsec_nanos()).ok()?)
        }
        Logical::Timestamp(unit) | Logical::LocalTimestamp(unit) => {
            let text = if matches!(logical, Logical::Timestamp(_)) {
                text.strip_suffix('Z')?
            } else {
                text
            };
            let time = text.parse::<NaiveDateTime>().ok()?.and_utc();
            unit.join(time.timestamp(), time.timestamp_subsec_nanos())
        }
        Logical::Decimal { .. } | Logical::Uuid => None,
    }
}

/// The text of a decimal whose unscaled number has these bytes, most significant first; `None` beyond 128 bits.
pub(crate) fn decimal_text(scale: u32, bytes: &[u8]) -> Option<String> {
    let fill = if bytes.first().is_some_and(|byte| *byte >= 0x80) {
        0xff
    } else {
        0
    };
    let cut = bytes.len().saturating_sub(16);
    let mut number = [fill; 16];
    number[16 - (bytes.len() - cut)..].copy_from_slice(&bytes[cut..]);
    let number = i128::from_be_bytes(number);
    if bytes[..cut].iter().any(|byte| *byte != fill) || (number < 0) != (fill == 0xff) {
        return None;
    }
    let digits = format!("{:0>width$}", number.unsigned_abs(), width = scale as usize + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale as usize);
    let sign = if number < 0 { "-" } else { "" };
    Some(if scale == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    })
}

/// The bytes of a decimal: the shortest for `bytes`, `size` of them for a fixed. `None` if it does not fit without rounding.
pub(crate) fn parse_decimal(precision: u32, scale: u32, size: Option<usize>, text: &str) -> Option<Vec<u8>> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = if fraction.len() > scale as usize {
        fraction.trim_end_matches('0')
    } else {
        fraction
    };
    let all = format!("{whole}{fraction:0<width$}", width = scale as usize);
    let significant = all.trim_start_matches('0').len();
    if whole.is_empty()
        || fraction.len() > scale as usize
        || !all.bytes().all(|byte| byte.is_ascii_digit())
        || significant > precision as usize
    {
        return None;
    }
    let number = sign * all.parse::<i128>().ok()?;
    let bytes = number.to_be_bytes();
    let (fill, top) = if number < 0 { (0xff, 0x80) } else { (0, 0) };
    let mut skip = 0;
    while skip < 15 && bytes[skip] == fill && bytes[skip + 1] & 0x80 == top {
        skip += 1;
    }
    let shortest = &bytes[skip..];
    match size {
        None => Some(shortest.to_vec()),
        Some(size) if size < shortest.len() => None,
        Some(size) => Some([&vec![fill; size - shortest.len()][..], shortest].concat()),
    }
}

pub(crate) fn uuid_text(bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

pub(crate) fn parse_uuid(text: &str) -> Option<Vec<u8>> {
    let parts: Vec<&str> = text.split('-').collect();
    if parts.iter().map(|part| part.len()).ne([8, 4, 4, 4, 12])
        || !text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
    {
        return None;
    }
    let hex = parts.concat();
    (0..16)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn decimals_come_back(number in any::<i64>(), scale in 0u32..=38) {
            let bytes = number.to_be_bytes();
            let text = decimal_text(scale, &bytes).unwrap();
            let parsed = parse_decimal(38, scale, Some(8), &text).unwrap();
            prop_assert_eq!(&parsed[..], &bytes[..]);
        }

        #[test]
        fn times_come_back(value in -62_000_000_000_000i64..250_000_000_000_000) {
            for logical in [Logical::Timestamp(Unit::Milliseconds), Logical::LocalTimestamp(Unit::Microseconds), Logical::Timestamp(Unit::Nanoseconds)] {
                let text = number_text(logical, value).unwrap();
                prop_assert_eq!(parse_number(logical, &text), Some(value), "{}", text);
            }
            let days = value / 86_400_000;
            prop_assert_eq!(parse_number(Logical::Date, &number_text(Logical::Date, days).unwrap()), Some(days));
        }

        #[test]
        fn texts_that_are_none_are_refused(text in "[-0-9.:TZé ]{0,40}") {
            for logical in [Logical::Date, Logical::Time(Unit::Milliseconds), Logical::Timestamp(Unit::Microseconds)] {
                let _ = parse_number(logical, &text);
            }
            let _ = (parse_decimal(38, 2, None, &text), parse_decimal(5, 0, Some(2), &text), parse_uuid(&text));
        }
    }
}
