//! Whose turn it is to commit to the partitions of a shard.
//!
//! Who has the turn is the only one to write to them, so that to read, change and write a record needs no other lock.
//! It is mostly the shard's own thread; an event loop takes it while nobody else wants it, for what is written without
//! waiting: that saves two changes of threads.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::committer::Dots;

/// The turn at a shard: where the dots come from that are given to its writes, none before the first turn.
#[derive(Debug, Default)]
pub(crate) struct WriteTurn(Mutex<Option<Dots>>);

/// The turn, until this is dropped.
pub(crate) type HeldTurn<'a> = MutexGuard<'a, Option<Dots>>;

impl WriteTurn {
    /// Waits for the turn.
    pub(crate) fn take(&self) -> HeldTurn<'_> {
        // A group that panics is caught while this is held; and dots only grow.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn, if nobody has it.
    pub(crate) fn try_take(&self) -> Option<HeldTurn<'_>> {
        match self.0.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
