//! How much memory records in memory may take, of all engines that share it: what one of them leaves, another may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// An amount of memory that engines share. Each may take what the others leave; and when all want more than there is,
/// each the same.
#[derive(Clone, Debug)]
pub struct CacheBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_max: u64,
    /// What each engine takes.
    taken: Mutex<Vec<Arc<AtomicU64>>>,
}

/// What one engine takes.
#[derive(Debug)]
pub(crate) struct CacheShare {
    budget: CacheBudget,
    bytes: Arc<AtomicU64>,
}

impl CacheBudget {
    /// So many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Shared {
            bytes_max,
            taken: Mutex::default(),
        }))
    }

    /// How many bytes there are.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.0.bytes_max
    }

    /// Lets one more engine share it.
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
    /// What it takes, in bytes.
    pub(crate) fn bytes(&self) -> &AtomicU64 {
        &self.bytes
    }

    /// What it may take now, in bytes.
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
    fn what_one_leaves_another_may_have_and_at_least_its_even_part() {
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
