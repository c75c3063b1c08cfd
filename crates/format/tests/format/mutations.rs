//! A short seeded run of the fuzz targets: valid files, changed in many ways, are read without a panic, and all served
//! answers are right.
//!
//! The seed is fixed; `FONDACO_TEST_SEED` gives another.

use std::collections::BTreeMap;
use std::path::Path;

use crate::files::add_further;
use crate::written::{Shape, write};
use fastrand::Rng;
use fondaco_format::{Compression, DataHeader, Manifest, Version, check_index, search_records, verify};
use fondaco_testing::random_or;

const ROUNDS: usize = 1500;

/// Overwrites, cuts, doubles, inserts: one to four times.
fn mutate(bytes: &mut Vec<u8>, random: &mut Rng) {
    // It may have been cut to nothing.
    let place = |bytes: &[u8], random: &mut Rng| random.usize(..bytes.len().max(1));
    for _ in 0..=random.usize(..4) {
        let at = place(bytes, random);
        let length = random.usize(1..=16);
        let end = bytes.len().min(at + length);
        match random.u8(..5) {
            0 => random.fill(&mut bytes[at..end]),
            1 => bytes[at..end].fill([0, 0xff, 0x7f, b'9'][random.usize(..4)]),
            2 => bytes.truncate(at),
            3 => {
                let copy = bytes[at..end].to_vec();
                let to = place(bytes, random);
                bytes.splice(to..to, copy);
            }
            _ => drop(bytes.drain(at..end)),
        }
    }
}

fn records() -> BTreeMap<Vec<u8>, Vec<u8>> {
    (0..200u32)
        .map(|i| (format!("key-{i}").into_bytes(), vec![i as u8; i as usize % 50]))
        .collect()
}

fn serves_only_what_is_right(dir: &Path) {
    let Ok(version) = Version::open(dir) else { return };
    for (key, value) in records() {
        if let Ok(found) = version.get(&key) {
            assert_eq!(found.as_deref(), Some(&value[..]), "a wrong answer for {key:?}");
        }
    }
    let _ = version.scan().count();
}

#[test]
fn changed_files_are_refused_or_harmless() {
    let mut random = random_or("changed files", 1);
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape {
        partitions: 2,
        chunks: 2,
        compression: Compression::Lz4,
    };
    write(dir.path(), &records(), &shape);
    add_further(dir.path(), "inverted");
    let mut files: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for _ in 0..ROUNDS {
        let path = &files[random.usize(..files.len())];
        let intact = std::fs::read(path).unwrap();
        let mut changed = intact.clone();
        mutate(&mut changed, &mut random);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => drop(Manifest::from_bytes(&changed)),
            Some("index") => drop(check_index(&changed)),
            _ => {
                drop(DataHeader::parse(&changed));
                search_records(changed.get(64..).unwrap_or_default(), b"key-7");
            }
        }
        std::fs::write(path, &changed).unwrap();
        serves_only_what_is_right(dir.path());
        let still_whole = verify(dir.path()).is_ok();
        assert!(
            !still_whole || changed == intact || path.ends_with("manifest.json"),
            "{path:?}"
        );
        std::fs::write(path, &intact).unwrap();
    }
}
