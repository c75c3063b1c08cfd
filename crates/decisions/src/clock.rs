//! Time for decisions: passed in, and trusted no further than one look.

/// A moment, by both clocks of the machine that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since any fixed time, by a clock that does not jump. Decisions use this one.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970. It is written for people to read; the only decision that uses it is for how long
    /// dropped stores are kept.
    pub unix_ms: u64,
}

/// The time that an observer has watched: of the time between two looks, at most [`GAP_MS_MAX`](Self::GAP_MS_MAX)
/// counts. So no node is late because the observer was stopped for a while, and a clock that jumps has little effect.
#[derive(Debug, Clone, Default)]
pub(super) struct WatchedClock {
    last_ms: Option<u64>,
    watched_ms: u64,
}

impl WatchedClock {
    /// The most that counts between two looks: twice the observer's tick.
    pub(super) const GAP_MS_MAX: u64 = 2_000;

    /// Takes the present time; returns the time watched so far, in milliseconds.
    pub(super) fn advance(&mut self, monotonic_ms: u64) -> u64 {
        let gap_ms = monotonic_ms.saturating_sub(self.last_ms.unwrap_or(monotonic_ms));
        self.last_ms = Some(monotonic_ms);
        self.watched_ms += gap_ms.min(Self::GAP_MS_MAX);
        self.watched_ms
    }
}

impl WatchedClock {
    /// The time watched at the last look.
    pub(super) fn last(&self) -> u64 {
        self.watched_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unobserved_time_does_not_count() {
        let mut clock = WatchedClock::default();
        assert_eq!(clock.advance(5_000), 0);
        assert_eq!(clock.advance(6_000), 1_000);
        assert_eq!(clock.advance(906_000), 3_000, "it was stopped");
        assert_eq!(clock.advance(1_000), 3_000, "it jumped back");
        assert_eq!(clock.advance(1_500), 3_500);
    }
}
