//! The leading controller finishes a plan for the routing table, once who is to own holds.

use super::Look;
use crate::cluster::change::{Change, Record, RecordPath};
use crate::cluster::layout::Layouts;
use crate::cluster::readiness;
use crate::definition::StoreKind;

/// The end of the plan under way: all nodes hold what it gives them, of all versions that are kept, and of
/// versioned stores. It rests on all stores, so that no version is kept, by a swap a moment ago, that they do not hold.
pub(super) fn finish(layouts: &mut Layouts, look: &Look<'_>) -> Option<Change> {
    let table = &look.table.record;
    table.next()?;
    for store in look.view.stores.values() {
        let record = &store.record;
        let layout = layouts.of(table, look.view.replicas(record));
        let kept = |node| match record.definition.kind {
            StoreKind::Versioned => readiness::is_synchronised(look.view, node, record),
            StoreKind::Batch => record.versions.kept().all(|version| {
                let replica = readiness::replica(look.view, node, record, version);
                replica.is_some_and(|replica| replica.planned)
            }),
        };
        if !layout.planned.keys().all(|&node| kept(node)) {
            return None;
        }
    }
    let finished = Record::Routing(table.finished());
    let change = Change::of(RecordPath::Routing, Some(look.table.revision), finished);
    let stores = look.view.stores.iter();
    Some(stores.fold(change, |change, (name, store)| {
        change.while_unchanged(RecordPath::Store(name.clone()), store.revision)
    }))
}
