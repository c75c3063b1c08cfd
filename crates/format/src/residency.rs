//! Tracks which parts of a mapped file are known to be in memory, without asking the kernel each time.
//!
//! A page fault that must read the disk blocks the thread, and with it every request that shares the thread. So a
//! look-up touches a mapping only where it is *resident*. The system call `mincore` reports this, but would cost a hot
//! look-up several times its own work. Therefore each 4 KiB unit of a mapping has a *stamp*: the time when it was last
//! seen resident. A fresh stamp is trusted; a stale one is checked by `mincore` and renewed.
//!
//! The time that a stamp stays fresh adapts. While stale units are found to be still resident, there is no memory
//! pressure and the time grows. As soon as some have been evicted, it shrinks. A wrong guess costs one page fault,
//! and never a wrong answer.
//!
//! Stamps are in ticks of 100 ms, in 15 bits that wrap around in an hour; 0 means never. The highest bit marks a unit
//! that is *gone*: it was found evicted, or was read past the page cache ([`crate::admission`]). Its time is that of its
//! last read.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::admission::Window;

/// The bytes that one stamp covers.
pub(crate) const UNIT_BYTES: usize = 4096;

const TICK: Duration = Duration::from_millis(100);
const TRUST_TICKS_MIN: u32 = 2;
const TRUST_TICKS_MAX: u32 = 600;

/// The bit of the stamp of a unit that is gone.
const GONE: u16 = 1 << 15;
const TICK_LAST: u16 = GONE - 1;

/// One load: the current tick in the high half, and in the low half how many ticks a stamp is trusted.
static CLOCK: AtomicU32 = AtomicU32::new(1 << 16 | TRUST_TICKS_MIN);
/// Stale units that turned out to be still resident, and evicted ones, since the last tick.
static KEPT: AtomicU32 = AtomicU32::new(0);
static EVICTED: AtomicU32 = AtomicU32::new(0);

/// The stamp of a unit seen resident now.
#[inline]
pub(crate) fn stamp_now() -> u16 {
    (CLOCK.load(Relaxed) >> 16) as u16
}

/// The stamp of a unit that was ever seen, with its time, once it is gone.
pub(crate) fn gone(stamp: u16) -> u16 {
    debug_assert_ne!(stamp, 0);
    stamp | GONE
}

/// Whether a unit was ever seen, and is gone.
pub(crate) fn is_gone(stamp: u16) -> bool {
    stamp & GONE != 0
}

/// Whether a unit was resident when it was last seen.
#[inline]
pub(crate) fn is_of_resident(stamp: u16) -> bool {
    (1..GONE).contains(&stamp)
}

/// How many ticks have passed since a stamp.
pub(crate) fn ticks_since(stamp: u16) -> u16 {
    ticks_between(stamp, stamp_now())
}

/// How many ticks ago a unit was last seen resident; `None` if it never was, or is gone.
pub(crate) fn age(stamp: u16) -> Option<u16> {
    is_of_resident(stamp).then(|| ticks_since(stamp))
}

/// How many ticks ago a unit was last seen resident, or read past the page cache; `None` if it never was.
pub(crate) fn ticks_since_read(stamp: u16) -> Option<u16> {
    (stamp != 0).then(|| ticks_since(stamp))
}

/// Whether a stamp can be trusted.
#[inline]
pub(crate) fn is_fresh(stamp: u16) -> bool {
    let clock = CLOCK.load(Relaxed);
    let age = ticks_between(stamp, (clock >> 16) as u16);
    is_of_resident(stamp) && u32::from(age) < (clock & 0xffff)
}

/// The ticks from a stamp to a later one. They may be one too many if the clock wrapped around in between.
#[inline]
fn ticks_between(stamp: u16, now: u16) -> u16 {
    now.wrapping_sub(stamp) & TICK_LAST
}

/// Records the answer of the kernel about a unit that had been resident before.
pub(crate) fn observe_stale(resident: bool) {
    if resident { &KEPT } else { &EVICTED }.fetch_add(1, Relaxed);
}

/// Starts the clock, once per process. Until it ticks, stamps are trusted.
pub(crate) fn start_clock() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let ticker = || {
            let mut window = Window::new();
            loop {
                thread::sleep(TICK);
                let clock = CLOCK.load(Relaxed);
                let (kept, evicted) = (KEPT.swap(0, Relaxed), EVICTED.swap(0, Relaxed));
                let trust = adapt(clock & 0xffff, kept, evicted);
                CLOCK.store(next_tick(clock >> 16) << 16 | trust, Relaxed);
                window.tick(kept, evicted);
            }
        };
        let spawned = thread::Builder::new().name("residency-clock".into()).spawn(ticker);
        if spawned.is_err() {
            // Without a clock, no stamp can be trusted: every look-up asks the kernel.
            CLOCK.store(1 << 16, Relaxed);
        }
    });
}

fn next_tick(tick: u32) -> u32 {
    // 0 is the stamp of units that were never seen.
    if tick >= u32::from(TICK_LAST) { 1 } else { tick + 1 }
}

/// The trust, in ticks, after a tick in which stale units were found `kept` and `evicted`.
fn adapt(trust: u32, kept: u32, evicted: u32) -> u32 {
    if evicted * 100 > kept {
        (trust / 2).max(TRUST_TICKS_MIN)
    } else if kept > 0 {
        (trust + trust / 4 + 1).min(TRUST_TICKS_MAX)
    } else {
        trust
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_grows_until_an_eviction_and_then_shrinks_at_once() {
        let mut trust = TRUST_TICKS_MIN;
        for _ in 0..60 {
            trust = adapt(trust, 10, 0);
        }
        assert_eq!(trust, TRUST_TICKS_MAX);
        assert_eq!(adapt(trust, 0, 0), trust, "no observation changes nothing");
        assert_eq!(adapt(trust, 10, 1), TRUST_TICKS_MAX / 2);
        for _ in 0..60 {
            trust = adapt(trust, 0, 5);
        }
        assert_eq!(trust, TRUST_TICKS_MIN);
    }

    #[test]
    fn the_tick_never_becomes_zero() {
        assert_eq!(next_tick(u32::from(TICK_LAST)), 1);
        assert!(!is_fresh(0));
    }

    #[test]
    fn the_stamp_of_a_unit_that_is_gone_has_a_time_but_is_never_trusted() {
        let stamp = gone(stamp_now());
        assert!(is_gone(stamp) && !is_of_resident(stamp));
        assert!(!is_gone(stamp_now()) && is_of_resident(stamp_now()));
        assert!(!is_gone(0) && !is_of_resident(0));
        assert!(ticks_since_read(stamp).is_some_and(|ticks| ticks < 600));
        assert_eq!((age(stamp), is_fresh(stamp)), (None, false));
        assert_eq!(ticks_since_read(0), None);
        for (stamp, now, ticks) in [(7, 7, 0), (3, 10, 7), (TICK_LAST, 1, 2), (1, TICK_LAST, TICK_LAST - 1)] {
            assert_eq!(ticks_between(stamp, now), ticks);
            assert_eq!(ticks_between(gone(stamp), now), ticks);
        }
    }
}
