//! Wrong passwords: slowed down on each connection, and logged without flooding the log.
//!
//! Only wrong answers wait. A correct password is never delayed, so that a client that tries a wrong one again and
//! again does not lock out others behind the same address.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How many wrong passwords one connection may give: with the last one it is closed.
pub(super) const WRONG_PASSWORDS_MAX: u32 = 5;

/// How long the answer to the first wrong password of a connection takes; each further one takes twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The least time between two lines in the log, in milliseconds.
const LOG_SPACING_MS: u64 = 1000;

/// How long the answer to a wrong password takes that is the `count`th of its connection.
pub(super) fn pause(count: u32) -> Duration {
    FIRST_PAUSE * 2u32.pow(count.clamp(1, WRONG_PASSWORDS_MAX) - 1)
}

/// The wrong passwords of all connections, for the log.
#[derive(Debug, Default)]
pub(crate) struct WrongPasswords {
    /// From when on there may be another line; in milliseconds since the server started.
    next_line_ms: AtomicU64,
    /// The number of wrong passwords since the last line.
    unlogged: AtomicU64,
}

impl WrongPasswords {
    /// Notes a wrong password. How many the line in the log has to tell of, if there is to be one now.
    pub(super) fn note(&self, now_ms: u64) -> Option<u64> {
        self.unlogged.fetch_add(1, Relaxed);
        let next = self.next_line_ms.load(Relaxed);
        let is_first = now_ms >= next
            && self
                .next_line_ms
                .compare_exchange(next, now_ms + LOG_SPACING_MS, Relaxed, Relaxed)
                .is_ok();
        is_first.then(|| self.unlogged.swap(0, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_password_of_a_connection_takes_twice_as_long_as_the_one_before() {
        let pauses: Vec<_> = (1..=WRONG_PASSWORDS_MAX)
            .map(|count| pause(count).as_millis())
            .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600]);
    }

    #[test]
    fn the_log_tells_of_all_wrong_passwords_in_one_line_a_second() {
        let wrong_passwords = WrongPasswords::default();
        assert_eq!(wrong_passwords.note(5), Some(1));
        assert_eq!((wrong_passwords.note(5), wrong_passwords.note(1004)), (None, None));
        assert_eq!(wrong_passwords.note(1005), Some(3));
        assert_eq!(wrong_passwords.note(9000), Some(1));
    }
}
