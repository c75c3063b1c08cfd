//! A reader follows a store: pushes, rollbacks, drops, absences of the cluster.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use fondaco_builder::{IncrementOptions, Progress, build_increment};
use fondaco_embedded::{EmbeddedError, Reader, State, Swap};
use fondaco_format::{Compression, FormatError, Manifest};
use fondaco_model::{PartitionId, PartitionSet, StoreKind, VersionNumber};
use fondaco_roles::TlsConfig;
use fondaco_testing::{Certificate, until};
use parking_lot::Mutex;

use crate::node::{KEYS, Node, PARTITIONS, PATIENCE, wait_for_state};
use crate::versions::{built, key, options, store, value};

fn number(number: u64) -> VersionNumber {
    VersionNumber::new(number).unwrap()
}

/// Checks some values of the version that the reader has.
#[track_caller]
pub(crate) fn has(reader: &Reader, mark: u64) {
    for at in [0, 1, KEYS / 2, KEYS - 1] {
        let expected = Some(value(at, mark).into_bytes());
        assert_eq!(reader.get(key(at)).unwrap(), expected);
    }
    assert_eq!(reader.get("nothing").unwrap(), None);
}

/// The numbers of the versions in a reader's directory, and those being fetched.
fn on_disk(directory: &Path) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let (mut complete, mut fetching) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let parts: Vec<&str> = name.split('-').collect();
        match parts[..] {
            ["version", number, _] => complete.insert(number.parse().unwrap()),
            ["fetching", number, _] => fetching.insert(number.parse().unwrap()),
            _ => continue,
        };
    }
    (complete, fetching)
}

fn dir_of(directory: &Path, version: u64) -> PathBuf {
    let prefix = format!("version-{version}-");
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&prefix);
    entries.into_iter().find(is_it).unwrap()
}

#[test]
fn pushes_and_rollbacks_are_followed_and_one_former_version_is_kept() {
    let node = Node::start();
    let swaps = Arc::new(Mutex::new(Vec::new()));
    let mut options = node.options();
    let theirs = Arc::clone(&swaps);
    options.on_swap = Some(Arc::new(move |swap: &Swap| theirs.lock().push((swap.from, swap.to))));
    let reader = Reader::follow(options).unwrap();
    assert!(matches!(reader.get("key-1"), Err(EmbeddedError::NoVersion)));
    wait_for_state(&reader, State::NoVersion);

    for mark in 1..=2 {
        assert_eq!(node.push(mark), number(mark));
        reader.wait_for(number(mark), PATIENCE).unwrap();
        has(&reader, mark);
    }
    assert_eq!(wait_for_state(&reader, State::Current), None);
    assert_eq!(on_disk(&node.directory()).0, [1, 2].into());

    let snapshot = reader.snapshot().unwrap();
    let kept = fs::metadata(dir_of(&node.directory(), 1)).unwrap();
    assert_eq!(node.rollback(), number(1));
    reader.wait_for(number(1), PATIENCE).unwrap();
    has(&reader, 1);
    let again = fs::metadata(dir_of(&node.directory(), 1)).unwrap();
    assert_eq!(again.ino(), kept.ino(), "the kept version was swapped in");

    // The version that was rolled back is given up, but a reader that has it open continues.
    node.push(3);
    reader.wait_for(number(3), PATIENCE).unwrap();
    has(&reader, 3);
    assert_eq!(
        snapshot.get(key(7)).unwrap().unwrap().to_vec(),
        value(7, 2).into_bytes()
    );
    assert_eq!(on_disk(&node.directory()).0, [1, 2, 3].into());
    drop(snapshot);
    until("version 2 to be deleted", || {
        on_disk(&node.directory()).0 == [1, 3].into()
    });
    let expected = [(None, 1), (Some(1), 2), (Some(2), 1), (Some(1), 3)];
    let expected = expected.map(|(from, to): (Option<u64>, u64)| (from.map(number), number(to)));
    assert_eq!(*swaps.lock(), expected);
}

