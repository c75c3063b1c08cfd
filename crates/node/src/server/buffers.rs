//! Memory for the requests and replies of clients: one budget for all connections of a process, of both protocols.
//!
//! [`FREE_BYTES`] of each connection are not charged, so that short requests and replies never wait. A connection that needs
//! more waits until that is within the budget, except for one at a time: the one that has waited longest, which is not
//! charged with what it takes from then on. So long requests that fill the budget together are completed one after the
//! other, and memory stays under the budget and the longest request together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The bytes that a connection may have without being charged.
pub const FREE_BYTES: u64 = 256 * 1024;

/// The budget. Clones share it.
#[derive(Debug, Clone)]
pub struct BufferBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_max: u64,
    charged_bytes: AtomicU64,
    waits: AtomicU64,
    given_back: Notify,
    /// Held by the connection that need not wait.
    exempt: Arc<Semaphore>,
}

/// The charge of one connection, until it is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: BufferBudget,
    bytes: u64,
    exempt: Option<OwnedSemaphorePermit>,
}

impl BufferBudget {
    /// A budget of this many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Shared {
            bytes_max,
            charged_bytes: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            given_back: Notify::new(),
            exempt: Arc::new(Semaphore::new(1)),
        }))
    }

    /// How many bytes there are.
    pub fn bytes_max(&self) -> u64 {
        self.0.bytes_max
    }

    /// How many bytes connections are charged with now.
    pub fn charged_bytes(&self) -> u64 {
        self.0.charged_bytes.load(Relaxed)
    }

    /// How often a connection had to wait for memory.
    pub fn waits(&self) -> u64 {
        self.0.waits.load(Relaxed)
    }

    /// The account of a connection.
    pub fn charge(&self) -> Charge {
        Charge {
            budget: self.clone(),
            bytes: 0,
            exempt: None,
        }
    }

    fn has_room(&self, more: u64) -> bool {
        self.charged_bytes().saturating_add(more) <= self.0.bytes_max
    }
}

impl Charge {
    /// Whether the connection may have buffers of this many bytes without [waiting](Self::room_for).
    #[inline]
    pub fn has_room_for(&self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(FREE_BYTES).saturating_sub(self.bytes);
        more == 0 || self.exempt.is_some() || self.budget.has_room(more)
    }

    /// The same, or else whether it need not wait as no other connection is exempt.
    pub(crate) fn try_room_for(&mut self, bytes: u64) -> bool {
        if !self.has_room_for(bytes) {
            self.exempt = Arc::clone(&self.budget.0.exempt).try_acquire_owned().ok();
        }
        self.has_room_for(bytes)
    }

    /// Waits until the connection may have buffers of this many bytes. That it has them is said by [`set`](Self::set).
    pub async fn room_for(&mut self, bytes: u64) {
        if self.has_room_for(bytes) {
            return;
        }
        self.budget.0.waits.fetch_add(1, Relaxed);
        let shared = Arc::clone(&self.budget.0);
        // One future for all of the wait: it keeps its place among those that wait.
        let mut exemption = std::pin::pin!(Arc::clone(&shared.exempt).acquire_owned());
        loop {
            let mut given_back = std::pin::pin!(shared.given_back.notified());
            // From here on it hears of memory that is given back, before it looks.
            given_back.as_mut().enable();
            if self.has_room_for(bytes) {
                return;
            }
            tokio::select! {
                () = given_back => {}
                permit = &mut exemption => {
                    self.exempt = permit.ok();
                    return;
                }
            }
        }
    }

    /// The request for which the connection was exempt has ended. It is charged with all of its buffers again by the next
    /// [`set`](Self::set).
    pub fn end_exemption(&mut self) {
        self.exempt = None;
    }

    /// The connection has buffers of this many bytes from now on.
    #[inline]
    pub fn set(&mut self, bytes: u64) {
        let bytes = bytes.saturating_sub(FREE_BYTES);
        if bytes != self.bytes || self.exempt.is_some() {
            self.change(bytes);
        }
    }

