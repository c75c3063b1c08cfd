//! A version that is built from an earlier one and a difference is the one that a build of all records makes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::generate::{Place, get, write_binary_rows};
use fondaco_builder::{
    BuildError, BuildOptions, IncrementOptions, IncrementReport, OnDuplicate, Progress, ValueSelection, build_increment,
};
use fondaco_format::{Compression, MANIFEST_FILE, Manifest, Patch, Version, key_hash, verify};
use proptest::prelude::*;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A version of these records.
fn full(records: &Records, change: impl FnOnce(&mut BuildOptions)) -> Place {
    let place = Place::new();
    let rows: Vec<_> = records.clone().into_iter().collect();
    write_binary_rows(&place, &rows, 2);
    if rows.is_empty() {
        fs::write(place.input("none.csv"), "k,v\n").unwrap();
    }
    place
        .build(|options| {
            options.allow_empty = true;
            change(options);
        })
        .unwrap();
    place
}

/// Where a difference is, and its version.
struct Difference {
    set: Place,
    delete: Place,
}

impl Difference {
    fn new(set: &[(Vec<u8>, Vec<u8>)], delete: &[Vec<u8>]) -> Self {
        let difference = Self {
            set: Place::new(),
            delete: Place::new(),
        };
        write_binary_rows(&difference.set, set, 2);
        let delete: Vec<_> = delete.iter().map(|key| (key.clone(), b"".to_vec())).collect();
        write_binary_rows(&difference.delete, &delete, 1);
        difference
    }

    fn options(&self, base: &Path) -> IncrementOptions {
        let inputs = |place: &Place| match fs::read_dir(place.input("")).unwrap().count() {
            0 => vec![],
            _ => place.options().inputs,
        };
        IncrementOptions {
            build: BuildOptions {
                inputs: inputs(&self.set),
                allow_empty: true,
                ..self.set.options()
            },
            base: base.to_owned(),
            deletes: inputs(&self.delete),
            has_final_values: false,
        }
    }

    fn build(&self, base: &Path, change: impl FnOnce(&mut BuildOptions)) -> Result<IncrementReport, BuildError> {
        let mut options = self.options(base);
        change(&mut options.build);
        build_increment(&options, &Progress::new())
    }

    fn output(&self) -> PathBuf {
        self.set.output()
    }
}

/// The names of the files of a directory, except manifest and patches, and their contents.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named
        .filter(|(name, _)| name != MANIFEST_FILE && !name.ends_with(".patch"))
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect()
}

/// Each patch makes its chunk from that of the base.
fn check_patches(base: &Path, made: &Path) {
    let manifest = Manifest::read(made).unwrap();
    for patch in &manifest.patches {
        let path = made.join(&patch.patch.name);
        let opened = Patch::open(&path, File::open(&path).unwrap()).unwrap();
        assert_eq!(opened.base, patch.base.checksum);
        let mut writer = opened.begin(Vec::new());
        let mut old = File::open(base.join(&patch.base.name)).unwrap();
        opened.apply((base, &mut old), &mut writer).unwrap();
        let (entry, data, index) = writer.finish(Vec::new()).unwrap();
        let place = (entry.partition, entry.chunk);
        let expected = manifest
            .chunks
            .iter()
            .find(|chunk| (chunk.partition, chunk.chunk) == place);
        assert_eq!(Some(&entry), expected);
        assert!(data == fs::read(made.join(&entry.data.name)).unwrap());
        assert!(index == fs::read(made.join(&entry.index.name)).unwrap());
    }
}

fn rows(range: std::ops::Range<u32>, end: &str) -> Records {
    let value = |n: u32| format!("{n} {} {end}", "x".repeat(200 + n as usize % 7));
    range
        .map(|n| (format!("key{n}").into_bytes(), value(n).into_bytes()))
        .collect()
}

