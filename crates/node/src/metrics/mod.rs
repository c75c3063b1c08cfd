//! What a node counts, next to where it happens, and without a lock.
//!
//! Each event loop has its own counters and is the only one to write them; readers add them up.

mod stores;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fondaco_client::quorum::{QuorumCounters, QuorumCounts};
use fondaco_model::{Histogram, HistogramSnapshot};
use fondaco_resp::command::CommandId;

use self::stores::{StoreLatencies, StorePlaces};
use crate::catalog::StoreId;

/// More than there are commands.
const COMMANDS_MAX: usize = 192;

/// Adds to a counter that only this thread writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}

/// The counters of one event loop.
#[derive(Debug)]
pub struct LoopMetrics {
    /// At the place of each [`CommandId`].
    commands: Box<[CommandMetrics]>,
    counters: [AtomicU64; COUNTERS.len()],
    stores: StoreLatencies,
    store_places: Arc<StorePlaces>,
    /// How many bytes of hot keys it keeps.
    pub(crate) cache_bytes: AtomicU64,
    /// What the operations do that it coordinates.
    pub(crate) quorums: Arc<QuorumCounters>,
}

/// How often a command was run, how often it failed, and how long its batch took.
#[derive(Debug, Default)]
pub struct CommandMetrics {
    /// From when its request was read until its reply was ready, with those that came in the same
    /// read.
    pub latency: Histogram,
    errors: AtomicU64,
}

/// What a loop counts besides its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Bytes read from clients.
    BytesIn,
    /// Bytes written to clients.
    BytesOut,
    /// Look-ups answered from memory.
    HotLookups,
    /// Look-ups that had to read the disk.
    ColdLookups,
    /// Look-ups of keys that are not there.
    AbsentLookups,
    /// Look-ups that met corruption or a failed read.
    FailedLookups,
    /// Clients accepted.
    ClientsAccepted,
    /// Clients refused, because too many were connected.
    ClientsRefused,
    /// Clients dropped, because they were silent or slow.
    ClientsTimedOut,
    /// Requests that broke the protocol.
    ProtocolErrors,
    /// Failed authentications.
    AuthenticationFailures,
    /// Look-ups passed on to other nodes.
    ForwardedLookups,
    /// Look-ups passed on of which no answer came, or an error.
    ForwardFailures,
    /// Requests to other nodes for the look-ups passed on.
    ForwardRequests,
    /// Of these, those made because another one had failed.
    ForwardRetries,
    /// Of these, those made because another one took long.
    ForwardHedges,
    /// Look-ups passed on again, because a store had changed its version in between.
    ForwardRepeats,
    /// Requests answered by where to go instead.
    Moved,
    /// Requests refused because too many keys were under way from other nodes.
    Overloads,
    /// Requests refused because their store's quota was used up.
    QuotaRefusals,
    /// Look-ups that a router answered from its cache.
    CacheHits,
    /// Look-ups that a router did not find in its cache.
    CacheMisses,
    /// Look-ups that waited for another client's of the same key.
    SharedLookups,
}

/// All counters, with their names and meanings.
pub const COUNTERS: [(Counter, &str, &str); 23] = [
    (Counter::BytesIn, "bytes_in", "bytes read from clients"),
    (Counter::BytesOut, "bytes_out", "bytes written to clients"),
    (Counter::HotLookups, "hot_lookups", "look-ups answered from memory"),
    (
        Counter::ColdLookups,
        "cold_lookups",
        "look-ups that had to read the disk",
    ),
    (
        Counter::AbsentLookups,
        "absent_lookups",
        "look-ups of keys that are not there",
    ),
    (
        Counter::FailedLookups,
        "failed_lookups",
        "look-ups that met corruption or a failed read",
    ),
    (Counter::ClientsAccepted, "clients_accepted", "clients accepted"),
    (
        Counter::ClientsRefused,
        "clients_refused",
        "clients refused because too many were connected",
    ),
    (
        Counter::ClientsTimedOut,
        "clients_timed_out",
        "clients dropped because they were silent or slow",
    ),
    (
        Counter::ProtocolErrors,
        "protocol_errors",
        "requests that broke the protocol",
    ),
    (
        Counter::AuthenticationFailures,
        "authentication_failures",
        "failed authentications",
    ),
    (
        Counter::ForwardedLookups,
        "forwarded_lookups",
        "look-ups passed on to other nodes",
    ),
    (
        Counter::ForwardFailures,
        "forward_failures",
        "look-ups passed on of which no answer came, or an error",
    ),
    (
        Counter::ForwardRequests,
        "forward_requests",
        "requests to other nodes for the look-ups passed on",
    ),
    (
        Counter::ForwardRetries,
        "forward_retries",
        "requests to other nodes made because another one had failed",
    ),
    (
        Counter::ForwardHedges,
        "forward_hedges",
        "requests to other nodes made because another one took long",
    ),
    (
        Counter::ForwardRepeats,
        "forward_repeats",
        "look-ups passed on again because a store had changed its version in between",
    ),
    (Counter::Moved, "moved", "requests answered by where to go instead"),
    (
        Counter::Overloads,
        "overloads",
        "requests refused because too many keys were under way from other nodes",
    ),
    (
        Counter::QuotaRefusals,
        "quota_refusals",
        "requests refused because their store's quota was used up",
    ),
    (
        Counter::CacheHits,
        "cache_hits",
        "look-ups that a router answered from its cache",
    ),
    (
        Counter::CacheMisses,
        "cache_misses",
        "look-ups that a router did not find in its cache",
    ),
    (
        Counter::SharedLookups,
        "shared_lookups",
        "look-ups that waited for another client's of the same key",
    ),
];

