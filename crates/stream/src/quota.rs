//! A bound on events per second, with room for those of one second at once.
//!
//! Every event that is counted moves the time by which all are paid for. While that time is more than a second ahead, no more may
//! come. A single batch may be larger than the room: it is counted whole, and the next one waits for longer.

use std::time::{Duration, Instant};

/// The events that may come at once: those of this time.
const ROOM: Duration = Duration::from_secs(1);
/// The longest time that is waited for, however large a batch was.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The events that were counted so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EventQuota {
    /// When all events that were counted are paid for.
    paid: Option<Instant>,
}

impl EventQuota {
    /// When more events may come, if that is not now.
    pub(crate) fn opens(&self, now: Instant) -> Option<Instant> {
        let opens = self.paid?.checked_sub(ROOM)?;
        (opens > now).then_some(opens)
    }

    /// Counts events, of which this number may come per second.
    pub(crate) fn count(&mut self, events: usize, per_second: u64, now: Instant) {
        let took = Duration::try_from_secs_f64(events as f64 / per_second.max(1) as f64);
        let paid = self.paid.map_or(now, |paid| paid.max(now)) + took.unwrap_or(WAIT_MAX).min(WAIT_MAX);
        self.paid = Some(paid.min(now + ROOM + WAIT_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_events_pass_in_a_time_than_the_quota_and_the_room_allow() {
        let (mut quota, begin) = (EventQuota::default(), Instant::now());
        let (mut passed, mut now) = (0, begin);
        while now < begin + Duration::from_secs(10) {
            match quota.opens(now) {
                Some(opens) => now = opens,
                None => {
                    quota.count(7, 100, now);
                    passed += 7;
                }
            }
        }
        assert!((1_100..=1_107).contains(&passed), "{passed}");
    }

    #[test]
    fn a_batch_beyond_the_quota_is_paid_for_by_waiting() {
        let (mut quota, now) = (EventQuota::default(), Instant::now());
        quota.count(500, 100, now);
        assert_eq!(quota.opens(now), Some(now + Duration::from_secs(4)));
        assert_eq!(quota.opens(now + Duration::from_secs(4)), None);
        // A wait has a bound.
        quota.count(usize::MAX, 1, now);
        assert_eq!(quota.opens(now), Some(now + WAIT_MAX));
    }
}
