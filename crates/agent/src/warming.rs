//! Reads that a version does ahead, before it serves: within a time, at a rate that the latency of readers sets.
//!
//! They are for speed only. So nothing waits for them longer than the limit: a disk that does not answer holds up a thread, and not the
//! version.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use fondaco_fetch::{FetchControl, FetchTuning, Pacer, SystemClock};

/// How often it is checked whether the fetch should stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The limits of a version's reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How long they may take.
    pub(crate) time: Duration,
    /// How many bytes they may read.
    pub(crate) bytes: u64,
}

/// The outcome of reading ahead.
#[derive(Debug)]
pub(crate) struct Warmed {
    /// How many bytes.
    pub(crate) bytes: u64,
    /// Why it ended.
    pub(crate) end: End,
}

/// Why reads ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All is read, or as much as the limit allows.
    Done,
    /// The time is over.
    Late,
    /// The fetch was stopped.
    Stopped,
    /// A read failed; a look-up that needs it reports that, too.
    Failed(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("complete"),
            Self::Late => f.write_str("the time was over: see warm-time-ms"),
            Self::Stopped => f.write_str("the fetch was stopped"),
            Self::Failed(error) => f.write_str(error),
        }
    }
}

/// Runs `read` on a thread of its own, at most for `time`, as long as `fetch` is not stopped. It calls its argument before each step with
/// the bytes of the step, and ends if that returns false.
pub(crate) fn warm(
    time: Duration,
    tuning: &dyn FetchTuning,
    fetch: &FetchControl,
    read: impl FnOnce(&mut dyn FnMut(u64) -> bool) -> Result<u64, String> + Send + 'static,
) -> Warmed {
    let deadline = Instant::now() + time;
    let control = Arc::new(FetchControl::new(SystemClock));
    let bytes = Arc::new(AtomicU64::new(0));
    let (send, ended) = sync_channel(1);
    let mut pacer = Pacer::new(&control, tuning);
    let thread = {
        let (control, bytes) = (Arc::clone(&control), Arc::clone(&bytes));
        std::thread::Builder::new().name("warm".to_owned()).spawn(move || {
            let mut may_go_on = |step| {
                let may_go_on = control.passed(step).is_ok();
                bytes.fetch_add(if may_go_on { step } else { 0 }, Relaxed);
                may_go_on
            };
            // The receiver does not wait any longer than its time.
            let _ = send.send(read(&mut may_go_on));
        })
    };
    let end = loop {
        if let Err(error) = &thread {
            break End::Failed(format!("cannot start a thread: {error}"));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break End::Late;
        }
        match ended.recv_timeout(pacer.until_next_turn().min(left).min(CHECK_INTERVAL)) {
            Ok(Ok(_)) => break End::Done,
            Ok(Err(error)) => break End::Failed(error),
            Err(RecvTimeoutError::Disconnected) => break End::Failed("the thread panicked".to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if fetch.check().is_err() {
            break End::Stopped;
        }
        pacer.turn();
    };
    control.cancel();
    Warmed {
        bytes: bytes.load(Relaxed),
        end,
    }
}

#[cfg(test)]
mod tests {
    use fondaco_model::HistogramSnapshot;

    use super::*;

    /// A rate, and no readers.
    struct Rate(u64);

    impl FetchTuning for Rate {
        fn rate_limit_bytes_per_second(&self) -> Option<u64> {
            Some(self.0)
        }

        fn rate_floor_bytes_per_second(&self) -> u64 {
            1
        }

        fn reads(&self) -> HistogramSnapshot {
            HistogramSnapshot::default()
        }
    }

    fn step_by_step(steps: u64) -> impl FnOnce(&mut dyn FnMut(u64) -> bool) -> Result<u64, String> {
        move |may_go_on| Ok((0..steps).take_while(|_| may_go_on(1 << 20)).count() as u64)
    }

    fn warm_within(
        time_ms: u64,
        rate: u64,
        read: impl FnOnce(&mut dyn FnMut(u64) -> bool) -> Result<u64, String> + Send + 'static,
    ) -> (Warmed, Duration) {
        let (began, fetch) = (Instant::now(), FetchControl::new(SystemClock));
        let warmed = warm(Duration::from_millis(time_ms), &Rate(rate), &fetch, read);
        (warmed, began.elapsed())
    }

    #[test]
    fn reads_end_when_they_are_done_or_fail() {
        let (warmed, _) = warm_within(60_000, 1 << 40, step_by_step(5));
        assert_eq!((warmed.end, warmed.bytes), (End::Done, 5 << 20));
        let (warmed, _) = warm_within(60_000, 1 << 40, |_| Err("a bad disk".to_owned()));
        assert_eq!((warmed.end, warmed.bytes), (End::Failed("a bad disk".to_owned()), 0));
    }

    #[test]
    fn a_slow_rate_and_a_disk_that_does_not_answer_hold_a_version_up_no_longer_than_the_limit() {
        let (warmed, took) = warm_within(300, 1 << 20, step_by_step(1000));
        assert_eq!(warmed.end, End::Late);
        assert!(warmed.bytes <= 3 << 20, "{}", warmed.bytes);
        assert!(
            took >= Duration::from_millis(300) && took < Duration::from_secs(10),
            "{took:?}"
        );
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let (warmed, took) = warm_within(300, 1 << 40, move |may_go_on| {
            may_go_on(1 << 20);
            let _ = held.recv();
            Ok(0)
        });
        assert_eq!((warmed.end, warmed.bytes), (End::Late, 1 << 20));
        assert!(took < Duration::from_secs(10), "{took:?}");
        drop(hold);
    }

    #[test]
    fn reads_end_with_the_fetch() {
        let fetch = FetchControl::new(SystemClock);
        fetch.cancel();
        let warmed = warm(Duration::from_secs(60), &Rate(1), &fetch, step_by_step(1000));
        assert_eq!(warmed.end, End::Stopped);
    }
}
