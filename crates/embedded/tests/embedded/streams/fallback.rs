//! Keys that a reader cannot answer are asked from the cluster.

use fondaco_embedded::{EmbeddedError, Reader, State};
use fondaco_model::{PartitionId, PartitionSet};
use fondaco_testing::until;

use super::{Hybrid, number, read_all};
use crate::node::{KEYS, Node, PARTITIONS, PATIENCE, wait_for_state};
use crate::versions::{key, value};

#[test]
fn partitions_that_are_not_held_are_read_from_the_cluster() {
    let (mut hybrid, reader) = Hybrid::with_version("embedded-partial");
    drop(reader);
    hybrid.send([
        ("key-1", Some("event")),
        ("key-2", None),
        ("new-1", Some("n")),
        ("new-2", Some("n")),
    ]);
    let mut options = hybrid.node.options();
    let half: PartitionSet = [0, 3].into_iter().map(PartitionId::new).collect();
    options.partitions = Some((PARTITIONS.try_into().unwrap(), half));
    options.directory = hybrid.node.dir.path().join("half");
    options.fallback = true;
    let mut alone = options.clone();
    let reader = Reader::follow(options).unwrap();
    reader.wait_ready(PATIENCE).unwrap();
    read_all(&reader);
    let keys: Vec<String> = (0..KEYS)
        .map(key)
        .chain(["new-1".into(), "new-2".into(), "none".into()])
        .collect();
    let expected = |at: usize| match &*keys[at] {
        "key-1" => Some("event".to_owned()),
        "new-1" | "new-2" => Some("n".to_owned()),
        "key-2" | "none" => None,
        _ => Some(value(at, 1)),
    };
    // The node reads the topic, too.
    until("all answers", || {
        reader.get("key-2").unwrap().is_none() && reader.get("new-2").unwrap().is_some()
    });
    until("all answers of a batch", || {
        let found = reader.get_many(&keys).unwrap();
        found.get(1) == Some(&b"event"[..]) && found.get(KEYS).is_some() && found.get(2).is_none()
    });
    let found = reader.get_many(&keys).unwrap();
    assert_eq!(found.version(), Some(number(1)));
    for at in (0..keys.len()).step_by(37).chain([1, 2, KEYS, KEYS + 1, KEYS + 2]) {
        let expected = expected(at).map(String::into_bytes);
        assert_eq!(found.get(at).map(<[u8]>::to_vec), expected, "{}", keys[at]);
        assert_eq!(reader.get(&keys[at]).unwrap(), expected, "{}", keys[at]);
    }
    // A caller may be a task of another runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let of_task = runtime.block_on(async { (0..20).map(|at| reader.get(key(at + 10))).collect::<Vec<_>>() });
    for (at, found) in of_task.into_iter().enumerate() {
        assert_eq!(found.unwrap(), Some(value(at + 10, 1).into()));
    }
    hybrid.node.stop();
    let (mut own, mut refused) = (0, 0);
    for at in 10..22 {
        match reader.get(key(at)) {
            Ok(found) => {
                assert_eq!(found, Some(value(at, 1).into()));
                own += 1;
            }
            Err(EmbeddedError::NotAnswered { here, .. }) => {
                assert!(here.to_string().contains("not held"), "{here}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(own > 0 && refused > 0);
    let error = reader.get_many(&keys).unwrap_err().to_string();
    assert!(
        error.contains("not answered here") && error.contains("by the cluster"),
        "{error}"
    );
    drop(reader);
    alone.fallback = false;
    let reader = Reader::follow(alone).unwrap();
    let error = reader.get_many(&keys).unwrap_err();
    assert!(matches!(error, EmbeddedError::Format(_)), "{error}");
}

#[test]
fn the_cluster_answers_while_the_first_version_is_fetched() {
    let node = Node::start();
    node.push(1);
    let mut options = node.options();
    options.rate_limit_bytes_per_second = Some(20_000);
    options.fallback = true;
    let reader = Reader::follow(options.clone()).unwrap();
    assert_eq!(reader.version(), None);
    assert_eq!(reader.get(key(7)).unwrap(), Some(value(7, 1).into()));
    assert_eq!(reader.get("none").unwrap(), None);
    let values = reader.get_many(&[key(1), "none".into(), key(2)]).unwrap();
    assert_eq!(values.version(), Some(number(1)));
    assert_eq!(values.get(2), Some(value(2, 1).as_bytes()));
    assert_eq!(reader.version(), None, "the fetch takes longer");
    let error = reader.snapshot().err().unwrap();
    assert!(matches!(error, EmbeddedError::NoVersion), "{error}");
    assert_eq!(reader.status().state, State::Fetching);
    drop(reader);
    options.fallback = false;
    let reader = Reader::follow(options).unwrap();
    let error = reader.get(key(7)).unwrap_err();
    assert!(matches!(error, EmbeddedError::NoVersion), "{error}");
    drop(reader);

    let mut options = node.options();
    options.fallback = true;
    options.directory = node.dir.path().join("missing");
    node.drop_store();
    node.create("cities", fondaco_model::StoreKind::Batch);
    let reader = Reader::follow(options).unwrap();
    wait_for_state(&reader, State::NoVersion);
    let error = reader.get(key(7)).unwrap_err().to_string();
    assert!(
        error.contains("not answered here") && error.contains("by the cluster"),
        "{error}"
    );
}