impl LoopMetrics {
    fn new(store_places: Arc<StorePlaces>) -> Self {
        Self {
            stores: StoreLatencies::default(),
            store_places,
            commands: (0..COMMANDS_MAX).map(|_| CommandMetrics::default()).collect(),
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
            cache_bytes: AtomicU64::new(0),
            quorums: Arc::default(),
        }
    }

    /// Counts commands that were answered. Only the loop's own thread.
    #[inline]
    pub(crate) fn record(&self, command: CommandId, took: Duration, count: u64) {
        self.commands[command as usize].latency.record(took, count);
    }

    /// Counts commands that were answered by an error. Only the loop's own thread.
    pub(crate) fn record_error(&self, command: CommandId) {
        add(&self.commands[command as usize].errors, 1);
    }

    /// Counts requests of clients on a store. Only the loop's own thread.
    #[inline]
    pub(crate) fn record_store(&self, store: StoreId, took: Duration, count: u64) {
        self.stores.record(&self.store_places, store, took, count);
    }

    /// Adds to a counter. Only the loop's own thread.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        add(&self.counters[counter as usize], count);
    }
}

/// The counters of a whole node.
#[derive(Debug)]
pub struct NodeMetrics {
    loops: Vec<Arc<LoopMetrics>>,
    store_places: Arc<StorePlaces>,
    /// How many clients are connected.
    pub(crate) clients: AtomicU64,
    /// How many cold reads are under way.
    pub(crate) cold_reads: AtomicU64,
    /// How many keys are under way from other nodes.
    pub(crate) forwards: AtomicU64,
}

impl NodeMetrics {
    /// Counters for so many event loops.
    pub fn new(loops: usize) -> Self {
        let store_places = Arc::new(StorePlaces::default());
        let of_loop = |_| Arc::new(LoopMetrics::new(Arc::clone(&store_places)));
        Self {
            loops: (0..loops).map(of_loop).collect(),
            store_places: Arc::clone(&store_places),
            clients: AtomicU64::new(0),
            cold_reads: AtomicU64::new(0),
            forwards: AtomicU64::new(0),
        }
    }

    pub(crate) fn of_loop(&self, number: usize) -> Arc<LoopMetrics> {
        Arc::clone(&self.loops[number])
    }

    /// The latency of a command, over all loops, since the start.
    pub fn latency(&self, command: CommandId) -> HistogramSnapshot {
        self.sum_latencies(|id| id == command as usize)
    }

    /// The latency of all commands together, over all loops, since the start: what a fetch watches.
    pub fn latency_of_all(&self) -> HistogramSnapshot {
        self.sum_latencies(|_| true)
    }

    fn sum_latencies(&self, which: impl Fn(usize) -> bool) -> HistogramSnapshot {
        let mut sum = HistogramSnapshot::default();
        for metrics in &self.loops {
            for (id, command) in metrics.commands.iter().enumerate() {
                if which(id) {
                    sum.add(&command.latency.snapshot());
                }
            }
        }
        sum
    }

    /// How long clients' requests on a store took, over all loops, since the start; `None` if there were none, or if it is one of
    /// [those that are counted together](Self::latency_of_other_stores).
    pub fn latency_of_store(&self, store: StoreId) -> Option<HistogramSnapshot> {
        self.sum_store_latencies(Some(self.store_places.known(store)?))
    }

    /// The same of all stores beyond the first hundred that were asked for.
    pub fn latency_of_other_stores(&self) -> Option<HistogramSnapshot> {
        self.sum_store_latencies(None)
    }

    fn sum_store_latencies(&self, place: Option<u8>) -> Option<HistogramSnapshot> {
        let snapshots = self.loops.iter().filter_map(|metrics| metrics.stores.snapshot(place));
        snapshots.reduce(|mut sum, other| {
            sum.add(&other);
            sum
        })
    }

    /// How often a command was answered by an error.
    pub fn errors(&self, command: CommandId) -> u64 {
        let errors = |metrics: &Arc<LoopMetrics>| metrics.commands[command as usize].errors.load(Relaxed);
        self.loops.iter().map(errors).sum()
    }

    /// A counter, over all loops.
    pub fn counter(&self, counter: Counter) -> u64 {
        let value = |metrics: &Arc<LoopMetrics>| metrics.counters[counter as usize].load(Relaxed);
        self.loops.iter().map(value).sum()
    }

    /// What was done to coordinate operations on versioned stores, over all loops.
    pub fn quorums(&self) -> QuorumCounts {
        self.loops.iter().map(|metrics| metrics.quorums.read()).sum()
    }

    /// How many clients are connected.
    pub fn clients(&self) -> u64 {
        self.clients.load(Relaxed)
    }

    /// How many cold reads are under way.
    pub fn cold_reads(&self) -> u64 {
        self.cold_reads.load(Relaxed)
    }

    /// How many keys are under way from other nodes.
    pub fn forwards(&self) -> u64 {
        self.forwards.load(Relaxed)
    }

    /// How many bytes of hot keys a router keeps, over all loops.
    pub fn cache_bytes(&self) -> u64 {
        let bytes = |metrics: &Arc<LoopMetrics>| metrics.cache_bytes.load(Relaxed);
        self.loops.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_every_counter_has_its_place() {
        for spec in fondaco_resp::command::all() {
            let own = std::iter::once(spec.id).chain(spec.subcommands.iter().map(|sub| sub.id));
            assert!(own.into_iter().all(|id| (id as usize) < COMMANDS_MAX), "{}", spec.name);
        }
        for (at, (counter, ..)) in COUNTERS.iter().enumerate() {
            assert_eq!(*counter as usize, at);
        }
    }
}
