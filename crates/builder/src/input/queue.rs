//! The remaining work: files that no thread has opened yet, and pieces of opened ones.
//!
//! Pieces are taken first and are few, since they hold memory. A thread that finds the queue of pieces full reads its
//! piece itself.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// The number of waiting pieces per thread.
const PIECES_PER_THREAD: usize = 2;

/// The remaining files and pieces.
pub(super) struct Queue<P> {
    state: Mutex<State<P>>,
    changed: Condvar,
    pieces_max: usize,
}

struct State<P> {
    file_next: usize,
    files: usize,
    /// How many threads have a file open, and may add pieces.
    opening: usize,
    pieces: VecDeque<P>,
    stopped: bool,
}

/// The next job of a thread.
pub(super) enum Job<'a, P> {
    /// Open a file and add its pieces; drop the second value at the end.
    File(u32, Opening<'a, P>),
    /// Read a piece.
    Piece(P),
}

/// Held while a file is open.
pub(super) struct Opening<'a, P>(&'a Queue<P>);

impl<P> Queue<P> {
    pub(super) fn new(files: usize, threads: usize) -> Self {
        let state = State {
            file_next: 0,
            files,
            opening: 0,
            pieces: VecDeque::new(),
            stopped: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            pieces_max: threads * PIECES_PER_THREAD,
        }
    }

    /// The next job; waits while there may be more. `None` if nothing is left.
    pub(super) fn next(&self) -> Option<Job<'_, P>> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(piece) = state.pieces.pop_front() {
                return Some(Job::Piece(piece));
            }
            if state.file_next < state.files {
                let file = state.file_next as u32;
                state.file_next += 1;
                state.opening += 1;
                return Some(Job::File(file, Opening(self)));
            }
            if state.opening == 0 {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Adds a piece, or returns it if the queue is full.
    pub(super) fn offer(&self, piece: P) -> Option<P> {
        let mut state = self.state.lock();
        if state.pieces.len() >= self.pieces_max || state.stopped {
            return Some(piece);
        }
        state.pieces.push_back(piece);
        self.changed.notify_one();
        None
    }

    /// Makes every thread end after its current job.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}

impl<P> Drop for Opening<'_, P> {
    fn drop(&mut self) {
        self.0.state.lock().opening -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn every_piece_of_every_file_is_read_once() {
        let queue = Queue::new(20, 3);
        let sum = AtomicU64::new(0);
        let read = |piece: u64| {
            sum.fetch_add(piece, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(job) = queue.next() {
                        match job {
                            Job::Piece(piece) => read(piece),
                            Job::File(file, _opening) => {
                                (0..100)
                                    .filter_map(|i| queue.offer(u64::from(file) * 100 + i))
                                    .for_each(read);
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), (0..2000).sum::<u64>());
    }

    #[test]
    fn a_stopped_queue_has_nothing_to_do() {
        let queue = Queue::<u64>::new(20, 1);
        assert!(matches!(queue.next(), Some(Job::File(0, _))));
        queue.stop();
        assert!(queue.next().is_none());
        assert_eq!(queue.offer(7), Some(7));
    }
}