#[test]
fn an_incremental_push_links_the_files_that_are_equal() {
    let node = Node::start();
    let mut build = options(node.dir.path(), PARTITIONS, KEYS, KEYS, 1);
    build.chunk_bytes_target = 16 << 10;
    node.push_from(&crate::versions::built_with(&build));
    let reader = node.reader();
    reader.wait_for(number(1), PATIENCE).unwrap();

    let mut increment = options(node.dir.path(), PARTITIONS, 1, 1, 2);
    increment.chunk_bytes_target = build.chunk_bytes_target;
    let path = increment.output.local_path().unwrap().to_owned();
    let increment = IncrementOptions {
        build: increment,
        base: build.output.local_path().unwrap().to_owned(),
        deletes: vec![],
        has_final_values: false,
    };
    let report = build_increment(&increment, &Progress::default()).unwrap();
    assert_eq!(report.changed_chunks, 1);
    node.push_from(&path);
    reader.wait_for(number(2), PATIENCE).unwrap();
    assert_eq!(reader.get(key(0)).unwrap(), Some(value(0, 2).into_bytes()));
    assert_eq!(reader.get(key(1)).unwrap(), Some(value(1, 1).into_bytes()));

    let [before, after] = [1, 2].map(|version| dir_of(&node.directory(), version));
    let manifest = Manifest::read(&after).unwrap();
    let files: Vec<_> = manifest
        .chunks
        .iter()
        .flat_map(|chunk| [&chunk.data, &chunk.index])
        .collect();
    let linked = files.iter().filter(|file| {
        let inode = |dir: &Path| fs::metadata(dir.join(&file.name)).ok().map(|found| found.ino());
        inode(&before).is_some() && inode(&before) == inode(&after)
    });
    assert!(linked.count() >= files.len() - 2);
}

#[test]
fn a_store_that_is_dropped_and_created_again_is_another_store() {
    let node = Node::start();
    node.push(1);
    node.push(2);
    let reader = node.reader();
    reader.wait_for(number(2), PATIENCE).unwrap();
    node.drop_store();
    wait_for_state(&reader, State::NoStore);
    has(&reader, 2);
    node.create("cities", StoreKind::Batch);
    wait_for_state(&reader, State::NoVersion);
    let next = node.push(5);
    reader.wait_for(next, PATIENCE).unwrap();
    has(&reader, 5);
    // A former version of the other store is no former version of this one.
    until("the other store's versions to be deleted", || {
        on_disk(&node.directory()).0 == [next.get()].into()
    });
}

#[test]
fn stores_that_cannot_be_followed_are_refused_by_name() {
    let node = Node::start();
    node.create("carts", StoreKind::Versioned);
    let refused = |name: &str| {
        let mut options = node.options();
        options.store = name.parse().unwrap();
        options.directory = node.dir.path().join(name);
        Reader::follow(options).err().unwrap().to_string()
    };
    let error = refused("carts");
    assert!(
        error.contains("\"carts\" is a versioned store") && error.contains("fondaco get carts:KEY"),
        "{error}"
    );
    let error = refused("rivers");
    assert!(error.contains("no store \"rivers\""), "{error}");

    node.push(1);
    node.reader().wait_ready(PATIENCE).unwrap();
    let mut options = node.options();
    options.store = "carts".parse().unwrap();
    let error = Reader::follow(options).err().unwrap().to_string();
    assert!(error.contains("follows the store \"cities\", not \"carts\""), "{error}");
}

#[test]
fn a_reader_outlives_the_cluster_and_starts_without_it() {
    let mut node = Node::start();
    node.push(1);
    let reader = node.reader();
    reader.wait_for(number(1), PATIENCE).unwrap();
    node.stop();
    let error = wait_for_state(&reader, State::Unreachable).unwrap();
    assert!(error.contains("cannot reach"), "{error}");
    has(&reader, 1);
    drop(reader);

    let reader = node.reader();
    assert_eq!(reader.version(), Some(number(1)));
    assert_eq!(reader.status().contact_age, None);
    has(&reader, 1);
    node.run();
    assert_eq!(wait_for_state(&reader, State::Current), None);
    node.push(2);
    reader.wait_for(number(2), PATIENCE).unwrap();
    has(&reader, 2);
    assert!(reader.status().contact_age.unwrap() < PATIENCE);
}

