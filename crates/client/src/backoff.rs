//! The wait of an operation that nobody can answer as the topology is: until there is a newer one, or until nodes
//! may have caught up with it.

use crate::asks::NEVER;

/// How long it waits at first: a topology is on its way.
const FIRST_US: u64 = 10_000;
const LAST_US: u64 = 160_000;

/// A wait that is longer each time.
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
    /// Begins to wait, unless it does already. A newer topology is wanted.
    pub(crate) fn begin(&mut self, now_us: u64) {
        if self.ends_at_us == NEVER {
            self.ends_at_us = now_us.saturating_add(self.next_us);
            self.next_us = (self.next_us * 2).min(LAST_US);
            self.refresh = true;
        }
    }

    /// It waits no longer.
    pub(crate) fn end(&mut self) {
        self.ends_at_us = NEVER;
    }

    /// Whether it waits.
    pub(crate) fn is_on(&self) -> bool {
        self.ends_at_us != NEVER
    }

    /// Whether it has waited long enough.
    pub(crate) fn is_over(&self, now_us: u64) -> bool {
        self.is_on() && now_us >= self.ends_at_us
    }

    /// When to try again without one; [`NEVER`] if it does not wait.
    pub(crate) fn ends_at_us(&self) -> u64 {
        self.ends_at_us
    }

    /// A newer topology is wanted.
    pub(crate) fn want_refresh(&mut self) {
        self.refresh = true;
    }

    pub(crate) fn take_refresh(&mut self) -> bool {
        std::mem::take(&mut self.refresh)
    }
}
