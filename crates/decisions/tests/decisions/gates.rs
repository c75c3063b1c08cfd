//! A version goes live only if it passes the gates of its push; otherwise it is held until an operator decides.

use fondaco_decisions::awaits_comparison;
use fondaco_decisions::operator::{self, OperatorError, PushTerms};
use fondaco_model::{CanaryBounds, CanaryState, CanaryTerms, DiffCounts, GateReport, PushState, VersionNumber};

use crate::fixture::{Cluster, name};

fn gated(gates: &str) -> PushTerms {
    PushTerms {
        gates: gates.parse().unwrap(),
        ..PushTerms::default()
    }
}

/// A cluster that serves a version, and has fetched another one, whose push has these gates.
fn fetched(gates: &str) -> (Cluster, VersionNumber, VersionNumber) {
    let mut cluster = Cluster::with_store(2, 4, 2, "s");
    let first = cluster.pushed(2, "s", "a");
    let second = cluster.push_on("s", "b", gated(gates));
    cluster.ready(1..=2, "s", second);
    cluster.settle();
    (cluster, first, second)
}

fn compared(cluster: &mut Cluster, from: VersionNumber, to: VersionNumber, report: Result<DiffCounts, &str>) {
    let report = GateReport {
        from,
        counts: report.clone().unwrap_or_default(),
        error: report.err().map(str::to_owned),
    };
    let change = operator::put_comparison(&cluster.view, &name("s"), to, &report).unwrap();
    assert!(cluster.apply(&change.unwrap()));
    cluster.settle();
}

fn gone(keys: u64) -> DiffCounts {
    DiffCounts {
        keys_before: 100,
        keys_after: 100 - keys,
        gone: keys,
        gone_keys: vec!["lost-key".to_owned()],
        ..DiffCounts::default()
    }
}

fn state(cluster: &Cluster) -> (PushState, String) {
    let push = cluster.store("s").push.as_ref().unwrap();
    (push.state, push.error.clone().unwrap_or_default())
}

fn awaits(cluster: &Cluster) -> bool {
    cluster.store("s").push.as_ref().unwrap().awaits_confirmation()
}

fn confirm(cluster: &mut Cluster, version: VersionNumber, refused: Option<&str>) {
    let change = operator::confirm(&cluster.view, &name("s"), version, refused, 9).unwrap();
    assert!(cluster.apply(&change.unwrap()));
    cluster.settle();
}

#[test]
fn a_version_is_held_until_its_checks_confirm_it() {
    let (mut cluster, first, second) = fetched("records -10%..+10%; confirm");
    cluster.wait(3_600_000);
    assert!(awaits(&cluster));
    assert_eq!(cluster.store("s").versions.current(), Some(first));
    confirm(&mut cluster, second, None);
    assert_eq!(state(&cluster), (PushState::Swapped, String::new()));
    assert_eq!(cluster.store("s").versions.current(), Some(second));
    let again = operator::confirm(&cluster.view, &name("s"), second, None, 9);
    assert_eq!(again, Err(OperatorError::PushEnded { store: name("s") }));
    // A first version has nothing to be compared with, but is checked.
    let mut cluster = Cluster::with_store(2, 4, 2, "s");
    let first = cluster.push_on("s", "a", gated("gone <= 0%; confirm"));
    cluster.ready(1..=2, "s", first);
    cluster.settle();
    assert!(awaits(&cluster) && cluster.store("s").versions.current().is_none());
    confirm(&mut cluster, first, None);
    assert_eq!(cluster.store("s").versions.current(), Some(first));
}

#[test]
fn a_version_whose_checks_fail_stays_held_with_the_reason() {
    let (mut cluster, first, second) = fetched("confirm");
    confirm(&mut cluster, second, Some("key 7 is absent"));
    assert_eq!(state(&cluster), (PushState::Held, "key 7 is absent".to_owned()));
    let late = operator::confirm(&cluster.view, &name("s"), second, None, 9);
    assert_eq!(late, Err(OperatorError::PushEnded { store: name("s") }));
    assert_eq!(cluster.store("s").versions.current(), Some(first));
    let swap = operator::swap_held(&cluster.view, &name("s"), second, 9).unwrap();
    assert!(cluster.apply(&swap.unwrap()));
    assert_eq!(cluster.store("s").versions.current(), Some(second));
}

