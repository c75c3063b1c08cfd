//! The differences between two versions are those of their records, whatever the numbers of chunks, and continue at any position.

use std::collections::BTreeMap;

use fondaco_format::{Comparison, Compression, FormatError, Version};
use proptest::prelude::*;

use crate::written::{Shape, write};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;
type Differences = BTreeMap<Vec<u8>, (Option<Vec<u8>>, Option<Vec<u8>>)>;

fn written(records: &Records, partitions: u32, chunks: u32) -> (tempfile::TempDir, Version) {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape {
        partitions,
        chunks,
        compression: Compression::None,
    };
    write(dir.path(), records, &shape);
    let version = Version::open(dir.path()).unwrap();
    (dir, version)
}

/// All differences; begins anew after each step if it `restarts`.
fn differences(before: &Version, after: &Version, restarts: bool) -> Result<Differences, FormatError> {
    let mut all = Differences::new();
    for partition in after.manifest().partitions.partitions() {
        let mut comparison = Comparison::new(before, after, partition, 0, false)?;
        while let Some(found) = comparison.step()? {
            for one in found {
                assert!(
                    all.insert(one.key, (one.before, one.after)).is_none(),
                    "a key was found twice"
                );
            }
            if restarts {
                let Some(next) = comparison.position() else { break };
                comparison = Comparison::new(before, after, partition, next, false)?;
            }
        }
    }
    Ok(all)
}

fn expected(before: &Records, after: &Records) -> Differences {
    let keys = before.keys().chain(after.keys());
    let both = keys.map(|key| (key.clone(), (before.get(key).cloned(), after.get(key).cloned())));
    both.filter(|(_, (before, after))| before != after).collect()
}

fn records() -> impl Strategy<Value = Records> {
    let key = (0..300u32).prop_map(|key| key.to_string().into_bytes());
    prop::collection::btree_map(key, prop::collection::vec(0..3u8, 0..4), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn all_differences_are_found_once(before in records(), after in records(), chunks in (1..4u32, 1..4u32)) {
        let (_one, old) = written(&before, 2, chunks.0);
        let (_other, new) = written(&after, 2, chunks.1);
        prop_assert_eq!(differences(&old, &new, false).unwrap(), expected(&before, &after));
        prop_assert_eq!(differences(&old, &new, true).unwrap(), expected(&before, &after));
    }
}

#[test]
fn long_versions_are_compared_in_steps() {
    let record = |n: u32| (n.to_string().into_bytes(), vec![(n % 7) as u8; 500]);
    let before: Records = (0..20_000).map(record).collect();
    let mut after: Records = (5_000..25_000).map(record).collect();
    after.insert(b"7777".to_vec(), b"another".to_vec());
    let (_one, old) = written(&before, 1, 3);
    let (_other, new) = written(&after, 1, 3);
    let found = differences(&old, &new, true).unwrap();
    assert_eq!(found.len(), 10_001);
    assert!(found == expected(&before, &after));
}

#[test]
fn equal_chunks_are_not_read() {
    let record = |n: u32| (n.to_string().into_bytes(), vec![7; 1000]);
    let records: Records = (0..1000).map(record).collect();
    let (_one, old) = written(&records, 2, 2);
    let (other, new) = written(&records, 2, 2);
    // Records that cannot be read do not matter.
    for entry in std::fs::read_dir(other.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "data") {
            let length = std::fs::metadata(&path).unwrap().len();
            std::fs::write(&path, vec![0xff; length as usize]).unwrap();
        }
    }
    assert!(differences(&old, &new, false).unwrap().is_empty());
}

#[test]
fn versions_of_other_partitions_are_refused() {
    let records: Records = [(b"a".to_vec(), b"b".to_vec())].into();
    let (_one, old) = written(&records, 1, 1);
    let (_other, new) = written(&records, 2, 1);
    let error = differences(&old, &new, false).unwrap_err().to_string();
    assert!(
        error.contains("partitions: 1") && error.contains("partitions: 2"),
        "{error}"
    );
}

#[test]
fn equal_keys_are_found_if_they_are_asked_for() {
    let records: Records = (0..500u32).map(|key| (key.to_string().into_bytes(), vec![7])).collect();
    let ((_old, old), (_new, new)) = (written(&records, 2, 2), written(&records, 2, 2));
    let mut found = Records::new();
    for partition in new.manifest().partitions.partitions() {
        let mut comparison = Comparison::new(&old, &new, partition, 0, true).unwrap();
        while let Some(some) = comparison.step().unwrap() {
            for one in some {
                assert_eq!(one.before, one.after);
                found.insert(one.key, one.after.unwrap());
            }
        }
    }
    assert_eq!(found, records);
}
