//! The memory budget for cached records, shared by several engines: memory that one engine leaves unused is available
//! to the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// An amount of memory that engines share. Each engine may use what the others leave unused. When all engines want more
/// than the budget, each gets an equal share.
#[derive(Clone, Debug)]
pub struct CacheBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_max: u64,
    /// The bytes that each engine uses.
    taken: Mutex<Vec<Arc<AtomicU64>>>,
}

/// The share of one engine.
#[derive(Debug)]
pub(crate) struct CacheShare {
    budget: CacheBudget,
    bytes: Arc<AtomicU64>,
}

impl CacheBudget {
    /// A budget of `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Shared {
            bytes_max,
            taken: Mutex::default(),
        }))
    }

    /// The size of the budget, in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.0.bytes_max
    }

    /// Adds an engine that shares the budget.
    pub(crate) fn share(&self) -> CacheShare {
        let bytes = Arc::<AtomicU64>::default();
        self.0.taken.lock().push(Arc::clone(&bytes));
        CacheShare {
            budget: self.clone(),
            bytes,
        }
    }
}

impl CacheShare {
    /// The bytes that the engine uses. The engine updates the counter.
    pub(crate) fn bytes(&self) -> &AtomicU64 {
        &self.bytes
    }

    /// How many bytes the engine may use now.
    pub(crate) fn bytes_max(&self) -> u64 {
        let taken = self.budget.0.taken.lock();
        let all: u64 = taken.iter().map(|bytes| bytes.load(Relaxed)).sum();
        let others = all.saturating_sub(self.bytes.load(Relaxed));
        let even = self.budget.bytes_max() / taken.len().max(1) as u64;
        self.budget.bytes_max().saturating_sub(others).max(even)
    }
}

impl Drop for CacheShare {
    fn drop(&mut self) {
        self.budget
            .0
            .taken
            .lock()
            .retain(|bytes| !Arc::ptr_eq(bytes, &self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_memory_is_shared_and_an_equal_share_is_guaranteed() {
        let budget = CacheBudget::new(100);
        let one = budget.share();
        assert_eq!(one.bytes_max(), 100);
        one.bytes().store(90, Relaxed);
        let two = budget.share();
        assert_eq!((one.bytes_max(), two.bytes_max()), (100, 50));
        two.bytes().store(50, Relaxed);
        assert_eq!((one.bytes_max(), two.bytes_max()), (50, 50));
        one.bytes().store(20, Relaxed);
        assert_eq!(two.bytes_max(), 80);
        drop(one);
        assert_eq!(two.bytes_max(), 100);
    }
}
