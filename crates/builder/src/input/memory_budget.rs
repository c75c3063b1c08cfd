//! A memory budget for decoding, shared by all threads. A thread waits if nothing is left.

use parking_lot::{Condvar, Mutex};

use crate::error::BuildError;
use crate::sort::Sorter;

/// Memory besides that of the sort, plus at most half of the sort's memory.
pub(super) struct MemoryBudget<'a> {
    sorter: &'a Sorter,
    beside_bytes: u64,
    bytes_max: u64,
    taken_bytes: Mutex<u64>,
    given_back: Condvar,
}

/// A share of the budget, returned on drop.
pub(super) struct BudgetShare<'a> {
    room: &'a MemoryBudget<'a>,
    bytes: u64,
}

impl<'a> MemoryBudget<'a> {
    pub(super) fn new(sorter: &'a Sorter, beside_bytes: u64, sort_bytes: u64) -> Self {
        Self {
            sorter,
            beside_bytes,
            bytes_max: beside_bytes + sort_bytes / 2,
            taken_bytes: Mutex::new(0),
            given_back: Condvar::new(),
        }
    }

    /// Waits for this much memory, or for the whole budget if that is smaller.
    ///
    /// # Errors
    /// The sort cannot lend it.
    pub(super) fn take(&'a self, bytes: u64) -> Result<BudgetShare<'a>, BuildError> {
        let bytes = bytes.min(self.bytes_max);
        let is_full = |taken: &mut u64| *taken + bytes > self.bytes_max;
        let mut taken = self.taken_bytes.lock();
        self.given_back.wait_while(&mut taken, is_full);
        let of_sort = self.of_sort(*taken + bytes) - self.of_sort(*taken);
        *taken += bytes;
        drop(taken);
        // It is returned also if this fails.
        let given = BudgetShare { room: self, bytes };
        self.sorter.lend(of_sort)?;
        Ok(given)
    }

    /// The sort's contribution when this much is taken.
    fn of_sort(&self, taken_bytes: u64) -> u64 {
        taken_bytes.saturating_sub(self.beside_bytes)
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        let mut taken = self.room.taken_bytes.lock();
        let before = *taken;
        *taken -= self.bytes;
        let of_sort = self.room.of_sort(before) - self.room.of_sort(*taken);
        drop(taken);
        self.room.sorter.take_back(of_sort);
        self.room.given_back.notify_all();
    }
}
