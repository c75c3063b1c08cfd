//! The promises of every implementation. Each promise is tested in its own directory of the tree.

use std::sync::Arc;
use std::time::Duration;

use fondaco_coordination::{Change, Coordination, CoordinationError, ENTRY_BYTES_MAX, Revision, WatchEvent};
use fondaco_testing::wait_until;

use crate::clients::{SOON, expect, expect_changed, expect_conflict, path};

type Make<'a> = &'a dyn Fn() -> Arc<dyn Coordination>;

/// A write of a transaction.
pub fn write(at: &str, bytes: &[u8], expected: Option<Revision>) -> Change {
    Change::Write {
        path: path(at),
        bytes: bytes.to_vec(),
        expected,
    }
}

/// A deletion of a transaction.
fn delete(at: &str, expected: Revision) -> Change {
    Change::Delete {
        path: path(at),
        expected,
    }
}

/// A check of a transaction.
fn check(at: &str, expected: Revision) -> Change {
    Change::Check {
        path: path(at),
        expected,
    }
}

/// Checks all promises in an empty tree, with sessions that `make` begins.
pub fn conformance(make: impl Fn() -> Arc<dyn Coordination>) {
    let promises: [fn(Make); 19] = [
        an_entry_is_read_as_it_was_written,
        parents_are_not_entries_until_they_are_written,
        a_write_over_an_unseen_one_is_refused,
        a_deletion_of_an_unseen_entry_is_refused,
        deleting_an_entry_leaves_the_entries_below_it,
        a_recreated_entry_never_has_an_old_revision,
        all_entries_right_below_are_read_at_once,
        a_transaction_is_done_completely_or_not_at_all,
        a_transaction_makes_and_deletes_parents_of_entries,
        invalid_entries_are_refused,
        racing_writers_never_lose_a_write,
        an_ephemeral_entry_goes_with_its_session,
        a_rewritten_ephemeral_entry_stays_ephemeral,
        an_ephemeral_entry_has_one_owner_and_no_children,
        a_watch_reports_changes_at_and_below_its_prefixes,
        a_watch_reports_entries_deleted_with_their_session,
        a_watch_of_an_ended_session_is_closed,
        the_first_candidate_leads_and_the_next_follows,
        the_end_of_a_session_ends_its_leadership,
    ];
    for promise in promises {
        promise(&make);
    }
}

fn an_entry_is_read_as_it_was_written(make: Make) {
    let (one, other) = (make(), make());
    let at = path("written/a");
    assert_eq!(one.read(&at).unwrap(), None);
    let first = one.write(&at, b"\0bytes\n", None).unwrap();
    let entry = one.read(&at).unwrap().unwrap();
    assert_eq!((&entry.bytes[..], entry.revision), (&b"\0bytes\n"[..], first));
    // Another session sees it eventually.
    wait_until("the entry in another session", SOON, || {
        other.read(&at).unwrap().as_ref() == Some(&entry)
    });
    let second = other.write(&at, b"more", Some(first)).unwrap();
    assert!(second > first);
    wait_until("the new entry", SOON, || {
        one.read(&at).unwrap().unwrap().revision == second
    });
    // Revisions grow over all entries.
    assert!(other.write(&path("written/b"), b"b", None).unwrap() > second);
}

fn parents_are_not_entries_until_they_are_written(make: Make) {
    let session = make();
    session.write(&path("parents/a/b/c"), b"c", None).unwrap();
    assert_eq!(session.read(&path("parents/a")).unwrap(), None);
    assert_eq!(session.children(&path("parents/a")).unwrap(), ["b"]);
    assert_eq!(session.children(&path("parents/a/b/c")).unwrap(), [""; 0]);
    assert_eq!(session.children(&path("parents/none")).unwrap(), [""; 0]);
    let revision = session.write(&path("parents/a"), b"a", None).unwrap();
    expect_conflict(session.write(&path("parents/a"), b"a", None), "parents/a");
    session.write(&path("parents/a"), b"b", Some(revision)).unwrap();
    session.write(&path("parents/a-b"), b"c", None).unwrap();
    assert_eq!(session.children(&path("parents")).unwrap(), ["a", "a-b"]);
    assert_eq!(session.children(&path("parents/a")).unwrap(), ["b"]);
}

