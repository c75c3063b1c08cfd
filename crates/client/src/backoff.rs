//! The backoff of an operation that no node can answer under the current topology: it ends when a newer topology
//! arrives, or when nodes may have caught up.

use crate::asks::NEVER;

/// The first backoff: a topology is on its way.
const FIRST_US: u64 = 10_000;
const LAST_US: u64 = 160_000;

/// A backoff, longer each time.
#[derive(Debug)]
pub(crate) struct Backoff {
    ends_at_us: u64,
    next_us: u64,
    refresh: bool,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            ends_at_us: NEVER,
            next_us: FIRST_US,
            refresh: false,
        }
    }
}

impl Backoff {
    /// Begins the backoff, unless it has begun already, and requests a newer topology.
    pub(crate) fn begin(&mut self, now_us: u64) {
        if self.ends_at_us == NEVER {
            self.ends_at_us = now_us.saturating_add(self.next_us);
            self.next_us = (self.next_us * 2).min(LAST_US);
            self.refresh = true;
        }
    }

    /// Ends the backoff.
    pub(crate) fn end(&mut self) {
        self.ends_at_us = NEVER;
    }

    /// Whether the backoff is under way.
    pub(crate) fn is_on(&self) -> bool {
        self.ends_at_us != NEVER
    }

    /// Whether the backoff has run out.
    pub(crate) fn is_over(&self, now_us: u64) -> bool {
        self.is_on() && now_us >= self.ends_at_us
    }

    /// When to try again without a newer topology; [`NEVER`] if there is no backoff.
    pub(crate) fn ends_at_us(&self) -> u64 {
        self.ends_at_us
    }

    /// Requests a newer topology.
    pub(crate) fn want_refresh(&mut self) {
        self.refresh = true;
    }

    pub(crate) fn take_refresh(&mut self) -> bool {
        std::mem::take(&mut self.refresh)
    }
}
