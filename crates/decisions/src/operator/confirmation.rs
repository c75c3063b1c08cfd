//! Confirms the version of a push whose gates wait for that.

use std::collections::BTreeMap;

use fondaco_model::cluster::ClusterView;
use fondaco_model::{StoreName, VersionNumber};

use super::version::batch;
use super::{OperatorError, swap_set};
use crate::change::{Change, Write};
use crate::controller::stale;

/// Makes a version current that awaits its confirmation. If it is refused for a reason, or another version has become current that its gates
/// have not compared it with, it stays held, with the reason. The view must have the reports of nodes.
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
    let before = batch(view, name)?;
    let push = match &before.record.push {
        None => return Err(OperatorError::PushNotFound { store: name.clone() }),
        Some(push) if push.version == version && push.awaits_confirmation() => push,
        Some(_) => return Err(OperatorError::PushEnded { store: name.clone() }),
    };
    let reason = refused.map(str::to_owned).or_else(|| stale(&before.record, push));
    if reason.is_none() {
        return swap_set(view, &BTreeMap::from([(name.clone(), version)]), Some(now_unix_ms));
    }
    let mut record = before.record.clone();
    if let Some(push) = &mut record.push {
        push.error = reason;
    }
    Ok(Some(Change::of([Write::over(before, record)])))
}
