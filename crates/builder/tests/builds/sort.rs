//! Every input record is output once, in any order of input and with any amount of memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::generate::{self, Place, write_binary_rows};
use fondaco_builder::{BuildError, OnDuplicate};
use fondaco_format::{Compression, Version, verify};
use proptest::prelude::*;

pub type Row = (Vec<u8>, Vec<u8>);

/// Rows with many duplicates, and with values from empty to larger than a block.
pub fn rows() -> impl Strategy<Value = Vec<Row>> {
    let key = prop_oneof![
        4 => (0..200u32).prop_map(|n| format!("key{n}").into_bytes()),
        4 => prop::collection::vec(any::<u8>(), 1..40),
        1 => Just(b"hot".to_vec()),
    ];
    let value = prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..300),
        2 => (0..20_000usize, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ];
    prop::collection::vec((key, value), 1..600)
}

fn expected(rows: &[Row], on_duplicate: OnDuplicate) -> Option<HashMap<Vec<u8>, Vec<u8>>> {
    let mut records = HashMap::new();
    for (key, value) in rows {
        match (records.entry(key.clone()), on_duplicate) {
            (Entry::Vacant(vacant), _) => {
                vacant.insert(value.clone());
            }
            (Entry::Occupied(_), OnDuplicate::Fail) => return None,
            (Entry::Occupied(_), OnDuplicate::First) => {}
            (Entry::Occupied(mut occupied), OnDuplicate::Last) => {
                occupied.insert(value.clone());
            }
        }
    }
    Some(records)
}

fn check(version: &Version, expected: &HashMap<Vec<u8>, Vec<u8>>) {
    assert_eq!(version.records(), expected.len() as u64);
    for (key, value) in expected {
        assert_eq!(version.get(key).unwrap().as_deref(), Some(&value[..]), "{key:?}");
    }
    assert!(
        version
            .get(b"a key that no row has, longer than forty bytes")
            .unwrap()
            .is_none()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_version_equals_a_map(
        rows in rows(),
        distinct: bool,
        on_duplicate in prop::sample::select(vec![OnDuplicate::Fail, OnDuplicate::First, OnDuplicate::Last]),
        compression in prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]),
        memory_bytes in (20..23u32).prop_map(|bits| 1 << bits),
        threads in 1..4usize,
        partition_bits in 0..9u32,
        chunk_bytes_target in prop::sample::select(vec![5_000, 200_000, 1 << 30]),
        files in 1..4usize,
    ) {
        let mut rows = rows;
        if distinct {
            let mut seen = std::collections::HashSet::new();
            rows.retain(|(key, _)| seen.insert(key.clone()));
        }
        let place = Place::new();
        write_binary_rows(&place, &rows, files);
        let result = place.build(|options| {
            options.on_duplicate = on_duplicate;
            options.compression = compression;
            options.memory_bytes = memory_bytes;
            options.threads = threads;
            options.partitions = (1 << partition_bits).try_into().unwrap();
            options.chunk_bytes_target = chunk_bytes_target;
        });
        match expected(&rows, on_duplicate) {
            Some(expected) => {
                let report = result.unwrap();
                prop_assert_eq!(report.records, expected.len() as u64);
                prop_assert_eq!(report.rows, rows.len() as u64);
                prop_assert_eq!(report.duplicates, (rows.len() - expected.len()) as u64);
                prop_assert_eq!(report.bytes, expected.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum::<u64>());
                verify(&place.output()).unwrap();
                check(&Version::open(&place.output()).unwrap(), &expected);
            }
            None => {
                let refused = matches!(result, Err(BuildError::Duplicate { .. }));
                prop_assert!(refused);
                prop_assert!(!place.output().exists());
            }
        }
    }
}

/// 40 MiB of records through 1 MiB of memory: every bucket is spilled, and split again.
#[test]
fn an_input_much_larger_than_memory_is_spilled_and_split() {
    let rows: Vec<Row> = (0..40_000u32)
        .map(|n| (format!("key{n}").into_bytes(), format!("{n:>1000}").into_bytes()))
        .collect();
    let place = Place::new();
    write_binary_rows(&place, &rows, 3);
    let report = place.build(|options| options.memory_bytes = 1 << 20).unwrap();
    assert!(report.spilled_bytes > 30 << 20, "{}", report.spilled_bytes);
    check(&Version::open(&place.output()).unwrap(), &rows.into_iter().collect());
}

