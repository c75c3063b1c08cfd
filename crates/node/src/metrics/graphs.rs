//! Counters of what is asked of graphs. Many threads write them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct GraphMetrics {
    pub(crate) queries: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) network_hits: AtomicU64,
    pub(crate) network_stale: AtomicU64,
    pub(crate) network_misses: AtomicU64,
    pub(crate) network_bytes: AtomicU64,
}

impl GraphMetrics {
    /// All counters: the name, the meaning, and the count.
    pub(crate) fn each(&self) -> [(&'static str, &'static str, u64); 6] {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        [
            ("queries", "queries of graphs", read(&self.queries)),
            (
                "query_failures",
                "queries of graphs that were answered by an error",
                read(&self.failures),
            ),
            (
                "query_requests",
                "requests to nodes for queries of graphs",
                read(&self.requests),
            ),
            (
                "network_hits",
                "networks of vertices that were in the cache",
                read(&self.network_hits),
            ),
            (
                "network_stale",
                "networks of vertices that were in the cache, but old: they were served and computed again",
                read(&self.network_stale),
            ),
            (
                "network_misses",
                "networks of vertices that were computed",
                read(&self.network_misses),
            ),
        ]
    }
}
