//! The end of a version's records: a fixed time after the time of each.
//!
//! Of a version with lifetimes, look-ups, scans of keys and scans of records leave out records that have expired by the
//! clock of the machine. [`Version::get_dated`] does not: it returns the time of a record.

use std::time::{SystemTime, UNIX_EPOCH};

use super::Version;

/// How long the records of a version live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// How long a record lives from its time on, in milliseconds.
    pub ttl_ms: u64,
    /// The time of the records that have none of their own, in milliseconds since 1970.
    pub undated_unix_ms: u64,
}

impl Lifetimes {
    /// When a record expires, given its own time.
    pub fn expires_unix_ms(self, time_ms: Option<u64>) -> u64 {
        time_ms.unwrap_or(self.undated_unix_ms).saturating_add(self.ttl_ms)
    }

    /// Whether a record with this time has expired by the clock of the machine.
    fn is_over(self, time_ms: Option<u64>) -> bool {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.is_ok_and(|now| self.expires_unix_ms(time_ms) <= now.as_millis() as u64)
    }
}

impl Version {
    /// Gives the records of the version lifetimes. The first ones count: all that use a version agree on them.
    pub fn set_lifetimes(&self, lifetimes: Lifetimes) {
        let _ = self.lifetimes.set(lifetimes);
    }

    /// The lifetimes of its records, if they expire.
    pub fn lifetimes(&self) -> Option<Lifetimes> {
        self.lifetimes.get().copied()
    }

    /// Whether a record with this time has expired.
    #[inline]
    pub(super) fn is_over(&self, time_ms: Option<u64>) -> bool {
        match self.lifetimes.get() {
            Some(lifetimes) => lifetimes.is_over(time_ms),
            None => false,
        }
    }
}
