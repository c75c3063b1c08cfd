//! The gates of a push: a version that all nodes have fetched goes live only if it passes them.
//!
//! The records have the numbers of records and bytes. The shares of keys come from the nodes: the push becomes *ready*, the process of
//! the leading controller has both versions compared, and writes the sums into the push. A comparison with a version that is not
//! current any more is made again. The first version of a store passes, but for a confirmation.

use fondaco_model::cluster::{PushRecord, StoreRecord};
use fondaco_model::{ConfirmationState, DiffCounts, Gate, PushState, VersionNumber};

use super::push::{Step, lost_base};

/// The step of a push, which its gates may stop or delay; other steps than a swap are not theirs.
pub(super) fn gated(store: &StoreRecord, push: &PushRecord, step: Step) -> Option<Step> {
    match step {
        Step::Swap { .. } => match verdict(store, push) {
            Verdict::Pass => Some(step),
            Verdict::Compare => (push.state == PushState::Fetching).then_some(Step::Compare),
            Verdict::Await => Some(Step::Await),
            Verdict::Hold(reason) => Some(Step::Hold { reason }),
        },
        other => Some(other),
    }
}

/// The versions that have to be compared for the gates of a push: the current one, and the pushed one.
pub fn awaits_comparison(store: &StoreRecord) -> Option<(VersionNumber, VersionNumber)> {
    let push = store.push.as_ref().filter(|push| push.state == PushState::Ready)?;
    let current = store.versions.current()?;
    matches!(verdict(store, push), Verdict::Compare).then_some((current, push.version))
}

enum Verdict {
    Pass,
    Compare,
    Await,
    Hold(String),
}

/// Why the pushed version, which awaits its confirmation, must not go live any more; `None` if it may.
pub fn stale(store: &StoreRecord, push: &PushRecord) -> Option<String> {
    if let Some(Step::Fail { reason }) = lost_base(store, push) {
        return Some(reason);
    }
    match verdict_of_gates(store, push) {
        // The gates by themselves await nothing.
        Verdict::Pass | Verdict::Await => None,
        Verdict::Compare => {
            Some("another version became current while it awaited its confirmation: push it again".to_owned())
        }
        Verdict::Hold(reason) => Some(reason),
    }
}

fn verdict(store: &StoreRecord, push: &PushRecord) -> Verdict {
    let is_confirmed = push.confirmation == Some(ConfirmationState::Given);
    match verdict_of_gates(store, push) {
        Verdict::Pass if push.gates.need_confirmation() && !is_confirmed => Verdict::Await,
        verdict => verdict,
    }
}

/// The verdict, but for a confirmation.
fn verdict_of_gates(store: &StoreRecord, push: &PushRecord) -> Verdict {
    let Some(current) = store.versions.current().filter(|_| !push.gates.is_empty()) else {
        return Verdict::Pass;
    };
    let (Some(before), Some(after)) = (store.details.get(&current), store.details.get(&push.version)) else {
        return Verdict::Hold(format!(
            "nothing is known of version {current}, which the gates compare it with"
        ));
    };
    let (records, bytes) = ((before.records, after.records), (before.bytes, after.bytes));
    let stops = |gate: &&Gate, counts: &DiffCounts| !gate.allows(records, bytes, counts);
    let none = DiffCounts::default();
    let mut cheap = push.gates.iter().filter(|gate| !gate.needs_counts());
    if let Some(gate) = cheap.find(|gate| stops(gate, &none)) {
        return Verdict::Hold(format!("gate {gate}: {}", found(gate, current, records, bytes, &none)));
    }
    let mut counted = push.gates.iter().filter(|gate| gate.needs_counts()).peekable();
    if counted.peek().is_none() {
        return Verdict::Pass;
    }
    match push.compared.as_ref().filter(|compared| compared.from == current) {
        None => Verdict::Compare,
        Some(compared) => match &compared.error {
            Some(error) => Verdict::Hold(format!("its gates could not be evaluated: {error}")),
            None => match counted.find(|gate| stops(gate, &compared.counts)) {
                Some(gate) => {
                    let found = found(gate, current, records, bytes, &compared.counts);
                    Verdict::Hold(format!("gate {gate}: {found}"))
                }
                None => Verdict::Pass,
            },
        },
    }
}

/// The finding of a gate, for people, with sample keys.
fn found(gate: &Gate, current: VersionNumber, records: (u64, u64), bytes: (u64, u64), counts: &DiffCounts) -> String {
    let change = |what: &str, (before, after): (u64, u64)| {
        let percent = (after as f64 - before as f64) * 100.0 / before.max(1) as f64;
        format!("{after} {what} after {before} in version {current} ({percent:+.1}%)")
    };
    let share = |count: u64, total: u64, what: &str, keys: &[String]| {
        let percent = count as f64 * 100.0 / total.max(1) as f64;
        let mut text = format!("{count} of {total} keys {what} ({percent:.1}%)");
        if !keys.is_empty() {
            text += &format!(", such as {}", keys.join(", "));
        }
        text
    };
    match gate {
        Gate::Records(_) => change("records", records),
        Gate::Bytes(_) => change("bytes", bytes),
        Gate::Gone(_) => share(
            counts.gone,
            counts.keys_before,
            &format!("of version {current} are gone"),
            &counts.gone_keys,
        ),
        Gate::New(_) => share(
            counts.new,
            counts.keys_after,
            &format!("are not in version {current}"),
            &counts.new_keys,
        ),
        Gate::Changed(_) => {
            let what = format!("of version {current} have another value");
            share(counts.changed, counts.keys_before, &what, &counts.changed_keys)
        }
        Gate::Nulls(field, _) => {
            let nulls = counts.nulls.get(field).copied().unwrap_or(counts.keys_after);
            share(
                nulls,
                counts.keys_after,
                &format!("have no value in field {field:?}"),
                &[],
            )
        }
        // It allows every version.
        Gate::Confirm => String::new(),
    }
}
