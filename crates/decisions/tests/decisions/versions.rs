//! Operators push, cancel, swap and roll back versions.

use fondaco_decisions::operator::{self, OperatorError, PUSHES_MAX, PushTerms};
use fondaco_model::cluster::{ReplicaReport, ReplicaState, VersionEvents};
use fondaco_model::{PushState, StoreKind, StreamSettings, StreamSource};

use crate::fixture::{Cluster, detail, name, node, version};

#[test]
fn a_rollback_asks_the_nodes_that_have_the_version() {
    let mut cluster = Cluster::with_store(2, 8, 2, "s");
    let first = cluster.pushed(2, "s", "a");
    cluster.pushed(2, "s", "b");
    cluster.change_store("s", |store| store.late = [node(1), node(2)].into());
    cluster.report(1, "s", first, ReplicaReport::of(ReplicaState::Failed));
    cluster.roll_back("s");
    let store = cluster.store("s");
    assert_eq!(
        (store.versions.current(), &store.late),
        (Some(first), &[node(1)].into())
    );
}

#[test]
fn a_difference_is_pushed_only_onto_its_base() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let checksum = |build: &str| detail(build).manifest_checksum;
    let [a, b, c] = ["a", "b", "c"].map(checksum);
    let check = |cluster: &Cluster, base: &str| operator::check_base(&cluster.view, &name("s"), base, &c);
    assert_eq!(check(&cluster, &a), Ok(()), "nothing is lost");
    cluster.pushed(1, "s", "a");
    assert_eq!(check(&cluster, &a), Ok(()));
    cluster.pushed(1, "s", "b");
    let changed = OperatorError::BaseChanged {
        store: name("s"),
        base: a.clone(),
        current: b.clone(),
    };
    assert_eq!(check(&cluster, &a), Err(changed));
    assert_eq!(check(&cluster, &b), Ok(()));
    cluster.pushed(1, "s", "c");
    assert_eq!(check(&cluster, &a), Ok(()), "it is current already");
}

#[test]
fn a_push_for_one_version_is_refused_when_the_same_content_was_deployed_again() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let first = cluster.pushed(1, "s", "a");
    let push = |cluster: &Cluster| {
        let terms = PushTerms {
            if_current: Some(first),
            base: Some(detail("a").manifest_checksum),
            ..PushTerms::default()
        };
        operator::push(&cluster.view, &name("s"), detail("b"), terms, 9)
    };
    assert!(push(&cluster).is_ok());
    cluster.pushed(1, "s", "a");
    let changed = OperatorError::CurrentChanged {
        store: name("s"),
        version: first,
    };
    assert_eq!(push(&cluster), Err(changed));
}

/// Creates a hybrid store that rewinds its stream by two milliseconds.
fn create_hybrid(cluster: &mut Cluster, store: &str) {
    cluster.create(store);
    cluster.change_store(store, |store| {
        let stream = StreamSettings::of(StreamSource::Log(1));
        store.definition.kind = StoreKind::Hybrid;
        store.definition.stream = Some(StreamSettings { rewind_ms: 2, ..stream });
    });
}

#[test]
fn versions_of_hybrid_stores_bring_their_cut() {
    let mut cluster = Cluster::with_store(1, 8, 1, "batch");
    create_hybrid(&mut cluster, "hybrid");
    for (store, as_of_unix_ms, events) in [
        ("batch", None, None),
        ("hybrid", None, Some((Some(5), 3))),
        ("hybrid", Some(4), Some((Some(4), 2))),
    ] {
        let terms = PushTerms {
            as_of_unix_ms,
            cut_unix_ms: Some(5),
            ..PushTerms::default()
        };
        let version = cluster.push_on(store, "a", terms);
        let found = cluster.store(store).details[&version].events;
        assert_eq!(found.map(|events| (events.as_of_unix_ms, events.from_unix_ms)), events);
        cluster.cancel_push(store);
    }
}

#[test]
fn a_difference_keeps_the_events_on_top_of_its_base() {
    let mut cluster = Cluster::of(1, 8, 1);
    create_hybrid(&mut cluster, "s");
    for (base_as_of_unix_ms, as_of_unix_ms, events) in [
        // Long before the push of the difference, at 8.
        (None, None, (None, 1)),
        (Some(5), None, (Some(5), 3)),
        (None, Some(7), (Some(7), 5)),
    ] {
        let base = cluster.pushed(1, "s", "a");
        cluster.change_store("s", |store| {
            let detail = store.details.get_mut(&base).unwrap();
            let (from_unix_ms, as_of_unix_ms) = (1, base_as_of_unix_ms);
            detail.events = Some(VersionEvents {
                from_unix_ms,
                as_of_unix_ms,
                ..VersionEvents::default()
            });
        });
        let checksum = cluster.store("s").details[&base].manifest_checksum.clone();
        let terms = PushTerms {
            base: Some(checksum),
            as_of_unix_ms,
            ..PushTerms::default()
        };
        let version = cluster.push_on("s", "b", terms);
        let found = cluster.store("s").details[&version].events.unwrap();
        assert_eq!((found.as_of_unix_ms, found.from_unix_ms), events);
        cluster.cancel_push("s");
    }
}

