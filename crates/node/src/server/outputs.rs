//! Memory for replies: all connections of a loop use the same in turns, which is in the processor's cache then, and a
//! connection that waits for requests has none.

use std::cell::RefCell;

/// How many buffers are kept: mostly one is in use at a time, and more where clients are slow to take what they are sent.
const BUFFERS_KEPT: usize = 4;
/// Buffers that grew beyond this are not kept.
const BUFFER_BYTES_KEPT: usize = 1024 * 1024;

/// Such memory of one loop.
#[derive(Default)]
pub(super) struct Outputs(RefCell<Vec<Vec<u8>>>);

impl Outputs {
    /// An empty buffer: the one that was given back last.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a buffer for others. What is in it is gone.
    pub(super) fn give_back(&self, mut buffer: Vec<u8>) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < BUFFERS_KEPT && (1..=BUFFER_BYTES_KEPT).contains(&buffer.capacity()) {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_used_again_and_no_more_is_kept_than_is_of_use() {
        let outputs = Outputs::default();
        let mut buffer = outputs.take();
        buffer.extend_from_slice(b"+OK");
        let place = buffer.as_ptr();
        outputs.give_back(buffer);
        outputs.give_back(Vec::new());
        outputs.give_back(Vec::with_capacity(BUFFER_BYTES_KEPT + 1));
        let buffer = outputs.take();
        assert_eq!((buffer.as_ptr(), buffer.len()), (place, 0));
        assert_eq!(outputs.take().capacity(), 0);
        (0..2 * BUFFERS_KEPT).for_each(|_| outputs.give_back(Vec::with_capacity(1)));
        assert_eq!(outputs.0.borrow().len(), BUFFERS_KEPT);
    }
}