#[test]
fn a_confirmation_is_refused_once_the_gates_compared_the_version_with_another_one() {
    let mut cluster = Cluster::with_store(2, 4, 2, "s");
    let first = cluster.pushed(2, "s", "a");
    let second = cluster.pushed(2, "s", "b");
    let third = cluster.push_on("s", "c", gated("gone <= 5%; confirm"));
    cluster.ready(1..=2, "s", third);
    cluster.settle();
    compared(&mut cluster, second, third, Ok(gone(0)));
    assert!(awaits(&cluster));
    cluster.roll_back("s");
    confirm(&mut cluster, third, None);
    let (held, reason) = state(&cluster);
    assert_eq!(
        (held, cluster.store("s").versions.current()),
        (PushState::Held, Some(first))
    );
    assert!(reason.contains("another version became current"), "{reason}");
}

#[test]
fn the_canary_of_a_version_begins_when_it_is_confirmed() {
    let canary = |cluster: &Cluster| cluster.store("s").push.as_ref().unwrap().canary.clone().unwrap().state;
    let mut cluster = Cluster::with_store(2, 4, 2, "s");
    let terms = |gates: &str| PushTerms {
        canary: Some(CanaryTerms {
            reads: "5%".parse().unwrap(),
            time_ms: 60_000,
            bounds: CanaryBounds::default(),
        }),
        ..gated(gates)
    };
    // A first version has none.
    let first = cluster.push_on("s", "a", terms("confirm"));
    cluster.ready(1..=2, "s", first);
    cluster.settle();
    confirm(&mut cluster, first, None);
    assert_eq!(cluster.store("s").versions.current(), Some(first));
    let second = cluster.push_on("s", "b", terms("gone <= 5%; confirm"));
    cluster.ready(1..=2, "s", second);
    cluster.settle();
    compared(&mut cluster, first, second, Ok(gone(0)));
    cluster.wait(3_600_000);
    assert!(awaits(&cluster) && canary(&cluster) == CanaryState::Waiting);
    let now_unix_ms = 1_000_000 + cluster.now_ms;
    let change = operator::confirm(&cluster.view, &name("s"), second, None, now_unix_ms).unwrap();
    assert!(cluster.apply(&change.unwrap()));
    cluster.settle();
    assert_eq!(
        (state(&cluster).0, canary(&cluster)),
        (PushState::Ready, CanaryState::Running)
    );
    let again = operator::confirm(&cluster.view, &name("s"), second, None, 9);
    assert_eq!(again, Err(OperatorError::PushEnded { store: name("s") }));
    cluster.wait(61_000);
    assert_eq!(cluster.store("s").versions.current(), Some(second));
}

#[test]
fn a_version_waits_for_the_comparison_and_then_goes_live() {
    let (mut cluster, first, second) = fetched("gone <= 5%");
    assert_eq!(state(&cluster).0, PushState::Ready);
    assert_eq!(awaits_comparison(cluster.store("s")), Some((first, second)));
    assert_eq!(cluster.store("s").versions.current(), Some(first));
    compared(&mut cluster, first, second, Ok(gone(5)));
    assert_eq!(state(&cluster).0, PushState::Swapped);
    assert_eq!(cluster.store("s").versions.current(), Some(second));
}

#[test]
fn a_version_that_lost_keys_is_held_with_the_reason_and_swapped_by_an_operator() {
    let (mut cluster, first, second) = fetched("gone <= 5%");
    compared(&mut cluster, first, second, Ok(gone(30)));
    let (held, reason) = state(&cluster);
    assert_eq!(held, PushState::Held);
    assert!(
        reason.contains("gone <= 5%") && reason.contains("30 of 100") && reason.contains("lost-key"),
        "{reason}"
    );
    cluster.wait(3_600_000);
    assert_eq!(
        (state(&cluster).0, cluster.store("s").versions.current()),
        (held, Some(first))
    );
    assert!(cluster.store("s").details.contains_key(&second), "nodes keep its files");
    assert_eq!(operator::swap_held(&cluster.view, &name("s"), first, 9), Ok(None));
    let swap = operator::swap_held(&cluster.view, &name("s"), second, 9).unwrap();
    assert!(cluster.apply(&swap.unwrap()));
    assert_eq!(state(&cluster).0, PushState::Swapped);
    assert_eq!(cluster.store("s").versions.current(), Some(second));
    assert_eq!(cluster.store("s").versions.backups(), [first]);
}

