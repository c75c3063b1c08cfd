//! Whose turn it is to commit to the partitions of a shard.
//!
//! Who has the turn is the only one to write to them, so that to read, change and write a record needs no other lock.
//! It is mostly the shard's own thread; an event loop takes it while nobody else wants it, for what is written without
//! waiting: that saves two changes of threads. What is written without waiting may be held up nevertheless, when the
//! operating system has more to bring to the disk than it lets pile up: then event loops leave the turn to the thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::committer::Dots;

/// A group that took longer was held up.
const HELD_UP_MS: u64 = 10;

/// For how long event loops leave the turn alone after that.
const LEFT_ALONE_MS: u64 = 1000;

/// The turn at a shard.
#[derive(Debug, Default)]
pub(crate) struct WriteTurn {
    /// Where the dots come from that are given to its writes, none before the first turn.
    dots: Mutex<Option<Dots>>,
    /// Until when event loops leave it alone, in milliseconds since the start.
    left_alone_until_ms: AtomicU64,
}

/// The turn, until this is dropped.
pub(crate) type HeldTurn<'a> = MutexGuard<'a, Option<Dots>>;

impl WriteTurn {
    /// Waits for the turn.
    pub(crate) fn take(&self) -> HeldTurn<'_> {
        // A group that panics is caught while this is held; and dots only grow.
        self.dots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn for an event loop, at a time since the start: if nobody has it, and writes are not held up.
    pub(crate) fn try_take(&self, now_ms: u64) -> Option<HeldTurn<'_>> {
        if now_ms < self.left_alone_until_ms.load(Relaxed) {
            return None;
        }
        match self.dots.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// An event loop took the turn, and has ended it.
    pub(crate) fn ended(&self, took_ms: u64, now_ms: u64) {
        if took_ms >= HELD_UP_MS {
            self.left_alone_until_ms.store(now_ms + LEFT_ALONE_MS, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_loops_leave_it_alone_for_a_while_after_a_write_was_held_up() {
        let turn = WriteTurn::default();
        turn.ended(HELD_UP_MS - 1, 50);
        assert!(turn.try_take(50).is_some());
        turn.ended(HELD_UP_MS, 60);
        assert!(turn.try_take(60).is_none());
        assert!(turn.try_take(59 + LEFT_ALONE_MS).is_none());
        assert!(turn.try_take(60 + LEFT_ALONE_MS).is_some());
    }

    #[test]
    fn one_has_it_at_a_time() {
        let turn = WriteTurn::default();
        let held = turn.take();
        assert!(turn.try_take(0).is_none());
        drop(held);
        assert!(turn.try_take(0).is_some());
    }
}
