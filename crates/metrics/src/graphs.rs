//! Counters of the queries of graphs. Many threads write them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters.
#[derive(Debug, Default)]
pub struct GraphMetrics {
    /// Queries.
    pub queries: AtomicU64,
    /// Queries that were answered by an error.
    pub failures: AtomicU64,
    /// Requests to nodes for queries.
    pub requests: AtomicU64,
    /// Networks of vertices that were in the cache.
    pub network_hits: AtomicU64,
    /// Those that were in the cache, but old.
    pub network_stale: AtomicU64,
    /// Networks of vertices that were computed.
    pub network_misses: AtomicU64,
    /// The bytes of the networks in the cache.
    pub network_bytes: AtomicU64,
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
