//! A directory that holds only some partitions of its version: these are served, and keys of the others are never
//! reported absent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::written::{Shape, write};
use fondaco_format::{Compression, FileDefect, FormatError, MANIFEST_FILE, Manifest, ScanPosition, Version, verify};
use fondaco_model::{PartitionId, PartitionSet, slot_of_key};
use proptest::prelude::*;
use tempfile::TempDir;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn records(count: u32) -> Records {
    (0..count)
        .map(|i| (i.to_string().into_bytes(), format!("value {i}").into_bytes()))
        .collect()
}

/// A complete version, and a directory with its manifest and the files of some partitions.
struct Parts {
    whole: TempDir,
    part: TempDir,
    manifest: Manifest,
}

impl Parts {
    fn new(records: &Records, shape: &Shape) -> Self {
        let (whole, part) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(whole.path(), records, shape);
        let manifest = Manifest::read(whole.path()).unwrap();
        let parts = Self { whole, part, manifest };
        parts.copy(MANIFEST_FILE);
        if let Some(dictionary) = &parts.manifest.dictionary {
            parts.copy(&dictionary.name);
        }
        parts
    }

    fn dir(&self) -> &Path {
        self.part.path()
    }

    fn copy(&self, name: &str) -> PathBuf {
        let to = self.dir().join(name);
        fs::copy(self.whole.path().join(name), &to).unwrap();
        to
    }

    fn add(&self, partitions: &PartitionSet) {
        for chunk in self.manifest.chunks_of(partitions) {
            self.copy(&chunk.data.name);
            self.copy(&chunk.index.name);
        }
    }

    fn partition_of(&self, key: &[u8]) -> PartitionId {
        let slot = slot_of_key(&self.manifest.store, key);
        self.manifest.partitions.partition_of(slot)
    }

    /// The partitions without records, which every directory holds.
    fn empty(&self) -> PartitionSet {
        let used: PartitionSet = self.manifest.chunks.iter().map(|chunk| chunk.partition).collect();
        let all = self.manifest.partitions.partitions();
        all.filter(|partition| !used.contains(*partition)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn only_held_partitions_are_served(
        count in 0..400u32, bits in 0..5u32, chunks in 1..4u32,
        compression in prop_oneof![Just(Compression::None), Just(Compression::Zstd)],
        chosen in prop::collection::vec(any::<bool>(), 16),
    ) {
        let records = records(count);
        let shape = Shape { partitions: 1 << bits, chunks, compression };
        let parts = Parts::new(&records, &shape);
        let chosen: PartitionSet = (0..1 << bits).filter(|&p| chosen[p as usize]).map(PartitionId::new).collect();
        parts.add(&chosen);
        let held: PartitionSet = chosen.with(&parts.empty());
        let expected: Records = records.clone().into_iter().filter(|(key, _)| held.contains(parts.partition_of(key))).collect();

        for warm in [false, true] {
            let version = Version::open(parts.dir()).unwrap();
            if warm {
                version.warm().unwrap();
            }
            prop_assert_eq!(version.held().collect::<PartitionSet>(), held.clone());
            for (key, value) in &records {
                let is_held = held.contains(parts.partition_of(key));
                prop_assert_eq!(version.probe(key).is_held(), is_held);
                match version.get(key) {
                    Ok(found) => prop_assert!(is_held && found.as_deref() == Some(&value[..])),
                    Err(FormatError::NotHeld { partition }) => {
                        prop_assert!(!is_held && partition == parts.partition_of(key));
                    }
                    Err(error) => prop_assert!(false, "{error}"),
                }
            }
            let keys: Vec<_> = records.keys().collect();
            let mut answers = 0;
            version.get_many(&keys, |at, answer| {
                answers += 1;
                assert_eq!(answer.is_ok(), held.contains(parts.partition_of(keys[at])));
            });
            prop_assert_eq!(answers, keys.len());
            let scanned: Records = version.scan().map(Result::unwrap).collect();
            prop_assert_eq!(&scanned, &expected);
            prop_assert_eq!(version.records(), expected.len() as u64);
        }
        let report = verify(parts.dir()).unwrap();
        prop_assert_eq!(report.records, expected.len() as u64);
        let all: PartitionSet = parts.manifest.partitions.partitions().collect();
        prop_assert_eq!(report.not_held, all.without(&held).iter().collect::<Vec<_>>());
    }
}

fn four_partitions() -> Parts {
    let shape = Shape {
        partitions: 4,
        chunks: 2,
        compression: Compression::None,
    };
    Parts::new(&records(400), &shape)
}

fn ids(numbers: &[u32]) -> PartitionSet {
    numbers.iter().copied().map(PartitionId::new).collect()
}

#[test]
fn partitions_added_later_are_found_on_reopening() {
    let parts = four_partitions();
    parts.add(&ids(&[1]));
    let before = Version::open(parts.dir()).unwrap();
    parts.add(&ids(&[3]));
    assert_eq!(before.held().collect::<PartitionSet>(), ids(&[1]));
    let after = Version::open(parts.dir()).unwrap();
    assert_eq!(after.held().collect::<PartitionSet>(), ids(&[1, 3]));
    assert_eq!(after.not_held().collect::<PartitionSet>(), ids(&[0, 2]));
}

#[test]
fn a_partition_with_a_missing_file_is_not_held() {
    let parts = four_partitions();
    parts.add(&ids(&[0, 1, 2, 3]));
    let lacking = parts
        .manifest
        .chunks
        .iter()
        .rfind(|chunk| chunk.partition == PartitionId::new(2))
        .unwrap();
    let path = parts.dir().join(&lacking.index.name);
    fs::remove_file(&path).unwrap();
    let version = Version::open(parts.dir()).unwrap();
    assert_eq!(version.held().collect::<PartitionSet>(), ids(&[0, 1, 3]));
    assert!(!version.holds(PartitionId::new(2)) && !version.holds(PartitionId::new(4)));

    assert!(Version::open_required(parts.dir(), ids(&[0, 1, 3]).iter()).is_ok());
    let error = Version::open_required(parts.dir(), ids(&[1, 2]).iter()).err().unwrap();
    let FormatError::MissingFile {
        partition,
        path: named,
        defect,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(
        (partition, named, defect),
        (PartitionId::new(2), path, FileDefect::Absent)
    );
    let error = Version::open_required(parts.dir(), ids(&[4]).iter()).err().unwrap();
    assert!(matches!(error, FormatError::NoPartition { .. }), "{error}");
}

#[test]
fn a_directory_with_only_a_manifest_holds_no_partition() {
    let parts = four_partitions();
    let version = Version::open(parts.dir()).unwrap();
    assert_eq!(version.held().count(), 0);
    assert!(matches!(version.get(b"1"), Err(FormatError::NotHeld { .. })));
    assert_eq!(version.scan_from(ScanPosition::START, 10).unwrap(), (vec![], None));
    assert_eq!(
        (version.records(), version.index_bytes(), version.files_bytes()),
        (0, 0, 0)
    );
}
