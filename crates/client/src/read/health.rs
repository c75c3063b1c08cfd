//! The health of a node: judged by its requests, recovered by probes (a circuit breaker).
//!
//! A node is *suspended* when it cannot be reached, when too many of its requests failed in a row, or when the share of
//! successes over a window falls below a threshold. A suspended node is probed, at first soon, then ever less often;
//! one answered probe brings it back. Suspension is advice: if no other node is left, a suspended node is asked.
//!
//! Slowness is not failure: hedging handles that. But a node is *late* if it owes an answer for longer than usual,
//! and has sent nothing to any request since, e.g. during a garbage collection pause. Until it sends something, new
//! requests go to other nodes. So a pause delays only the requests that were under way when it began.
//!
//! Time is a parameter. All numbers are independent atomics, read and written without ordering: two concurrent requests
//! may lose a count, never a suspension.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// When a node is suspended, and when it is probed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthPolicy {
    /// The window, in microseconds. The success ratio covers between half and all of it.
    pub window_us: u64,
    /// With fewer requests in the window, the node is not judged.
    pub requests_min: u32,
    /// The share of successes below which a node is suspended.
    pub success_ratio_min: f64,
    /// The number of consecutive failures that suspends it, however long they took.
    pub failures_in_row_max: u32,
    /// How soon a suspended node is first probed, in microseconds.
    pub probe_first_us: u64,
    /// The longest time between probes, in microseconds.
    pub probe_last_us: u64,
    /// How long a node may be late, in microseconds. It is then asked again even if it has sent nothing, since there
    /// may have been no request to receive it.
    pub late_us_max: u64,
}

impl Default for HealthPolicy {
    fn default() -> Self {
        Self {
            window_us: 2_000_000,
            requests_min: 20,
            success_ratio_min: 0.8,
            failures_in_row_max: 5,
            probe_first_us: 100_000,
            probe_last_us: 2_000_000,
            late_us_max: 1_000_000,
        }
    }
}

/// The health of one node, as this client sees it.
#[derive(Debug)]
pub struct NodeHealth {
    policy: HealthPolicy,
    suspended: AtomicBool,
    /// When the next probe is due, while suspended.
    probe_at_us: AtomicU64,
    /// When it last sent anything.
    heard_at_us: AtomicU64,
    /// Until when it is considered late.
    late_until_us: AtomicU64,
    /// When bytes of a long value last moved to it or from it.
    moved_at_us: AtomicU64,
    /// The next time between probes.
    rest_us: AtomicU64,
    resumed_at_us: AtomicU64,
    failures_in_row: AtomicU32,
    half_began_us: AtomicU64,
    successes: [AtomicU32; 2],
    failures: [AtomicU32; 2],
    /// The half of the window that is being counted.
    half: AtomicU32,
    /// The requests per second that it reported.
    reported_rate: AtomicU32,
}

impl NodeHealth {
    /// A healthy node.
    pub fn new(policy: HealthPolicy) -> Self {
        Self {
            policy,
            suspended: AtomicBool::new(false),
            probe_at_us: AtomicU64::new(0),
            heard_at_us: AtomicU64::new(0),
            late_until_us: AtomicU64::new(0),
            moved_at_us: AtomicU64::new(0),
            rest_us: AtomicU64::new(policy.probe_first_us),
            resumed_at_us: AtomicU64::new(0),
            failures_in_row: AtomicU32::new(0),
            half_began_us: AtomicU64::new(0),
            successes: Default::default(),
            failures: Default::default(),
            half: AtomicU32::new(0),
            reported_rate: AtomicU32::new(0),
        }
    }

    /// Whether other nodes are preferred to this one.
    #[inline]
    pub fn is_suspended(&self) -> bool {
        self.suspended.load(Relaxed)
    }

    /// Whether other nodes are preferred to this one because it owes an answer and is silent.
    #[inline]
    pub fn is_late(&self, now_us: u64) -> bool {
        now_us < self.late_until_us.load(Relaxed)
    }

    /// The rate of requests that the node last reported, from all clients together, per second; 0 before it has.
    #[inline]
    pub fn reported_rate(&self) -> u32 {
        self.reported_rate.load(Relaxed)
    }

    /// The node reported its rate of requests, per second.
    pub fn report_rate(&self, requests_per_second: u32) {
        self.reported_rate.store(requests_per_second, Relaxed);
    }

