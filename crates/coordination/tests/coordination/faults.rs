//! Coordination by a ZooKeeper that is killed, paused, cut off, or missing.

use std::time::{Duration, Instant};

use fondaco_coordination::{Coordination, CoordinationError, SessionState, WatchEvent, ZooKeeperCoordination};
use fondaco_testing::{Proxy, ZooKeeper, wait_until};

use crate::answers::Answers;
use crate::clients::{SOON, connect, expect, expect_changed, is_connected, own_root, path, settings};
use crate::conformance::write;

/// The timeout of sessions that are to expire.
const SESSION_TIMEOUT: Duration = Duration::from_secs(8);

/// Allowance for the detection of a death, a tick of the server's timers, an election, and a busy machine.
const SLACK: Duration = Duration::from_secs(20);

/// A session that expires soon.
fn connect_shortly(servers: &str, root: &str) -> ZooKeeperCoordination {
    let mut settings = settings(servers, root);
    settings.session_timeout_ms = SESSION_TIMEOUT.as_millis() as u64;
    ZooKeeperCoordination::connect(settings).unwrap()
}

#[test]
fn a_session_without_zookeeper_begins_when_zookeeper_comes() {
    let mut server = ZooKeeper::start();
    let address = server.address();
    server.kill();
    let mut settings = settings(&address, &own_root());
    settings.call_timeout_ms = 500;
    let session = ZooKeeperCoordination::connect(settings.clone()).unwrap();
    let watch = session.watch(&[path("a")]).unwrap();
    let election = session.elect(&path("election"), b"me").unwrap();
    let error = session.read(&path("a")).unwrap_err();
    assert!(matches!(error, CoordinationError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
    assert!(matches!(session.session().state, SessionState::Suspended { .. }));
    assert_eq!((session.session().generation, watch.next(Duration::ZERO)), (0, None));
    server.restart();
    wait_until("the session to begin", SOON, || is_connected(&session));
    assert_eq!(session.session().generation, 1);
    expect(&watch, &WatchEvent::Everything);
    assert!(election.wait(SOON));
    settings.call_timeout_ms = SOON.as_millis() as u64;
    let other = ZooKeeperCoordination::connect(settings).unwrap();
    other.write(&path("a"), b"1", None).unwrap();
    expect_changed(&watch, &["a"]);
}

#[test]
fn a_killed_server_that_comes_back_has_lost_nothing() {
    let mut server = ZooKeeper::start();
    let root = own_root();
    let session = connect(&server.address(), &root);
    let watch = session.watch(&[path("entries")]).unwrap();
    let election = session.elect(&path("election"), b"me").unwrap();
    expect(&watch, &WatchEvent::Everything);
    assert!(election.wait(SOON));
    session.create_ephemeral(&path("here"), b"1").unwrap();
    let write = |number: usize| session.write(&path("entries").join(&number.to_string()).unwrap(), b"1", None);
    for number in 0..20 {
        write(number).unwrap();
    }
    server.kill();
    expect(&watch, &WatchEvent::Suspended);
    wait_until("the leader to step down", SOON, || !election.is_leader());
    assert!(matches!(session.session().state, SessionState::Suspended { .. }));
    server.restart();
    expect(&watch, &WatchEvent::Everything);
    assert_eq!(session.children(&path("entries")).unwrap().len(), 20);
    write(20).unwrap();
    expect_changed(&watch, &["entries/20"]);
    assert!(election.wait(SOON));
    // The session was resumed, or is a new one with a higher generation.
    let is_there = session.read(&path("here")).unwrap().is_some();
    assert_eq!(is_there, session.session().generation == 1);
}

#[test]
fn a_process_cut_off_for_long_loses_its_ephemeral_entries() {
    let server = ZooKeeper::start();
    let (proxy, root) = (Proxy::to(server.port()), own_root());
    let (session, other) = (
        connect_shortly(&proxy.address(), &root),
        connect(&server.address(), &root),
    );
    let watch = session.watch(&[path("entries")]).unwrap();
    let others = other.watch(&[path("here")]).unwrap();
    let election = session.elect(&path("election"), b"me").unwrap();
    for watch in [&watch, &others] {
        expect(watch, &WatchEvent::Everything);
    }
    assert!(election.wait(SOON));
    session.create_ephemeral(&path("here"), b"1").unwrap();
    expect_changed(&others, &["here"]);
    let rival = other.elect(&path("election"), b"rival").unwrap();

    let since = Instant::now();
    proxy.cut();
    expect(&watch, &WatchEvent::Suspended);
    wait_until("the leader to step down", SOON, || !election.is_leader());
    // The other sessions see the deletion, and the leadership moves, within the session timeout.
    expect_changed(&others, &["here"]);
    assert!(rival.wait(SOON));
    assert!(since.elapsed() < SESSION_TIMEOUT + SLACK, "{:?}", since.elapsed());
    assert_eq!(other.read(&path("here")).unwrap(), None);
    other.write(&path("entries/missed"), b"1", None).unwrap();

    proxy.heal();
    expect(&watch, &WatchEvent::Everything);
    assert!(is_connected(&session));
    assert_eq!(session.session().generation, 2);
    assert!(session.read(&path("entries/missed")).unwrap().is_some());
    session.create_ephemeral(&path("here"), b"2").unwrap();
    other.write(&path("entries/told"), b"1", None).unwrap();
    expect_changed(&watch, &["entries/told"]);
    // It is a candidate again, behind the rival.
    assert!(rival.is_leader());
    drop(rival);
    assert!(election.wait(SOON));
}

#[test]
fn a_short_cut_keeps_the_session() {
    let server = ZooKeeper::start();
    let (proxy, root) = (Proxy::to(server.port()), own_root());
    let (session, other) = (connect(&proxy.address(), &root), connect(&server.address(), &root));
    let watch = session.watch(&[path("entries")]).unwrap();
    expect(&watch, &WatchEvent::Everything);
    let revision = session.create_ephemeral(&path("here"), b"1").unwrap();
    for round in 0..3 {
        proxy.cut();
        expect(&watch, &WatchEvent::Suspended);
        let missed = path("entries").join(&format!("missed-{round}")).unwrap();
        other.write(&missed, b"1", None).unwrap();
        proxy.heal();
        expect(&watch, &WatchEvent::Everything);
        assert!(session.read(&missed).unwrap().is_some());
        let told = format!("entries/told-{round}");
        other.write(&path(&told), b"1", None).unwrap();
        expect_changed(&watch, &[&told]);
    }
    assert_eq!(session.session().generation, 1);
    assert_eq!(session.read(&path("here")).unwrap().unwrap().revision, revision);
}

#[test]
fn a_total_outage_keeps_all_sessions() {
    let mut server = ZooKeeper::start();
    let mut settings = settings(&server.address(), &own_root());
    settings.session_timeout_ms = 15_000;
    let session = ZooKeeperCoordination::connect(settings).unwrap();
    let watch = session.watch(&[path("entries")]).unwrap();
    expect(&watch, &WatchEvent::Everything);
    let revision = session.create_ephemeral(&path("here"), b"1").unwrap();
    let since = Instant::now();
    server.kill();
    // The library gives a session up after 7/5 of its timeout.
    wait_until("the session timeout to pass", SOON, || {
        since.elapsed() > Duration::from_secs(22)
    });
    server.restart();
    expect(&watch, &WatchEvent::Everything);
    assert_eq!(session.session().generation, 1);
    assert_eq!(session.read(&path("here")).unwrap().unwrap().revision, revision);
    session.write(&path("entries/a"), b"1", None).unwrap();
    expect_changed(&watch, &["entries/a"]);
}

#[test]
fn a_paused_server_suspends_and_then_resumes_the_session() {
    let mut server = ZooKeeper::start();
    let session = connect_shortly(&server.address(), &own_root());
    let watch = session.watch(&[path("entries")]).unwrap();
    expect(&watch, &WatchEvent::Everything);
    session.create_ephemeral(&path("here"), b"1").unwrap();
    let since = Instant::now();
    server.pause();
    expect(&watch, &WatchEvent::Suspended);
    wait_until("the session timeout to pass", SOON, || {
        since.elapsed() > 2 * SESSION_TIMEOUT
    });
    server.resume();
    expect(&watch, &WatchEvent::Everything);
    // The server decides which sessions have expired when it resumes. Either way, both sides agree.
    wait_until("both sides to agree", SOON, || {
        let is_first = session.session().generation == 1;
        session.read(&path("here")).unwrap().is_some() == is_first
    });
    session.write(&path("entries/a"), b"1", None).unwrap();
    expect_changed(&watch, &["entries/a"]);
}

#[test]
fn operations_with_lost_answers_are_known_to_be_done() {
    let server = ZooKeeper::start();
    let (proxy, root) = (Proxy::to(server.port()), own_root());
    let (session, other) = (connect(&proxy.address(), &root), connect(&server.address(), &root));
    let old = session.write(&path("written"), b"old", None).unwrap();
    let doomed = session.write(&path("doomed"), b"old", None).unwrap();
    let both = ["one", "two"].map(|name| write(name, b"new", None));
    type Call<'a> = &'a (dyn Fn() -> Result<(), CoordinationError> + Sync);
    let is = |at: &str, bytes: &[u8]| other.read(&path(at)).unwrap().is_some_and(|entry| entry.bytes == bytes);
    let calls: [(Call, &dyn Fn() -> bool); 5] = [
        (&|| session.write(&path("made"), b"new", None).map(drop), &|| {
            is("made", b"new")
        }),
        (
            &|| session.write(&path("written"), b"new", Some(old)).map(drop),
            &|| is("written", b"new"),
        ),
        (&|| session.transact(&both).map(drop), &|| is("two", b"new")),
        (&|| session.create_ephemeral(&path("here"), b"new").map(drop), &|| {
            is("here", b"new")
        }),
        (&|| session.delete(&path("doomed"), doomed), &|| {
            other.read(&path("doomed")).unwrap().is_none()
        }),
    ];
    for (call, is_done) in calls {
        // A call reads the nodes before it writes. Its last answer is cut off.
        std::thread::scope(|scope| {
            proxy.delay_replies(Duration::from_millis(500));
            let calling = scope.spawn(call);
            wait_until("the call to be carried out", SOON, is_done);
            proxy.cut();
            proxy.heal();
            calling.join().unwrap().unwrap();
        });
        assert!(is_done());
    }
}

#[test]
fn a_session_whose_requests_have_no_answers_is_made_again_although_its_pings_have() {
    let server = ZooKeeper::start();
    let (answers, root) = (Answers::of(server.port()), own_root());
    let mut settings = settings(&answers.address(), &root);
    settings.session_timeout_ms = 4_000;
    let (session, other) = (
        ZooKeeperCoordination::connect(settings).unwrap(),
        connect(&server.address(), &root),
    );
    let watch = session.watch(&[path("entries")]).unwrap();
    let election = session.elect(&path("election"), b"me").unwrap();
    expect(&watch, &WatchEvent::Everything);
    assert!(election.wait(SOON));
    session.create_ephemeral(&path("here"), b"1").unwrap();
    let before = session.session().generation;

    answers.keep_back(true);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| session.read(&path("here")));
        expect(&watch, &WatchEvent::Suspended);
        wait_until("the leader to step down", SOON, || !election.is_leader());
        // Although pings keep a connection alive all the time.
        wait_until("its ephemeral entry to go", SOON, || {
            other.read(&path("here")).unwrap().is_none()
        });
        assert!(!is_connected(&session));
        answers.keep_back(false);
        // The call gets its answer in the new session.
        assert_eq!(waiting.join().unwrap().unwrap(), None);
    });
    expect(&watch, &WatchEvent::Everything);
    assert!(session.session().generation > before);
    assert!(election.wait(SOON));
    session.create_ephemeral(&path("here"), b"2").unwrap();
    other.write(&path("entries/told"), b"1", None).unwrap();
    expect_changed(&watch, &["entries/told"]);
}
