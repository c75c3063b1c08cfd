//! The time, as a parameter: threads read the clocks of the machine, and a simulation has clocks of its own.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A reading of the machine's two clocks.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    /// The clock that never goes back.
    pub at: Instant,
    /// The clock of the calendar, in milliseconds since 1970.
    pub unix_ms: u64,
}

impl ClockReading {
    /// Reads both clocks.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            at: Instant::now(),
            unix_ms: since.map_or(0, |since| since.as_millis() as u64),
        }
    }
}
