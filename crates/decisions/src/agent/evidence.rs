//! When a version may be deleted: only if a record says that it is no longer needed.
//!
//! A missing record is not enough: it may have been lost, or the coordination service restored from an older copy.

use fondaco_model::cluster::{ClusterView, StoreRecord};
use fondaco_model::{StoreName, VersionNumber};

/// Whether a record shows that a node may delete a version that it does not want. Either the store's record gave out
/// the number and no longer keeps the version, or keeps it on other nodes; or a store of this name was dropped with it.
pub(super) fn is_given_up(view: &ClusterView, store: &StoreName, version: VersionNumber) -> bool {
    let accounts = |record: &StoreRecord| record.versions.last() >= Some(version);
    let mut dropped = view.dropped.values().map(|dropped| &dropped.record.record);
    view.stores.get(store).is_some_and(|store| accounts(&store.record))
        || dropped.any(|record| record.definition.name == *store && accounts(record))
}
