//! How much space stores take, and whether versioned stores are over their space quotas.
//!
//! The space of a store is that of one copy, so that it does not depend on the number of replicas. For a batch store it is
//! that of all versions that are kept; for a versioned one, that of its records, as nodes estimate and report it.

use fondaco_model::cluster::{ClusterView, StoreRecord, StoreReport};

/// A store that is over its quota takes writes again below this share of it, in percent: not a moment after each deletion.
const AGAIN_PERCENT: u64 = 95;

/// How many bytes one copy of a store has; `None` if no node reports it. Nodes report it for versioned stores that have a
/// quota.
pub fn used_bytes(view: &ClusterView, store: &StoreRecord) -> Option<u64> {
    if store.definition.versioned.is_none() {
        let kept = store.versions.kept().filter_map(|version| store.details.get(&version));
        return Some(kept.map(|detail| detail.bytes).sum());
    }
    store.definition.space_quota_bytes?;
    let reports = view.reports.values();
    let reports = reports.filter_map(|report| report.stores.get(&store.definition.name));
    // A node that has keys and no bytes has not taken a sample of them yet.
    let is_known = |report: &&StoreReport| report.bytes > 0 || report.keys == 0;
    let own = reports.filter(|report| report.id == store.id).filter(is_known);
    let (bytes, held) = own.fold((0, 0), |(bytes, held), report| {
        (bytes + u128::from(report.bytes), held + u128::from(report.held))
    });
    let partitions = u128::from(view.partitions()?.get());
    // Each partition is on several nodes, and some nodes may be absent.
    (held > 0).then(|| (bytes * partitions / held) as u64)
}

/// Whether a versioned store is to take no writes but deletions. The answer stays as it was as long as nothing is reported.
pub(super) fn is_over_quota(view: &ClusterView, store: &StoreRecord) -> bool {
    let Some(quota) = store
        .definition
        .space_quota_bytes
        .filter(|_| store.definition.versioned.is_some())
    else {
        return false;
    };
    let limit = match store.over_quota {
        true => quota / 100 * AGAIN_PERCENT,
        false => quota,
    };
    used_bytes(view, store).map_or(store.over_quota, |used| used > limit)
}
