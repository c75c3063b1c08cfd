//! How results are printed: text for people, JSON for programs.
//!
//! Only results go to standard output, so that it can be piped.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

/// Standard output, for results.
pub struct Results(io::StdoutLock<'static>);

/// The reader of the results has closed the pipe, as `head` does when it has enough: the rest is not needed, and
/// the command ends without an error.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the output has closed it")]
struct ReaderGone;

impl Results {
    /// Takes standard output.
    pub fn begin() -> Self {
        Self(io::stdout().lock())
    }
}

impl Write for Results {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(mark_gone)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(mark_gone)
    }
}

fn mark_gone(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, ReaderGone),
        _ => error,
    }
}

/// Whether a command failed only because the reader of its results has gone.
pub fn is_reader_gone(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    cause.is_some_and(|cause| cause.is::<ReaderGone>())
}

/// The output format that the user asked for.
pub struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    /// Sets the format from `--json` and `--quiet`.
    pub fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    /// Whether to print results as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether to print no progress.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints a result: as JSON, or as the text that `text` renders.
    pub fn result<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        let mut out = Results::begin();
        if self.json {
            serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        } else {
            out.write_all(text(value).as_bytes())?;
        }
        out.flush()?;
        Ok(())
    }

    /// Prints bytes unchanged. On a terminal a line break follows.
    pub fn bytes(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut out = Results::begin();
        out.write_all(bytes)?;
        if io::stdout().is_terminal() {
            out.write_all(b"\n")?;
        }
        out.flush()?;
        Ok(())
    }

    /// Prints why the command failed: on standard error, as JSON with a code if results are JSON.
    pub fn failure(&self, code: &str, message: &str) {
        let text = match self.json {
            true => serde_json::json!({"error": {"code": code, "message": message}}).to_string(),
            false => format!("error: {message}"),
        };
        // If standard error is closed too, only the exit code reports the failure.
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Prints a message for people that is not a result.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            // A message that cannot be written is not worth failing for.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// An error with its causes, without the causes that the text already contains.
pub fn told(error: &anyhow::Error) -> String {
    fondaco_push::with_causes(error.as_ref())
}

/// Formats a table with aligned columns; a column is right-aligned if `right` says so, the first one never.
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

/// A number with thousands separated: `1 234 567`.
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

/// A size in bytes, in a suitable unit: `1.5 GiB`.
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

/// A duration with at most two units: `450 ms`, `3.2 s`, `2 min 5 s`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A time in milliseconds since 1970 as UTC: `2026-11-21T08:11:53Z`.
pub fn timestamp(unix_ms: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(unix_ms);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// A configured duration, exactly: `1h`, `10days`.
pub fn span(ms: u64) -> String {
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

/// Parses a duration as people write it: `90s`, `1h 30m`, `10days`; `0` is zero.
pub fn parse_span_ms(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    let span =
        humantime::parse_duration(text).map_err(|error| format!("{error}: write it as 500ms, 90s, 1h or 10days"))?;
    u64::try_from(span.as_millis()).map_err(|_| format!("{text:?} is too long"))
}

/// Cuts a text to the width of a line.
pub fn fit(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
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
    fn times_are_calendar_dates_with_a_zone() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(1_795_248_713_000), "2026-11-21T08:11:53Z");
    }

    #[test]
    fn durations_are_parsed_and_printed_in_the_same_form() {
        for (text, ms, printed) in [
            ("1h", 3_600_000, "1h"),
            ("500ms", 500, "500ms"),
            ("1h 30m", 5_400_000, "1h 30m"),
            ("10days", 864_000_000, "10days"),
            ("10d", 864_000_000, "10days"),
            ("0", 0, "0s"),
        ] {
            assert_eq!(parse_span_ms(text), Ok(ms), "{text}");
            assert_eq!(span(ms), printed);
        }
        for wrong in ["", "10", "1 fortnight", "-1h"] {
            let error = parse_span_ms(wrong).unwrap_err();
            assert!(error.contains("90s, 1h or 10days"), "{error}");
        }
    }

    #[test]
    fn a_cause_is_printed_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read \"f\": {source}")]
        struct Told {
            source: io::Error,
        }
        let source = io::Error::other("the disk is gone");
        let error = anyhow::Error::new(Told { source }).context("cannot start");
        assert_eq!(told(&error), "cannot start: cannot read \"f\": the disk is gone");
    }

    #[test]
    fn a_text_too_long_for_a_line_is_cut() {
        assert_eq!(fit("abc", 3), "abc");
        assert_eq!(fit("abcd", 3), "ab…");
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
