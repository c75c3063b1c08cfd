//! How a run ends: with a rule that was broken, or with figures.

use std::fmt;

use crate::service::CoordinationCounts;

/// A rule was broken.
#[derive(Debug, Clone)]
pub struct Violation {
    /// In which run.
    pub seed: u64,
    /// When, in milliseconds since its beginning.
    pub at_ms: u64,
    /// Which.
    pub what: String,
    /// What happened before, if that was noted.
    pub notes: Vec<String>,
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// What the coordination service had to do in all.
    pub coordination: CoordinationCounts,
    /// What it had had to do at each step of the script.
    pub at_steps: Vec<CoordinationCounts>,
    /// When the last push went live, in milliseconds since the beginning.
    pub last_swap_ms: u64,
    /// Pushes that went live.
    pub pushes_swapped: usize,
    /// Pushes that failed or were cancelled.
    pub pushes_given_up: usize,
    /// Keys that were read.
    pub keys_read: u64,
    /// Keys that could not be read.
    pub keys_failed: u64,
    /// How many events there were.
    pub events: u64,
    /// How long it took, in the world's milliseconds.
    pub took_ms: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))?;
        write!(f, "seed {}, after {} ms: {}", self.seed, self.at_ms, self.what)
    }
}

impl std::error::Error for Violation {}
