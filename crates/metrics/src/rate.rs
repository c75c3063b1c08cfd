//! The rate of requests that a node gets from clients and other nodes, for their fan-out.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fondaco_resp::command::CommandId;
use parking_lot::Mutex;

use crate::counters::NodeMetrics;

/// How often it is measured again at most.
const PERIOD: Duration = Duration::from_millis(200);

/// The time constant of its mean, in seconds.
const WINDOW_S: f64 = 1.0;

/// The rate of requests for pinned versions, and of computations.
#[derive(Debug)]
pub(crate) struct RequestRate {
    measured: Mutex<Measured>,
    mean: AtomicU32,
}

#[derive(Debug)]
struct Measured {
    at: Instant,
    requests: u64,
    mean: f64,
}

impl RequestRate {
    pub(crate) fn new() -> Self {
        Self {
            measured: Mutex::new(Measured {
                at: Instant::now(),
                requests: 0,
                mean: 0.0,
            }),
            mean: AtomicU32::new(0),
        }
    }
}

impl Measured {
    /// Takes the number of requests so far.
    fn take(&mut self, now: Instant, requests: u64) {
        let seconds = (now - self.at).as_secs_f64();
        let rate = requests.saturating_sub(self.requests) as f64 / seconds.max(1e-9);
        self.mean += (rate - self.mean) * (1.0 - (-seconds / WINDOW_S).exp());
        (self.at, self.requests) = (now, requests);
    }
}

impl NodeMetrics {
    /// The requests a second that other processes make of this node, as a mean over about a second.
    pub fn request_rate(&self) -> u32 {
        let rate = &self.request_rate;
        // One thread measures; the others return its measurement.
        if let Some(mut measured) = rate.measured.try_lock() {
            let now = Instant::now();
            if now - measured.at >= PERIOD {
                let counted = [CommandId::FondacoRead, CommandId::FondacoCompute];
                let requests = counted.map(|command| self.latency(command).count()).into_iter().sum();
                measured.take(now, requests);
                rate.mean.store(measured.mean.round() as u32, Relaxed);
            }
        }
        rate.mean.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_the_rate() {
        let mut at = Instant::now();
        let mut measured = Measured {
            at,
            requests: 0,
            mean: 0.0,
        };
        let mut requests = 0;
        for (rate, seconds) in [(1000, 10), (50, 10), (0, 20)] {
            for _ in 0..seconds * 5 {
                at += PERIOD;
                requests += rate / 5;
                measured.take(at, requests);
            }
            assert!(
                (measured.mean - rate as f64).abs() <= 1.0,
                "{} for {rate}",
                measured.mean
            );
        }
    }
}
