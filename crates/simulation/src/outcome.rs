//! The statistics of a run.

use crate::service::CoordinationCounts;

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