fn a_write_over_an_unseen_one_is_refused(make: Make) {
    let session = make();
    let at = path("unseen/a");
    let first = session.write(&at, b"1", None).unwrap();
    expect_conflict(session.write(&path("unseen/none"), b"1", Some(first)), "unseen/none");
    let second = session.write(&at, b"2", Some(first)).unwrap();
    for stale in [None, Some(first)] {
        expect_conflict(session.write(&at, b"3", stale), "unseen/a");
        // Writing the same bytes conflicts too.
        expect_conflict(session.write(&at, b"2", stale), "unseen/a");
    }
    let entry = session.read(&at).unwrap().unwrap();
    assert_eq!((&entry.bytes[..], entry.revision), (&b"2"[..], second));
}

fn a_deletion_of_an_unseen_entry_is_refused(make: Make) {
    let session = make();
    let at = path("deleted/a");
    let first = session.write(&at, b"1", None).unwrap();
    let second = session.write(&at, b"2", Some(first)).unwrap();
    expect_conflict(session.delete(&at, first), "deleted/a");
    session.delete(&at, second).unwrap();
    assert_eq!(session.read(&at).unwrap(), None);
    expect_conflict(session.delete(&at, second), "deleted/a");
}

fn deleting_an_entry_leaves_the_entries_below_it(make: Make) {
    let session = make();
    let revision = session.write(&path("above/a"), b"a", None).unwrap();
    session.write(&path("above/a/b"), b"b", None).unwrap();
    session.delete(&path("above/a"), revision).unwrap();
    assert_eq!(session.read(&path("above/a")).unwrap(), None);
    assert_eq!(session.read(&path("above/a/b")).unwrap().unwrap().bytes, b"b");
    session.write(&path("above/a"), b"again", None).unwrap();
}

fn a_recreated_entry_never_has_an_old_revision(make: Make) {
    let session = make();
    let at = path("again/a");
    let first = session.write(&at, b"1", None).unwrap();
    session.delete(&at, first).unwrap();
    let second = session.write(&at, b"2", None).unwrap();
    assert!(second > first);
    expect_conflict(session.write(&at, b"3", Some(first)), "again/a");
    expect_conflict(session.delete(&at, first), "again/a");
}

fn all_entries_right_below_are_read_at_once(make: Make) {
    let session = make();
    for at in ["below/a", "below/b", "below/b/c", "below/d/e"] {
        session.write(&path(at), at.as_bytes(), None).unwrap();
    }
    let entries = session.read_children(&path("below")).unwrap();
    let read: Vec<_> = entries
        .iter()
        .map(|(name, entry)| (name.as_str(), entry.bytes.as_slice()))
        .collect();
    assert_eq!(read, [("a", &b"below/a"[..]), ("b", b"below/b")]);
    assert!(session.read_children(&path("below/none")).unwrap().is_empty());
}

fn a_transaction_is_done_completely_or_not_at_all(make: Make) {
    let session = make();
    let at = |name: &str| path("whole").join(name).unwrap();
    let read = |name: &str| session.read(&at(name)).unwrap().map(|entry| entry.bytes);
    let [a, b, c] = ["a", "b", "c"].map(|name| session.write(&at(name), b"old", None).unwrap());
    let changes = |seen_of_c| {
        [
            write("whole/a", b"new", Some(a)),
            delete("whole/b", b),
            check("whole/c", seen_of_c),
            write("whole/d", b"new", None),
        ]
    };
    let newer = session.write(&at("c"), b"newer", Some(c)).unwrap();
    expect_conflict(session.transact(&changes(c)), "whole/c");
    assert_eq!(
        (read("a"), read("b"), read("d")),
        (Some(b"old".to_vec()), Some(b"old".to_vec()), None)
    );
    let revision = session.transact(&changes(newer)).unwrap().unwrap();
    assert!(revision > newer);
    assert_eq!(
        (read("a"), read("b"), read("d")),
        (Some(b"new".to_vec()), None, Some(b"new".to_vec()))
    );
    for name in ["a", "d"] {
        assert_eq!(session.read(&at(name)).unwrap().unwrap().revision, revision);
    }
    // Now the first entry conflicts.
    expect_conflict(session.transact(&changes(newer)), "whole/a");
    assert_eq!(session.transact(&[delete("whole/d", revision)]).unwrap(), None);
    assert_eq!(session.transact(&[]).unwrap(), None);
}

fn a_transaction_makes_and_deletes_parents_of_entries(make: Make) {
    let session = make();
    let new = |at: &str| write(at, b"1", None);
    let revision = session.transact(&[new("family/a/b"), new("family/c/d")]);
    let revision = revision.unwrap().unwrap();
    assert_eq!(session.children(&path("family")).unwrap(), ["a", "c"]);
    // A node that is a parent already becomes an entry.
    let revision = session.transact(&[delete("family/a/b", revision), new("family/c")]);
    let revision = revision.unwrap().unwrap();
    let entry = session.read(&path("family/c")).unwrap().unwrap();
    assert_eq!(entry.revision, revision);
    assert!(session.read(&path("family/c/d")).unwrap().is_some());
}

