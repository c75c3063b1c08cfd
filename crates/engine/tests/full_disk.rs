//! A disk that is full: writes are refused by name, what was acknowledged stays, and it goes on when there is space.
//!
//! The disk is a small one in memory, mounted where no other process sees it. Where that is not allowed, the tests say
//! so and pass.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fondaco_engine::{DiskEngine, DiskOptions, Engine, EngineError, WriteBatch};

/// Where the small disk is, and how much of it is a reserve; it is no test without.
const DIR: &str = "FONDACO_TEST_FULL_DISK_DIR";
const RESERVE: &str = "FONDACO_TEST_FULL_DISK_RESERVE";
const DISK_BYTES: u64 = 160 << 20;
const BALLAST_BYTES: usize = 64 << 20;

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    on_a_small_disk(48 << 20);
}

#[test]
fn a_disk_that_is_filled_to_its_last_byte_loses_nothing_that_was_acknowledged() {
    on_a_small_disk(0);
}

fn on_a_small_disk(reserve_bytes: u64) {
    let dir = tempfile::tempdir().unwrap();
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--map-root-user", "sh", "-ec", script, "sh"])
            .arg(dir.path());
        command.arg(std::env::current_exe().unwrap());
        command
    };
    let mount = format!("mount -t tmpfs -o size={DISK_BYTES} none \"$1\"");
    if !unshare(&mount).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this machine does not let us mount a small disk (unshare --mount --map-root-user)");
        return;
    }
    let run = format!("{mount}; exec \"$2\" --exact fill_and_free --ignored --nocapture");
    let status = unshare(&run)
        .env(DIR, dir.path())
        .env(RESERVE, reserve_bytes.to_string())
        .status()
        .unwrap();
    assert!(status.success(), "see above");
}

fn open(dir: &Path, reserve_bytes: u64) -> Result<DiskEngine, EngineError> {
    let options = DiskOptions {
        table_buffer_bytes: 2 << 20,
        log_bytes_max: 64 << 20,
        disk_reserve_bytes: reserve_bytes,
        cache_bytes: 8 << 20,
        ..DiskOptions::default()
    };
    DiskEngine::open(&dir.join("engine"), options)
}

#[test]
#[ignore = "not a test: what the tests of a full disk run as a process of its own, on a small disk"]
fn fill_and_free() {
    let (Some(dir), Ok(reserve)) = (std::env::var_os(DIR), std::env::var(RESERVE)) else {
        return;
    };
    let (dir, reserve_bytes) = (Path::new(&dir), reserve.parse().unwrap());
    let ballast = dir.join("ballast");
    fs::write(&ballast, vec![1; BALLAST_BYTES]).unwrap();
    let engine = open(dir, reserve_bytes).unwrap();
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
        match engine.write(&batch) {
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
    fs::remove_file(&ballast).unwrap();
    let written = expected.len();
    let deadline = Instant::now() + Duration::from_secs(30);
    while expected.len() < written + 100 {
        if let Err(error) = write(&mut expected) {
            assert!(matches!(error, EngineError::DiskFull { .. }), "{error}");
            assert!(Instant::now() < deadline, "it does not go on: {error}");
        }
    }
    drop((table, engine));
    let engine = open(dir, reserve_bytes).unwrap();
    assert_eq!(engine.lost_writes(), None);
    let table = engine.open_table("t").unwrap();
    for entry in table.scan(b"", None).unwrap() {
        let (key, value) = entry.unwrap();
        let was = expected.remove(&key[..]).or_else(|| unknown.remove(&key[..]));
        assert!(was.is_some_and(|was| was == value[..]), "{key:?} is not what it was");
    }
    assert!(expected.is_empty(), "{} acknowledged records are lost", expected.len());
}
