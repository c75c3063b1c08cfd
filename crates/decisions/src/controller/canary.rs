//! The leading controller carries on canaries: it begins one when a push could swap, and ends it when its time is over, an operator
//! wants it, or its counts exceed the bounds.
//!
//! Everything that it needs is in the store's record and in the reports of nodes, so a new leader goes on where the former one stopped.

use fondaco_model::cluster::StoreRecord;
use fondaco_model::{CanaryCounts, CanaryRecord, CanaryState, VersionNumber};

use super::push::Step;

/// The next step of a push with a canary, given its next step without one, and the counts of nodes.
pub(super) fn step(
    store: &StoreRecord,
    version: VersionNumber,
    canary: &CanaryRecord,
    fetched: Option<Step>,
    nodes: impl Iterator<Item = CanaryCounts>,
    now_unix_ms: u64,
) -> Option<Step> {
    let current = store.versions.current();
    let mut counts = CanaryCounts::default();
    nodes.for_each(|node| counts.add(&node));
    let end = |step, reason| {
        Some(Step::EndCanary {
            counts,
            reason,
            step: Box::new(step),
        })
    };
    let fail = |reason: String| {
        let error = format!("the canary of version {version} has ended: {reason}");
        end(Step::Fail { reason: error }, reason)
    };
    let Some(against) = canary.against else {
        let begins = current.is_some() && canary.state == CanaryState::Waiting;
        return match fetched {
            Some(Step::Swap { .. }) if begins => Some(Step::BeginCanary),
            Some(swap @ Step::Swap { .. }) => end(swap, "no reads were compared with another version".to_owned()),
            fetched => fetched,
        };
    };
    if current != Some(against) {
        let now = current.map_or_else(|| "none".to_owned(), |current| current.to_string());
        return fail(format!(
            "it was compared with version {against}, and the current version is {now} now: push it again"
        ));
    }
    if let Some(Step::Fail { reason }) = fetched {
        return fail(reason);
    }
    let is_promoted = canary.state == CanaryState::Promoting;
    if !is_promoted && let Some(reason) = counts.exceeds(&canary.terms.bounds) {
        return fail(format!("{reason}; {counts}"));
    }
    let is_over = canary.state == CanaryState::Running && canary.elapsed_ms(now_unix_ms) >= canary.terms.time_ms;
    // Unless nodes are fetching it again.
    let swap = fetched.filter(|_| is_over || is_promoted)?;
    let reads_min = canary.terms.bounds.reads_min;
    end(
        swap,
        match is_promoted {
            true => format!("an operator promoted it; {counts}"),
            false if counts.compared < reads_min => {
                format!("its time is over, and fewer than {reads_min} keys were compared: too few to judge; {counts}")
            }
            false => format!("its time is over, and all counts are within the bounds; {counts}"),
        },
    )
}
