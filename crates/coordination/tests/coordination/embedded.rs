//! Coordination in one process, over a directory.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use fondaco_coordination::{Change, CoordinationError, EmbeddedCoordination, Entry, Revision};
use fondaco_testing::{ServerProcess, SmallDisk, copy_dir, eventually, wait_until};
use proptest::prelude::*;

use crate::clients::{SOON, path};
use crate::conformance::conformance;

#[test]
fn it_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let tree = EmbeddedCoordination::open(dir.path()).unwrap();
    conformance(|| tree.session());
}

#[test]
fn it_conforms_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let tree = EmbeddedCoordination::open(dir.path()).unwrap();
    tree.session().write(&path("before"), b"1", None).unwrap();
    drop(tree);
    let tree = EmbeddedCoordination::open(dir.path()).unwrap();
    conformance(|| tree.session());
    assert_eq!(tree.session().read(&path("before")).unwrap().unwrap().bytes, b"1");
}

#[test]
fn a_restart_keeps_durable_entries_and_drops_ephemeral_ones() {
    let dir = tempfile::tempdir().unwrap();
    let session = EmbeddedCoordination::open(dir.path()).unwrap().session();
    let revision = session.write(&path("a/kept"), b"1", None).unwrap();
    session.create_ephemeral(&path("a/ephemeral"), b"2").unwrap();
    let _election = session.elect(&path("election"), b"candidate").unwrap();
    // The same state as after a kill: the session is not ended first.
    let killed = tempfile::tempdir().unwrap();
    copy_dir(dir.path(), killed.path());
    let restarted = EmbeddedCoordination::open(killed.path()).unwrap().session();
    assert_eq!(restarted.children(&path("a")).unwrap(), ["kept"]);
    assert_eq!(restarted.read(&path("a/kept")).unwrap().unwrap().revision, revision);
    assert_eq!(restarted.leader(&path("election")).unwrap(), None);
}

#[test]
fn a_directory_with_a_corrupt_entry_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let session = EmbeddedCoordination::open(dir.path()).unwrap().session();
    session.write(&path("a/b"), b"some bytes", None).unwrap();
    drop(session);
    let file = dir.path().join("entries.redb");
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(10).position(|found| found == b"some bytes").unwrap();
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    match EmbeddedCoordination::open(dir.path()).map(drop) {
        Err(CoordinationError::Corrupt { file: found, .. }) => assert_eq!(found, file),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_disk_refuses_writes_without_loss_until_space_returns() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(&dir.path().join("disk"), 16 << 20) else {
        return;
    };
    let root = dir.path().join("disk/tree");
    let session = EmbeddedCoordination::open(&root).unwrap().session();
    let write = |number: usize| session.write(&path("a").join(&number.to_string()).unwrap(), &[1; 900_000], None);
    write(0).unwrap();
    disk.fill_up_to(0);
    let error = (1..20).find_map(|number| write(number).err()).unwrap();
    assert!(matches!(error, CoordinationError::Io { .. }), "{error}");
    let kept = session.children(&path("a")).unwrap().len();
    assert!(session.read(&path("a/0")).unwrap().is_some());
    disk.make_room();
    // The file system gives the room back in a transaction of its own.
    eventually("a write to succeed again", || write(kept).ok());
    drop(session);
    let restarted = EmbeddedCoordination::open(&root).unwrap().session();
    assert_eq!(restarted.children(&path("a")).unwrap().len(), kept + 1);
}

#[test]
fn a_kill_at_any_moment_loses_nothing_acknowledged_and_halves_no_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, log) = (dir.path().join("tree"), dir.path().join("log"));
    let count = |at: &str| {
        let session = EmbeddedCoordination::open(&tree).unwrap().session();
        let entry = session.read(&path(at)).unwrap();
        entry.map_or(0, |entry| {
            String::from_utf8(entry.bytes).unwrap().parse::<usize>().unwrap()
        })
    };
    for _ in 0..10 {
        let before = count("a");
        let mut writer = Command::new(env!("CARGO_BIN_EXE_fondaco-coordination-writer"));
        let _ = fs::remove_file(&log);
        let writer = ServerProcess::start("a writer", writer.arg(&tree), &log);
        let acknowledged = || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let whole_lines = said.rsplit_once('\n').map_or("", |(lines, _)| lines);
            whole_lines
                .lines()
                .filter_map(|line| line.parse::<usize>().ok())
                .next_back()
        };
        wait_until("some writes", SOON, || {
            acknowledged().is_some_and(|count| count > before + 20)
        });
        drop(writer);
        let acknowledged = acknowledged().unwrap();
        let [a, b] = ["a", "b/c"].map(count);
        assert_eq!(a, b);
        assert!(
            a == acknowledged || a == acknowledged + 1,
            "{acknowledged} were acknowledged, {a} are there"
        );
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write(String, Vec<u8>),
    WriteAll(Vec<(String, Vec<u8>)>),
    Delete(String),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = "[ab]/[ab](/[ab])?";
    let bytes = || prop::collection::vec(any::<u8>(), 1..20);
    let step = prop_oneof![
        4 => (name, bytes()).prop_map(|(name, bytes)| Step::Write(name, bytes)),
        2 => prop::collection::btree_map(name, bytes(), 2..4).prop_map(|all| Step::WriteAll(all.into_iter().collect())),
        2 => name.prop_map(Step::Delete),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn it_behaves_like_a_map_across_restarts(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let mut session = EmbeddedCoordination::open(dir.path()).unwrap().session();
        let mut map: BTreeMap<String, (Vec<u8>, Revision)> = BTreeMap::new();
        for step in steps {
            let revision_of = |map: &BTreeMap<_, (_, Revision)>, name: &String| map.get(name).map(|(_, revision)| *revision);
            match step {
                Step::Write(name, bytes) => {
                    let revision = session.write(&path(&name), &bytes, revision_of(&map, &name)).unwrap();
                    map.insert(name, (bytes, revision));
                }
                Step::WriteAll(all) => {
                    let change = |(name, bytes): &(String, Vec<u8>)| Change::Write {
                        path: path(name),
                        bytes: bytes.clone(),
                        expected: revision_of(&map, name),
                    };
                    let changes: Vec<_> = all.iter().map(change).collect();
                    let revision = session.transact(&changes).unwrap().unwrap();
                    map.extend(all.into_iter().map(|(name, bytes)| (name, (bytes, revision))));
                }
                Step::Delete(name) => {
                    let known = revision_of(&map, &name);
                    let deleted = session.delete(&path(&name), known.unwrap_or(Revision::new(1)));
                    prop_assert_eq!(deleted.is_ok(), map.remove(&name).is_some());
                }
                Step::Reopen => {
                    drop(session);
                    session = EmbeddedCoordination::open(dir.path()).unwrap().session();
                }
            }
            for top in ["a", "b"] {
                let mut expected: Vec<_> = map
                    .keys()
                    .filter_map(|name| name.strip_prefix(top)?.strip_prefix('/')?.split('/').next())
                    .map(str::to_owned)
                    .collect();
                expected.dedup();
                prop_assert_eq!(session.children(&path(top)).unwrap(), expected);
            }
        }
        for (name, (bytes, revision)) in map {
            prop_assert_eq!(session.read(&path(&name)).unwrap(), Some(Entry { bytes, revision }));
        }
    }
}
