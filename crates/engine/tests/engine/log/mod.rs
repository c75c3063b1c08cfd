//! Tests of the log engine only.

mod cleaning;
mod damage;
mod memory;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_engine::{CacheBudget, Engine, LogEngine, LogOptions, Table};
use fondaco_testing::wait_until;

use crate::conformance::engines::{delete, put};

const SEGMENT_BYTES: u64 = 64 << 10;
const DEADLINE: Duration = Duration::from_secs(300);

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(dir: &Path) -> LogEngine {
    let options = LogOptions {
        segment_bytes: SEGMENT_BYTES,
        cache: CacheBudget::new(256 << 10),
        disk_reserve_bytes: 0,
        ..LogOptions::default()
    };
    LogEngine::open(dir, options).unwrap()
}

/// The engine, and its table `t`.
fn open_table(dir: &Path) -> (LogEngine, Arc<dyn Table>) {
    let engine = open(dir);
    let table = engine.open_table("t").unwrap();
    (engine, table)
}

fn all(table: &dyn Table) -> Records {
    let entries = table.scan(b"", None).unwrap().map(Result::unwrap);
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "segment"))
        .collect();
    segments.sort();
    segments
}

/// Waits until the log is no longer written to, and no write waits for cleaning.
fn wait_for_rest(engine: &LogEngine, dir: &Path) {
    let log = || -> Vec<_> {
        let changed = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
        segments(dir).into_iter().map(|path| (changed(&path), path)).collect()
    };
    let (mut before, mut since) = (log(), Instant::now());
    wait_until("cleaning does not come to rest", DEADLINE, || {
        let now = log();
        if now != before {
            (before, since) = (now, Instant::now());
        }
        // Without notifications, the cleaner looks for work four times a second.
        since.elapsed() > Duration::from_millis(600)
    });
    wait_until("writers must wait", DEADLINE, || engine.writes_at_once());
}

/// Waits until the first segment is sealed.
fn first_sealed(dir: &Path) -> PathBuf {
    let first = segments(dir)[0].clone();
    wait_until("nothing is sealed", DEADLINE, || first.with_extension("keys").exists());
    first
}

/// Writes one key again and again until a condition holds: the cleaner works beside writes.
fn write_until(what: &str, engine: &LogEngine, table: &dyn Table, key: &[u8], mut holds: impl FnMut() -> bool) {
    wait_until(what, DEADLINE, || {
        // Many each time: the cleaner wants more garbage than a few writes make.
        (0..20).for_each(|_| put(engine, table, key, &[0; 800]));
        holds()
    });
}

/// Writes this many keys, with 500 bytes each.
fn fill(engine: &LogEngine, table: &dyn Table, keys: u32) {
    for number in 0..keys {
        put(engine, table, &number.to_be_bytes(), &[number as u8; 500]);
    }
}

/// Writes and deletes one key after the other.
fn put_and_delete(engine: &LogEngine, table: &dyn Table) {
    for number in 0..25_000_u64 {
        put(engine, table, &number.to_be_bytes(), b"");
        delete(engine, table, &number.to_be_bytes());
    }
}

/// Damages a record in a segment.
fn flip_a_bit(segment: &Path) {
    let mut bytes = fs::read(segment).unwrap();
    bytes[5000] ^= 1;
    fs::write(segment, bytes).unwrap();
}

/// Writes and deletes some hundreds of keys at random, far more data than fits into a few segments.
fn churn(engine: &LogEngine, table: &dyn Table, records: &mut Records, random: &mut fastrand::Rng) {
    for _ in 0..6000 {
        let key = random.u16(..600).to_be_bytes().to_vec();
        if random.u8(..4) == 0 {
            delete(engine, table, &key);
            records.remove(&key);
        } else {
            let mut value = vec![0; random.usize(..900)];
            random.fill(&mut value);
            put(engine, table, &key, &value);
            records.insert(key, value);
        }
    }
}
