//! Dates, times and intervals, as the builder writes them. Years before 1 have a minus, those after 9999 a plus.

use arrow_schema::TimeUnit;
use chrono::{Datelike, NaiveDate};

const NANOS: i128 = 1_000_000_000;

/// The days from 1 January of year 1, the first that `chrono` counts, to 1970.
const DAYS_TO_1970: i32 = 719_163;

/// Nanoseconds in a unit; `None` if that would round, or overflow.
pub(crate) fn nanos_in(unit: TimeUnit, nanos: i128) -> Option<i64> {
    let divisor = match unit {
        TimeUnit::Second => NANOS,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    };
    (nanos % divisor == 0).then(|| i64::try_from(nanos / divisor).ok())?
}

/// The days since 1970 of `2026-01-31`.
pub(crate) fn date(text: &[u8]) -> Option<i64> {
    let mut parts = Parts(text);
    let days = parts.date()?;
    parts.end(days)
}

/// The nanoseconds since midnight of `12:00:00.500`.
pub(crate) fn time_of_day_nanos(text: &[u8]) -> Option<i64> {
    let mut parts = Parts(text);
    let nanos = parts.time_of_day()?;
    parts.end(nanos)
}

/// The nanoseconds since 1970 of `2026-01-31T12:00:00`, with a `Z` if it is an instant.
pub(crate) fn timestamp_nanos(text: &[u8], is_instant: bool) -> Option<i128> {
    let mut parts = Parts(text);
    let days = parts.date()?;
    parts.literal(b'T')?;
    let nanos = parts.time_of_day()?;
    if is_instant {
        parts.literal(b'Z')?;
    }
    parts.end(i128::from(days) * 86_400 * NANOS + i128::from(nanos))
}

/// The nanoseconds of `PT3.5S`, `-PT3.5S` or `P0D`.
pub(crate) fn duration_nanos(text: &[u8]) -> Option<i128> {
    let mut parts = Parts(text);
    let sign = if parts.literal(b'-').is_some() { -1 } else { 1 };
    parts.literal(b'P')?;
    if parts.0 == b"0D" {
        return Some(0);
    }
    parts.literal(b'T')?;
    let nanos = parts.seconds()?;
    parts.literal(b'S')?;
    parts.end(sign * nanos)
}

/// The months, days and nanoseconds of `P14M3DT0.500S`.
pub(crate) fn interval(text: &[u8]) -> Option<(i32, i32, i64)> {
    let mut parts = Parts(text);
    parts.literal(b'P')?;
    let (mut months, mut days, mut nanos) = (0, 0, 0);
    if let Some(count) = parts.counted(b'M') {
        months = count;
    }
    if let Some(count) = parts.counted(b'D') {
        days = count;
    }
    if parts.literal(b'T').is_some() {
        let sign = if parts.literal(b'-').is_some() { -1 } else { 1 };
        nanos = i64::try_from(sign * parts.seconds()?).ok()?;
        parts.literal(b'S')?;
    } else if text.len() == 1 {
        return None;
    }
    parts.end((months, days, nanos))
}

/// The rest of a text.
struct Parts<'a>(&'a [u8]);

