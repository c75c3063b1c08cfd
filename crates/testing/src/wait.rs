//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

/// The shortest pause before a condition is tested again.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(2);
/// The longest one.
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(50);

/// How long a test waits for a condition: long enough for a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until a value is there, and returns it.
///
/// # Panics
/// If it is not there within three minutes.
#[track_caller]
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_for(what, PATIENCE, look)
}

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold within three minutes.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, PATIENCE, || holds().then_some(()));
}

/// As [`eventually`], with a timeout.
///
/// # Panics
/// If it is not there in time.
#[track_caller]
pub fn wait_for<T>(what: &str, timeout: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        let waited = began.elapsed();
        assert!(waited < timeout, "waited {timeout:?} in vain for {what}");
        // A test that waits for long leaves the processor to the servers that it waits for.
        std::thread::sleep((waited / 20).clamp(LOOK_AGAIN_MIN, LOOK_AGAIN_MAX));
    }
}

/// As [`until`], with a timeout.
///
/// # Panics
/// If it does not hold in time.
#[track_caller]
pub fn wait_until(what: &str, timeout: Duration, mut is_so: impl FnMut() -> bool) {
    wait_for(what, timeout, || is_so().then_some(()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_awaited_value_is_returned() {
        let mut looks = 0;
        let found = wait_for("the third look", Duration::from_secs(10), || {
            looks += 1;
            (looks == 3).then_some("found")
        });
        assert_eq!(found, "found");
    }

    #[test]
    #[should_panic(expected = "in vain for a miracle")]
    fn a_timeout_fails_the_test_with_the_name() {
        wait_until("a miracle", Duration::from_millis(1), || false);
    }
}
