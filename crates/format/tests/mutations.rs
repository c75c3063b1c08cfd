//! A short seeded run of the fuzz targets: valid files, changed in many ways, are read without a panic, and all served
//! answers are right.
//!
//! The seed is fixed; `FONDACO_SEED` sets another one.

#[path = "written/files.rs"]
mod files;
mod written;

use std::collections::BTreeMap;
use std::path::Path;

use files::add_further;
use fondaco_format::{Compression, DataHeader, Manifest, Version, check_index, search_records, verify};
use written::{Shape, write};

const ROUNDS: usize = 1500;

/// Marsaglia's xorshift: good enough to pick offsets.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let seed = std::env::var("FONDACO_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or(1);
        println!("FONDACO_SEED={seed}");
        Self(seed | 1 << 63)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Overwrites, truncates, duplicates or inserts bytes, one to four times.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        let length = 1 + random.below(16);
        let end = bytes.len().min(at + length);
        match random.below(5) {
            0 => bytes[at..end].iter_mut().for_each(|byte| *byte = random.next() as u8),
            1 => bytes[at..end].fill([0, 0xff, 0x7f, b'9'][random.below(4)]),
            2 => bytes.truncate(at),
            3 => {
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
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
    let mut random = Random::seeded();
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
        let path = &files[random.below(files.len())];
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
