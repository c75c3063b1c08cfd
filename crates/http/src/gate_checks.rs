//! The comparisons that the gates of pushes wait for, in the process of the leading controller.
//!
//! It decides nothing: it has both versions compared, and writes the sums into the push, from which the controller decides. Another
//! leader begins anew.

use std::collections::BTreeSet;
use std::time::Duration;

use fondaco_api::UncountedNode;
use fondaco_decisions::awaits_comparison;
use fondaco_model::{DiffCounts, GateReport, StoreName, VersionNumber};
use tokio::task::JoinSet;

use crate::app::App;
use crate::diff::{SECONDS_MAX, compare};

/// How often pushes are looked at.
const INTERVAL: Duration = Duration::from_millis(250);

/// How often a comparison is tried. Then the push is held, with the last error as its reason.
const ATTEMPTS_MAX: u32 = 30;

/// The first delay before a comparison is tried again; it doubles.
const RETRY_MIN: Duration = Duration::from_millis(200);

/// The longest delay before a comparison is tried again.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Has versions compared for the gates of pushes, as long as the process serves.
pub async fn check_gates(app: App) {
    let Some(controller) = app.controller.clone() else {
        return;
    };
    let mut running: JoinSet<(StoreName, VersionNumber)> = JoinSet::new();
    let mut under_way = BTreeSet::new();
    loop {
        while let Some(ended) = running.try_join_next() {
            // A comparison that panicked stays under way: its push waits for an operator.
            under_way.retain(|key| ended.as_ref().ok() != Some(key));
        }
        if controller.counts().leading {
            for (name, store) in &app.operator.mirror().view().stores {
                let Some((from, to)) = awaits_comparison(&store.record) else {
                    continue;
                };
                if under_way.insert((name.clone(), to)) {
                    running.spawn(check(app.clone(), name.clone(), from, to));
                }
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Compares two versions for the gates of a push, and writes the sums into it.
async fn check(app: App, name: StoreName, from: VersionNumber, to: VersionNumber) -> (StoreName, VersionNumber) {
    let key = (name.clone(), to);
    let (mut attempt, mut delay) = (1, RETRY_MIN);
    let outcome = loop {
        let store = app
            .operator
            .mirror()
            .view()
            .stores
            .get(&name)
            .map(|store| store.record.clone());
        let Some(store) = store.filter(|store| awaits_comparison(store) == Some((from, to))) else {
            return key;
        };
        let nulls = store.push.map(|push| push.gates.null_fields()).unwrap_or_default();
        let error = match compare(&app, name.clone(), (from, to), SECONDS_MAX, &nulls).await {
            Ok(mut diff) if diff.missing.is_empty() => {
                // They may be many: the record stays small, and a difference can be asked for.
                diff.counts.fields.clear();
                break Ok(diff.counts);
            }
            Ok(diff) => reasons(&diff.missing),
            Err(error) => error.message().to_owned(),
        };
        tracing::warn!(store = %name, version = %to, error, attempt, "cannot compare versions for the gates of a push");
        if attempt == ATTEMPTS_MAX {
            break Err(error);
        }
        attempt += 1;
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RETRY_MAX);
    };
    let report = match outcome {
        Ok(counts) => GateReport {
            from,
            counts,
            error: None,
        },
        Err(error) => GateReport {
            from,
            counts: DiffCounts::default(),
            error: Some(error),
        },
    };
    let written = app
        .blocking(move |app| Ok(app.operator.put_comparison(&name, to, &report)?))
        .await;
    if let Err(error) = written {
        // It is compared again.
        tracing::warn!(
            error = error.message(),
            "cannot record the comparison for the gates of a push"
        );
    }
    key
}

fn reasons(missing: &[UncountedNode]) -> String {
    let reason = |missing: &UncountedNode| format!("node {}: {}", missing.node, missing.reason);
    let shown: Vec<String> = missing.iter().take(3).map(reason).collect();
    shown.join("; ")
}
