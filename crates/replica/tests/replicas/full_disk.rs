//! A disk that is full: writes are refused by name, reads go on, and so do writes when there is space.
//!
//! The disk is a small one in memory, mounted where no other process sees it. Where that is not allowed, the test
//! says so and passes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_client::quorum::{ReplicaErrorCode, ReplicaReply};
use fondaco_engine::{CacheBudget, DiskEngine, DiskOptions, Engine};
use fondaco_model::versioned::Update;
use fondaco_replica::{ReplicaCounter, ReplicaOptions};

use crate::cluster::{Cluster, ask, now_unix_ms, putting, quiet, until};

/// Where the small disk is; it is no test without.
const DIR: &str = "FONDACO_TEST_REPLICA_FULL_DISK_DIR";
const DISK_BYTES: u64 = 192 << 20;
const BALLAST_BYTES: usize = 64 << 20;
const RESERVE_BYTES: u64 = 32 << 20;

#[test]
fn a_full_disk_refuses_writes_and_answers_reads_until_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--map-root-user", "sh", "-ec", script, "sh"])
            .arg(dir.path())
            .arg(std::env::current_exe().unwrap());
        command
    };
    let mount = format!("mount -t tmpfs -o size={DISK_BYTES} none \"$1\"");
    if !unshare(&mount).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this machine does not let us mount a small disk (unshare --mount --map-root-user)");
        return;
    }
    let run = format!("{mount}; exec \"$2\" --exact full_disk::fill_and_free --ignored --nocapture");
    let status = unshare(&run).env(DIR, dir.path()).status().unwrap();
    assert!(status.success(), "see above");
}

fn small(dir: &Path) -> Arc<dyn Engine> {
    let options = DiskOptions {
        table_buffer_bytes: 2 << 20,
        log_bytes_max: 64 << 20,
        disk_reserve_bytes: RESERVE_BYTES / 2,
        cache: CacheBudget::new(8 << 20),
        ..DiskOptions::default()
    };
    Arc::new(DiskEngine::open(&dir.join("engine"), options).unwrap())
}

#[test]
#[ignore = "not a test: what the test of a full disk runs as a process of its own, on a small disk"]
fn fill_and_free() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let dir = Path::new(&dir);
    let ballast = dir.join("ballast");
    fs::write(&ballast, vec![1; BALLAST_BYTES]).unwrap();
    let options = ReplicaOptions {
        reserve_bytes: RESERVE_BYTES,
        ..quiet()
    };
    let cluster = Cluster::of(dir, 1, 2, &options, small);
    let mut random = fastrand::Rng::with_seed(7);
    let mut write = |number: usize| {
        let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(100_000).collect();
        let update = Update::put(Bytes::from(value.clone()), now_unix_ms(), None);
        match ask(cluster.node(1), putting(&format!("k{number}"), update)) {
            ReplicaReply::Written(_) => Ok(value),
            ReplicaReply::Error(error) => Err(error.code),
            other => panic!("{other:?}"),
        }
    };
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut written = Vec::new();
    loop {
        assert!(Instant::now() < deadline, "the disk does not get full");
        match write(written.len()) {
            Ok(value) => written.push(value),
            Err(code) => {
                assert_eq!(code, ReplicaErrorCode::DiskFull);
                break;
            }
        }
    }
    assert!(cluster.node(1).counter(ReplicaCounter::FullDisk) > 0);
    let all_are_there = |written: &[Vec<u8>]| {
        for (number, value) in written.iter().enumerate() {
            let read = cluster.values(1, &format!("k{number}"));
            assert!(read.len() == 1 && read[0] == value[..], "write {number} is not there");
        }
    };
    all_are_there(&written);
    fs::remove_file(&ballast).unwrap();
    until("writing again", || match write(written.len()) {
        Ok(value) => {
            written.push(value);
            true
        }
        Err(_) => false,
    });
    all_are_there(&written);
}
