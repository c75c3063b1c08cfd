//! Confirms the version of a push whose gates wait for that.

use std::collections::BTreeMap;

use fondaco_model::cluster::{ClusterView, Revised, StoreRecord};
use fondaco_model::{ConfirmationState, PushEvent, StoreName, VersionNumber};

use super::version::batch;
use super::{OperatorError, swap_set};
use crate::change::{Change, Write};
use crate::controller::stale;

/// Confirms a version that awaits that: it becomes current, with those of the stores that it is pushed with, or the leader begins its canary. If it is
/// refused for a reason, or another version has become current that its gates have not compared it with, it stays held, with the reason. The view must
/// have the reports of nodes.
///
/// # Errors
/// No such store, a versioned one, it was never pushed to, no version with this number awaits a confirmation, or a partition of it is ready
/// on no node.
pub fn confirm(
    view: &ClusterView,
    name: &StoreName,
    version: VersionNumber,
    refused: Option<&str>,
    now_unix_ms: u64,
) -> Result<Option<Change>, OperatorError> {
    let before = &batch(view, name)?.record;
    let mut set = BTreeMap::from([(name.clone(), version)]);
    set.extend(before.push.iter().flat_map(|push| push.with.clone()));
    let members = set.iter().map(|(name, &version)| awaiting(view, name, version));
    let members = members.collect::<Result<Vec<_>, _>>()?;
    let mut stale = members
        .iter()
        .filter_map(|store| stale(&store.record, store.record.push.as_ref()?));
    let reason = refused.map(str::to_owned).or_else(|| stale.next());
    // The first version of a store has no canary.
    let has_canary = before.push.as_ref().is_some_and(|push| push.canary.is_some());
    if reason.is_none() && !(has_canary && before.versions.current().is_some()) {
        return swap_set(view, &set, Some(now_unix_ms));
    }
    let decided = |store: &&Revised<StoreRecord>| {
        let mut record = store.record.clone();
        if let Some(push) = &mut record.push {
            push.error.clone_from(&reason);
            push.confirmation = reason.is_none().then_some(ConfirmationState::Given);
            if reason.is_none() {
                push.advance(PushEvent::Confirmed, now_unix_ms);
            }
        }
        Write::over(store, record)
    };
    Ok(Some(Change::of(members.iter().map(decided))))
}

/// The store whose version awaits a confirmation.
fn awaiting<'a>(
    view: &'a ClusterView,
    name: &StoreName,
    version: VersionNumber,
) -> Result<&'a Revised<StoreRecord>, OperatorError> {
    let store = batch(view, name)?;
    match &store.record.push {
        None => Err(OperatorError::PushNotFound { store: name.clone() }),
        Some(push) if push.version == version && push.awaits_confirmation() => Ok(store),
        Some(_) => Err(OperatorError::PushEnded { store: name.clone() }),
    }
}
