//! Pauses, resumes, aborts and promotes canaries.

use fondaco_model::cluster::ClusterView;
use fondaco_model::{CanaryAction, CanaryState, PushEvent, StoreName};

use super::OperatorError;
use super::version::batch;
use crate::change::{Change, Write};

/// Carries out an operator's request about the canary of a store; `None` if nothing is to be changed. A promoted version is swapped in by
/// the leader.
///
/// # Errors
/// No such store, a versioned one, no canary under way, or a version that is still being fetched and cannot be paused.
pub fn steer_canary(
    view: &ClusterView,
    name: &StoreName,
    action: CanaryAction,
    now_unix_ms: u64,
) -> Result<Option<Change>, OperatorError> {
    let before = batch(view, name)?;
    let mut record = before.record.clone();
    let none = || OperatorError::NoCanary { store: name.clone() };
    let push = record
        .push
        .as_mut()
        .filter(|push| !push.state.is_end())
        .ok_or_else(none)?;
    let canary = push.canary.as_mut().ok_or_else(none)?;
    match (action, canary.state) {
        (CanaryAction::Pause, CanaryState::Running) => canary.stop(CanaryState::Paused, now_unix_ms),
        (CanaryAction::Resume, CanaryState::Paused) => canary.run(now_unix_ms),
        (CanaryAction::Promote, _) => canary.stop(CanaryState::Promoting, now_unix_ms),
        (CanaryAction::Abort, _) => {
            canary.reason = Some("an operator aborted it".to_owned());
            push.advance(PushEvent::Cancelled, now_unix_ms);
        }
        (CanaryAction::Pause, CanaryState::Waiting) => {
            return Err(OperatorError::CanaryNotBegun {
                store: name.clone(),
                version: push.version,
            });
        }
        (CanaryAction::Pause | CanaryAction::Resume, _) => {}
    }
    record.forget_details();
    Ok((record != before.record).then(|| Change::of([Write::over(before, record)])))
}
