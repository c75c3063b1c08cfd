//! A rule that a run broke.

use std::fmt;

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

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))?;
        write!(f, "seed {}, after {} ms: {}", self.seed, self.at_ms, self.what)
    }
}

impl std::error::Error for Violation {}
