//! The common properties and the differences of the two formats, and files that readers do not open.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::files::{add_further, version_1};
use crate::written::{Shape, write};
use fondaco_format::{
    Built, Checksum, Compression, FORMAT_VERSION, FormatError, MANIFEST_FILE, Manifest, Version, is_version_file,
    verify,
};
use fondaco_model::PartitionId;

fn records(changed: Option<u32>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    (0..400u32)
        .map(|i| {
            let value = if changed == Some(i) {
                "changed".to_owned()
            } else {
                format!("value {i}")
            };
            (i.to_string().into_bytes(), value.into_bytes())
        })
        .collect()
}

fn new_version(compression: Compression) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape {
        partitions: 4,
        chunks: 2,
        compression,
    };
    write(dir.path(), &records(None), &shape);
    dir
}

/// The format version in the header of a data or index file.
fn format_in_header(path: &Path) -> u32 {
    let bytes = fs::read(path).unwrap();
    u32::from_le_bytes(bytes[8..12].try_into().unwrap())
}

#[test]
fn a_version_of_the_previous_format_is_read_and_verified() {
    let dir = version_1();
    let manifest = Manifest::read(&dir).unwrap();
    assert_eq!((manifest.format_version, manifest.records), (1, 500));
    assert_eq!(manifest.chunks[1].index.name, "p00001-c0000.index");
    assert_eq!(manifest.built.built_by, "fondaco-build 0.1.0");
    assert!(manifest.built.created_unix_ms > 1_700_000_000_000);
    assert_eq!(verify(&dir).unwrap().records, 500);
    for file in manifest.files() {
        assert!(is_version_file(&file.name), "{}", file.name);
        assert_eq!(format_in_header(&dir.join(&file.name)), 1);
    }
    let version = Version::open(&dir).unwrap();
    for number in 0..500 {
        let found = version.get(format!("member-{number}").as_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(format!("1:{number}:").as_bytes()));
    }
    assert!(version.get(b"member-500").unwrap().is_none());
}

#[test]
fn a_version_1_manifest_is_identified_by_its_whole_file() {
    let bytes = fs::read(version_1().join(MANIFEST_FILE)).unwrap();
    assert_eq!(Manifest::identity(&bytes).unwrap(), Checksum::of(&bytes));
    assert_eq!(Version::open(&version_1()).unwrap().identity(), Checksum::of(&bytes));
}

#[test]
fn any_flipped_bit_of_a_version_1_manifest_is_harmless() {
    let bytes = fs::read(version_1().join(MANIFEST_FILE)).unwrap();
    let manifest = Manifest::from_bytes(&bytes).unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            if let Ok(read) = Manifest::from_bytes(&flipped) {
                assert_eq!(read, manifest, "byte {at} bit {bit}");
            }
        }
    }
}

#[test]
fn every_written_file_has_the_new_format_version() {
    let dir = new_version(Compression::None);
    let manifest = Manifest::read(dir.path()).unwrap();
    assert_eq!((manifest.format_version, FORMAT_VERSION), (2, 2));
    for file in manifest.files() {
        assert_eq!(format_in_header(&dir.path().join(&file.name)), 2);
    }
}

#[test]
fn file_names_contain_the_checksums_of_the_files() {
    let dir = new_version(Compression::Zstd);
    let manifest = Manifest::read(dir.path()).unwrap();
    assert!(manifest.dictionary.is_some());
    for file in manifest.files() {
        let found = Checksum::of(&fs::read(dir.path().join(&file.name)).unwrap());
        assert_eq!(found, file.checksum);
        assert!(
            file.name.contains(&found.to_string()) && is_version_file(&file.name),
            "{}",
            file.name
        );
    }
}

#[test]
fn equal_chunks_have_files_of_the_same_name() {
    let (one, other) = (new_version(Compression::None), tempfile::tempdir().unwrap());
    let shape = Shape {
        partitions: 4,
        chunks: 2,
        compression: Compression::None,
    };
    write(other.path(), &records(Some(7)), &shape);
    let names = |dir: &Path| -> Vec<String> {
        let manifest = Manifest::read(dir).unwrap();
        manifest.files().map(|file| file.name.clone()).collect()
    };
    let (one, other) = (names(one.path()), names(other.path()));
    let same = one.iter().filter(|name| other.contains(name)).count();
    // The changed value has the same length, so only the data file of its chunk differs.
    assert_eq!((one.len(), same), (16, 15));
}

#[test]
fn builds_of_the_same_records_differ_only_in_built() {
    let (one, other) = (new_version(Compression::Zstd), new_version(Compression::Zstd));
    let mut manifest = Manifest::read(other.path()).unwrap();
    manifest.built = Built {
        created_unix_ms: 7,
        built_by: "another".into(),
    };
    fs::write(other.path().join(MANIFEST_FILE), manifest.to_bytes()).unwrap();
    let of = |dir: &Path| Manifest::read_identified(dir).unwrap();
    let ((first, first_identity), (second, second_identity)) = (of(one.path()), of(other.path()));
    assert_eq!(first_identity, second_identity);
    assert_ne!(first, second);
    assert_eq!(
        Manifest {
            built: second.built.clone(),
            ..first
        },
        second
    );
}

#[test]
fn a_further_file_belongs_to_its_partition_and_stays_closed() {
    let dir = new_version(Compression::None);
    let bytes_before = Version::open(dir.path()).unwrap().files_bytes();
    add_further(dir.path(), "kind-of-tomorrow");
    let manifest = Manifest::read(dir.path()).unwrap();
    let further: u64 = manifest.chunks.iter().map(|chunk| chunk.further[0].file.bytes).sum();
    assert_eq!(manifest.files().count(), 24);
    let version = Version::open(dir.path()).unwrap();
    assert_eq!(version.held().count(), 4);
    assert_eq!(version.files_bytes(), bytes_before + further);
    assert_eq!(manifest.files_bytes(), bytes_before + further);
    assert_eq!(verify(dir.path()).unwrap().bytes, bytes_before + further);
    assert_eq!(version.get(b"7").unwrap().as_deref(), Some(&b"value 7"[..]));

    let path = dir.path().join(&manifest.chunks[2].further[0].file.name);
    let intact = fs::read(&path).unwrap();
    let mut damaged = intact.clone();
    damaged[3] ^= 1;
    fs::write(&path, damaged).unwrap();
    let error = verify(dir.path()).unwrap_err();
    assert!(
        matches!(&error, FormatError::Corrupt { path: named, .. } if *named == path),
        "{error}"
    );
    fs::write(&path, &intact[1..]).unwrap();
    let not_held = |dir: &Path| Version::open(dir).unwrap().not_held().collect::<Vec<_>>();
    assert_eq!(not_held(dir.path()), [PartitionId::new(1)], "too short");
    fs::remove_file(&path).unwrap();
    assert_eq!(not_held(dir.path()), [PartitionId::new(1)], "missing");
    assert_eq!(verify(dir.path()).unwrap().not_held, [PartitionId::new(1)]);
}
