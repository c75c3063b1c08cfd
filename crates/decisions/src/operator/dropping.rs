//! Drops stores, and restores them while their data is kept.
//!
//! The records of the last dropped stores are kept: nodes delete a store's data only by such a record.

use fondaco_model::StoreName;
use fondaco_model::cluster::{ClusterView, DroppedStore, Revised};

use super::schema::deleted_schemas;
use super::{OperatorError, store};
use crate::change::{Change, RecordPath, Write};

/// How many dropped stores are remembered. A node that is absent while more are dropped keeps its data of the others.
pub const DROPPED_MAX: usize = 1000;

/// Drops a store with all its versions. Nodes keep its data for `keep_ms`. With 0, the data of earlier dropped stores
/// of this name is not kept any longer either.
///
/// # Errors
/// No such store, or a push of it is in progress.
pub fn drop_store(
    view: &ClusterView,
    name: &StoreName,
    now_unix_ms: u64,
    keep_ms: u64,
) -> Result<Change, OperatorError> {
    if keep_ms == 0 && !view.stores.contains_key(name) {
        return delete_now(view, name, now_unix_ms);
    }
    let store = store(view, name)?;
    if let Some(version) = store.record.pushing() {
        let store = name.clone();
        return Err(OperatorError::PushInProgress { store, version });
    }
    let dropped = DroppedStore {
        record: store.record.clone(),
        dropped_unix_ms: now_unix_ms,
        kept_until_unix_ms: now_unix_ms.saturating_add(keep_ms),
    };
    let before = view.dropped.get(&store.record.id).map(|dropped| dropped.revision);
    let path = RecordPath::Store(name.clone());
    let writes = [Write::delete(path, store.revision), Write::of(before, dropped)];
    Ok(Change::of(
        writes.into_iter().chain(forgotten(view).into_iter().flatten()),
    ))
}

/// Restores a dropped store as it was.
///
/// # Errors
/// No store of this name was dropped, or its data is no longer kept, or there is another store of its name or number.
pub fn restore_store(view: &ClusterView, name: &StoreName, now_unix_ms: u64) -> Result<Change, OperatorError> {
    if view.stores.contains_key(name) {
        return Err(OperatorError::StoreExists { store: name.clone() });
    }
    let last = of_name(view, name).max_by_key(|dropped| dropped.record.dropped_unix_ms);
    let Revised { record, revision } = last.ok_or_else(|| OperatorError::NotDropped { store: name.clone() })?;
    let not_kept = |reason| OperatorError::NotKept {
        store: name.clone(),
        reason,
    };
    if record.kept_until_unix_ms <= now_unix_ms {
        return Err(not_kept("its data is deleted"));
    }
    let versioned = record.record.definition.versioned;
    if versioned.is_some_and(|settings| settings.engine.is_volatile()) {
        return Err(not_kept("its engine keeps data in memory alone, which was given back"));
    }
    Ok(Change::of([
        Write::of(None, record.record.clone()),
        Write::delete(RecordPath::Dropped(record.record.id), *revision),
    ]))
}

/// Ends the retention of data of dropped stores.
fn delete_now(view: &ClusterView, name: &StoreName, now_unix_ms: u64) -> Result<Change, OperatorError> {
    let kept = of_name(view, name).filter(|dropped| dropped.record.kept_until_unix_ms > now_unix_ms);
    let now = |dropped: &Revised<DroppedStore>| {
        let record = DroppedStore {
            kept_until_unix_ms: now_unix_ms,
            ..dropped.record.clone()
        };
        Write::over(dropped, record)
    };
    let change = Change::of(kept.map(now));
    match change.writes.is_empty() {
        true => Err(OperatorError::StoreNotFound { store: name.clone() }),
        false => Ok(change),
    }
}

fn of_name<'a>(view: &'a ClusterView, name: &'a StoreName) -> impl Iterator<Item = &'a Revised<DroppedStore>> {
    let dropped = view.dropped.values();
    dropped.filter(move |dropped| dropped.record.record.definition.name == *name)
}

/// The oldest dropped store with its schemas, if one more would be too many.
fn forgotten(view: &ClusterView) -> Option<Vec<Write>> {
    let first = view.dropped.iter().filter(|_| view.dropped.len() >= DROPPED_MAX);
    let (&id, dropped) = first.min_by_key(|(_, dropped)| dropped.record.dropped_unix_ms)?;
    let forgotten = Write::delete(RecordPath::Dropped(id), dropped.revision);
    // Its number may be that of another store by now.
    let is_taken = view.stores.values().any(|store| store.record.id == id);
    let schemas = (!is_taken).then(|| deleted_schemas(view, id));
    Some(
        std::iter::once(forgotten)
            .chain(schemas.into_iter().flatten())
            .collect(),
    )
}
