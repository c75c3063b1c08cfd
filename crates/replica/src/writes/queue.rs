//! The queue of a shard: writes that wait to be committed, bounded by number and by bytes.
//!
//! It has many producers and one consumer, which takes everything at once: writes that arrive while the disk is written
//! are committed together. Producers do not wait for room: without room they are refused.

use parking_lot::{Condvar, Mutex, MutexGuard};

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    items_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct State<T> {
    items: Vec<(T, usize)>,
    bytes: usize,
    is_waited_for: bool,
    is_closed: bool,
}

impl<T> Queue<T> {
    /// An empty queue with these bounds. A single item is accepted whatever its length.
    pub(crate) fn new(items_max: usize, bytes_max: usize) -> Self {
        Self {
            state: Mutex::new(State {
                items: Vec::new(),
                bytes: 0,
                is_waited_for: false,
                is_closed: false,
            }),
            filled: Condvar::new(),
            items_max,
            bytes_max,
        }
    }

    /// Adds an item of this size.
    ///
    /// # Errors
    /// The item, if there is no room or the queue is closed.
    pub(crate) fn push(&self, item: T, bytes: usize) -> Result<(), T> {
        let mut state = self.lock();
        if !self.has_room(&state, bytes) {
            return Err(item);
        }
        put(&mut state, item, bytes);
        self.wake(state);
        Ok(())
    }

    /// Adds items, each with its size in bytes. Returns those for which there is no room.
    pub(crate) fn push_all(&self, items: impl Iterator<Item = (T, usize)>) -> Vec<T> {
        let mut refused = Vec::new();
        let mut state = self.lock();
        for (item, bytes) in items {
            match self.has_room(&state, bytes) {
                true => put(&mut state, item, bytes),
                false => refused.push(item),
            }
        }
        self.wake(state);
        refused
    }

    /// Adds another part of an item that was accepted before: there is always room for it.
    ///
    /// # Errors
    /// The item, if the queue is closed.
    pub(crate) fn push_always(&self, item: T, bytes: usize) -> Result<(), T> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(item);
        }
        put(&mut state, item, bytes);
        self.wake(state);
        Ok(())
    }

    fn has_room(&self, state: &State<T>, bytes: usize) -> bool {
        let is_full = state.items.len() >= self.items_max || state.bytes + bytes > self.bytes_max;
        !state.is_closed && (!is_full || state.items.is_empty())
    }

    /// Wakes the consumer, if it waits and there is something to take.
    fn wake(&self, mut state: MutexGuard<'_, State<T>>) {
        // Waking costs a system call: only if the thread waits, which then finds the lock free.
        if !state.items.is_empty() && std::mem::take(&mut state.is_waited_for) {
            drop(state);
            self.filled.notify_one();
        }
    }

    /// Moves all items into `taken`, in order, and waits until there are some. Returns false once the queue is closed
    /// and empty.
    pub(crate) fn take(&self, taken: &mut Vec<(T, usize)>) -> bool {
        let mut state = self.lock();
        while state.items.is_empty() && !state.is_closed {
            state.is_waited_for = true;
            self.filled.wait(&mut state);
        }
        state.is_waited_for = false;
        state.bytes = 0;
        let has_some = !state.items.is_empty();
        taken.append(&mut state.items);
        has_some
    }

    /// Moves all items into `taken`, in order. Returns whether there were any.
    pub(crate) fn take_now(&self, taken: &mut Vec<(T, usize)>) -> bool {
        let mut state = self.lock();
        state.bytes = 0;
        taken.append(&mut state.items);
        !taken.is_empty()
    }

    /// Accepts no more items. Those in the queue are still taken.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_all();
    }

    /// The number of items in the queue.
    pub(crate) fn len(&self) -> usize {
        self.lock().items.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Only changed by code that does not panic.
        self.state.lock()
    }
}

fn put<T>(state: &mut State<T>, item: T, bytes: usize) {
    state.items.push((item, bytes));
    state.bytes += bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_beyond_either_bound_are_returned() {
        let queue = Queue::new(2, 10);
        assert_eq!(queue.push('a', 100), Ok(()), "one item is always accepted");
        assert_eq!(queue.push('b', 0), Err('b'));
        let mut taken = Vec::new();
        assert!(queue.take(&mut taken));
        assert_eq!(taken, [('a', 100)]);
        assert_eq!((queue.push('b', 5), queue.push('c', 5)), (Ok(()), Ok(())));
        assert_eq!(queue.push('d', 0), Err('d'));
        assert_eq!(queue.push_always('e', 50), Ok(()));
        assert_eq!(queue.len(), 3);
    }

    #[test]
    fn push_all_returns_items_beyond_the_bounds_in_order() {
        let queue = Queue::new(3, 10);
        let items = [('a', 4), ('b', 9), ('c', 6), ('d', 0), ('e', 1)];
        assert_eq!(queue.push_all(items.into_iter()), ['b', 'e']);
        let mut taken = Vec::new();
        assert!(queue.take(&mut taken));
        assert_eq!(taken, [('a', 4), ('c', 6), ('d', 0)]);
    }

    #[test]
    fn a_closed_queue_is_drained_and_then_ends() {
        let queue = Queue::new(10, 10);
        queue.push(1, 1).unwrap();
        queue.close();
        assert_eq!((queue.push(2, 1), queue.push_always(3, 1)), (Err(2), Err(3)));
        let mut taken = Vec::new();
        assert!(queue.take(&mut taken));
        assert!(!queue.take(&mut taken));
        assert_eq!(taken.len(), 1);
    }

    #[test]
    fn the_consumer_is_woken_by_an_item_and_by_closing() {
        let queue = Queue::new(10, 10);
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                let mut all = Vec::new();
                while queue.take(&mut all) {}
                all.len()
            });
            for item in 0..1000 {
                while queue.push(item, 1).is_err() {
                    std::thread::yield_now();
                }
            }
            queue.close();
            assert_eq!(taker.join().unwrap(), 1000);
        });
    }
}