    #[cold]
    fn change(&mut self, bytes: u64) {
        let shared = &self.budget.0;
        if bytes == 0 {
            self.exempt = None;
        }
        if bytes > self.bytes && self.exempt.is_none() {
            shared.charged_bytes.fetch_add(bytes - self.bytes, Relaxed);
            self.bytes = bytes;
        } else if bytes < self.bytes {
            shared.charged_bytes.fetch_sub(self.bytes - bytes, Relaxed);
            self.bytes = bytes;
            shared.given_back.notify_waiters();
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_ready(future: std::pin::Pin<&mut impl Future>) -> bool {
        matches!(future.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
    }

    #[test]
    fn what_is_given_back_lets_those_that_wait_go_on() {
        let budget = BufferBudget::new(100);
        let (mut one, mut two, mut three) = (budget.charge(), budget.charge(), budget.charge());
        one.set(FREE_BYTES + 90);
        assert_eq!(budget.charged_bytes(), 90);
        // The first that waits is exempt, the next is not.
        let mut exempt = std::pin::pin!(two.room_for(FREE_BYTES + 20));
        assert!(is_ready(exempt.as_mut()));
        let mut waits = std::pin::pin!(three.room_for(FREE_BYTES + 20));
        assert!(!is_ready(waits.as_mut()));
        one.set(FREE_BYTES + 85);
        assert!(!is_ready(waits.as_mut()));
        one.set(0);
        assert!(is_ready(waits.as_mut()));
        assert_eq!((budget.charged_bytes(), budget.waits()), (0, 2));
    }

    #[test]
    fn connections_that_fill_the_budget_together_finish_one_after_the_other() {
        let budget = BufferBudget::new(100);
        let mut charges: Vec<_> = (0..4).map(|_| budget.charge()).collect();
        charges.iter_mut().for_each(|charge| charge.set(FREE_BYTES + 25));
        let mut last = charges.pop().unwrap();
        for mut charge in charges {
            assert!(is_ready(std::pin::pin!(charge.room_for(FREE_BYTES + 1000))));
            charge.set(FREE_BYTES + 1000);
            assert!(budget.charged_bytes() <= 100);
            {
                let mut waits = std::pin::pin!(last.room_for(FREE_BYTES + 1000));
                assert!(!is_ready(waits.as_mut()));
                charge.set(10);
                assert!(is_ready(waits.as_mut()));
            }
            // It was exempt until it gave its memory back.
            last.set(0);
            last.set(FREE_BYTES + 25);
        }
        drop(last);
        assert_eq!(budget.charged_bytes(), 0);
    }

    #[test]
    fn a_connection_whose_request_has_ended_lets_the_next_one_be_exempt_whatever_it_still_has() {
        let budget = BufferBudget::new(100);
        let (mut one, mut two) = (budget.charge(), budget.charge());
        one.set(FREE_BYTES + 60);
        assert!(is_ready(std::pin::pin!(one.room_for(FREE_BYTES + 1000))));
        one.set(FREE_BYTES + 1000);
        let mut waits = std::pin::pin!(two.room_for(FREE_BYTES + 1000));
        assert!(!is_ready(waits.as_mut()));
        one.end_exemption();
        one.set(FREE_BYTES + 70);
        assert_eq!(budget.charged_bytes(), 70);
        assert!(is_ready(waits.as_mut()));
    }

    #[test]
    fn one_at_a_time_need_not_wait_however_much_it_wants() {
        let budget = BufferBudget::new(100);
        let (mut one, mut two) = (budget.charge(), budget.charge());
        assert!(one.try_room_for(FREE_BYTES + 1000));
        one.set(FREE_BYTES + 1000);
        assert!(!two.try_room_for(FREE_BYTES + 1000) && two.try_room_for(FREE_BYTES + 100));
        drop(one);
        assert!(two.try_room_for(FREE_BYTES + 1000));
    }

    #[test]
    fn a_connection_that_is_gone_is_charged_with_nothing() {
        let budget = BufferBudget::new(100);
        let mut charge = budget.charge();
        charge.set(FREE_BYTES + 1000);
        assert!(!budget.charge().has_room_for(FREE_BYTES + 1) && budget.charge().has_room_for(FREE_BYTES));
        drop(charge);
        assert_eq!(budget.charged_bytes(), 0);
        assert!(budget.charge().has_room_for(FREE_BYTES + 100));
    }
}