fn invalid_entries_are_refused(make: Make) {
    let session = make();
    let at = path("limits/a");
    let longest = vec![b'x'; ENTRY_BYTES_MAX];
    let error = session.write(&at, b"", None).unwrap_err();
    assert!(matches!(error, CoordinationError::Empty { .. }), "{error}");
    let error = session.create_ephemeral(&at, b"").unwrap_err();
    assert!(matches!(error, CoordinationError::Empty { .. }), "{error}");
    let error = session.write(&at, &[&longest[..], b"x"].concat(), None).unwrap_err();
    assert!(matches!(error, CoordinationError::TooLong { .. }), "{error}");
    assert_eq!(session.read(&at).unwrap(), None);
    let revision = session.write(&at, &longest, None).unwrap();
    assert_eq!(session.read(&at).unwrap().unwrap().bytes, longest);
    let twice = [check("limits/a", revision), check("limits/a", revision)];
    let error = session.transact(&twice).unwrap_err();
    assert!(matches!(error, CoordinationError::Twice { .. }), "{error}");
}

fn racing_writers_never_lose_a_write(make: Make) {
    const WRITERS: usize = 4;
    const WRITES: usize = 10;
    let at = path("race/counter");
    make().write(&at, b"0", None).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            let session = make();
            let at = &at;
            scope.spawn(move || {
                let mut written = 0;
                while written < WRITES {
                    let entry = session.read(at).unwrap().unwrap();
                    let count: usize = String::from_utf8(entry.bytes).unwrap().parse().unwrap();
                    let next = (count + 1).to_string();
                    match session.write(at, next.as_bytes(), Some(entry.revision)) {
                        Ok(_) => written += 1,
                        Err(CoordinationError::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let session = make();
    let read = || session.read(&at).unwrap().unwrap().bytes;
    wait_until("all writes", SOON, || {
        read() == (WRITERS * WRITES).to_string().as_bytes()
    });
}

fn an_ephemeral_entry_goes_with_its_session(make: Make) {
    let (owner, other) = (make(), make());
    owner.create_ephemeral(&path("ephemeral/a"), b"a").unwrap();
    owner.write(&path("ephemeral/b"), b"b", None).unwrap();
    wait_until("the entry in another session", SOON, || {
        other.children(&path("ephemeral")).unwrap() == ["a", "b"]
    });
    drop(owner);
    wait_until("the entry to go", SOON, || {
        other.children(&path("ephemeral")).unwrap() == ["b"]
    });
    assert_eq!(other.read(&path("ephemeral/a")).unwrap(), None);
}

fn a_rewritten_ephemeral_entry_stays_ephemeral(make: Make) {
    let (owner, other) = (make(), make());
    let at = path("rewritten/a");
    let first = owner.create_ephemeral(&at, b"1").unwrap();
    let second = owner.write(&at, b"2", Some(first)).unwrap();
    let beside = write("rewritten/b", b"b", None);
    owner
        .transact(&[write("rewritten/a", b"3", Some(second)), beside])
        .unwrap();
    assert_eq!(owner.read(&at).unwrap().unwrap().bytes, b"3");
    drop(owner);
    wait_until("the entry to go", SOON, || other.read(&at).unwrap().is_none());
    wait_until("the entry beside it", SOON, || {
        other.read(&path("rewritten/b")).unwrap().is_some()
    });
}

fn an_ephemeral_entry_has_one_owner_and_no_children(make: Make) {
    let (owner, other) = (make(), make());
    let at = path("owned/a");
    let revision = owner.create_ephemeral(&at, b"a").unwrap();
    expect_conflict(owner.create_ephemeral(&at, b"a"), "owned/a");
    expect_conflict(other.create_ephemeral(&at, b"a"), "owned/a");
    for below in ["owned/a/b", "owned/a/b/c"] {
        let error = owner.write(&path(below), b"b", None).unwrap_err();
        assert!(matches!(error, CoordinationError::BelowEphemeral { .. }), "{error}");
        let error = owner.create_ephemeral(&path(below), b"b").unwrap_err();
        assert!(matches!(error, CoordinationError::BelowEphemeral { .. }), "{error}");
    }
    // A durable entry does not become ephemeral.
    owner.write(&path("owned/b"), b"b", None).unwrap();
    expect_conflict(owner.create_ephemeral(&path("owned/b"), b"b"), "owned/b");
    owner.delete(&at, revision).unwrap();
    owner.create_ephemeral(&at, b"again").unwrap();
}

fn a_watch_reports_changes_at_and_below_its_prefixes(make: Make) {
    let (watcher, writer) = (make(), make());
    let watch = watcher.watch(&[path("watched/a"), path("watched/none")]).unwrap();
    assert_eq!(watch.next(SOON), Some(WatchEvent::Everything));
    let first = writer.write(&path("watched/a/b"), b"1", None).unwrap();
    expect_changed(&watch, &["watched/a/b"]);
    let second = writer.write(&path("watched/a/b"), b"2", Some(first)).unwrap();
    expect_changed(&watch, &["watched/a/b"]);
    // A reported change can be read.
    assert_eq!(watcher.read(&path("watched/a/b")).unwrap().unwrap().revision, second);
    writer.write(&path("watched/a-b"), b"beside", None).unwrap();
    writer.write(&path("watched/a"), b"itself", None).unwrap();
    writer.delete(&path("watched/a/b"), second).unwrap();
    let told = expect_changed(&watch, &["watched/a", "watched/a/b"]);
    assert!(!told.contains(&path("watched/a-b")), "{told:?}");
    assert_eq!(watch.next(Duration::ZERO), None);
    // The prefix that did not exist is created.
    writer.write(&path("watched/none/new"), b"new", None).unwrap();
    expect_changed(&watch, &["watched/none/new"]);
    writer.transact(&[write("watched/a/c", b"c", None)]).unwrap();
    expect_changed(&watch, &["watched/a/c"]);
}

fn a_watch_reports_entries_deleted_with_their_session(make: Make) {
    let (watcher, owner) = (make(), make());
    let watch = watcher.watch(&[path("going")]).unwrap();
    expect(&watch, &WatchEvent::Everything);
    owner.create_ephemeral(&path("going/a"), b"a").unwrap();
    expect_changed(&watch, &["going/a"]);
    drop(owner);
    expect_changed(&watch, &["going/a"]);
    assert_eq!(watcher.read(&path("going/a")).unwrap(), None);
}

fn a_watch_of_an_ended_session_is_closed(make: Make) {
    let session = make();
    let watch = session.watch(&[path("closed")]).unwrap();
    expect(&watch, &WatchEvent::Everything);
    drop(session);
    expect(&watch, &WatchEvent::Closed);
}

fn the_first_candidate_leads_and_the_next_follows(make: Make) {
    let sessions = [make(), make(), make()];
    let at = path("election");
    assert_eq!(sessions[0].leader(&at).unwrap(), None);
    let first = sessions[0].elect(&at, b"first").unwrap();
    assert!(first.wait(SOON));
    let second = sessions[1].elect(&at, b"second").unwrap();
    wait_until("the second candidate", SOON, || {
        sessions[2].children(&at).unwrap().len() == 2
    });
    let third = sessions[2].elect(&at, b"third").unwrap();
    wait_until("the third candidate", SOON, || {
        sessions[2].children(&at).unwrap().len() == 3
    });
    assert_eq!(sessions[2].leader(&at).unwrap().unwrap(), b"first");
    assert!(first.is_leader() && !second.is_leader() && !third.wait(Duration::from_millis(20)));
    // A candidate in the middle leaves: no other candidate becomes leader.
    drop(second);
    wait_until("the second to leave", SOON, || {
        sessions[2].children(&at).unwrap().len() == 2
    });
    assert!(first.is_leader() && !third.is_leader());
    drop(first);
    assert!(third.wait(SOON));
    assert_eq!(sessions[2].leader(&at).unwrap().unwrap(), b"third");
    // A candidate that comes back is last in the queue.
    let again = sessions[0].elect(&at, b"first again").unwrap();
    wait_until("the first to be back", SOON, || {
        sessions[2].children(&at).unwrap().len() == 2
    });
    assert!(third.is_leader() && !again.is_leader());
}

fn the_end_of_a_session_ends_its_leadership(make: Make) {
    let (leading, following) = (make(), make());
    let at = path("succession");
    let leader = leading.elect(&at, b"leader").unwrap();
    assert!(leader.wait(SOON));
    let follower = following.elect(&at, b"follower").unwrap();
    drop(leading);
    assert!(follower.wait(SOON));
    assert!(!leader.is_leader());
}
