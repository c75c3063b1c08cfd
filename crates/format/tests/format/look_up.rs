//! A version answers exactly with the records that were written.

use std::collections::BTreeMap;

use crate::written::{Shape, write};
use fondaco_format::{Compression, Lookup, ScanPosition, Version, verify};
use proptest::prelude::*;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn records() -> impl Strategy<Value = Records> {
    let bytes = |length| prop::collection::vec(any::<u8>(), length);
    let value = prop_oneof![
        8 => bytes(0..200),
        2 => (any::<u8>(), 1000..20_000usize).prop_map(|(byte, length)| vec![byte; length]),
        1 => (any::<u8>(), 100_000..300_000usize).prop_map(|(byte, length)| vec![byte; length]),
    ];
    prop::collection::btree_map(bytes(1..40), value, 0..300)
}

fn shape() -> impl Strategy<Value = Shape> {
    let compression = prop_oneof![Just(Compression::None), Just(Compression::Lz4), Just(Compression::Zstd)];
    (0..5u32, 1..5u32, compression).prop_map(|(bits, chunks, compression)| Shape {
        partitions: 1 << bits,
        chunks,
        compression,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_key_is_found_and_no_other(records in records(), shape in shape(), others in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..5), 50)) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &records, &shape);
        let version = Version::open(dir.path()).unwrap();
        for round in 0..2 {
            for (key, value) in &records {
                let found = version.get(key).unwrap();
                prop_assert_eq!(found.as_deref(), Some(&value[..]), "round {}", round);
            }
            for other in &others {
                let found = version.get(other).unwrap();
                prop_assert_eq!(found.as_deref(), records.get(other).map(|v| &v[..]));
            }
        }
        let report = verify(dir.path()).unwrap();
        prop_assert_eq!(report.records, records.len() as u64);
    }

    #[test]
    fn a_batch_of_any_length_gets_an_answer_for_each_key(records in records(), shape in shape(), others in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..5), 50)) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &records, &shape);
        let version = Version::open(dir.path()).unwrap();
        let keys: Vec<&Vec<u8>> = records.keys().chain(&others).collect();
        for is_warm in [false, true] {
            if is_warm {
                version.warm().unwrap();
            }
            // Around the ends of groups of keys.
            for length in [0, 1, 15, 16, 17, 31, 32, 33, 50, keys.len()] {
                let keys = &keys[keys.len() - length..];
                let mut answers = vec![Vec::new(); keys.len()];
                version.get_many(keys, |at, found| answers[at].push(found.unwrap().map(|value| value.to_vec())));
                for (key, answers) in keys.iter().zip(&answers) {
                    prop_assert_eq!(&answers[..], &[records.get(*key).cloned()]);
                }
            }
        }
    }

    #[test]
    fn a_scan_across_versions_returns_every_record_once(records in records(), (one, other) in (shape(), shape())) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &records, &one);
        let version = Version::open(dir.path()).unwrap();
        let scanned: Vec<_> = version.scan().map(|r| r.unwrap()).collect();
        prop_assert_eq!(scanned.len(), records.len());
        prop_assert_eq!(scanned.into_iter().collect::<Records>(), records.clone());

        // The same partitions with other chunks: every position is valid in both versions.
        let second = tempfile::tempdir().unwrap();
        write(second.path(), &records, &Shape { partitions: one.partitions, ..other });
        let newer = Version::open(second.path()).unwrap();
        let (mut met, mut position, mut turn) = (Records::new(), Some(ScanPosition::START), 0);
        while let Some(from) = position {
            turn += 1;
            let (some, next) = if turn % 2 == 0 { &version } else { &newer }.scan_from(from, 10).unwrap();
            met.extend(some);
            prop_assert!(next.is_none_or(|next| next > from), "a scan moves on");
            position = next;
        }
        prop_assert_eq!(met, records);
    }
}

#[test]
fn recently_read_data_is_served_without_disk_reads() {
    let dir = tempfile::tempdir().unwrap();
    let records: Records = (0..1000u32)
        .map(|i| (i.to_string().into_bytes(), vec![i as u8; 100]))
        .collect();
    let shape = Shape {
        partitions: 4,
        chunks: 2,
        compression: Compression::None,
    };
    write(dir.path(), &records, &shape);
    let version = Version::open(dir.path()).unwrap();
    version.warm().unwrap();
    for (key, value) in &records {
        version.get(key).unwrap();
        match version.lookup(&version.probe(key), key).unwrap() {
            Lookup::Found(found) => assert_eq!(&found[..], &value[..]),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_empty_version_has_no_records() {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape {
        partitions: 8,
        chunks: 1,
        compression: Compression::None,
    };
    write(dir.path(), &Records::new(), &shape);
    let version = Version::open(dir.path()).unwrap();
    assert!(version.get(b"anything").unwrap().is_none());
    assert_eq!(version.scan().count(), 0);
}

#[test]
fn the_largest_key_and_the_largest_value_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let key = vec![b'k'; fondaco_model::KEY_BYTES_MAX];
    let value = vec![b'v'; fondaco_model::VALUE_BYTES_MAX];
    let mut records: Records = (0..50u8).map(|i| (vec![i], vec![i; 10])).collect();
    records.insert(key.clone(), value.clone());
    let shape = Shape {
        partitions: 1,
        chunks: 1,
        compression: Compression::None,
    };
    write(dir.path(), &records, &shape);
    let version = Version::open(dir.path()).unwrap();
    assert!(version.get(&key).unwrap().is_some_and(|found| found[..] == value[..]));
    for i in 0..50u8 {
        assert_eq!(version.get(&[i]).unwrap().as_deref(), Some(&[i; 10][..]));
    }
    assert!(version.get(b"absent").unwrap().is_none());
}

#[test]
fn a_directory_without_a_manifest_is_not_a_version() {
    let dir = tempfile::tempdir().unwrap();
    let error = Version::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("no manifest"), "{error}");
}