/// A key with more rows than fit into memory cannot be split; its duplicates are dropped piece by piece.
#[test]
fn one_key_larger_than_memory_is_one_record() {
    for on_duplicate in [OnDuplicate::First, OnDuplicate::Last] {
        let rows: Vec<Row> = (0..20_000u32)
            .map(|n| {
                let key = if n % 10 == 0 {
                    format!("key{n}")
                } else {
                    "hot".to_owned()
                };
                (key.into_bytes(), format!("{n:>1000}").into_bytes())
            })
            .collect();
        let place = Place::new();
        write_binary_rows(&place, &rows, 2);
        let version = place.built(|options| {
            options.memory_bytes = 1 << 20;
            options.on_duplicate = on_duplicate;
        });
        check(&version, &expected(&rows, on_duplicate).unwrap());
    }
}

#[test]
fn values_larger_than_the_memory_are_records_too() {
    let rows: Vec<Row> = (0..6u8)
        .map(|n| (vec![n + 1], vec![n; if n == 3 { 64 << 20 } else { 2 << 20 }]))
        .collect();
    let place = Place::new();
    write_binary_rows(&place, &rows, 1);
    let version = place.built(|options| options.memory_bytes = 1 << 20);
    check(&version, &rows.into_iter().collect());
}

#[test]
fn the_files_do_not_depend_on_threads_and_memory() {
    let rows: Vec<Row> = (0..5000u32)
        .map(|n| (format!("key{}", n / 2).into_bytes(), format!("{n:>300}").into_bytes()))
        .collect();
    let files = |threads, memory_bytes| {
        let place = Place::new();
        write_binary_rows(&place, &rows, 5);
        let version = place.built(|options| {
            options.threads = threads;
            options.memory_bytes = memory_bytes;
            options.compression = Compression::Zstd;
            options.on_duplicate = OnDuplicate::Last;
        });
        let files = version.manifest().files().cloned().collect::<Vec<_>>();
        (files, version.identity())
    };
    let one = files(1, 64 << 20);
    assert_eq!(one.0.len(), 4 * 2 + 1, "four partitions and a dictionary");
    assert_eq!(one, files(4, 1 << 20));
}

#[test]
fn the_index_size_depends_on_keys_not_on_rows() {
    const ROWS: usize = 200_000;
    for keys in [50, 3000, 60_000] {
        let place = Place::new();
        let rows: String = (0..ROWS).map(|row| format!("key{},{row:0100}\n", row % keys)).collect();
        place.write("a.csv", format!("k,v\n{rows}"));
        let version = place.built(|options| options.on_duplicate = OnDuplicate::Last);
        assert_eq!(version.records(), keys as u64);
        for key in 0..keys {
            let last = (ROWS - 1 - key) / keys * keys + key;
            assert_eq!(
                generate::get(&version, &format!("key{key}")),
                Some(format!("{last:0100}"))
            );
        }
        assert_eq!(generate::get(&version, "none"), None);
        let index_bytes: u64 = version.manifest().chunks.iter().map(|chunk| chunk.index.bytes).sum();
        // Four bytes per key, at most doubled, and two blocks of 4 KiB in each of the four chunks.
        let most = 2 * 4 * keys as u64 + 4 * 8192;
        assert!(index_bytes <= most, "{index_bytes} bytes for {keys} keys");
        verify(&place.output()).unwrap();
    }
}

#[test]
fn the_number_of_chunks_follows_from_all_rows_also_from_dropped_ones() {
    const ROWS: usize = 40_000;
    for keys in [50, 10_000, ROWS] {
        let files = |on_duplicate, threads, memory_bytes| {
            let place = Place::new();
            let rows: String = (0..ROWS).map(|row| format!("key{},{row:0100}\n", row % keys)).collect();
            place.write("a.csv", format!("k,v\n{rows}"));
            let version = place.built(|options| {
                options.on_duplicate = on_duplicate;
                options.partitions = 1.try_into().unwrap();
                options.chunk_bytes_target = 500_000;
                options.threads = threads;
                options.memory_bytes = memory_bytes;
            });
            assert_eq!(version.records(), keys as u64);
            for key in (0..keys).step_by(keys / 50) {
                let last = (ROWS - 1 - key) / keys * keys + key;
                let row = if on_duplicate == OnDuplicate::First { key } else { last };
                let value = generate::get(&version, &format!("key{key}"));
                assert_eq!(value, Some(format!("{row:0100}")));
            }
            verify(&place.output()).unwrap();
            version.manifest().files().cloned().collect::<Vec<_>>()
        };
        let in_memory = files(OnDuplicate::Last, 1, 64 << 20);
        assert_eq!(in_memory.len(), 2 * 16, "{keys} keys");
        assert_eq!(in_memory, files(OnDuplicate::Last, 3, 1 << 20), "{keys} keys");
        assert_eq!(files(OnDuplicate::First, 2, 4 << 20).len(), 2 * 16, "{keys} keys");
    }
}
