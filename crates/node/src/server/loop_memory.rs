//! Memory that all connections of a loop use in turns: it is in the processor's cache then, and a connection that waits
//! for requests has none.

use std::cell::{Cell, RefCell};

use bytes::BytesMut;

use super::queue::RequestQueue;
use super::queue::memory::MemoryReads;

/// How many of a kind are kept. One is in use at a time where all can be answered at once, and one of each connection that is
/// ready where writes are gathered.
const KEPT: usize = 64;
/// How many long buffers of a kind are.
const LONG_KEPT: usize = 4;
/// Longer buffers are long.
const LONG_BYTES: usize = 128 * 1024;
/// Longer buffers are not kept.
const BUFFER_BYTES_KEPT: usize = 1024 * 1024;

/// How much is read at once, from most clients.
pub(super) const INPUT_BYTES: usize = 32 * 1024;
/// From those that always have more to be read.
pub(super) const INPUT_BYTES_MAX: usize = 4 * INPUT_BYTES;

/// Such memory of one loop.
#[derive(Default)]
pub(super) struct LoopMemory {
    /// For [`INPUT_BYTES`] at least.
    inputs: Kept<BytesMut>,
    /// For [`INPUT_BYTES_MAX`].
    long_inputs: Kept<BytesMut>,
    outputs: Kept<Vec<u8>>,
    queues: Kept<Box<RequestQueue>>,
    /// One for all: it is in use only while requests are taken.
    reads: Cell<MemoryReads>,
}

/// The last that was given back is taken first.
struct Kept<T>(RefCell<Vec<T>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T> Kept<T> {
    fn take(&self) -> Option<T> {
        self.0.borrow_mut().pop()
    }

    /// Keeps it, if fewer than this many are kept.
    fn keep(&self, one: T, kept_max: usize) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < kept_max {
            kept.push(one);
        }
    }
}

/// How many buffers of this length are kept.
fn kept_max(bytes: usize) -> usize {
    if bytes == 0 || bytes > BUFFER_BYTES_KEPT {
        0
    } else if bytes > LONG_BYTES {
        LONG_KEPT
    } else {
        KEPT
    }
}

impl LoopMemory {
    /// An empty buffer with room for so much input.
    pub(super) fn input(&self, room: usize) -> BytesMut {
        self.inputs_of(room)
            .take()
            .unwrap_or_else(|| BytesMut::with_capacity(room))
    }

    /// Keeps a buffer of input for other connections, if no request has parts of it. Its contents are dropped.
    pub(super) fn give_back_input(&self, mut buffer: BytesMut) {
        buffer.clear();
        if buffer.try_reclaim(INPUT_BYTES_MAX) {
            let kept_max = kept_max(buffer.capacity());
            self.long_inputs.keep(buffer, kept_max);
        } else if buffer.try_reclaim(INPUT_BYTES) && buffer.capacity() < 2 * INPUT_BYTES {
            self.inputs.keep(buffer, KEPT);
        }
    }

    fn inputs_of(&self, room: usize) -> &Kept<BytesMut> {
        match room < INPUT_BYTES_MAX {
            true => &self.inputs,
            false => &self.long_inputs,
        }
    }

    /// An empty buffer for replies.
    pub(super) fn output(&self) -> Vec<u8> {
        self.outputs.take().unwrap_or_default()
    }

    /// Keeps a buffer of replies for others. Its contents are dropped.
    pub(super) fn give_back_output(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let kept_max = kept_max(buffer.capacity());
        self.outputs.keep(buffer, kept_max);
    }

    /// An empty queue.
    pub(super) fn queue(&self) -> Box<RequestQueue> {
        self.queues.take().unwrap_or_default()
    }

    /// Keeps a queue for others, if it is empty.
    pub(super) fn give_back_queue(&self, queue: Box<RequestQueue>) {
        if queue.is_worth_keeping() {
            self.queues.keep(queue, KEPT);
        }
    }

    /// Memory for look-ups that memory may answer, without any.
    #[inline]
    pub(super) fn reads(&self) -> MemoryReads {
        self.reads.take()
    }

    /// Keeps it for the next turn.
    #[inline]
    pub(super) fn give_back_reads(&self, reads: MemoryReads) {
        self.reads.set(reads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_use_what_was_given_back_and_no_more_is_kept_than_is_of_use() {
        let loop_memory = LoopMemory::default();
        let mut buffer = loop_memory.output();
        buffer.extend_from_slice(b"+OK");
        let place = buffer.as_ptr();
        loop_memory.give_back_output(buffer);
        loop_memory.give_back_output(Vec::new());
        loop_memory.give_back_output(Vec::with_capacity(BUFFER_BYTES_KEPT + 1));
        let buffer = loop_memory.output();
        assert_eq!((buffer.as_ptr(), buffer.len()), (place, 0));
        assert_eq!(loop_memory.output().capacity(), 0);
        for (bytes, kept) in [(BUFFER_BYTES_KEPT, LONG_KEPT), (1, KEPT)] {
            (0..2 * KEPT).for_each(|_| loop_memory.give_back_output(Vec::with_capacity(bytes)));
            assert_eq!(loop_memory.outputs.0.borrow().len(), kept);
        }
    }

    #[test]
    fn input_that_requests_are_parts_of_is_not_used_again_before_they_are_gone() {
        let loop_memory = LoopMemory::default();
        let mut buffer = loop_memory.input(INPUT_BYTES);
        let place = buffer.as_ptr();
        buffer.extend_from_slice(b"SET a 1");
        let request = buffer.split_to(buffer.len()).freeze();
        loop_memory.give_back_input(buffer);
        assert_eq!(loop_memory.inputs.0.borrow().len(), 0);

        let mut other = loop_memory.input(INPUT_BYTES);
        assert_ne!(other.as_ptr(), place);
        other.extend_from_slice(b"SET b 2");
        let place = other.as_ptr();
        drop(other.split_to(other.len()).freeze());
        loop_memory.give_back_input(other);
        let other = loop_memory.input(INPUT_BYTES);
        assert_eq!((other.as_ptr(), other.len()), (place, 0));
        assert!(other.capacity() >= INPUT_BYTES);
        assert_eq!(request, &b"SET a 1"[..]);
    }

    #[test]
    fn a_client_that_has_more_to_read_gets_more_room() {
        let loop_memory = LoopMemory::default();
        loop_memory.give_back_input(BytesMut::with_capacity(INPUT_BYTES));
        loop_memory.give_back_input(BytesMut::with_capacity(INPUT_BYTES - 1));
        loop_memory.give_back_input(BytesMut::with_capacity(BUFFER_BYTES_KEPT + 1));
        assert_eq!(loop_memory.inputs.0.borrow().len(), 1);
        assert!(loop_memory.input(INPUT_BYTES_MAX).capacity() >= INPUT_BYTES_MAX);
        loop_memory.give_back_input(BytesMut::with_capacity(INPUT_BYTES_MAX));
        assert_eq!(loop_memory.long_inputs.0.borrow().len(), 1);
        assert!(loop_memory.input(INPUT_BYTES).capacity() < INPUT_BYTES_MAX);
    }
}