#[test]
fn a_version_that_is_not_kept_is_fetched_again_after_a_rollback() {
    let node = Node::start();
    let mut options = node.options();
    options.keep = 0;
    let reader = Reader::follow(options).unwrap();
    for mark in 1..=2 {
        node.push(mark);
        reader.wait_for(number(mark), PATIENCE).unwrap();
        until("the version before to be deleted", || {
            on_disk(&node.directory()).0 == [mark].into()
        });
    }
    node.rollback();
    reader.wait_for(number(1), PATIENCE).unwrap();
    has(&reader, 1);
}

#[test]
fn a_rollback_stops_the_fetch_of_the_version_that_it_leaves() {
    let node = Node::start();
    for mark in 1..=2 {
        node.push(mark);
    }
    let mut options = node.options();
    options.rate_limit_bytes_per_second = Some(20_000);
    node.reader().wait_for(number(2), PATIENCE).unwrap();
    node.rollback();
    node.reader().wait_for(number(1), PATIENCE).unwrap();
    let reader = Reader::follow(options).unwrap();
    let next = node.push(3);
    until("the fetch to begin", || {
        let status = reader.status();
        status.target == Some(next) && status.progress.is_some_and(|progress| progress.bytes_done > 0)
    });
    assert_eq!(reader.status().state, State::Fetching);
    node.rollback();
    until("the fetch to end", || reader.status().progress.is_none());
    assert_eq!(wait_for_state(&reader, State::Current), None);
    has(&reader, 1);
    assert!(!on_disk(&node.directory()).0.contains(&next.get()));
}

#[test]
fn a_panic_of_the_callers_function_is_in_the_status() {
    let node = Node::start();
    let mut options = node.options();
    options.on_swap = Some(Arc::new(|_| panic!("by the test")));
    let reader = Reader::follow(options).unwrap();
    node.push(1);
    let error = wait_for_state(&reader, State::Stopped).unwrap();
    assert!(error.contains("panic"), "{error}");
    has(&reader, 1);
}

#[test]
fn a_reader_that_starts_before_its_cluster_waits_for_it() {
    let mut node = Node::start();
    node.push(1);
    node.stop();
    let reader = node.reader();
    let error = reader.wait_ready(Duration::from_millis(10)).err().unwrap().to_string();
    assert!(
        error.contains("unreachable") && error.contains("cannot reach"),
        "{error}"
    );
    node.run();
    reader.wait_ready(PATIENCE).unwrap();
    has(&reader, 1);
}

#[test]
fn files_come_from_nodes_over_tls_and_with_a_token_when_the_location_is_gone() {
    let certificates = tempfile::tempdir().unwrap();
    let certificate = Certificate::make(certificates.path(), "node", &["127.0.0.1"]);
    let node = Node::start_with(|config| {
        config.token = Some("a-token-of-16-bytes".into());
        config.tls = Some(TlsConfig {
            certificate: certificate.path.clone(),
            key: certificate.key.clone(),
        });
    });
    let path = built(node.dir.path(), PARTITIONS, KEYS, 1, Compression::Zstd);
    node.push_from(&path);
    fs::remove_dir_all(&path).unwrap();
    let reader = node.reader();
    reader.wait_for(number(1), PATIENCE).unwrap();
    has(&reader, 1);

    let mut options = node.options();
    options.endpoints[0].token = Some("another".into());
    options.directory = node.dir.path().join("other");
    let error = Reader::follow(options).err().unwrap().to_string();
    assert!(error.contains("refuses the token"), "{error}");
    options = node.options();
    options.directory = node.dir.path().join("other");
    options.endpoints[0].ca = None;
    options.endpoints[0].http = Some(format!("https://{}", node.http()));
    let reader = Reader::follow(options).unwrap();
    let error = wait_for_state(&reader, State::Unreachable).unwrap();
    assert!(error.contains("--ca"), "{error}");
}

