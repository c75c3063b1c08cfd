//! Coordination by one ZooKeeper without faults.

use std::sync::OnceLock;

use fondaco_coordination::{Coordination, CoordinationError, Election, ZooKeeperCoordination};
use fondaco_testing::{ZooKeeper, wait_for, wait_until};

use crate::clients::{SOON, connect, own_root, path, settings};
use crate::conformance::conformance;

/// The server of tests that do not disturb it. The parent of all roots is open to all.
fn server() -> &'static ZooKeeper {
    static SERVER: OnceLock<ZooKeeper> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = ZooKeeper::start();
        connect(&server.address(), &own_root()).children(&path("a")).unwrap();
        server
    })
}

#[test]
fn it_conforms() {
    let root = own_root();
    conformance(|| connect(&server().address(), &root));
}

#[test]
fn clusters_under_different_roots_are_isolated() {
    let [one, other] = [own_root(), own_root()].map(|root| connect(&server().address(), &root));
    one.write(&path("a"), b"one", None).unwrap();
    assert_eq!(other.read(&path("a")).unwrap(), None);
    other.write(&path("a"), b"other", None).unwrap();
    assert_eq!(one.read(&path("a")).unwrap().unwrap().bytes, b"one");
}

#[test]
fn entries_written_with_a_password_are_closed_to_others() {
    let root = own_root();
    let with = |digest: Option<&str>| {
        let mut settings = settings(&server().address(), &root);
        settings.digest = digest.map(str::to_owned);
        ZooKeeperCoordination::connect(settings).unwrap()
    };
    let owner = with(Some("fondaco:secret"));
    owner.write(&path("a/b"), b"1", None).unwrap();
    assert_eq!(
        with(Some("fondaco:secret")).read(&path("a/b")).unwrap().unwrap().bytes,
        b"1"
    );
    for other in [None, Some("fondaco:wrong")] {
        let error = with(other).read(&path("a/b")).unwrap_err();
        assert!(matches!(error, CoordinationError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("not authorized"), "{error}");
        let error = with(other).write(&path("a/c"), b"1", None).unwrap_err();
        assert!(matches!(error, CoordinationError::Refused { .. }), "{error}");
    }
}

#[test]
fn a_root_that_may_not_be_created_is_named_with_the_reason() {
    // A server of its own, on which a user with a password creates the parent of all roots.
    let server = ZooKeeper::start();
    let with = |root: &str, digest: Option<&str>| {
        let mut settings = settings(&server.address(), root);
        settings.digest = digest.map(str::to_owned);
        settings.call_timeout_ms = 5_000;
        ZooKeeperCoordination::connect(settings).unwrap()
    };
    with("/fondaco/first", Some("fondaco:secret"))
        .write(&path("a"), b"1", None)
        .unwrap();
    let error = with("/fondaco/second", None).read(&path("a")).unwrap_err();
    assert!(matches!(error, CoordinationError::NoRoot { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("/fondaco/second") && text.contains("not authorized"),
        "{text}"
    );
    // No right to the parent is needed for a root that exists: its own rights decide.
    let error = with("/fondaco/first", None).read(&path("a")).unwrap_err();
    assert!(matches!(error, CoordinationError::Refused { .. }), "{error}");
}

#[test]
fn fifty_candidates_wait_with_one_watch_each() {
    const CANDIDATES: usize = 50;
    // A server of its own, since all its watches are counted.
    let server = ZooKeeper::start();
    let (root, at) = (own_root(), path("election"));
    let sessions: Vec<_> = (0..CANDIDATES).map(|_| connect(&server.address(), &root)).collect();
    let mut elections: Vec<_> = sessions
        .iter()
        .map(|session| session.elect(&at, b"candidate").unwrap())
        .collect();
    // The leader watches its own entry, which the second candidate watches too; every other watched entry has one
    // watcher.
    let one_each = |candidates: usize| {
        let watched = format!(
            "{candidates} connections watching {} paths\nTotal watches:{candidates}",
            candidates - 1
        );
        wait_until("one watch for each candidate", SOON, || {
            server.command("wchs").is_some_and(|said| said.trim() == watched)
        });
    };
    one_each(CANDIDATES);
    assert_eq!(sessions[0].children(&at).unwrap().len(), CANDIDATES);
    let leaders = |elections: &[Election]| {
        let leaders = elections
            .iter()
            .enumerate()
            .filter(|(_, election)| election.is_leader());
        leaders.map(|(at, _)| at).collect::<Vec<_>>()
    };
    // When the leader leaves, the next candidate leads, and all others wait as before. A candidate learns that it leads
    // just after its watch is set.
    let leader = wait_for("a leader", SOON, || leaders(&elections).first().copied());
    drop(elections.swap_remove(leader));
    wait_until("another leader", SOON, || leaders(&elections).len() == 1);
    one_each(CANDIDATES - 1);
}
