//! Wakes requests at their deadlines, to within some microseconds.
//!
//! The runtime's timers have a resolution of a millisecond, which is longer than healthy answers take. Arming an
//! earliest timer costs a system call for each request. Here all requests of a client share one kernel timer. It is
//! set only when a request waits for an earlier time, and never cancelled. If a request ends before its time, the
//! timer still fires, at most once for each time that it was set.
//!
//! It is not a clock and promises nothing about the past. The invariant: while any request waits, the timer is set to
//! the earliest time waited for, or to an earlier one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use smallvec::SmallVec;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::clock::Clock;

/// The timer is not set.
const NEVER: u64 = u64::MAX;
/// Stale times are removed from the heap when it is this much longer than twice the number of waiting requests.
const STALE_MAX: usize = 64;

/// The timer of one client.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: AsyncFd<OwnedFd>,
    clock: Clock,
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// Times, the earliest first, each with the slot of the request that waits for it, or once did.
    times: BinaryHeap<Reverse<(u64, u32)>>,
    sleepers: Vec<Sleeper>,
    /// Unused slots.
    free: Vec<u32>,
    /// When the timer fires.
    armed_us: u64,
}

#[derive(Debug)]
struct Sleeper {
    due_us: u64,
    waker: Option<Waker>,
}

/// Wakes one request. It occupies no slot until it first waits.
#[derive(Debug)]
pub(crate) struct Sleep<'a> {
    alarm: &'a Alarm,
    place: Option<u32>,
    due_us: u64,
    waker: Option<Waker>,
}

impl Alarm {
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The process may have no further timer, or the runtime does no I/O.
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        // SAFETY: the descriptor is open, and owned by the value made of it here, which never exchanges it.
        #[allow(unsafe_code)]
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?;
        Ok(Self {
            timer,
            clock,
            waiting: Mutex::new(Waiting {
                times: BinaryHeap::new(),
                sleepers: Vec::new(),
                free: Vec::new(),
                armed_us: NEVER,
            }),
        })
    }

    /// A handle through which one request is woken.
    pub(crate) fn sleep(&self) -> Sleep<'_> {
        Sleep {
            alarm: self,
            place: None,
            due_us: NEVER,
            waker: None,
        }
    }

    /// Wakes requests when they are due, for ever.
    pub(crate) async fn ring(self: Arc<Self>) {
        loop {
            match self.timer.readable().await {
                Ok(mut ready) => {
                    // The value read is how often the timer fired: once, or zero if it was set again meanwhile.
                    let _ = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?));
                }
                Err(error) => return tracing::error!(%error, "requests of a client are no longer woken in time"),
            }
            // Answers that arrived at the same moment go first: a request is not late if its answer is here.
            tokio::task::yield_now().await;
            let due = self.due();
            due.into_iter().for_each(Waker::wake);
        }
    }

    /// The requests that are due; sets the timer to the next time.
    fn due(&self) -> SmallVec<[Waker; 8]> {
        let now_us = self.clock.now_us();
        let mut due = SmallVec::new();
        let mut waiting = self.waiting.lock();
        waiting.armed_us = NEVER;
        while let Some(&Reverse((due_us, place))) = waiting.times.peek() {
            let sleeper = &mut waiting.sleepers[place as usize];
            match sleeper.due_us == due_us {
                true if due_us > now_us => {
                    self.arm(&mut waiting, due_us, now_us);
                    break;
                }
                true => {
                    sleeper.due_us = NEVER;
                    due.extend(sleeper.waker.take());
                }
                false => {}
            }
            waiting.times.pop();
        }
        due
    }

    fn arm(&self, waiting: &mut Waiting, due_us: u64, now_us: u64) {
        // Zero would disarm it.
        let after = Duration::from_micros(due_us.saturating_sub(now_us).max(1));
        let time = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(after.subsec_nanos()),
            },
        };
        match timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &time) {
            Ok(_) => waiting.armed_us = due_us,
            Err(error) => tracing::error!(%error, "the timer of a client could not be set"),
        }
    }
}