#[test]
fn only_the_wanted_partitions_are_held_and_more_are_fetched_when_wanted() {
    let node = Node::start();
    node.push(1);
    let wanted = |partitions: &[u32]| {
        let set: PartitionSet = partitions.iter().map(|&number| PartitionId::new(number)).collect();
        let mut options = node.options();
        // A version with more partitions has two for each of these.
        let halves = (PARTITIONS / 2).try_into().unwrap();
        options.partitions = Some((halves, set));
        Reader::follow(options).unwrap()
    };
    let reader = wanted(&[1]);
    reader.wait_for(number(1), PATIENCE).unwrap();
    let held = reader.snapshot().unwrap().partitions();
    assert_eq!(held.to_string(), "2-3");
    let found: Vec<_> = (0..KEYS).map(|at| (at, reader.get(key(at)))).collect();
    let is_elsewhere = |error: &EmbeddedError| matches!(error, EmbeddedError::Format(FormatError::NotHeld { .. }));
    for (at, found) in found {
        assert!(match found {
            Ok(found) => found == Some(value(at, 1).into_bytes()),
            Err(error) => is_elsewhere(&error),
        });
    }
    drop(reader);
    let reader = wanted(&[0, 1]);
    until("all partitions", || {
        reader.snapshot().unwrap().partitions().len() == PARTITIONS as usize
    });
    has(&reader, 1);
}

#[test]
fn a_second_reader_of_a_directory_is_refused() {
    let node = Node::start();
    let _first = node.reader();
    let error = Reader::follow(node.options()).err().unwrap().to_string();
    let pid = std::process::id().to_string();
    assert!(
        error.contains("is in use by the process with pid") && error.contains(&pid),
        "{error}"
    );
}

#[test]
fn threads_that_read_during_swaps_see_whole_versions_only() {
    const VERSIONS: u64 = 6;
    let node = Node::start();
    node.push(1);
    let reader = node.reader();
    reader.wait_for(number(1), PATIENCE).unwrap();
    let end = AtomicBool::new(false);
    let keys: Vec<String> = (0..100).map(|at| key(at * 19)).collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|thread| {
                let (reader, end, keys) = (&reader, &end, &keys);
                scope.spawn(move || {
                    let (mut calls, mut marks) = (0u64, BTreeSet::new());
                    while !end.load(Relaxed) {
                        let mark_of = |value: &[u8]| -> u64 {
                            let text = std::str::from_utf8(value).unwrap();
                            text.split(':').nth(1).unwrap().parse().unwrap()
                        };
                        let values = reader.get_many(keys).unwrap();
                        let mark = mark_of(values.get(0).unwrap());
                        for (at, found) in values.iter().enumerate() {
                            assert_eq!(found.unwrap(), value(at * 19, mark).as_bytes());
                        }
                        marks.insert(mark);
                        let snapshot = reader.snapshot().unwrap();
                        let mark = mark_of(&snapshot.get(key(thread)).unwrap().unwrap());
                        let piece = snapshot.scan(None).unwrap().next().unwrap().unwrap();
                        assert!(piece.iter().all(|(_, value)| mark_of(value) == mark));
                        calls += 1;
                    }
                    (calls, marks)
                })
            })
            .collect();
        for mark in 2..=VERSIONS {
            let version = node.push(mark);
            reader.wait_for(version, PATIENCE).unwrap();
        }
        let back = node.rollback();
        reader.wait_for(back, PATIENCE).unwrap();
        end.store(true, Relaxed);
        for reader in readers {
            let (calls, marks) = reader.join().unwrap();
            assert!(calls > 0 && marks.len() > 1, "{calls} calls, versions {marks:?}");
        }
    });
    assert_eq!(reader.version(), Some(number(VERSIONS - 1)));
    assert_eq!(store().as_str(), "cities");
}
