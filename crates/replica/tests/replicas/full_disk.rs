//! A disk that is full: writes are refused by name, reads go on, and so do writes when there is space.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_engine::{CacheBudget, DiskEngine, DiskOptions, Engine, LogEngine, LogOptions, MemoryEngine};
use fondaco_model::versioned::Update;
use fondaco_protocol::replica::{ReplicaErrorCode, ReplicaReply};
use fondaco_replica::{ReplicaCounter, ReplicaOptions};
use fondaco_testing::{SmallDisk, until};

use crate::cluster::{Cluster, ask, node, now_unix_ms, putting, quiet};

const DISK_BYTES: u64 = 192 << 20;
/// The free space of the disk until [`SmallDisk::make_room`].
const FIRST_BYTES: u64 = 128 << 20;
const RESERVE_BYTES: u64 = 32 << 20;
const VALUE_BYTES: usize = 100_000;

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

/// Writes a key with a number. Why it was not taken, if it was not.
fn put_at(cluster: &Cluster, number: usize, update: Update) -> Result<(), ReplicaErrorCode> {
    match ask(cluster.node(1), putting(&format!("k{number}"), update)) {
        ReplicaReply::Written(_) => Ok(()),
        ReplicaReply::Error(error) => Err(error.code),
        other => panic!("{other:?}"),
    }
}

/// Writes keys until the disk is full. What was written.
fn fill<T>(mut write: impl FnMut(usize) -> Result<T, ReplicaErrorCode>) -> Vec<T> {
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut written = Vec::new();
    loop {
        assert!(Instant::now() < deadline, "the disk does not get full");
        match write(written.len()) {
            Ok(value) => written.push(value),
            Err(code) => {
                assert_eq!(code, ReplicaErrorCode::DiskFull);
                return written;
            }
        }
    }
}

#[test]
fn a_full_disk_refuses_writes_and_answers_reads_until_there_is_space() {
    let Some(disk) = SmallDisk::temporary(DISK_BYTES) else {
        return;
    };
    disk.fill_up_to(FIRST_BYTES);
    let options = ReplicaOptions {
        reserve_bytes: RESERVE_BYTES,
        ..quiet()
    };
    let cluster = Cluster::in_dir(disk.path(), 1, 2, &options, small);
    let mut random = fastrand::Rng::with_seed(7);
    let mut write = |number: usize| {
        let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(VALUE_BYTES).collect();
        let update = Update::put(Bytes::from(value.clone()), now_unix_ms(), None);
        put_at(&cluster, number, update).map(|()| value)
    };
    let mut written = fill(&mut write);
    assert!(cluster.node(1).counter(ReplicaCounter::FullDisk) > 0);
    let all_are_there = |written: &[Vec<u8>]| {
        for (number, value) in written.iter().enumerate() {
            let read = cluster.values(1, &format!("k{number}"));
            assert!(read.len() == 1 && read[0] == value[..], "write {number} is not there");
        }
    };
    all_are_there(&written);
    disk.make_room();
    until("writing again", || match write(written.len()) {
        Ok(value) => {
            written.push(value);
            true
        }
        Err(_) => false,
    });
    all_are_there(&written);
}

#[test]
fn a_full_disk_is_no_obstacle_to_what_makes_room() {
    let Some(disk) = SmallDisk::temporary(DISK_BYTES) else {
        return;
    };
    let options = ReplicaOptions {
        reserve_bytes: RESERVE_BYTES,
        sweep_period: Duration::from_millis(50),
        ..quiet()
    };
    let engine = |dir: &Path| -> Arc<dyn Engine> {
        let options = LogOptions {
            segment_bytes: 4 << 20,
            disk_reserve_bytes: RESERVE_BYTES / 2,
            cache: CacheBudget::new(8 << 20),
            ..LogOptions::default()
        };
        match dir.ends_with("1") {
            true => Arc::new(LogEngine::open(&dir.join("engine"), options).unwrap()),
            false => Arc::new(MemoryEngine::new()),
        }
    };
    let mut cluster = Cluster::in_dir(disk.path(), 2, 2, &options, engine);
    cluster.settings.ttl_ms = Some(1);
    cluster.tell();
    // Without the other's clock nothing ends for good.
    cluster.network.cut(node(2));
    let update = || {
        let now = now_unix_ms();
        Update::put(vec![7; VALUE_BYTES].into(), now, Some(now - 7_200_000))
    };
    let written = fill(|number| put_at(&cluster, number, update())).len();
    cluster.network.mend(node(2));
    until("the end of the values", || {
        let record = |number| cluster.record(1, &format!("k{number}"));
        (0..written).all(|number| record(number).is_none_or(|record| record.value_bytes() == 0))
    });
    until("writing again", || put_at(&cluster, written, update()).is_ok());
}