fn bytes(length: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), length)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn an_incremental_build_equals_a_full_build(
        old in prop::collection::btree_map(bytes(1..3), bytes(0..300), 0..400),
        set in prop::collection::btree_map(bytes(1..3), bytes(0..300), 0..60),
        delete in prop::collection::btree_set(bytes(1..3), 0..60),
        compression in prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]),
        memory_bytes in (20..23u32).prop_map(|bits| 1 << bits),
        threads in 1..4usize,
        partition_bits in 0..9u32,
        chunk_bytes_target in prop::sample::select(vec![5_000, 1 << 30]),
    ) {
        let change = |options: &mut BuildOptions| {
            options.compression = compression;
            options.memory_bytes = memory_bytes;
            options.threads = threads;
            options.partitions = (1 << partition_bits).try_into().unwrap();
            options.chunk_bytes_target = chunk_bytes_target;
        };
        let delete: Vec<_> = delete.into_iter().filter(|key| !set.contains_key(key)).collect();
        let mut new = old.clone();
        new.extend(set.clone());
        let absent = delete.iter().filter(|key| new.remove(*key).is_none()).count() as u64;
        let (base, all) = (full(&old, change), full(&new, change));
        let set: Vec<_> = set.into_iter().collect();
        let difference = Difference::new(&set, &delete);
        let report = difference.build(&base.output(), change).unwrap();

        prop_assert_eq!(report.build.records, new.len() as u64);
        prop_assert_eq!((report.deleted, report.absent), (delete.len() as u64 - absent, absent));
        prop_assert_eq!(verify(&difference.output()).unwrap().records, new.len() as u64);
        check_patches(&base.output(), &difference.output());
        let version = Version::open(&difference.output()).unwrap();
        let found: Result<Records, _> = version.scan().collect();
        prop_assert!(found.unwrap() == new);
        let [made, expected] = [difference.output(), all.output()].map(|dir| Manifest::read(&dir).unwrap());
        let (old, identity) = Manifest::read_identified(&base.output()).unwrap();
        prop_assert_eq!(made.base, Some(identity));
        // A dictionary and numbers of chunks stay; those of all records may be others.
        let counts = |manifest: &Manifest| -> Vec<_> {
            manifest.chunks.iter().map(|chunk| (chunk.partition, chunk.chunk)).collect()
        };
        if counts(&made) == counts(&expected) && made.dictionary == expected.dictionary {
            prop_assert!(files(&difference.output()) == files(&all.output()));
            let (built, patches) = (made.built.clone(), made.patches.clone());
            // The types of columns stay, too; those of no records are others.
            prop_assert_eq!(Manifest { base: made.base, schema: old.schema, built, patches, ..expected }, made);
        }
    }
}

#[test]
fn a_dictionary_is_kept_and_all_files_are_equal() {
    // The sample for the dictionary has the values with the lowest hashes, and the difference changes others.
    let value = |n: u32, end: &str| format!("{n} {} {end}", format!("{:x}", n.wrapping_mul(2654435761)).repeat(50));
    let records = |end: &str| -> Records {
        let is_changed = |key: &str| key_hash(key.as_bytes()) > u64::MAX / 100 * 96;
        (0..22_000)
            .map(|n| (format!("key{n}"), n))
            .map(|(key, n)| {
                (
                    value(n, if is_changed(&key) { end } else { "" }).into_bytes(),
                    key.into_bytes(),
                )
            })
            .map(|(value, key)| (key, value))
            .collect()
    };
    let change = |options: &mut BuildOptions| {
        options.compression = Compression::Zstd;
        options.chunk_bytes_target = 1 << 20;
    };
    let (old, mut new) = (records(""), records("changed"));
    let gone = new
        .keys()
        .find(|key| key_hash(key) > u64::MAX / 100 * 98)
        .unwrap()
        .clone();
    new.remove(&gone);
    let set = new.iter().filter(|(key, value)| old[*key] != **value);
    let set: Vec<_> = set.map(|(key, value)| (key.clone(), value.clone())).collect();
    assert!((500..1500).contains(&set.len()), "{}", set.len());
    let (base, all) = (full(&old, change), full(&new, change));
    let difference = Difference::new(&set, &[gone]);
    let report = difference.build(&base.output(), change).unwrap();
    let manifest = Manifest::read(&difference.output()).unwrap();
    assert!(manifest.dictionary.is_some() && manifest.chunks.len() >= 16);
    assert!(files(&difference.output()) == files(&all.output()));
    check_patches(&base.output(), &difference.output());
    assert!(report.patch_bytes > 0 && report.changed_chunks < manifest.chunks.len() as u64);
}

#[test]
fn a_difference_without_effect_changes_no_file() {
    let old = rows(0..500, "");
    let base = full(&old, |_| ());
    let some: Vec<_> = old.clone().into_iter().take(20).collect();
    for (set, delete) in [(&some[..], vec![]), (&[], vec![b"other".to_vec()]), (&[], vec![])] {
        let difference = Difference::new(set, &delete);
        let report = difference.build(&base.output(), |_| ()).unwrap();
        assert_eq!((report.changed_chunks, report.patch_bytes), (0, 0));
        assert_eq!((report.deleted, report.absent), (0, delete.len() as u64));
        assert!(files(&difference.output()) == files(&base.output()));
    }
}

