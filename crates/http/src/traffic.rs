//! Counters of the control port.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use axum::http::StatusCode;

/// Counters of the port.
#[derive(Debug, Default)]
pub struct Traffic {
    /// How many requests were answered, by the first digit of their status.
    answers: [AtomicU64; 6],
    /// How many connections without a request gave way to others.
    evicted: Arc<AtomicU64>,
}

impl Traffic {
    /// The counter of connections that gave way to others.
    pub fn evicted(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.evicted)
    }

    /// The status classes, with the number of answers of each.
    pub fn answers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
        CLASSES
            .into_iter()
            .zip(self.answers.iter().map(|count| count.load(Relaxed)))
    }

    pub(super) fn count(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        self.answers[if class < self.answers.len() { class } else { 0 }].fetch_add(1, Relaxed);
    }
}