#[test]
fn a_version_keeps_the_time_to_live_that_its_store_had_when_its_push_began_and_the_time_of_its_data() {
    let mut cluster = Cluster::of(1, 8, 1);
    create_hybrid(&mut cluster, "s");
    let ttl = |cluster: &mut Cluster, ttl_ms: Option<u64>| {
        cluster.change_store("s", |store| store.definition.stream.as_mut().unwrap().ttl_ms = ttl_ms);
    };
    let started_unix_ms = Some(1);
    for (ttl_ms, as_of_unix_ms, undated_unix_ms, expected) in [
        (None, Some(5), None, (None, None)),
        (Some(9), Some(5), None, (Some(9), Some(5))),
        // Without a time of the data it is that of the start of the push.
        (Some(9), None, None, (Some(9), Some(1))),
        // A difference: its base's records are older, and stay so if the store has a time to live later.
        (Some(9), Some(5), Some(3), (Some(9), Some(3))),
        (None, Some(5), Some(3), (None, Some(3))),
    ] {
        ttl(&mut cluster, ttl_ms);
        let terms = PushTerms {
            as_of_unix_ms,
            undated_unix_ms,
            started_unix_ms,
            ..PushTerms::default()
        };
        let version = cluster.push_on("s", "a", terms);
        ttl(&mut cluster, Some(77));
        let events = cluster.store("s").details[&version].events.unwrap();
        assert_eq!((events.ttl_ms, events.undated_unix_ms), expected);
        cluster.cancel_push("s");
    }
}

#[test]
fn a_difference_fails_when_its_base_is_rolled_back() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let first = cluster.pushed(1, "s", "a");
    let second = cluster.pushed(1, "s", "b");
    let of_b = Some(detail("b").manifest_checksum);
    for (base, back, ends) in [(of_b, first, PushState::Failed), (None, second, PushState::Swapped)] {
        let terms = PushTerms {
            base,
            ..PushTerms::default()
        };
        let version = cluster.push_on("s", "c", terms);
        cluster.swap("s", back);
        cluster.ready(1..=1, "s", version);
        cluster.settle();
        assert_eq!(cluster.store("s").push.as_ref().unwrap().state, ends);
    }
    let push = cluster.store("s").push.clone().unwrap();
    assert_eq!(cluster.store("s").versions.current(), Some(push.version));
}

#[test]
fn a_store_has_one_push_and_pushes_are_bounded() {
    let mut cluster = Cluster::of(1, 8, 1);
    for store in 0..=PUSHES_MAX {
        cluster.create(&format!("s{store}"));
    }
    cluster.push("s0", "a");
    let again = operator::push(&cluster.view, &name("s0"), detail("b"), PushTerms::default(), 8);
    let in_progress = OperatorError::PushInProgress {
        store: name("s0"),
        version: version(1),
    };
    assert_eq!(again, Err(in_progress.clone()));
    assert_eq!(operator::drop_store(&cluster.view, &name("s0"), 8, 0), Err(in_progress));
    for store in 1..PUSHES_MAX {
        cluster.push(&format!("s{store}"), "a");
    }
    let last = operator::push(
        &cluster.view,
        &name(&format!("s{PUSHES_MAX}")),
        detail("b"),
        PushTerms::default(),
        8,
    );
    assert_eq!(last, Err(OperatorError::TooManyPushes { max: PUSHES_MAX }));
}

#[test]
fn a_cancelled_push_ends_once_without_reuse_of_its_number() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let none = operator::cancel_push(&cluster.view, &name("s"), None, 9);
    assert_eq!(none, Err(OperatorError::PushNotFound { store: name("s") }));
    cluster.push("s", "a");
    let another = operator::cancel_push(&cluster.view, &name("s"), Some(version(2)), 9);
    assert_eq!(another, Err(OperatorError::PushEnded { store: name("s") }));
    cluster
        .request(|view| operator::cancel_push(view, &name("s"), Some(version(1)), 9))
        .unwrap();
    let push = cluster.store("s").push.clone().unwrap();
    assert_eq!((push.state, push.ended_unix_ms), (PushState::Cancelled, Some(9)));
    assert!(cluster.store("s").details.is_empty());
    let ended = operator::cancel_push(&cluster.view, &name("s"), None, 9);
    assert_eq!(ended, Err(OperatorError::PushEnded { store: name("s") }));
    assert_eq!(cluster.push("s", "b"), version(2));
}

#[test]
fn only_kept_and_ready_versions_become_current_again() {
    let mut cluster = Cluster::with_store(2, 8, 1, "s");
    let unknown = operator::swap(&cluster.view, &name("t"), version(1));
    assert_eq!(unknown, Err(OperatorError::StoreNotFound { store: name("t") }));
    let nothing = operator::roll_back(&cluster.view, &name("s"), None).unwrap_err();
    assert!(nothing.to_string().contains("it keeps none"), "{nothing}");
    for build in ["a", "b"] {
        cluster.pushed(2, "s", build);
    }
    let refused = operator::swap(&cluster.view, &name("s"), version(7)).unwrap_err();
    assert!(refused.to_string().contains("it keeps 2, 1"), "{refused}");
    assert_eq!(operator::swap(&cluster.view, &name("s"), version(2)), Ok(None));
    cluster.report(1, "s", version(1), ReplicaReport::of(ReplicaState::Fetching));
    let refused = operator::roll_back(&cluster.view, &name("s"), None);
    assert!(
        matches!(refused, Err(OperatorError::VersionNotReady { .. })),
        "{refused:?}"
    );
    cluster.ready([1], "s", version(1));
    cluster.roll_back("s");
    let versions = &cluster.store("s").versions;
    assert_eq!(
        (versions.current(), versions.backups()),
        (Some(version(1)), &[version(2)][..])
    );
    // Version 2 is the version that was rolled back from.
    let refused = operator::roll_back(&cluster.view, &name("s"), None).unwrap_err();
    let message = refused.to_string();
    for part in ["it keeps 1, 2", "fondaco versions s", "fondaco rollback s --to N"] {
        assert!(message.contains(part), "{message}");
    }
    let change = operator::roll_back(&cluster.view, &name("s"), Some(version(2)));
    assert!(change.unwrap().is_some());
}