#[test]
fn duplicates_in_a_difference_follow_the_rule_of_builds() {
    let base = full(&rows(0..10, ""), |_| ());
    let row = |value: &str| (b"key3".to_vec(), value.as_bytes().to_vec());
    let twice = Difference::new(&[row("one"), row("two")], &[]);
    let both = Difference::new(&[row("one")], &[b"key3".to_vec()]);
    for difference in [&twice, &both] {
        let error = difference.build(&base.output(), |_| ()).unwrap_err();
        assert!(matches!(error, BuildError::Duplicate { .. }), "{error}");
        assert!(!difference.output().exists());
    }
    let build = |difference: &Difference, rule| {
        let report = difference
            .build(&base.output(), |options| options.on_duplicate = rule)
            .unwrap();
        assert_eq!(report.build.duplicates, 1);
        let value = get(&Version::open(&difference.output()).unwrap(), "key3");
        fs::remove_dir_all(difference.output()).unwrap();
        value
    };
    assert_eq!(build(&twice, OnDuplicate::First).as_deref(), Some("one"));
    assert_eq!(build(&twice, OnDuplicate::Last).as_deref(), Some("two"));
    assert_eq!(build(&both, OnDuplicate::First).as_deref(), Some("one"));
    assert_eq!(build(&both, OnDuplicate::Last), None);
}

#[test]
fn the_cut_of_the_base_stays_unless_another_one_is_said() {
    let base = full(&rows(0..100, ""), |options| options.cut_unix_ms = Some(5));
    let difference = Difference::new(&[(b"key1".to_vec(), b"x".to_vec())], &[]);
    for (said, expected) in [(None, 5), (Some(7), 7)] {
        difference
            .build(&base.output(), |options| options.cut_unix_ms = said)
            .unwrap();
        assert_eq!(
            Manifest::read(&difference.output()).unwrap().cut_unix_ms,
            Some(expected)
        );
        fs::remove_dir_all(difference.output()).unwrap();
    }
    let error = difference.build(&base.output(), |options| options.cut_unix_ms = Some(u64::MAX));
    assert!(error.unwrap_err().to_string().contains("cut"));
}

#[test]
fn a_version_that_cannot_be_changed_is_refused_by_name() {
    let base = full(&rows(0..100, ""), |_| ());
    let difference = Difference::new(&[(b"key1".to_vec(), b"x".to_vec())], &[]);
    let refused = |base: &Path, change: &dyn Fn(&mut BuildOptions), expected: &str| {
        let error = difference.build(base, change).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!difference.output().exists());
    };
    refused(&base.output().join("missing"), &|_| (), "no manifest");
    refused(
        &base.output(),
        &|options| options.store = "other".parse().unwrap(),
        "it was built for store \"pymk\"",
    );
    let as_json = |options: &mut BuildOptions| options.value = ValueSelection::AllOthers;
    refused(
        &base.output(),
        &as_json,
        "values were the content of one column, and are JSON objects",
    );
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/tests/version-1");
    refused(
        &old,
        &|options| options.store = "pymk".parse().unwrap(),
        "format version 1",
    );

    let manifest = Manifest::read(&base.output()).unwrap();
    let data = base.output().join(&manifest.chunks[0].data.name);
    let intact = fs::read(&data).unwrap();
    let all: Vec<_> = rows(0..100, "new").into_iter().collect();
    let everywhere = Difference::new(&all, &[]);
    for (damaged, expected) in [
        ([&intact[..], b"x"].concat(), "bytes, but its manifest says"),
        ([&intact[..90], &[intact[90] ^ 1], &intact[91..]].concat(), "corrupt"),
    ] {
        fs::write(&data, damaged).unwrap();
        let error = everywhere.build(&base.output(), |_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!everywhere.output().exists());
    }
    fs::remove_file(&data).unwrap();
    refused(&base.output(), &|_| (), "has 0 bytes");
}

#[test]
fn a_dry_run_counts_and_writes_nothing() {
    let base = full(&rows(0..100, ""), |_| ());
    let difference = Difference::new(&[(b"new".to_vec(), b"x".to_vec())], &[b"key1".to_vec(), b"no".to_vec()]);
    let report = difference
        .build(&base.output(), |options| options.dry_run = true)
        .unwrap();
    assert_eq!((report.build.records, report.deleted, report.absent), (100, 1, 1));
    assert!(!difference.output().exists());
}
