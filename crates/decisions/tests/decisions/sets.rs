//! Stores whose versions become current by one write: all of them, or none.

use fondaco_decisions::operator::{self, OperatorError, PUSHES_MAX, PushTerms, SetPush};
use fondaco_model::cluster::{ReplicaReport, ReplicaState, VersionDetail};
use fondaco_model::{PushState, VersionNumber};

use crate::fixture::{Cluster, detail, name, version};

const STORES: [&str; 3] = ["a", "b", "c"];

fn pushes(cluster: &Cluster, stores: &[&str], terms: &PushTerms) -> Vec<SetPush> {
    let push = |store: &&str| SetPush {
        store: name(store),
        detail: VersionDetail {
            partitions: cluster.view.partitions().unwrap(),
            ..detail(store)
        },
        terms: terms.clone(),
    };
    stores.iter().map(push).collect()
}

/// A cluster of two nodes with a set of stores that is being pushed.
fn pushing(stores: &[&str]) -> Cluster {
    let mut cluster = Cluster::of(2, 4, 2);
    stores.iter().for_each(|store| cluster.create(store));
    let pushes = pushes(&cluster, stores, &PushTerms::default());
    cluster
        .request(|view| Ok(operator::push_set(view, &pushes, 8)?.change.unwrap()))
        .unwrap();
    cluster
}

fn states(cluster: &Cluster) -> [PushState; 3] {
    STORES.map(|store| cluster.store(store).push.as_ref().unwrap().state)
}

fn currents(cluster: &Cluster) -> [Option<VersionNumber>; 3] {
    STORES.map(|store| cluster.store(store).versions.current())
}

fn error(cluster: &Cluster, store: &str) -> String {
    cluster.store(store).push.as_ref().unwrap().error.clone().unwrap()
}

/// All have the version on all nodes, and the leader swaps.
fn swapped() -> Cluster {
    let mut cluster = pushing(&STORES);
    STORES.iter().for_each(|store| cluster.ready(1..=2, store, version(1)));
    cluster.settle();
    cluster
}

#[test]
fn a_set_is_swapped_by_one_change_when_all_nodes_have_all_of_it() {
    let mut cluster = pushing(&STORES);
    cluster.ready(1..=2, "a", version(1));
    cluster.ready(1..=2, "b", version(1));
    cluster.ready([1], "c", version(1));
    cluster.settle();
    assert_eq!(states(&cluster), [PushState::Fetching; 3]);
    cluster.ready([2], "c", version(1));
    let changes = cluster.decide();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].writes.len(), 3);
    assert!(cluster.apply(&changes[0]));
    assert_eq!(
        (states(&cluster), currents(&cluster)),
        ([PushState::Swapped; 3], [Some(version(1)); 3])
    );
    assert!(cluster.view.behind().is_empty());
    let with: Vec<_> = cluster.store("b").push.as_ref().unwrap().with.keys().cloned().collect();
    assert_eq!(with, [name("a"), name("c")]);
}

#[test]
fn if_one_fails_all_fail_and_say_which() {
    let mut cluster = pushing(&STORES);
    cluster.ready(1..=2, "a", version(1));
    cluster.ready(1..=2, "c", version(1));
    let failed = ReplicaReport {
        error: Some("its disk is full".to_owned()),
        ..ReplicaReport::of(ReplicaState::Failed)
    };
    for number in [1, 2] {
        cluster.report(number, "b", version(1), failed.clone());
    }
    cluster.settle();
    assert_eq!(
        (states(&cluster), currents(&cluster)),
        ([PushState::Failed; 3], [None; 3])
    );
    assert_eq!(cluster.view.swapped_with(cluster.store("a")).count(), 0);
    assert!(
        !error(&cluster, "b").contains("swapped with"),
        "{}",
        error(&cluster, "b")
    );
    for other in ["a", "c"] {
        let error = error(&cluster, other);
        assert!(
            error.contains("store b, which it was to be swapped with") && error.contains("disk is full"),
            "{error}"
        );
    }
}

