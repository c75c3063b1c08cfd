//! Admission control of an event loop for keys that other nodes have.
//!
//! Bounded are the keys under way, the bytes of their values until these are sent to clients, and the
//! keys of a store a second. A request beyond a bound is refused at once, before it waits in any queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fondaco_catalog::{Catalog, Member, Membership, Setting, StoreId, StoreTypes};
use fondaco_client::read::HeldBudget;
use fondaco_metrics::Counter;

use super::Forwarder;
use super::quota::Quotas;
use crate::server::ServerState;

/// Values of other nodes and of replicas, on their way to clients, have room for this part of what buffers may have, and
/// beside those.
const VALUES_SHARE: u64 = 2;

impl Forwarder {
    /// Whether this many keys more may be asked for.
    ///
    /// # Errors
    /// The error to answer with: too many are under way, or too many values wait to be sent.
    pub(crate) fn check_room(&self, keys: usize) -> Result<(), String> {
        let share = self.keys_share();
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

    /// How many keys may be asked for besides those that are under way: as many as [`check_room`](Self::check_room) allows.
    pub(crate) fn keys_left(&self) -> usize {
        let bytes_max = self.bytes_max();
        self.room.resize(bytes_max);
        match self.under_way.load(Relaxed) {
            _ if self.room.bytes() >= bytes_max => 0,
            0 => usize::MAX,
            under_way => self.keys_share().saturating_sub(under_way),
        }
    }

    /// How many keys may be under way. Each loop has its share, so that no loop has to know of the others. A single request may be
    /// larger than that: it then has all of it.
    fn keys_share(&self) -> usize {
        let keys_max = self.shared.settings.get(Setting::ForwardKeysMax);
        (keys_max as usize / self.shared.config.loops.max(1)).max(1)
    }

    /// Room for values, until they are sent to clients.
    pub(crate) fn value_room(&self) -> HeldBudget {
        self.room.resize(self.bytes_max());
        HeldBudget::of(Some(Arc::clone(&self.room)))
    }

    /// Charges a store's quota with this many keys that a client reads, wherever they are.
    ///
    /// # Errors
    /// The error to answer with: the quota is used up.
    pub(crate) fn charge(&self, catalog: &Catalog, store: u16, keys: usize) -> Result<(), String> {
        let store = &catalog.stores()[store as usize];
        let Some((quota, membership)) = catalog.read_quota(store) else {
            return Ok(());
        };
        let share = share_of(quota, membership);
        self.take(&self.shared.quotas, store.id, keys, share)
            .map_err(|through| format!("QUOTA store {:?} may read {quota} keys a second, {through}", store.name))
    }

    /// Charges a store's quota of writes with this many keys.
    ///
    /// # Errors
    /// The error to answer with: the quota is used up.
    pub(crate) fn charge_writes(
        &self,
        catalog: &Catalog,
        store: &StoreTypes,
        quota: Option<u64>,
        keys: usize,
    ) -> Result<(), String> {
        let (Some(quota), Some(membership)) = (quota, catalog.membership()) else {
            return Ok(());
        };
        let share = share_of(quota, membership);
        self.take(&self.shared.write_quotas, store.id, keys, share)
            .map_err(|through| {
                format!(
                    "QUOTA store {:?} may be written at {quota} keys a second, {through}",
                    store.name
                )
            })
    }

    /// Takes keys from this process's share of a quota.
    ///
    /// # Errors
    /// The share and the remedy, as the end of an error.
    fn take(&self, quotas: &Quotas, store: StoreId, keys: usize, share: u64) -> Result<(), String> {
        let now_ns = self.shared.started.elapsed().as_nanos() as u64;
        if quotas.take(store, keys, share, now_ns) {
            return Ok(());
        }
        self.metrics.add(Counter::QuotaRefusals, 1);
        Err(format!(
            "{share} through this process: send fewer, or raise it with fondaco store alter"
        ))
    }

    /// The rate of requests that this node gets.
    pub(crate) fn request_rate(&self) -> u32 {
        self.shared.metrics.request_rate()
    }

    /// This loop's share of the bytes of values that may wait to be sent.
    fn bytes_max(&self) -> u64 {
        let loops = self.shared.config.loops.max(1) as u64;
        let of_process = self.shared.settings.get(Setting::ForwardBytesMax);
        (of_process.min(self.shared.config.buffers.bytes_max() / VALUES_SHARE) / loops).max(1)
    }
}

/// This process's share of a quota: routers have it together, and so have the nodes that clients ask themselves.
fn share_of(quota: u64, membership: &Membership) -> u64 {
    let topology = membership.topology();
    let sharing = match membership.member() {
        Member::Router(_) => topology.routers.len() as u64,
        Member::Node(_) => topology.nodes.values().filter(|node| node.live).count() as u64,
    };
    (quota / sharing.max(1)).max(1)
}

/// Keys that are under way, until this is dropped: with the client that wants them, at the latest.
pub(crate) struct UnderWay {
    of_loop: Arc<AtomicUsize>,
    shared: Arc<ServerState>,
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
