//! A disk that is full: writes are refused with a named error, acknowledged writes stay, and new writes succeed when
//! there is space.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use fondaco_engine::{Engine, EngineError, WriteBatch};
use fondaco_testing::SmallDisk;

use super::engines::{Kind, Options};

const DISK_BYTES: u64 = 160 << 20;
/// The free space of the disk before [`SmallDisk::make_room`].
const FIRST_BYTES: u64 = 96 << 20;

pub fn a_full_disk_refuses_writes_until_there_is_space(kind: Kind) {
    fill_and_free(kind, 48 << 20);
}

pub fn a_disk_that_is_filled_to_its_last_byte_loses_nothing_that_was_acknowledged(kind: Kind) {
    fill_and_free(kind, 0);
}

fn open(kind: Kind, dir: &Path, reserve_bytes: u64) -> Box<dyn Engine> {
    let options = Options {
        part_bytes: 2 << 20,
        cache_bytes: 8 << 20,
        reserve_bytes,
        ..Options::default()
    };
    kind.open(&dir.join("engine"), options).unwrap()
}

fn fill_and_free(kind: Kind, reserve_bytes: u64) {
    let Some(disk) = SmallDisk::temporary(DISK_BYTES) else {
        return;
    };
    disk.fill_up_to(FIRST_BYTES);
    let engine = open(kind, disk.path(), reserve_bytes);
    let table = engine.open_table("t").unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut expected = BTreeMap::new();
    // Those whose writing failed: they may be there or not.
    let mut unknown = BTreeMap::new();
    let mut refusals = 0;
    let mut number = 0_u64;
    let mut write = |expected: &mut BTreeMap<Vec<u8>, Vec<u8>>| -> Result<(), EngineError> {
        number += 1;
        let key = number.to_be_bytes().to_vec();
        let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(10_000).collect();
        let mut batch = WriteBatch::new();
        batch.put(&*table, key.clone().into(), value.clone().into());
        match engine.write(batch) {
            Ok(()) => {
                expected.insert(key, value);
                Ok(())
            }
            Err(error) => {
                unknown.insert(key, value);
                Err(error)
            }
        }
    };
    let deadline = Instant::now() + Duration::from_secs(120);
    while refusals < 50 {
        assert!(
            Instant::now() < deadline,
            "the disk does not get full: {} records",
            expected.len()
        );
        match write(&mut expected) {
            Ok(()) => {}
            Err(EngineError::DiskFull { .. }) => refusals += 1,
            Err(other) => panic!("not by its name: {other}"),
        }
    }
    assert!(expected.len() > 1000, "only {} records were written", expected.len());
    for (key, value) in &expected {
        assert!(
            table.get(key).unwrap().unwrap() == value[..],
            "{key:?} is not what it was"
        );
    }
    disk.make_room();
    let written = expected.len();
    let deadline = Instant::now() + Duration::from_secs(30);
    while expected.len() < written + 100 {
        if let Err(error) = write(&mut expected) {
            assert!(matches!(error, EngineError::DiskFull { .. }), "{error}");
            assert!(Instant::now() < deadline, "writes are still refused: {error}");
        }
    }
    drop((table, engine));
    let engine = open(kind, disk.path(), reserve_bytes);
    let table = engine.open_table("t").unwrap();
    for entry in table.scan(b"", None).unwrap() {
        let (key, value) = entry.unwrap();
        let was = expected.remove(&key[..]).or_else(|| unknown.remove(&key[..]));
        assert!(was.is_some_and(|was| was == value[..]), "{key:?} is not what it was");
    }
    assert!(expected.is_empty(), "{} acknowledged records are lost", expected.len());
}

pub fn a_full_disk_takes_deletions(kind: Kind) {
    let reserve_bytes = 48 << 20;
    let Some(disk) = SmallDisk::temporary(DISK_BYTES) else {
        return;
    };
    let engine = open(kind, disk.path(), reserve_bytes);
    let table = engine.open_table("t").unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut put = |number: u64| {
        let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(10_000).collect();
        let mut batch = WriteBatch::new();
        batch.put(&*table, number.to_be_bytes().to_vec().into(), value.into());
        engine.write(batch)
    };
    let mut count = 0;
    while put(count).is_ok() {
        count += 1;
    }
    // Others take of the reserve, so that merging does not bring back what is missing.
    disk.fill_up_to(reserve_bytes - (16 << 20));
    assert!(matches!(put(count), Err(EngineError::DiskFull { .. })));
    for number in 0..count {
        let mut batch = WriteBatch::new();
        batch.delete(&*table, number.to_be_bytes().to_vec().into());
        engine.write(batch).unwrap();
        assert_eq!(table.get(&number.to_be_bytes()).unwrap(), None);
    }
    // A tree makes room when it merges next, a log when it is asked for it.
    let deadline = Instant::now() + Duration::from_secs(30);
    while kind == Kind::Log && put(count).is_err() {
        assert!(Instant::now() < deadline, "what was deleted makes no room");
    }
    drop((table, engine));
    let engine = open(kind, disk.path(), reserve_bytes);
    let left = engine.open_table("t").unwrap().scan(b"", None).unwrap().count();
    assert!(left <= 1, "{left} of {count}");
}

pub fn writing_out_and_merging_leave_the_reserve_alone(kind: Kind) {
    let reserve_bytes = 32 << 20;
    let Some(disk) = SmallDisk::temporary(DISK_BYTES) else {
        return;
    };
    let engine = open(kind, disk.path(), reserve_bytes);
    let table = engine.open_table("t").unwrap();
    let is_watching = AtomicBool::new(true);
    let free_bytes = || {
        let found = rustix::fs::statvfs(disk.path()).unwrap();
        found.f_bavail * found.f_frsize
    };
    let (written, free_bytes_min) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut free_bytes_min = u64::MAX;
            while is_watching.load(Relaxed) {
                free_bytes_min = free_bytes_min.min(free_bytes());
                thread::sleep(Duration::from_millis(1));
            }
            free_bytes_min
        });
        let mut random = fastrand::Rng::with_seed(7);
        let (mut written, mut is_full_since) = (0, None::<Instant>);
        // Merges continue for a while when writes are refused.
        while is_full_since.is_none_or(|since| since.elapsed() < Duration::from_secs(3)) {
            let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(10_000).collect();
            let mut batch = WriteBatch::new();
            // Keys that come again, so that there is something to merge.
            batch.put(&*table, random.u16(..8_000).to_be_bytes().to_vec().into(), value.into());
            match engine.write(batch) {
                Ok(()) => written += 1,
                Err(EngineError::DiskFull { .. }) => {
                    is_full_since.get_or_insert_with(Instant::now);
                    thread::sleep(Duration::from_millis(5));
                }
                Err(other) => panic!("not by its name: {other}"),
            }
        }
        is_watching.store(false, Relaxed);
        (written, watch.join().unwrap())
    });
    assert!(written > 1000, "only {written} records were written");
    // The bytes that may be written between two checks of the disk.
    let allowed_bytes = 8 << 20;
    assert!(
        free_bytes_min + allowed_bytes >= reserve_bytes,
        "{free_bytes_min} bytes were left"
    );
}
