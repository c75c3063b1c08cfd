//! When a version may be deleted: only if a record says that it is no longer needed.
//!
//! A missing record is no such evidence. It may have been lost, or the coordination service put back to an older copy.

use crate::cluster::record::StoreRecord;
use crate::cluster::view::ClusterView;
use crate::name::StoreName;
use crate::version::VersionNumber;

/// Whether a record accounts for a version that a node does not want: that of the store, which gave its number out and
/// keeps it no longer, or keeps it on other nodes; or that of a store of this name that was dropped with it.
pub(super) fn is_given_up(view: &ClusterView, store: &StoreName, version: VersionNumber) -> bool {
    let accounts = |record: &StoreRecord| record.versions.last() >= Some(version);
    let mut dropped = view.dropped.values().map(|dropped| &dropped.record.record);
    view.stores.get(store).is_some_and(|store| accounts(&store.record))
        || dropped.any(|record| record.definition.name == *store && accounts(record))
}