    /// Bytes of a long value moved to the node, or from it.
    pub fn moved(&self, now_us: u64) {
        self.moved_at_us.store(now_us, Relaxed);
    }

    /// When bytes of a long value last moved to the node or from it; 0 if none have.
    #[inline]
    pub fn moved_at_us(&self) -> u64 {
        self.moved_at_us.load(Relaxed)
    }

    /// The node has sent something.
    ///
    /// Called by the connection, also for answers to reads that are over: these reads get no events any more, and a
    /// node that lost to a hedge answers late.
    #[inline]
    pub fn heard(&self, now_us: u64) {
        self.heard_at_us.store(now_us, Relaxed);
        if self.late_until_us.load(Relaxed) != 0 {
            self.late_until_us.store(0, Relaxed);
        }
    }

    /// A request sent at `sent_us` should have been answered by now. Returns whether this makes the node late.
    pub fn overdue(&self, sent_us: u64, now_us: u64) -> bool {
        if self.heard_at_us.load(Relaxed) >= sent_us || self.is_late(now_us) {
            return false;
        }
        let until_us = now_us.saturating_add(self.policy.late_us_max);
        self.late_until_us.store(until_us, Relaxed);
        true
    }

    /// A request was answered.
    #[inline]
    pub fn succeeded(&self, now_us: u64) {
        self.turn_window(now_us);
        self.successes[self.half.load(Relaxed) as usize & 1].fetch_add(1, Relaxed);
        if self.failures_in_row.load(Relaxed) != 0 {
            self.failures_in_row.store(0, Relaxed);
        }
    }

    /// A request failed, or timed out. Returns whether the node is suspended for it.
    pub fn failed(&self, now_us: u64) -> bool {
        self.turn_window(now_us);
        self.failures[self.half.load(Relaxed) as usize & 1].fetch_add(1, Relaxed);
        let in_row = self.failures_in_row.fetch_add(1, Relaxed) + 1;
        let count = |half: &[AtomicU32; 2]| half.iter().map(|n| n.load(Relaxed)).sum::<u32>();
        let (good, bad) = (count(&self.successes), count(&self.failures));
        let enough = good + bad >= self.policy.requests_min;
        let few = f64::from(good) < f64::from(good + bad) * self.policy.success_ratio_min;
        (in_row >= self.policy.failures_in_row_max || (enough && few)) && self.suspend(now_us)
    }

    /// A connection could not be made, or went silent. Returns whether the node is suspended for it.
    pub fn unreachable(&self, now_us: u64) -> bool {
        self.suspend(now_us)
    }

    /// When to probe it next; `None` while it is not suspended.
    pub fn probe_at_us(&self) -> Option<u64> {
        self.is_suspended().then(|| self.probe_at_us.load(Relaxed))
    }

    /// A probe was answered, or a connection made: the node is used again, and its window starts empty.
    pub fn probe_succeeded(&self, now_us: u64) {
        if self.is_suspended() {
            self.forget_window(now_us);
            self.resumed_at_us.store(now_us, Relaxed);
            self.suspended.store(false, Relaxed);
        }
    }

    /// A probe was not answered: the next one comes later.
    pub fn probe_failed(&self, now_us: u64) {
        if self.is_suspended() {
            self.rest(now_us);
        }
    }

    fn suspend(&self, now_us: u64) -> bool {
        if self.suspended.swap(true, Relaxed) {
            return false;
        }
        // A node that was healthy for long starts again with short probe intervals; a flapping one does not.
        let well_us = now_us.saturating_sub(self.resumed_at_us.load(Relaxed));
        if well_us >= self.policy.probe_last_us.saturating_mul(5) {
            self.rest_us.store(self.policy.probe_first_us, Relaxed);
        }
        self.rest(now_us);
        true
    }

    fn rest(&self, now_us: u64) {
        let rest = self.rest_us.load(Relaxed);
        self.probe_at_us.store(now_us.saturating_add(rest), Relaxed);
        self.rest_us
            .store(rest.saturating_mul(2).min(self.policy.probe_last_us), Relaxed);
    }

    /// Starts a new half of the window when the current one is full.
    #[inline]
    fn turn_window(&self, now_us: u64) {
        let age_us = now_us.saturating_sub(self.half_began_us.load(Relaxed));
        if age_us >= self.policy.window_us / 2 {
            self.begin_half(now_us, age_us);
        }
    }