impl Sleep<'_> {
    /// Wakes this waker at this time, or earlier if an earlier time was set before.
    #[inline]
    pub(crate) fn until(&mut self, due_us: u64, now_us: u64, waker: &Waker) {
        let is_set = now_us < self.due_us && self.due_us <= due_us;
        if !is_set || !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.set(due_us, now_us, waker);
        }
    }

    fn set(&mut self, due_us: u64, now_us: u64, waker: &Waker) {
        self.due_us = due_us;
        self.waker = Some(waker.clone());
        let mut waiting = self.alarm.waiting.lock();
        let sleeper = Sleeper {
            due_us,
            waker: Some(waker.clone()),
        };
        let place = *self.place.get_or_insert_with(|| waiting.place());
        waiting.sleepers[place as usize] = sleeper;
        waiting.times.push(Reverse((due_us, place)));
        waiting.forget_stale();
        if due_us < waiting.armed_us {
            self.alarm.arm(&mut waiting, due_us, now_us);
        }
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut waiting = self.alarm.waiting.lock();
        waiting.sleepers[place as usize] = Sleeper {
            due_us: NEVER,
            waker: None,
        };
        waiting.free.push(place);
    }
}

impl Waiting {
    /// A slot for one more request.
    fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.sleepers.push(Sleeper {
                due_us: NEVER,
                waker: None,
            });
            self.sleepers.len() as u32 - 1
        })
    }

    fn forget_stale(&mut self) {
        let waiting = self.sleepers.len() - self.free.len();
        if self.times.len() > 2 * waiting + STALE_MAX {
            let sleepers = &self.sleepers;
            self.times
                .retain(|&Reverse((due_us, place))| sleepers[place as usize].due_us == due_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    fn alarm() -> Arc<Alarm> {
        let alarm = Arc::new(Alarm::new(Clock::new()).unwrap());
        tokio::spawn(Arc::clone(&alarm).ring());
        alarm
    }

    /// Waits until a time, and returns when it was woken.
    async fn woken_at(alarm: &Alarm, due_us: u64) -> u64 {
        let mut sleep = alarm.sleep();
        poll_fn(|context| {
            let now_us = alarm.clock.now_us();
            if now_us >= due_us {
                return Poll::Ready(now_us);
            }
            sleep.until(due_us, now_us, context.waker());
            Poll::Pending
        })
        .await
    }

    #[tokio::test]
    async fn all_requests_are_woken_on_time_in_any_order() {
        let alarm = alarm();
        let now_us = alarm.clock.now_us();
        let due = [9_000, 300, 5_000, 300, 12_000].map(|after_us| now_us + after_us);
        let sleeping = due.map(|due_us| {
            let alarm = Arc::clone(&alarm);
            tokio::spawn(async move { woken_at(&alarm, due_us).await })
        });
        for (due_us, sleeping) in due.into_iter().zip(sleeping) {
            assert!(sleeping.await.unwrap() >= due_us);
        }
        let waiting = alarm.waiting.lock();
        assert_eq!(waiting.free.len(), waiting.sleepers.len());
    }

    #[tokio::test]
    async fn dropped_sleepers_leave_nothing_behind() {
        let alarm = alarm();
        let waker = Waker::noop();
        for round in 0..10_000 {
            let mut sleep = alarm.sleep();
            sleep.until(1_000_000_000 + round, alarm.clock.now_us(), waker);
        }
        let waiting = alarm.waiting.lock();
        assert_eq!(waiting.sleepers.len(), 1, "slots are reused");
        assert!(waiting.times.len() <= STALE_MAX + 2, "{}", waiting.times.len());
    }

    #[tokio::test]
    async fn a_later_time_is_noticed_when_the_earlier_one_fires() {
        let alarm = alarm();
        let mut sleep = alarm.sleep();
        let mut polls = 0;
        let later_us = alarm.clock.now_us() + 4_000;
        let waiting = poll_fn(|context| {
            polls += 1;
            let now_us = alarm.clock.now_us();
            if polls > 1 && now_us >= later_us {
                return Poll::Ready(());
            }
            if polls == 1 {
                sleep.until(now_us + 500, now_us, context.waker());
            }
            // The first time, the timer stays as it is; the later time must still be remembered when it fires.
            sleep.until(later_us, now_us, context.waker());
            Poll::Pending
        });
        let woken = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert!(woken.is_ok(), "polled {polls} times");
    }
}
