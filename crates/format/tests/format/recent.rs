//! Reading ahead: pages of a version that look-ups have read lately, and the same hashes in another version.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use fondaco_format::{Compression, Lookup, STEP_BYTES_MAX, Version};
use rustix::fs::{Advice, fadvise};

use crate::written::{Shape, write};

const KEYS: u32 = 20_000;
/// One key of this many is read.
const HOT: u32 = 50;
const NO_LIMIT: u64 = u64::MAX;

fn key(number: u32) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

/// A version in which each value has some 600 bytes, and others than in versions with another mark. Nothing of its data is in memory.
fn version(dir: &Path, mark: u8, partitions: u32, chunks: u32) -> Arc<Version> {
    let value = |number: u32| vec![mark; 500 + number.wrapping_mul(u32::from(mark)) as usize % 200];
    let records: BTreeMap<_, _> = (0..KEYS).map(|number| (key(number), value(number))).collect();
    let dir = dir.join(format!("version-{mark}"));
    std::fs::create_dir(&dir).unwrap();
    let shape = Shape {
        partitions,
        chunks,
        compression: Compression::None,
    };
    write(&dir, &records, &shape);
    for entry in std::fs::read_dir(&dir).unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
    let mut version = Version::open(&dir).unwrap();
    version.warm_and_close().unwrap();
    Arc::new(version)
}

fn is_in_memory(version: &Version, number: u32) -> bool {
    let key = key(number);
    !matches!(version.lookup(&version.probe(&key), &key).unwrap(), Lookup::Cold(_))
}

/// How many of the hot keys and of the others are in memory.
fn in_memory(version: &Version) -> (u32, u32) {
    let count = |of: &dyn Fn(u32) -> bool| {
        (0..KEYS)
            .filter(|&number| of(number) && is_in_memory(version, number))
            .count()
    };
    let is_hot = |number: u32| number.is_multiple_of(HOT);
    (count(&is_hot) as u32, count(&|number| !is_hot(number)) as u32)
}

/// A version whose hot keys were looked up; `None` where files are always in memory, as on a memory file system.
fn read_before(dir: &Path, partitions: u32, chunks: u32) -> Option<Arc<Version>> {
    let before = version(dir, 1, partitions, chunks);
    if is_in_memory(&before, 0) {
        println!("files are always in memory here: nothing is tested");
        return None;
    }
    for number in (0..KEYS).step_by(HOT as usize) {
        assert!(before.get(&key(number)).unwrap().is_some());
    }
    Some(before)
}

#[test]
fn the_hot_keys_of_the_version_before_are_in_memory_and_not_all_others() {
    for shapes in [[(1, 1), (1, 1)], [(4, 2), (4, 8)], [(2, 8), (4, 2)]] {
        let dir = tempfile::tempdir().unwrap();
        let [(partitions, chunks), after] = shapes;
        let Some(before) = read_before(dir.path(), partitions, chunks) else {
            return;
        };
        let after = version(dir.path(), 2, after.0, after.1);
        // The headers of files were read.
        assert!(in_memory(&after).0 < KEYS / HOT / 4, "nothing else was read yet");
        let mut steps = Vec::new();
        let read = after.read_as(std::slice::from_ref(&before), NO_LIMIT, &mut |bytes| {
            steps.push(bytes);
            true
        });
        let read = read.unwrap();
        let (hot, others) = in_memory(&after);
        assert_eq!(hot, KEYS / HOT, "{shapes:?}");
        // A page has some seven records.
        assert!(others < KEYS / 2, "{shapes:?}: {others} others");
        assert_eq!(read, steps.iter().sum::<u64>());
        assert!(
            steps.iter().all(|&bytes| bytes < 2 * STEP_BYTES_MAX as u64),
            "{steps:?}"
        );
        // Nothing is read twice.
        assert_eq!(after.read_as(&[before], NO_LIMIT, &mut |_| true).unwrap(), 0);
    }
}

#[test]
fn reading_ends_at_its_limit_and_when_it_may_not_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let Some(before) = read_before(dir.path(), 2, 4) else {
        return;
    };
    let after = version(dir.path(), 2, 2, 4);
    let before = [before];
    let limit = 300 << 10;
    let read = after.read_as(&before, limit, &mut |_| true).unwrap();
    assert!((limit..limit + (256 << 10)).contains(&read), "{read}");
    let (hot, _) = in_memory(&after);
    assert!(hot > 20 && hot < KEYS / HOT, "{hot}");
    assert_eq!(after.read_as(&before, NO_LIMIT, &mut |_| false).unwrap(), 0);
    assert_eq!(after.read_as(&[], NO_LIMIT, &mut |_| true).unwrap(), 0);
}
