//! Whose turn it is to commit to the partitions of a shard.
//!
//! Who has the turn is the only one to write to them, so that to read, change and write a record needs no other lock.
//! It is mostly the shard's own thread; an event loop takes it while nobody else wants it, for what is written without
//! waiting: that saves two changes of threads. What is written without waiting may be held up nevertheless, when the
//! operating system has more to bring to the disk than it lets pile up: then event loops leave the turn to the thread.
//! Where a processor is busy, a thread that has taken something over finds more whenever it is done, and would never be
//! done: so an event loop waits for it now and then, for a moment, if it waits for no disk itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::committer::Dots;

/// A group that took longer was held up: by the disk, or by another thread on the same processor.
const HELD_UP_MS: u64 = 10;

/// For how long event loops leave the turn alone when that happened twice in such a time; and how often one waits until
/// the thread has nothing to do.
const LEFT_ALONE_MS: u64 = 1000;

/// The turn at a shard.
#[derive(Debug, Default)]
pub(crate) struct WriteTurn {
    /// Where the dots come from that are given to its writes, none before the first turn.
    dots: Mutex<Option<Dots>>,
    /// Until when event loops leave it alone, in milliseconds since the start.
    left_alone_until_ms: AtomicU64,
    /// When a group of an event loop was last held up.
    held_up_ms: AtomicU64,
    /// When an event loop last waited for the thread.
    waited_ms: AtomicU64,
    /// Whether what the thread last began to write, if it has, waits for a disk.
    thread_waits: AtomicBool,
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

    /// The thread writes something; whether that waits for a disk.
    pub(crate) fn thread_begins(&self, waits: bool) {
        self.thread_waits.store(waits, Relaxed);
    }

    /// Whether an event loop may wait a moment until the thread has nothing to do. It is taken to do so then.
    pub(crate) fn may_wait(&self, now_ms: u64) -> bool {
        let from_ms = (self.waited_ms.load(Relaxed) + LEFT_ALONE_MS).max(self.left_alone_until_ms.load(Relaxed));
        let may = now_ms >= from_ms && !self.thread_waits.load(Relaxed);
        if may {
            self.waited_ms.store(now_ms, Relaxed);
        }
        may
    }

    /// An event loop took the turn, and has ended it.
    pub(crate) fn ended(&self, took_ms: u64, now_ms: u64) {
        if took_ms < HELD_UP_MS {
            return;
        }
        let before_ms = self.held_up_ms.swap(now_ms, Relaxed);
        if before_ms > 0 && now_ms - before_ms.min(now_ms) < LEFT_ALONE_MS {
            self.left_alone_until_ms.store(now_ms + LEFT_ALONE_MS, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_loops_leave_it_alone_for_a_while_after_writes_were_held_up_again() {
        let turn = WriteTurn::default();
        turn.ended(HELD_UP_MS - 1, 40);
        turn.ended(HELD_UP_MS, 50);
        assert!(turn.try_take(50).is_some());
        turn.ended(HELD_UP_MS, 50 + LEFT_ALONE_MS);
        assert!(turn.try_take(50 + LEFT_ALONE_MS).is_some(), "not soon after the other");
        let again_ms = 60 + LEFT_ALONE_MS;
        turn.ended(HELD_UP_MS, again_ms);
        assert!(turn.try_take(again_ms + LEFT_ALONE_MS - 1).is_none());
        assert!(turn.try_take(again_ms + LEFT_ALONE_MS).is_some());
    }

    #[test]
    fn event_loops_wait_for_the_thread_now_and_then_unless_they_leave_it_alone() {
        let turn = WriteTurn::default();
        assert!(turn.may_wait(LEFT_ALONE_MS));
        assert!(!turn.may_wait(2 * LEFT_ALONE_MS - 1));
        assert!(turn.may_wait(2 * LEFT_ALONE_MS));
        turn.ended(HELD_UP_MS, 3 * LEFT_ALONE_MS);
        turn.ended(HELD_UP_MS, 3 * LEFT_ALONE_MS + 1);
        assert!(!turn.may_wait(4 * LEFT_ALONE_MS));
        assert!(turn.may_wait(4 * LEFT_ALONE_MS + 1));
        turn.thread_begins(true);
        assert!(!turn.may_wait(6 * LEFT_ALONE_MS));
        turn.thread_begins(false);
        assert!(turn.may_wait(6 * LEFT_ALONE_MS));
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
