//! A memory limit for the values of all requests that share it, in bytes.
//!
//! A request takes memory for each value as it arrives, and keeps it until its answer is dropped, so sizes need not be
//! known beforehand. A value beyond the limit is not kept: its key fails. The invariant: the total never exceeded the
//! limit at the time of taking, except for a request that holds all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limit on bytes of values, shared by requests.
#[derive(Debug)]
pub struct ValueBudget {
    bytes_max: AtomicU64,
    bytes: AtomicU64,
}

/// A request's share of a limit. It is returned on drop.
#[derive(Debug, Default)]
pub struct HeldBudget {
    room: Option<Arc<ValueBudget>>,
    bytes: u64,
}

impl ValueBudget {
    /// A limit of this many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max: AtomicU64::new(bytes_max),
            bytes: AtomicU64::new(0),
        }
    }

    /// The limit in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Relaxed)
    }

    /// Changes the limit. Shares that were taken stay.
    pub fn resize(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// The bytes that are taken.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let with = self.bytes.fetch_add(bytes, Relaxed).saturating_add(bytes);
        let fits = with <= self.bytes_max();
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

impl HeldBudget {
    /// An empty share of this limit; without a limit there is memory for everything.
    pub fn of(room: Option<Arc<ValueBudget>>) -> Self {
        Self { room, bytes: 0 }
    }

    /// Takes over another request's share of the same limit.
    pub fn join(&mut self, mut other: Self) {
        match (&self.room, &other.room) {
            (None, _) => *self = other,
            (Some(_), None) => {}
            (Some(own), Some(others)) => {
                debug_assert!(Arc::ptr_eq(own, others), "shares of two limits cannot be joined");
                self.bytes += std::mem::take(&mut other.bytes);
            }
        }
    }

    /// Takes memory for a value.
    ///
    /// # Errors
    /// The limit in bytes, if not enough is left.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Result<(), u64> {
        let Some(room) = &self.room else { return Ok(()) };
        if !room.take(bytes as u64) {
            return Err(room.bytes_max());
        }
        self.bytes += bytes as u64;
        Ok(())
    }

    /// Takes memory for an indispensable value: also beyond the limit, if no other request has a share.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(crate) fn take_alone(&mut self, bytes: usize) -> Result<(), u64> {
        let Some(room) = &self.room else { return Ok(()) };
        let with = self.bytes + bytes as u64;
        match room.bytes.compare_exchange(self.bytes, with, Relaxed, Relaxed) {
            Ok(_) => {
                self.bytes = with;
                Ok(())
            }
            Err(_) => self.take(bytes),
        }
    }

    /// Moves the memory of values into a share of its own.
    pub(super) fn split(&mut self, bytes: usize) -> Self {
        let bytes = self.room.as_ref().map_or(0, |_| bytes as u64);
        debug_assert!(bytes <= self.bytes, "more is moved than was taken");
        self.bytes -= bytes;
        Self {
            room: self.room.clone(),
            bytes,
        }
    }

    /// Returns the memory of a value.
    pub fn give_back(&mut self, bytes: usize) {
        if let Some(room) = &self.room {
            debug_assert!(bytes as u64 <= self.bytes, "more is returned than was taken");
            room.give_back(bytes as u64);
            self.bytes -= bytes as u64;
        }
    }
}

/// Compares bytes, of any limit.
impl PartialEq for HeldBudget {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for HeldBudget {}

impl Drop for HeldBudget {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            room.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_limit_holds_and_all_shares_are_returned(
            steps in prop::collection::vec((0usize..4, 0usize..60), 0..200),
        ) {
            let room = Arc::new(ValueBudget::new(100));
            let mut held: Vec<HeldBudget> = (0..4).map(|_| HeldBudget::of(Some(Arc::clone(&room)))).collect();
            let mut taken = [0; 4];
            for (who, bytes) in steps {
                match held[who].take(bytes) {
                    Ok(()) => taken[who] += bytes,
                    Err(bytes_max) => {
                        prop_assert_eq!(bytes_max, 100);
                        prop_assert!(taken.iter().sum::<usize>() + bytes > 100, "there was room");
                        let half = taken[who] / 2;
                        held[who].give_back(half);
                        taken[who] -= half;
                    }
                }
                prop_assert_eq!(room.bytes(), taken.iter().sum::<usize>() as u64);
                prop_assert!(room.bytes() <= 100);
            }
            let mut all = HeldBudget::default();
            held.into_iter().for_each(|held| all.join(held));
            prop_assert_eq!(room.bytes(), taken.iter().sum::<usize>() as u64);
            drop(all);
            prop_assert_eq!(room.bytes(), 0);
        }
    }

    #[test]
    fn a_lone_request_may_exceed_the_limit() {
        let room = Arc::new(ValueBudget::new(100));
        let [mut one, mut other] = [(); 2].map(|()| HeldBudget::of(Some(Arc::clone(&room))));
        one.take_alone(150).unwrap();
        one.take_alone(10).unwrap();
        assert_eq!(other.take_alone(1), Err(100));
        drop(one);
        other.take_alone(60).unwrap();
        assert_eq!(room.bytes(), 60);
    }
}
