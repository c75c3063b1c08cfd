//! How results are printed: text for people, JSON for programs.
//!
//! Results go to standard output and nothing else does, so that it can be piped.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde::Serialize;

/// How the user wants results.
pub struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    /// As `--json` and `--quiet` say.
    pub fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    /// Whether results are for programs.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether progress is unwanted.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints a result: as JSON, or as the text that `text` makes of it.
    pub fn result<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, value)?;
            out.write_all(b"\n")?;
        } else {
            out.write_all(text(value).as_bytes())?;
        }
        out.flush()?;
        Ok(())
    }

    /// Prints bytes as they are. On a terminal they get a line of their own.
    pub fn bytes(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        if out.is_terminal() {
            out.write_all(b"\n")?;
        }
        out.flush()?;
        Ok(())
    }

    /// Tells people something that is no result.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            // A note that cannot be written is not worth failing for.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// A table with its columns aligned; all but the first to the right if `right` says so.
pub fn table(header: &[&str], rows: &[Vec<String>], right: &[bool]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (at, cell) in cells.enumerate() {
            let width = widths.get(at).copied().unwrap_or(0);
            if at > 0 {
                line.push_str("  ");
            }
            match right.get(at) {
                Some(true) => line.push_str(&format!("{cell:>width$}")),
                _ => line.push_str(&format!("{cell:<width$}")),
            }
        }
        line.trim_end().to_owned() + "\n"
    };
    let mut text = line(&mut header.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

/// A number with its thousands apart: `1 234 567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes, in the unit that suits it: `1.5 GiB`.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A duration with two units at most: `450 ms`, `3.2 s`, `2 min 5 s`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A moment, given in milliseconds since 1970, in UTC: `2026-11-21 08:11:53`.
pub fn moment(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The date of a day counted from 1970-01-01, in the Gregorian calendar.
fn civil_date(days: u64) -> (u64, u64, u64) {
    // Counted from 1 March of the year 0, a leap day is the last of its year and months have a
    // regular length: see "chrono-compatible low-level date algorithms" by Howard Hinnant.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1 234 567");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(1 << 40), "1.0 TiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(duration(Duration::from_millis(450)), "450 ms");
        assert_eq!(duration(Duration::from_secs(125)), "2 min 5 s");
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00:00");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(moment(1_795_248_713_000), "2026-11-21 08:11:53");
        assert_eq!(moment(4_102_444_799_999), "2099-12-31 23:59:59");
    }

    #[test]
    fn tables_are_aligned() {
        let rows = [
            vec!["a".to_owned(), "10".to_owned()],
            vec!["longer".to_owned(), "9".to_owned()],
        ];
        assert_eq!(
            table(&["name", "count"], &rows, &[false, true]),
            "name    count\na          10\nlonger      9\n"
        );
    }
}
