//! Coordination by an ensemble of three ZooKeepers, which loses members.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use fondaco_coordination::{CoordinationError, Revision, WatchEvent};
use fondaco_testing::{Ensemble, wait_for};
use parking_lot::Mutex;

use crate::clients::{SOON, connect, expect, own_root, path};
use crate::conformance::conformance;

#[test]
fn a_killed_leader_loses_no_acknowledged_write() {
    let mut ensemble = Ensemble::start(3);
    let (servers, root) = (ensemble.addresses(), own_root());
    conformance(|| connect(&servers, &root));
    writes_survive_the_leader(&mut ensemble);
    every_member_is_as_good(&mut ensemble);
}

fn writes_survive_the_leader(ensemble: &mut Ensemble) {
    const WRITERS: usize = 3;
    let (servers, root) = (ensemble.addresses(), own_root());
    let acknowledged: Mutex<BTreeMap<String, Revision>> = Mutex::default();
    let is_over = AtomicBool::new(false);
    let count = || acknowledged.lock().len();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let session = connect(&servers, &root);
            let (acknowledged, is_over) = (&acknowledged, &is_over);
            scope.spawn(move || {
                let mut number = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let name = format!("{writer}-{number}");
                    match session.write(&path("writes").join(&name).unwrap(), name.as_bytes(), None) {
                        Ok(revision) => drop(acknowledged.lock().insert(name, revision)),
                        Err(CoordinationError::Unavailable { .. }) => {}
                        Err(error) => panic!("{name} has no other writer, but: {error}"),
                    }
                    number += 1;
                }
            });
        }
        let more = |than: usize| wait_for("more writes", SOON, || (count() >= than).then_some(()));
        more(50);
        let leader = wait_for("a leader", SOON, || ensemble.leader());
        ensemble.server(leader).kill();
        let at_death = count();
        more(at_death + 50);
        ensemble.server(leader).restart();
        let at_return = count();
        more(at_return + 50);
        is_over.store(true, Ordering::SeqCst);
    });
    let session = connect(&servers, &root);
    let found = session.read_children(&path("writes")).unwrap();
    for (name, revision) in acknowledged.into_inner() {
        let entry = found
            .get(&name)
            .unwrap_or_else(|| panic!("{name} was acknowledged, and is lost"));
        assert_eq!((entry.bytes.as_slice(), entry.revision), (name.as_bytes(), revision));
    }
}

/// Kills and restarts the members one by one: two are always running.
fn every_member_is_as_good(ensemble: &mut Ensemble) {
    let (servers, root) = (ensemble.addresses(), own_root());
    let (session, other) = (connect(&servers, &root), connect(&servers, &root));
    let watch = session.watch(&[path("entries")]).unwrap();
    expect(&watch, &WatchEvent::Everything);
    for member in 0..3 {
        ensemble.server(member).kill();
        let at = format!("entries/{member}");
        other.write(&path(&at), b"1", None).unwrap();
        // If the watch's own server was killed, the watch reports that everything may have changed.
        let seen = || session.read(&path(&at)).unwrap().is_some();
        wait_for("the write to be seen", SOON, || seen().then_some(()));
        ensemble.server(member).restart();
    }
    let told = |number: usize| {
        let at = path(&format!("entries/last-{number}"));
        other.write(&at, b"1", None).unwrap();
        loop {
            match watch.next(SOON) {
                Some(WatchEvent::Changed(paths)) if paths.contains(&at) => return true,
                // It may be of a restart, and stand for the change.
                Some(WatchEvent::Everything) => return false,
                Some(_) => {}
                None => panic!("waited {SOON:?} in vain for {at}"),
            }
        }
    };
    assert!((0..20).any(told), "no change is told by name");
}
