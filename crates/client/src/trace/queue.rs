//! Spans that have ended and are to be sent. A queue with a limit: the newest span is dropped, and counted, when the queue
//! is full, so that nothing waits for what sends them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::Span;

/// How many spans wait at most: some 4 MB.
pub const SPANS_MAX: usize = 8192;

/// Spans that wait to be sent.
#[derive(Debug, Default)]
pub struct SpanQueue {
    waiting: Mutex<VecDeque<Span>>,
    ended: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// Counts of spans by their outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// How many have ended.
    pub ended: u64,
    /// How many of these were dropped, because the queue was full.
    pub dropped: u64,
    /// How many of these could not be sent.
    pub failed: u64,
}

impl SpanQueue {
    /// Adds a span, if there is room.
    pub fn push(&self, span: Span) {
        self.ended.fetch_add(1, Relaxed);
        let mut waiting = self.waiting.lock();
        if waiting.len() < SPANS_MAX {
            waiting.push_back(span);
            return;
        }
        drop(waiting);
        self.dropped.fetch_add(1, Relaxed);
    }

    /// Takes the oldest spans, at most `spans_max`.
    pub fn take(&self, spans_max: usize) -> Vec<Span> {
        let mut waiting = self.waiting.lock();
        let taken = spans_max.min(waiting.len());
        let spans = waiting.drain(..taken).collect();
        if waiting.is_empty() {
            waiting.shrink_to(SPANS_MAX / 16);
        }
        spans
    }

    /// Notes that spans could not be sent.
    pub fn note_failed(&self, spans: usize) {
        self.failed.fetch_add(spans as u64, Relaxed);
    }

    /// Counts of spans by their outcome.
    pub fn counts(&self) -> SpanCounts {
        SpanCounts {
            ended: self.ended.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::trace::{OpenSpan, SpanKind};

    #[test]
    fn a_full_queue_drops_and_counts() {
        let queue = Arc::new(SpanQueue::default());
        for _ in 0..SPANS_MAX + 3 {
            OpenSpan::root(None, "GET".into(), SpanKind::Server, &queue).end();
        }
        let counts = queue.counts();
        assert_eq!((counts.ended, counts.dropped), (SPANS_MAX as u64 + 3, 3));
        assert_eq!(queue.take(10).len(), 10);
        assert_eq!(queue.take(usize::MAX).len(), SPANS_MAX - 10);
        assert!(queue.take(1).is_empty());
    }
}