#[test]
fn a_version_with_more_nulls_in_a_field_is_held() {
    let nulls = |count| DiffCounts {
        keys_after: 100,
        nulls: [("age".to_owned(), count)].into(),
        ..DiffCounts::default()
    };
    let (mut cluster, first, second) = fetched("nulls(age) <= 10%");
    compared(&mut cluster, first, second, Ok(nulls(10)));
    assert_eq!(state(&cluster).0, PushState::Swapped);
    let (mut cluster, first, second) = fetched("nulls(age) <= 10%");
    compared(&mut cluster, first, second, Ok(nulls(11)));
    let (held, reason) = state(&cluster);
    assert_eq!(held, PushState::Held);
    assert!(reason.contains("11 of 100 keys have no value in field"), "{reason}");
}

#[test]
fn gates_that_cannot_be_evaluated_hold_the_version() {
    let (mut cluster, first, second) = fetched("changed <= 100%");
    compared(&mut cluster, first, second, Err("node 2: it is absent"));
    let (held, reason) = state(&cluster);
    assert_eq!(held, PushState::Held);
    assert!(
        reason.contains("could not be evaluated") && reason.contains("node 2"),
        "{reason}"
    );
}

#[test]
fn the_records_decide_gates_of_sizes_without_a_comparison() {
    let (cluster, ..) = fetched("records -10%..+10%; bytes ..+1%");
    assert_eq!(state(&cluster).0, PushState::Swapped);
    let (cluster, first, _) = fetched("records +10%..; gone <= 5%");
    let (held, reason) = state(&cluster);
    assert_eq!(
        (held, cluster.store("s").versions.current()),
        (PushState::Held, Some(first))
    );
    assert!(
        reason.contains("records +10%..") && reason.contains("5 records after 5"),
        "{reason}"
    );
}

#[test]
fn a_comparison_with_a_version_that_is_not_current_any_more_is_made_again() {
    let mut cluster = Cluster::with_store(2, 4, 2, "s");
    let first = cluster.pushed(2, "s", "a");
    let second = cluster.pushed(2, "s", "b");
    let third = cluster.push_on("s", "c", gated("gone <= 5%"));
    cluster.ready(1..=2, "s", third);
    cluster
        .decide()
        .iter()
        .for_each(|change| assert!(cluster.apply(change)));
    cluster.roll_back("s");
    let late = GateReport {
        from: second,
        counts: gone(0),
        error: None,
    };
    assert_eq!(
        operator::put_comparison(&cluster.view, &name("s"), third, &late),
        Ok(None)
    );
    assert_eq!(awaits_comparison(cluster.store("s")), Some((first, third)));
    compared(&mut cluster, first, third, Ok(gone(0)));
    assert_eq!(state(&cluster).0, PushState::Swapped);
}

#[test]
fn the_next_push_takes_the_place_of_a_held_one() {
    let run = |gates: &str, run: &str| PushTerms {
        run: Some(run.to_owned()),
        ..gated(gates)
    };
    let mut cluster = Cluster::with_store(2, 4, 2, "s");
    let first = cluster.pushed(2, "s", "a");
    let second = cluster.push_on("s", "b", run("records +10%..", "one"));
    cluster.ready(1..=2, "s", second);
    cluster.settle();
    let third = cluster.push_on("s", "c", run("records -10%..+10%", "two"));
    let replaced = cluster.store("s").push_of_run("one").unwrap();
    assert_eq!(replaced.state, PushState::Cancelled, "{replaced:?}");
    assert!(replaced.error.as_ref().unwrap().contains("version 3"), "{replaced:?}");
    assert!(!cluster.store("s").details.contains_key(&second), "nodes delete it");
    cluster.ready(1..=2, "s", third);
    cluster.settle();
    assert_eq!(cluster.store("s").versions.current(), Some(third));
    assert_eq!(cluster.store("s").versions.backups(), [first]);
}

#[test]
fn a_held_version_can_be_cancelled_and_a_first_version_passes() {
    let (mut cluster, first, second) = fetched("records +10%..");
    cluster.cancel_push("s");
    assert_eq!(state(&cluster).0, PushState::Cancelled);
    assert!(!cluster.store("s").details.contains_key(&second));
    assert_eq!(cluster.store("s").versions.current(), Some(first));
    let mut cluster = Cluster::with_store(2, 4, 2, "s");
    cluster.change_store("s", |store| {
        store.definition.gates = Some("gone <= 0%; records +900%..".parse().unwrap())
    });
    assert_eq!(cluster.pushed(2, "s", "a"), VersionNumber::FIRST);
}
