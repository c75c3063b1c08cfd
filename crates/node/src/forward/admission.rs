//! What an event loop takes on of keys that other nodes have, and what it refuses.
//!
//! Bounded are the keys under way, the bytes of their values until these are sent to clients, and, on a
//! router, the keys of a store a second. What goes beyond is refused at once, before it waits in any queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::Forwarder;
use crate::catalog::Catalog;
use crate::metrics::Counter;
use crate::server::Shared;
use crate::settings::Setting;

/// Values of other nodes and of replicas, on their way to clients, have room for this part of what buffers may have, and
/// beside those.
const VALUES_SHARE: u64 = 2;

impl Forwarder {
    /// Whether so many keys more may be asked for.
    ///
    /// # Errors
    /// The error to answer with: too many are under way, or too many values wait to be sent.
    pub(crate) fn check_room(&self, keys: usize) -> Result<(), String> {
        let keys_max = self.shared.settings.get(Setting::ForwardKeysMax);
        // Each loop has its share, so that no loop has to know of the others. A single request may be
        // larger than that: it then has all of it.
        let share = (keys_max as usize / self.shared.config.loops.max(1)).max(1);
        let under_way = self.under_way.load(Relaxed);
        let bytes_max = self.bytes_max();
        self.room.resize(bytes_max);
        let fits = under_way == 0 || under_way + keys <= share;
        let bytes = self.room.bytes();
        if fits && bytes < bytes_max {
            return Ok(());
        }
        self.metrics.add(Counter::Overloads, 1);
        if fits {
            return Err(format!(
                "OVERLOADED {bytes} bytes of values of other nodes wait to be sent to clients, and {bytes_max} may: \
                 send fewer requests at a time, or add routers"
            ));
        }
        Err(format!(
            "OVERLOADED {under_way} keys are under way from other nodes, and {share} may be: send fewer at a \
             time, or add routers"
        ))
    }

    /// Charges a store's quota with so many keys, on a router.
    ///
    /// # Errors
    /// The error to answer with: the quota is used up.
    pub(crate) fn charge(&self, catalog: &Catalog, store: u16, keys: usize) -> Result<(), String> {
        let Some(membership) = catalog.membership().filter(|membership| membership.is_router()) else {
            return Ok(());
        };
        let topology = membership.topology();
        let store = &catalog.stores()[store as usize];
        let quota = topology
            .stores
            .get(&store.name)
            .and_then(|store| store.read_keys_per_second);
        let Some(quota) = quota else { return Ok(()) };
        let share = (quota / u64::from(topology.routers.max(1))).max(1);
        let now_ns = self.shared.started.elapsed().as_nanos() as u64;
        if self.shared.quotas.take(store.id, keys, share, now_ns) {
            return Ok(());
        }
        self.metrics.add(Counter::QuotaRefusals, 1);
        Err(format!(
            "QUOTA store {:?} may read {quota} keys a second through all routers, {share} through this one: \
             send fewer, or raise it with fondaco store alter",
            store.name
        ))
    }

    /// This loop's share of the bytes of values that may wait to be sent.
    fn bytes_max(&self) -> u64 {
        let loops = self.shared.config.loops.max(1) as u64;
        let of_process = self.shared.settings.get(Setting::ForwardBytesMax);
        (of_process.min(self.shared.config.buffers.bytes_max() / VALUES_SHARE) / loops).max(1)
    }
}

/// Keys that are under way, until this is dropped: with the client that wants them, at the latest.
pub(crate) struct UnderWay {
    of_loop: Arc<AtomicUsize>,
    shared: Arc<Shared>,
    keys: usize,
}

impl UnderWay {
    pub(super) fn of(forwarder: &Forwarder, keys: usize) -> Self {
        let of_loop = Arc::clone(&forwarder.under_way);
        of_loop.fetch_add(keys, Relaxed);
        let shared = Arc::clone(&forwarder.shared);
        shared.metrics.forwards.fetch_add(keys as u64, Relaxed);
        Self { of_loop, shared, keys }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.of_loop.fetch_sub(self.keys, Relaxed);
        self.shared.metrics.forwards.fetch_sub(self.keys as u64, Relaxed);
    }
}
