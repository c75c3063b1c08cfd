//! Decides which reads from the disk go through the page cache, and which past it.
//!
//! A read through the page cache allocates pages, copies from them, and evicts as many others. If data is larger than
//! memory, and most pages are evicted before they are read again, all of this is in vain, and it costs more processor
//! time than the read itself. So while evictions dominate, look-ups read past the page cache ([`crate::direct`]).
//!
//! A unit that was read only a short time ago is read through the page cache all the same: it will probably be read
//! again soon. So a unit that becomes hot is in memory after its second read. How short that time is adapts: a fixed
//! share of the repeated reads, those after the shortest times, go through the page cache, whatever the sizes of data
//! and memory. So if memory grows, it is used within some passes over the data, evictions no longer dominate, and all
//! reads go through the page cache again.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// If fewer look-ups than this find evicted pages in a tick, all reads go through the page cache: there is processor
/// time enough.
const EVICTED_MIN: u32 = 100;
/// One repeated read in this many goes through the page cache.
const ADMITTED_SHARE: u32 = 8;
/// A second, until it is adapted.
const WINDOW_TICKS_START: u32 = 10;
/// Half of what stamps can tell apart.
const WINDOW_TICKS_MAX: u32 = 1 << 14;
/// The window while all reads go through the page cache.
const ALL: u32 = u32::MAX;

/// A unit that was read this many ticks ago, or fewer, is read through the page cache.
static WINDOW: AtomicU32 = AtomicU32::new(ALL);
/// Reads of units that had been read before, and those of them that went through the page cache, since the last tick.
static REPEATED: AtomicU32 = AtomicU32::new(0);
static ADMITTED: AtomicU32 = AtomicU32::new(0);

/// Whether some reads go past the page cache.
pub(crate) fn is_selective() -> bool {
    WINDOW.load(Relaxed) != ALL
}

/// Whether a read of units that are not resident goes through the page cache; they were read this many ticks ago, or
/// some of them never.
pub(crate) fn admits(ticks_since_read: Option<u16>) -> bool {
    let window = WINDOW.load(Relaxed);
    if window == ALL {
        return true;
    }
    let Some(ticks) = ticks_since_read else { return false };
    let is_admitted = u32::from(ticks) <= window;
    REPEATED.fetch_add(1, Relaxed);
    ADMITTED.fetch_add(u32::from(is_admitted), Relaxed);
    is_admitted
}

/// The window as it was last adapted, also while it is not used.
pub(crate) struct Window(u32);

impl Window {
    pub(crate) fn new() -> Self {
        Self(WINDOW_TICKS_START)
    }

    /// Adapts the window after a tick in which look-ups found this many units still resident, and evicted.
    pub(crate) fn tick(&mut self, kept: u32, evicted: u32) {
        self.0 = adapt(self.0, REPEATED.swap(0, Relaxed), ADMITTED.swap(0, Relaxed));
        let window = if evictions_dominate(kept, evicted) { self.0 } else { ALL };
        WINDOW.store(window, Relaxed);
    }
}

fn evictions_dominate(kept: u32, evicted: u32) -> bool {
    evicted >= EVICTED_MIN && evicted > kept
}

fn adapt(window: u32, repeated: u32, admitted: u32) -> u32 {
    if repeated == 0 {
        window
    } else if admitted > repeated / ADMITTED_SHARE {
        window.saturating_sub(window / 8 + 1)
    } else {
        (window + window / 8 + 1).min(WINDOW_TICKS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_selective_only_while_most_pages_are_evicted() {
        assert!(!evictions_dominate(0, 0), "data was never read");
        assert!(!evictions_dominate(0, EVICTED_MIN - 1), "few reads");
        assert!(evictions_dominate(0, EVICTED_MIN));
        assert!(evictions_dominate(9_999, 10_000));
        assert!(!evictions_dominate(10_000, 10_000));
    }

    /// The window after a minute, and the share of repeated reads that it admits, if `admitted` says how many of a
    /// thousand reads follow another one of their unit within this many ticks.
    fn settled(admitted: impl Fn(u32) -> u32) -> (u32, f64) {
        let mut window = WINDOW_TICKS_START;
        let mut sum = 0;
        for tick in 0..600 {
            let count = admitted(window).min(1000);
            sum += if tick < 300 { 0 } else { count };
            window = adapt(window, 1000, count);
        }
        (window, f64::from(sum) / 300_000.0)
    }

    #[test]
    fn an_eighth_of_the_repeated_reads_go_through_the_page_cache() {
        let share = 1.0 / f64::from(ADMITTED_SHARE);
        // Uniform reads: each unit once in ten seconds, once in two minutes.
        for period_ticks in [100, 1200] {
            let (window, admitted) = settled(|window| window * 1000 / period_ticks);
            assert!((share / 2.0..share * 2.0).contains(&admitted), "{admitted}");
            assert!((period_ticks / 16..period_ticks / 4).contains(&window), "{window}");
        }
        // All come back at once: the fewest that the window can tell.
        assert_eq!(settled(|_| 1000).0, 0);
        // None comes back: the window has a limit.
        assert_eq!(settled(|_| 0).0, WINDOW_TICKS_MAX);
        assert_eq!(adapt(10, 0, 0), 10, "no observation changes nothing");
    }
}
