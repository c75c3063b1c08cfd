//! The counters of a node, kept next to the code that counts, without a lock.
//!
//! Each event loop has its own counters, and only that loop writes them; readers add them up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fondaco_catalog::StoreId;
use fondaco_client::quorum::{QuorumCounters, QuorumCounts};
use fondaco_client::trace::SpanQueue;
use fondaco_model::{Histogram, HistogramSnapshot};
use fondaco_resp::command::CommandId;

use crate::graphs::GraphMetrics;
use crate::loads::{self, Asked, Loads, LoopLoads};
use crate::rate;
use crate::stores::{StoreLatencies, StorePlaces};

/// More than the number of commands.
const COMMANDS_MAX: usize = 192;

/// Adds to a counter that only this thread writes.
#[inline]
pub fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}

/// The counters of one event loop.
#[derive(Debug)]
pub struct LoopMetrics {
    /// Indexed by [`CommandId`].
    commands: Box<[CommandMetrics]>,
    counters: [AtomicU64; COUNTERS.len()],
    stores: StoreLatencies,
    loads: LoopLoads,
    store_places: Arc<StorePlaces>,
    /// How many bytes of hot keys it caches.
    pub cache_bytes: AtomicU64,
    /// Counts of the operations that it coordinates.
    pub quorums: Arc<QuorumCounters>,
}

/// How often a command was run, how often it failed, and how long its batch took.
#[derive(Debug, Default)]
pub struct CommandMetrics {
    /// From reading its request until its reply is ready, together with the requests that came in the same read.
    pub latency: Histogram,
    errors: AtomicU64,
}

/// The counters of a loop other than those of its commands.
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
    /// Look-ups of absent keys.
    AbsentLookups,
    /// Look-ups that failed because of corruption or a failed read.
    FailedLookups,
    /// Clients accepted.
    ClientsAccepted,
    /// Clients refused, because too many were connected.
    ClientsRefused,
    /// Clients disconnected because they were idle or slow.
    ClientsTimedOut,
    /// Requests that broke the protocol.
    ProtocolErrors,
    /// Failed authentications.
    AuthenticationFailures,
    /// Look-ups forwarded to other nodes.
    ForwardedLookups,
    /// Forwarded look-ups that got an error or no answer.
    ForwardFailures,
    /// Requests to other nodes for forwarded look-ups.
    ForwardRequests,
    /// Those sent because an earlier one had failed.
    ForwardRetries,
    /// Those sent because an earlier one took long.
    ForwardHedges,
    /// Look-ups forwarded again, because the store had changed its version meanwhile.
    ForwardRepeats,
    /// Requests answered with the address of another node.
    Moved,
    /// Requests refused because too many keys were in flight from other nodes.
    Overloads,
    /// Requests refused because their store's quota was used up.
    QuotaRefusals,
    /// Look-ups that a router answered from its cache.
    CacheHits,
    /// Look-ups that a router did not find in its cache.
    CacheMisses,
    /// Look-ups that waited for another client's look-up of the same key.
    SharedLookups,
    /// Events of clients that brokers have acknowledged.
    EventsWritten,
    /// Writes of events that were answered with an error.
    EventWriteFailures,
}

/// All counters, with their names and meanings.
pub const COUNTERS: [(Counter, &str, &str); 25] = [
    (Counter::BytesIn, "bytes_in", "bytes read from clients"),
    (Counter::BytesOut, "bytes_out", "bytes written to clients"),
    (Counter::HotLookups, "hot_lookups", "look-ups answered from memory"),
    (
        Counter::ColdLookups,
        "cold_lookups",
        "look-ups that had to read the disk",
    ),
    (Counter::AbsentLookups, "absent_lookups", "look-ups of absent keys"),
    (
        Counter::FailedLookups,
        "failed_lookups",
        "look-ups that failed because of corruption or a failed read",
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
        "clients disconnected because they were idle or slow",
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
        "look-ups forwarded to other nodes",
    ),
    (
        Counter::ForwardFailures,
        "forward_failures",
        "forwarded look-ups that got an error or no answer",
    ),
    (
        Counter::ForwardRequests,
        "forward_requests",
        "requests to other nodes for forwarded look-ups",
    ),
    (
        Counter::ForwardRetries,
        "forward_retries",
        "requests to other nodes sent because an earlier one had failed",
    ),
    (
        Counter::ForwardHedges,
        "forward_hedges",
        "requests to other nodes sent because an earlier one took long",
    ),
    (
        Counter::ForwardRepeats,
        "forward_repeats",
        "look-ups forwarded again because the store had changed its version meanwhile",
    ),
    (
        Counter::Moved,
        "moved",
        "requests answered with the address of another node",
    ),
    (
        Counter::Overloads,
        "overloads",
        "requests refused because too many keys were in flight from other nodes",
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
        "look-ups that waited for another client's look-up of the same key",
    ),
    (
        Counter::EventsWritten,
        "events_written",
        "events of clients that were written to the topics of hybrid stores, and acknowledged",
    ),
    (
        Counter::EventWriteFailures,
        "event_write_failures",
        "writes of events that were answered with an error",
    ),
];

impl LoopMetrics {
    fn new(store_places: Arc<StorePlaces>) -> Self {
        Self {
            stores: StoreLatencies::default(),
            loads: LoopLoads::default(),
            store_places,
            commands: (0..COMMANDS_MAX).map(|_| CommandMetrics::default()).collect(),
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
            cache_bytes: AtomicU64::new(0),
            quorums: Arc::default(),
        }
    }

