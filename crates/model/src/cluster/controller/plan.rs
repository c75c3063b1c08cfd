//! The leading controller carries on a plan for the routing table: it switches once the next owners have the data, and
//! finishes the plan once no former owner uses an earlier table.

use std::collections::BTreeSet;

use super::Look;
use crate::cluster::change::{Change, Record, RecordPath};
use crate::cluster::layout::Layouts;
use crate::cluster::readiness;
use crate::definition::StoreKind;

/// The next step of the plan under way, if it is time for it.
pub(super) fn go_on(layouts: &mut Layouts, look: &Look<'_>) -> Option<Change> {
    match look.table.record.former() {
        Some(_) => finish(look),
        None => switch(layouts, look),
    }
}

/// The end of the plan under way, once all live former owners have proved that they use the table of the switch. After
/// that, a reader with an earlier table cannot reach a quorum that misses writes to the new owners only.
fn finish(look: &Look<'_>) -> Option<Change> {
    let table = &look.table.record;
    let former: BTreeSet<_> = table.changes().flat_map(|(_, former)| former).copied().collect();
    let knows = |node| {
        let report = look.view.reports.get(&node);
        report.is_some_and(|report| report.epoch == table.epoch())
    };
    let is_known = former.into_iter().all(|node| !look.view.is_live(node) || knows(node));
    let finished = Record::Routing(table.finished());
    is_known.then(|| Change::of(RecordPath::Routing, Some(look.table.revision), finished))
}

/// The switch of the plan under way, once all nodes hold what it gives them, for all kept versions and for versioned
/// stores. It depends on all stores, so that a swap a moment ago does not keep a version that they do not hold.
fn switch(layouts: &mut Layouts, look: &Look<'_>) -> Option<Change> {
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
    let switched = Record::Routing(table.switched());
    let change = Change::of(RecordPath::Routing, Some(look.table.revision), switched);
    let stores = look.view.stores.iter();
    Some(stores.fold(change, |change, (name, store)| {
        change.while_unchanged(RecordPath::Store(name.clone()), store.revision)
    }))
}