#[test]
fn a_leader_that_was_told_of_one_store_first_waits_for_the_others() {
    let mut cluster = Cluster::of(2, 4, 2);
    STORES.iter().for_each(|store| cluster.create(store));
    let before = cluster.view.stores["b"].clone();
    let pushes = pushes(&cluster, &STORES, &PushTerms::default());
    cluster
        .request(|view| Ok(operator::push_set(view, &pushes, 8)?.change.unwrap()))
        .unwrap();
    let after = cluster.view.stores.insert(name("b"), before).unwrap();
    cluster.settle();
    cluster.view.stores.insert(name("b"), after);
    cluster.settle();
    assert_eq!(states(&cluster), [PushState::Fetching; 3]);
}

#[test]
fn one_that_is_cancelled_takes_the_others_with_it() {
    let mut cluster = pushing(&STORES);
    cluster
        .request(|view| operator::cancel_set(view, &name("b"), None, 9))
        .unwrap();
    assert_eq!(states(&cluster), [PushState::Cancelled; 3]);
    // Even by a process that does not know sets.
    let mut cluster = pushing(&STORES);
    cluster.cancel_push("b");
    STORES.iter().for_each(|store| cluster.ready(1..=2, store, version(1)));
    cluster.settle();
    assert_eq!(
        states(&cluster),
        [PushState::Failed, PushState::Cancelled, PushState::Failed]
    );
    assert!(
        error(&cluster, "a").contains("the push of version 1 of store b"),
        "{}",
        error(&cluster, "a")
    );
}

#[test]
fn a_push_of_a_set_begins_whole_or_not_at_all() {
    let mut cluster = pushing(&STORES);
    cluster.create("d");
    let terms = PushTerms::default();
    let push = |cluster: &Cluster, stores: &[&str]| {
        operator::push_set(&cluster.view, &pushes(cluster, stores, &terms), 8).map(|pushed| pushed.is_repeated)
    };
    assert!(matches!(
        push(&cluster, &["d", "a"]),
        Err(OperatorError::PushInProgress { .. })
    ));
    assert!(matches!(
        push(&cluster, &["d", "d"]),
        Err(OperatorError::InvalidDefinition { .. })
    ));
    assert!(matches!(
        push(&cluster, &["d", "e"]),
        Err(OperatorError::StoreNotFound { .. })
    ));
    let many: Vec<String> = (0..PUSHES_MAX).map(|number| format!("s{number}")).collect();
    many.iter().for_each(|store| cluster.create(store));
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(
        push(&cluster, &many),
        Err(OperatorError::TooManyPushes { max: PUSHES_MAX })
    );
    assert_eq!(push(&cluster, &many[..PUSHES_MAX - 3]), Ok(false));
    let mut announcement = crate::fixture::announcement(1);
    announcement.protocol = 1;
    cluster.announce(announcement);
    assert!(matches!(
        push(&cluster, &["d", "s1"]),
        Err(OperatorError::NotYetSpoken { .. })
    ));
    assert_eq!(push(&cluster, &["d"]), Ok(false), "one store needs no set");
}

#[test]
fn a_second_request_of_a_run_or_with_the_same_content_begins_nothing() {
    let cluster = swapped();
    let pushed = |stores: &[&str], terms: &PushTerms| {
        let pushed = operator::push_set(&cluster.view, &pushes(&cluster, stores, terms), 8).unwrap();
        (pushed.is_repeated, pushed.push.version)
    };
    assert_eq!(pushed(&STORES, &PushTerms::default()), (true, version(1)));
    let again = PushTerms {
        again: true,
        ..PushTerms::default()
    };
    assert_eq!(pushed(&STORES, &again), (false, version(2)));
    let mut cluster = pushing(&["d"]);
    STORES.iter().for_each(|store| cluster.create(store));
    let of_run = PushTerms {
        run: Some("daily".to_owned()),
        ..PushTerms::default()
    };
    let set = pushes(&cluster, &STORES, &of_run);
    cluster
        .request(|view| Ok(operator::push_set(view, &set, 8)?.change.unwrap()))
        .unwrap();
    let second = operator::push_set(&cluster.view, &set, 8).unwrap();
    assert!(second.is_repeated && second.change.is_none());
}