    /// Counts commands that were answered. Only the loop's own thread.
    #[inline]
    pub fn record(&self, command: CommandId, took: Duration, count: u64) {
        self.commands[command as usize].latency.record(took, count);
    }

    /// Counts commands that were answered by an error. Only the loop's own thread.
    pub fn record_error(&self, command: CommandId) {
        add(&self.commands[command as usize].errors, 1);
    }

    /// Counts requests of clients on a store. Only the loop's own thread.
    #[inline]
    pub fn record_store(&self, store: StoreId, took: Duration, count: u64) {
        self.stores.record(&self.store_places, store, took, count);
    }

    /// Whether the next request is to be looked at, for the load of partitions. Only the loop's own thread.
    #[inline]
    pub fn wants_load(&self) -> bool {
        self.loads.is_due()
    }

    /// Counts the keys of a request that was looked at. Only the loop's own thread.
    pub fn count_load<'a>(&self, asked: impl Iterator<Item = Asked<'a>>, now: Instant) {
        self.loads.count(asked, now);
    }

    /// Adds to a counter. Only the loop's own thread.
    #[inline]
    pub fn add(&self, counter: Counter, count: u64) {
        add(&self.counters[counter as usize], count);
    }
}

/// The counters of a whole node.
#[derive(Debug)]
pub struct NodeMetrics {
    loops: Vec<Arc<LoopMetrics>>,
    store_places: Arc<StorePlaces>,
    /// How many clients are connected.
    pub clients: AtomicU64,
    /// How many cold reads are in flight.
    pub cold_reads: Arc<AtomicU64>,
    /// How many keys are in flight from other nodes.
    pub forwards: AtomicU64,
    /// Queries of graphs.
    pub graphs: GraphMetrics,
    pub(crate) request_rate: rate::RequestRate,
    spans: Arc<SpanQueue>,
}

impl NodeMetrics {
    /// Counters for this number of event loops.
    pub fn new(loops: usize) -> Self {
        let store_places = Arc::new(StorePlaces::default());
        let of_loop = |_| Arc::new(LoopMetrics::new(Arc::clone(&store_places)));
        Self {
            loops: (0..loops).map(of_loop).collect(),
            store_places: Arc::clone(&store_places),
            clients: AtomicU64::new(0),
            cold_reads: Arc::default(),
            forwards: AtomicU64::new(0),
            graphs: GraphMetrics::default(),
            request_rate: rate::RequestRate::new(),
            spans: Arc::default(),
        }
    }

    /// The spans of requests that are traced, until they are sent.
    pub fn spans(&self) -> &Arc<SpanQueue> {
        &self.spans
    }

    /// The counters of an event loop.
    pub fn of_loop(&self, number: usize) -> Arc<LoopMetrics> {
        Arc::clone(&self.loops[number])
    }

    /// The latency of a command, over all loops, since the start.
    pub fn latency(&self, command: CommandId) -> HistogramSnapshot {
        self.sum_latencies(|id| id == command as usize)
    }

    /// The latency of all commands together, over all loops, since the start; fetches slow down by it.
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

    /// The latency of clients' requests on a store, over all loops, since the start; `None` if there were none, or if
    /// the store is one of [those that are counted together](Self::latency_of_other_stores).
    pub fn latency_of_store(&self, store: StoreId) -> Option<HistogramSnapshot> {
        self.sum_store_latencies(Some(self.store_places.known(store)?))
    }

    /// The same for all stores beyond the first hundred that were requested, together.
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

    /// The load of partitions and keys since this was last called. One caller only.
    pub fn take_loads(&self, now: Instant) -> Loads {
        loads::take(self.loops.iter().map(|metrics| &metrics.loads), now)
    }

    /// A counter, over all loops.
    pub fn counter(&self, counter: Counter) -> u64 {
        let value = |metrics: &Arc<LoopMetrics>| metrics.counters[counter as usize].load(Relaxed);
        self.loops.iter().map(value).sum()
    }

    /// Counts of the coordination of operations on versioned stores, over all loops.
    pub fn quorums(&self) -> QuorumCounts {
        self.loops.iter().map(|metrics| metrics.quorums.read()).sum()
    }

    /// How many clients are connected.
    pub fn clients(&self) -> u64 {
        self.clients.load(Relaxed)
    }

    /// How many cold reads are in flight.
    pub fn cold_reads(&self) -> u64 {
        self.cold_reads.load(Relaxed)
    }

    /// How many keys are in flight from other nodes.
    pub fn forwards(&self) -> u64 {
        self.forwards.load(Relaxed)
    }

    /// Counters of the queries of graphs: the name, the meaning, and the count.
    pub fn graphs(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.graphs.each().into_iter()
    }

    /// How many bytes of networks of vertices are cached.
    pub fn network_bytes(&self) -> u64 {
        self.graphs.network_bytes.load(Relaxed)
    }

    /// How many bytes of hot keys a router caches, over all loops.
    pub fn cache_bytes(&self) -> u64 {
        let bytes = |metrics: &Arc<LoopMetrics>| metrics.cache_bytes.load(Relaxed);
        self.loops.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_every_counter_has_its_index() {
        for spec in fondaco_resp::command::all() {
            let own = std::iter::once(spec.id).chain(spec.subcommands.iter().map(|sub| sub.id));
            assert!(own.into_iter().all(|id| (id as usize) < COMMANDS_MAX), "{}", spec.name);
        }
        for (at, (counter, ..)) in COUNTERS.iter().enumerate() {
            assert_eq!(*counter as usize, at);
        }
    }
}
