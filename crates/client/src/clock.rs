//! The client's clock: microseconds since it was made, the unit of the read logic.

use std::time::Duration;

use tokio::time::Instant;

/// A clock that begins at 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(crate) fn now_us(self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }

    /// The instant at which this clock shows `us`.
    pub(crate) fn at(self, us: u64) -> Instant {
        // A century from now serves as never.
        self.0 + Duration::from_micros(us.min(100 * 365 * 86_400 * 1_000_000))
    }
}