    #[cold]
    fn begin_half(&self, now_us: u64, age_us: u64) {
        if age_us >= self.policy.window_us {
            return self.forget_window(now_us);
        }
        let half = self.half.load(Relaxed) as usize & 1 ^ 1;
        self.successes[half].store(0, Relaxed);
        self.failures[half].store(0, Relaxed);
        self.half.store(half as u32, Relaxed);
        self.half_began_us.store(now_us, Relaxed);
    }

    fn forget_window(&self, now_us: u64) {
        for count in self.successes.iter().chain(&self.failures) {
            count.store(0, Relaxed);
        }
        self.failures_in_row.store(0, Relaxed);
        self.half_began_us.store(now_us, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy() -> HealthPolicy {
        HealthPolicy::default()
    }

    #[test]
    fn only_uninterrupted_failures_suspend() {
        let health = NodeHealth::new(policy());
        for now in 0..4 {
            assert!(!health.failed(now));
        }
        health.succeeded(4);
        for now in 5..9 {
            assert!(!health.failed(now));
        }
        assert!(health.failed(9));
        assert!(health.is_suspended());
        assert!(!health.failed(10), "it is suspended once");
    }

    #[test]
    fn a_low_success_ratio_suspends_despite_old_successes() {
        let health = NodeHealth::new(policy());
        (0..100_000).for_each(|_| health.succeeded(0));
        let mut now = 10 * policy().window_us;
        let mut requests = 0;
        loop {
            // Three of four succeed.
            now += 10_000;
            requests += 1;
            match requests % 4 {
                0 if health.failed(now) => break,
                0 => {}
                _ => health.succeeded(now),
            }
            assert!(requests < 100, "never suspended");
        }
        assert!(requests >= policy().requests_min);
    }

    #[test]
    fn a_probe_recovers_it_and_intervals_grow_to_a_limit() {
        let health = NodeHealth::new(policy());
        assert_eq!(health.probe_at_us(), None);
        assert!(health.unreachable(1_000));
        let mut now = health.probe_at_us().unwrap();
        assert_eq!(now, 1_000 + policy().probe_first_us);
        let mut rest = 0;
        for _ in 0..10 {
            health.probe_failed(now);
            rest = health.probe_at_us().unwrap() - now;
            now += rest;
        }
        assert_eq!(rest, policy().probe_last_us);
        health.probe_succeeded(now);
        assert!(!health.is_suspended());
        assert!(health.unreachable(now + 1));
        assert_eq!(
            health.probe_at_us(),
            Some(now + 1 + policy().probe_last_us),
            "it is flapping"
        );
        health.probe_succeeded(now + 2);
        let later = now + 2 + 5 * policy().probe_last_us;
        assert!(health.unreachable(later));
        assert_eq!(
            health.probe_at_us(),
            Some(later + policy().probe_first_us),
            "it was healthy for long"
        );
    }

    #[test]
    fn a_silent_node_is_late_until_it_sends_something() {
        let health = NodeHealth::new(policy());
        health.heard(100);
        assert!(!health.overdue(100, 900), "it has answered another request since");
        assert!(health.overdue(101, 900));
        assert!(!health.overdue(102, 901), "it is late already");
        assert!(health.is_late(901) && !health.is_suspended());
        health.heard(950);
        assert!(!health.is_late(950));
        assert!(health.overdue(960, 1_000));
        let later = 1_000 + policy().late_us_max;
        assert!(
            !health.is_late(later),
            "no request received from it, so it is tried again"
        );
        assert!(health.overdue(970, later), "still no answer");
    }

    proptest! {
        #[test]
        fn a_node_with_few_failures_is_never_suspended(
            steps in prop::collection::vec((0u64..200_000, 0u32..10), 0..500),
        ) {
            let (health, mut now) = (NodeHealth::new(policy()), 0);
            let mut since_failure = 9;
            for (pause, chance) in steps {
                now += pause;
                // Never more than one of ten, and never before nine successes.
                if chance == 0 && since_failure >= 9 {
                    since_failure = 0;
                    prop_assert!(!health.failed(now));
                } else {
                    since_failure += 1;
                    health.succeeded(now);
                }
            }
        }
    }
}