#[test]
fn a_rollback_asks_whether_the_set_goes_back() {
    let mut cluster = swapped();
    let set = pushes(
        &cluster,
        &STORES,
        &PushTerms {
            again: true,
            ..PushTerms::default()
        },
    );
    cluster
        .request(|view| Ok(operator::push_set(view, &set, 8)?.change.unwrap()))
        .unwrap();
    STORES.iter().for_each(|store| cluster.ready(1..=2, store, version(2)));
    cluster.settle();
    assert_eq!(currents(&cluster), [Some(version(2)); 3]);
    STORES.iter().for_each(|store| cluster.ready(1..=2, store, version(1)));
    let back = |cluster: &Cluster, together| operator::roll_back_set(&cluster.view, &name("b"), None, together, None);
    let asked = back(&cluster, None).unwrap_err();
    assert!(
        matches!(&asked, OperatorError::SwappedTogether { others, .. } if others.len() == 2),
        "{asked}"
    );
    assert_eq!(back(&cluster, Some(false)).unwrap().unwrap().writes.len(), 1);
    let together = back(&cluster, Some(true)).unwrap().unwrap();
    assert_eq!(together.writes.len(), 3);
    assert!(cluster.apply(&together));
    assert_eq!(currents(&cluster), [Some(version(1)); 3]);
    // Forward again: two of them.
    let versions = [("a", 2), ("c", 2)]
        .map(|(store, number)| (name(store), version(number)))
        .into();
    let forward = operator::swap_set(&cluster.view, &versions, None).unwrap().unwrap();
    assert!(cluster.apply(&forward));
    assert_eq!(
        currents(&cluster),
        [Some(version(2)), Some(version(1)), Some(version(2))]
    );
    let with = cluster.view.swapped_with(cluster.store("a"));
    assert_eq!(
        with.map(|store| store.record.id).collect::<Vec<_>>(),
        [cluster.store("c").id]
    );
    // Of stores of which one lacks the version, none is swapped.
    let versions = [("a", 1), ("b", 7)]
        .map(|(store, number)| (name(store), version(number)))
        .into();
    let refused = operator::swap_set(&cluster.view, &versions, None);
    assert!(matches!(refused, Err(OperatorError::VersionNotFound { .. })));
}

#[test]
fn a_set_is_confirmed_or_refused_as_a_whole() {
    for refused in [None, Some("key 7 is absent")] {
        let mut cluster = Cluster::of(2, 4, 2);
        STORES.iter().for_each(|store| cluster.create(store));
        let mut pushes = pushes(&cluster, &STORES, &PushTerms::default());
        pushes[0].terms.gates = "confirm".parse().unwrap();
        cluster
            .request(|view| Ok(operator::push_set(view, &pushes, 8)?.change.unwrap()))
            .unwrap();
        STORES.iter().for_each(|store| cluster.ready(1..=2, store, version(1)));
        cluster.settle();
        let awaits =
            |cluster: &Cluster| STORES.map(|store| cluster.store(store).push.as_ref().unwrap().awaits_confirmation());
        assert_eq!((awaits(&cluster), currents(&cluster)), ([true; 3], [None; 3]));
        let change = operator::confirm(&cluster.view, &name("a"), version(1), refused, 9).unwrap();
        assert!(cluster.apply(&change.unwrap()));
        cluster.settle();
        match refused {
            None => assert_eq!(currents(&cluster), [Some(version(1)); 3]),
            Some(reason) => {
                assert_eq!((states(&cluster), awaits(&cluster)), ([PushState::Held; 3], [false; 3]));
                assert_eq!(error(&cluster, "c"), reason);
            }
        }
    }
}
