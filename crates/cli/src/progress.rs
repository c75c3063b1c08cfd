//! Progress of a long job: a bar on a terminal; elsewhere a plain line when something has changed, every two seconds at most,
//! or once a minute.
//!
//! A job that takes less than a second shows no progress.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// The polling interval for the state of a job.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// The time before a job shows its progress.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// The time between plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(2);
/// The time between plain lines that say the same.
const SAME_LINE_INTERVAL: Duration = Duration::from_secs(60);
/// The longest plain line, in characters.
const LINE_WIDTH: usize = 80;
/// The number of steps of the bar.
const STEPS: u64 = 1000;

/// Displays the progress of a job.
pub struct Display {
    started: Instant,
    phase: &'static str,
    phase_started: Instant,
    shown: Instant,
    /// The last plain line, without the remaining time.
    line: String,
    kind: Kind,
}

enum Kind {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl Display {
    /// Starts the display; `quiet` suppresses it.
    pub fn new(quiet: bool) -> Self {
        let kind = match (quiet, io::stderr().is_terminal()) {
            (true, _) => Kind::Nothing,
            (false, false) => Kind::Lines,
            (false, true) => {
                let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
                if let Ok(style) = ProgressStyle::with_template("{prefix:>9} {bar:20} {percent:>3}%  {wide_msg}") {
                    bar.set_style(style);
                }
                Kind::Bar(bar)
            }
        };
        let now = Instant::now();
        Self {
            started: now,
            phase: "",
            phase_started: now,
            shown: now,
            line: String::new(),
            kind,
        }
    }

    /// Shows the phase of the job, how much of it is done from 0 to 1, and details. The remaining time is estimated
    /// from the fraction done.
    pub fn show(&mut self, phase: &'static str, fraction: f64, details: &str) {
        self.show_with(phase, fraction, None, details);
    }

    /// Like [`Display::show`], for a job that supplies its own estimate of the remaining time.
    pub fn show_with(&mut self, phase: &'static str, fraction: f64, left_known: Option<Duration>, details: &str) {
        let now = self.enter(phase);
        let left = left_known.or_else(|| left(now - self.phase_started, fraction));
        let left = left.map_or_else(String::new, |left| format!(", {} left", output::duration(left)));
        let line = format!("{phase}: {:.0} %, {details}", fraction * 100.0);
        match &self.kind {
            _ if now - self.started < QUIET_TIME => {}
            Kind::Nothing => {}
            Kind::Bar(bar) => {
                bar.set_prefix(phase);
                bar.set_position((fraction * STEPS as f64) as u64);
                bar.set_message(format!("{details}{left}"));
            }
            Kind::Lines => {
                let text = output::fit(&format!("{line}{left}"), LINE_WIDTH);
                self.print(line, &text, now);
            }
        }
    }

    /// Shows the reason that the job waits, in full, whatever the width of a line.
    pub fn show_waiting(&mut self, reason: &str) {
        let now = self.enter("waiting");
        match &self.kind {
            _ if now - self.started < QUIET_TIME => {}
            Kind::Nothing => {}
            Kind::Bar(bar) => {
                bar.set_prefix("waiting");
                bar.set_message(reason.to_owned());
            }
            Kind::Lines => {
                let line = format!("waiting: {reason}");
                self.print(line.clone(), &line, now);
            }
        }
    }

    /// Takes note of the phase; returns the time.
    fn enter(&mut self, phase: &'static str) -> Instant {
        let now = Instant::now();
        if phase != self.phase {
            self.phase = phase;
            self.phase_started = now;
        }
        now
    }

    /// Prints a plain line, unless another one was just printed, or the same one less than a minute ago.
    fn print(&mut self, line: String, text: &str, now: Instant) {
        let since = now - self.shown;
        if !is_due(since, line == self.line) {
            return;
        }
        (self.shown, self.line) = (now, line);
        // A failure to show progress must not stop the job.
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Prints a message beside the progress.
    pub fn note(&self, text: &str) {
        match &self.kind {
            Kind::Nothing => {}
            Kind::Bar(bar) => bar.println(text),
            // A failure to print must not stop the job.
            Kind::Lines => drop(writeln!(io::stderr(), "{text}")),
        }
    }

    /// How long the current phase has run.
    pub fn phase_time(&self) -> Duration {
        self.phase_started.elapsed()
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Kind::Bar(bar) = &self.kind {
            bar.finish_and_clear();
        }
    }
}

/// Estimates the remaining time from the time taken and the fraction done.
fn left(taken: Duration, fraction: f64) -> Option<Duration> {
    // Below this fraction the estimate would be a guess.
    const FRACTION_MIN: f64 = 0.02;
    (taken >= QUIET_TIME && (FRACTION_MIN..1.0).contains(&fraction)).then(|| taken.mul_f64((1.0 - fraction) / fraction))
}

/// Whether a plain line is printed this long after the last one, which may have been the same.
fn is_due(since: Duration, is_same: bool) -> bool {
    match is_same {
        true => since >= SAME_LINE_INTERVAL,
        false => since >= LINE_INTERVAL,
    }
}

/// A rate per second.
pub fn rate(number: u64, time: Duration) -> u64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 {
        (number as f64 / seconds) as u64
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_repeated_once_a_minute() {
        let due = |seconds, is_same| is_due(Duration::from_secs(seconds), is_same);
        assert_eq!(
            [1, 2, 59, 60].map(|seconds| due(seconds, true)),
            [false, false, false, true]
        );
        assert_eq!([1, 2].map(|seconds| due(seconds, false)), [false, true]);
    }

    #[test]
    fn the_remaining_time_follows_from_the_fraction_done() {
        assert_eq!(left(Duration::from_secs(10), 0.25), Some(Duration::from_secs(30)));
        assert_eq!(left(Duration::from_secs(10), 0.0), None);
        assert_eq!(left(Duration::from_secs(10), 1.0), None);
        assert_eq!(left(Duration::from_millis(10), 0.5), None);
    }
}