impl Parts<'_> {
    fn literal(&mut self, byte: u8) -> Option<()> {
        let (&first, rest) = self.0.split_first()?;
        (first == byte).then(|| self.0 = rest)
    }

    /// The value, if the text is at its end.
    fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }

    /// Some digits: the number, and their count.
    fn digits(&mut self, least: usize, most: usize) -> Option<(i64, usize)> {
        let count = self
            .0
            .iter()
            .take(most)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        let number = digits
            .iter()
            .fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
        (count >= least).then_some((number, count))
    }

    fn date(&mut self) -> Option<i64> {
        let sign = match self.0 {
            [b'-', ..] => -1,
            [b'+', ..] => 1,
            _ => 0,
        };
        if sign != 0 {
            self.0 = &self.0[1..];
        }
        let (year, _) = self.digits(4, if sign == 0 { 4 } else { 6 })?;
        self.literal(b'-')?;
        let (month, _) = self.digits(2, 2)?;
        self.literal(b'-')?;
        let (day, _) = self.digits(2, 2)?;
        let year = i32::try_from(if sign < 0 { -year } else { year }).ok()?;
        let date = NaiveDate::from_ymd_opt(year, u32::try_from(month).ok()?, u32::try_from(day).ok()?)?;
        Some(i64::from(date.num_days_from_ce() - DAYS_TO_1970))
    }

    fn time_of_day(&mut self) -> Option<i64> {
        let (hours, _) = self.digits(2, 2)?;
        self.literal(b':')?;
        let (minutes, _) = self.digits(2, 2)?;
        self.literal(b':')?;
        let (seconds, _) = self.digits(2, 2)?;
        if hours > 23 || minutes > 59 || seconds > 59 {
            return None;
        }
        let nanos = self.fraction()?;
        Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + nanos)
    }

    /// The nanoseconds of `.500`; 0 if there is no fraction.
    fn fraction(&mut self) -> Option<i64> {
        if self.literal(b'.').is_none() {
            return Some(0);
        }
        let (fraction, count) = self.digits(1, 9)?;
        Some(fraction * 10_i64.pow(9 - u32::try_from(count).ok()?))
    }

    /// The nanoseconds of some seconds.
    fn seconds(&mut self) -> Option<i128> {
        let (seconds, _) = self.digits(1, 18)?;
        Some(i128::from(seconds) * NANOS + i128::from(self.fraction()?))
    }

    /// A number before this letter; nothing is consumed if there is none.
    fn counted(&mut self, letter: u8) -> Option<i32> {
        let mut rest = Parts(self.0);
        let sign = if rest.literal(b'-').is_some() { -1 } else { 1 };
        let (count, _) = rest.digits(1, 10)?;
        rest.literal(letter)?;
        self.0 = rest.0;
        i32::try_from(sign * count).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_of_any_length_are_read() {
        assert_eq!(date(b"1970-01-01"), Some(0));
        assert_eq!(date(b"2026-01-31"), Some(20_484));
        assert_eq!(date(b"0001-01-01"), Some(-719_162));
        assert_eq!(date(b"0000-12-31"), Some(-719_163));
        assert_eq!(date(b"-0001-12-31"), Some(-719_529));
        assert_eq!(date(b"+10000-01-01"), Some(2_932_897));
        for wrong in [
            "",
            "2026-02-30",
            "2026-1-1",
            "10000-01-01",
            "2026-01-01T",
            "2026-01-01 ",
        ] {
            assert_eq!(date(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_time_has_all_its_fraction_and_the_zone_of_its_type() {
        assert_eq!(timestamp_nanos(b"1970-01-01T00:00:00.000000001", false), Some(1));
        assert_eq!(timestamp_nanos(b"1969-12-31T23:59:59.999Z", true), Some(-1_000_000));
        assert_eq!(timestamp_nanos(b"1970-01-01T00:00:00", true), None);
        assert_eq!(timestamp_nanos(b"1970-01-01T00:00:00Z", false), None);
        assert_eq!(time_of_day_nanos(b"24:00:00"), None);
        assert_eq!(nanos_in(TimeUnit::Millisecond, 1_500_000), None);
        assert_eq!(nanos_in(TimeUnit::Nanosecond, i128::MAX), None);
    }

    #[test]
    fn intervals_and_durations_keep_their_signs() {
        assert_eq!(interval(b"P1M2DT3.500S"), Some((1, 2, 3_500_000_000)));
        assert_eq!(interval(b"P-1M40D"), Some((-1, 40, 0)));
        assert_eq!(interval(b"P1DT-9223372036.854775808S"), Some((0, 1, i64::MIN)));
        assert_eq!(interval(b"PT0S"), Some((0, 0, 0)));
        assert_eq!(interval(b"P"), None);
        assert_eq!(interval(b"P2D1M"), None);
        assert_eq!(duration_nanos(b"P0D"), Some(0));
        assert_eq!(duration_nanos(b"PT3.5S"), Some(3_500_000_000));
        assert_eq!(duration_nanos(b"-PT0.000000001S"), Some(-1));
    }
}
