//! The result of a run: a broken rule, or statistics.

use std::fmt;

use crate::service::CoordinationCounts;

/// A rule was broken.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// The time, in milliseconds since the beginning.
    pub at_ms: u64,
    /// The broken rule.
    pub what: String,
    /// The notes before it, if the run is traced.
    pub notes: Vec<String>,
}

/// The statistics of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The total load of the coordination service.
    pub coordination: CoordinationCounts,
    /// The load before each step of the script.
    pub at_steps: Vec<CoordinationCounts>,
    /// The time at which the last push went live, in milliseconds since the beginning.
    pub last_swap_ms: u64,
    /// Pushes that went live.
    pub pushes_swapped: usize,
    /// Pushes that failed or were cancelled.
    pub pushes_given_up: usize,
    /// Keys that were read.
    pub keys_read: u64,
    /// Keys that could not be read.
    pub keys_failed: u64,
    /// The number of events.
    pub events: u64,
    /// The duration in simulated milliseconds.
    pub took_ms: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))?;
        write!(f, "seed {}, after {} ms: {}", self.seed, self.at_ms, self.what)
    }
}

impl std::error::Error for Violation {}
