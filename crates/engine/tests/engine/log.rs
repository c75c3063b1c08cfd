//! Tests of the log engine only: cleaning loses nothing, and the memory is bounded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_engine::{CacheBudget, Engine, EngineError, Hot, LogEngine, LogOptions, Table, WriteBatch};
use fondaco_testing::{fail_reads, wait_until};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::conformance::engines::{delete, put};
use crate::losses::Noted;

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

#[test]
fn cleaning_frees_space_and_keeps_all_records() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let mut records = Records::new();
    for round in 0..3 {
        let (engine, table) = open_table(dir.path());
        assert_eq!(all(&*table), records, "round {round}");
        churn(&engine, &*table, &mut records, &mut random);
        let live: usize = records.iter().map(|(key, value)| key.len() + value.len() + 20).sum();
        // Half of it may be garbage, and some segments are tolerated.
        let most = live as u64 * 2 + 8 * SEGMENT_BYTES;
        wait_until("it is not cleaned", DEADLINE, || {
            put(&engine, &*table, b"one more", b"");
            segments(dir.path()).len() as u64 * SEGMENT_BYTES <= most
        });
        records.insert(b"one more".to_vec(), Vec::new());
        assert_eq!(all(&*table), records, "round {round}");
    }
}

#[test]
fn a_tombstone_outlives_the_cleaning_of_its_segment() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    // The first segment keeps records that are not overwritten, and the record of the deleted key.
    put(&engine, &*table, b"deleted", &[1; 100]);
    for number in 0..55_u8 {
        put(&engine, &*table, &[b'k', number], &[number; 1000]);
    }
    delete(&engine, &*table, b"deleted");
    let first = segments(dir.path())[0].clone();
    for number in 0..3000_u32 {
        put(&engine, &*table, b"again and again", &number.to_be_bytes().repeat(200));
    }
    wait_until("the segment of the deletion is not cleaned", DEADLINE, || {
        put(&engine, &*table, b"again and again", &[0; 800]);
        segments(dir.path()).len() <= 8
    });
    assert!(first.exists(), "the deleted record should still be in the log");
    drop((table, engine));
    let (_engine, table) = open_table(dir.path());
    assert_eq!(table.get(b"deleted").unwrap(), None);
    assert_eq!(table.approximate_len(), 56);
}

/// A file that cannot be deleted while this lives.
struct Immutable(fs::File, IFlags);

impl Immutable {
    /// `None` where this process may not make one, or the file system knows none, which is printed.
    fn make(path: &Path) -> Option<Self> {
        let file = fs::File::open(path).unwrap();
        let before = ioctl_getflags(&file);
        let made = before.and_then(|before| ioctl_setflags(&file, before | IFlags::IMMUTABLE).map(|()| before));
        if let Err(error) = made {
            eprintln!("skipped: a file cannot be made immutable (it needs root, and ext4 or xfs): {error}");
        }
        Some(Self(file, made.ok()?))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        ioctl_setflags(&self.0, self.1).unwrap();
    }
}

#[test]
fn a_segment_that_cannot_be_deleted_brings_nothing_back() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    put(&engine, &*table, b"deleted", &[1; 100]);
    for number in 0..80_u8 {
        put(&engine, &*table, &[b'k', number], &[number; 1000]);
    }
    let first = segments(dir.path())[0].clone();
    wait_until("the first segment is sealed", DEADLINE, || {
        first.with_extension("keys").exists()
    });
    let Some(immutable) = Immutable::make(&first) else {
        return;
    };
    delete(&engine, &*table, b"deleted");
    for number in 0..80_u8 {
        put(&engine, &*table, &[b'k', number], b"");
    }
    // The segments of the deletion are cleaned, again and again.
    for number in 0..6000_u32 {
        put(&engine, &*table, b"again and again", &number.to_be_bytes().repeat(200));
    }
    wait_until("the first segment is cleaned", DEADLINE, || {
        !first.with_extension("keys").exists()
    });
    wait_until("the other segments are cleaned", DEADLINE, || {
        put(&engine, &*table, b"again and again", &[0; 800]);
        segments(dir.path()).len() <= 8
    });
    drop((table, engine));
    assert!(first.exists());
    drop(immutable);
    let (engine, table) = open_table(dir.path());
    assert_eq!(table.get(b"deleted").unwrap(), None);
    assert_eq!(table.approximate_len(), 81);
    wait_until("it is deleted at last", DEADLINE, || {
        put(&engine, &*table, b"again and again", &[0; 800]);
        !first.exists()
    });
    assert_eq!(table.get(b"deleted").unwrap(), None);
}

#[test]
fn tombstones_kept_for_an_old_segment_are_dropped_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    // The first segment is never worth cleaning.
    for number in 0..65_u8 {
        put(&engine, &*table, &[number], &[number; 960]);
    }
    let first = segments(dir.path())[0].clone();
    for number in 0..25_000_u64 {
        put(&engine, &*table, &number.to_be_bytes(), b"");
        delete(&engine, &*table, &number.to_be_bytes());
    }
    // The tolerated garbage and tombstones, and the live records.
    let is_clean = || !first.exists() && segments(dir.path()).len() <= 12;
    wait_until("it is not cleaned", DEADLINE, is_clean);
    wait_for_rest(&engine, dir.path());
    assert!(is_clean(), "{} segments", segments(dir.path()).len());
    drop((table, engine));
    let (engine, table) = open_table(dir.path());
    assert_eq!(all(&*table).len(), 65);
    wait_for_rest(&engine, dir.path());
}

#[test]
fn cleaning_terminates_whatever_was_written_and_deleted() {
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut records: BTreeMap<&str, Records> = BTreeMap::new();
        for _ in 0..3 {
            let engine = open(dir.path());
            for _ in 0..random.usize(1..6) {
                let name = ["one", "two"][random.usize(..2)];
                let table = engine.open_table(name).unwrap();
                let records = records.entry(name).or_default();
                assert!(all(&*table) == *records, "seed {seed}");
                match random.u8(..6) {
                    0 => churn(&engine, &*table, records, &mut random),
                    // Records that stay, of any length.
                    1 => {
                        for _ in 0..random.usize(..400) {
                            let (key, value) = (random.u64(..).to_be_bytes(), vec![1; random.usize(..1500)]);
                            put(&engine, &*table, &key, &value);
                            records.insert(key.to_vec(), value);
                        }
                    }
                    // Records that come and go, with unique keys or with few keys.
                    kind @ 2..5 => {
                        let names = if kind == 2 { 100 } else { u64::MAX };
                        for _ in 0..random.usize(..15_000) {
                            let key = (random.u64(..) % names).to_be_bytes();
                            put(&engine, &*table, &key, b"");
                            delete(&engine, &*table, &key);
                            records.remove(&key[..]);
                        }
                    }
                    _ => {
                        engine.drop_table(name).unwrap();
                        records.clear();
                    }
                }
            }
            wait_for_rest(&engine, dir.path());
        }
        let engine = open(dir.path());
        for (name, records) in records {
            assert!(all(&*engine.open_table(name).unwrap()) == records, "seed {seed}");
        }
    }
}

#[test]
fn tombstones_kept_for_a_damaged_segment_do_not_block_writers() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    for number in 0..200_u8 {
        put(&engine, &*table, &[number], &[number; 960]);
    }
    let first = segments(dir.path())[0].clone();
    wait_until("nothing is sealed", DEADLINE, || first.with_extension("keys").exists());
    drop((table, engine));
    let mut bytes = fs::read(&first).unwrap();
    bytes[5000] ^= 1;
    fs::write(&first, bytes).unwrap();

    let (engine, table) = open_table(dir.path());
    for number in 0..25_000_u64 {
        put(&engine, &*table, &number.to_be_bytes(), b"");
        delete(&engine, &*table, &number.to_be_bytes());
    }
    wait_for_rest(&engine, dir.path());
    assert!(first.exists());
    assert_eq!(table.approximate_len(), 200);
}

#[test]
fn cached_values_stay_within_budget_and_are_reloaded_when_read() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    let mut is_cold = 0;
    for number in 0..2000_u32 {
        put(&engine, &*table, &number.to_be_bytes(), &[number as u8; 500]);
        assert!(engine.cached_bytes() <= 256 << 10, "{} bytes", engine.cached_bytes());
    }
    for number in 0..2000_u32 {
        let key = number.to_be_bytes();
        is_cold += usize::from(table.get_hot(&key).unwrap() == Hot::Cold);
        assert_eq!(table.get(&key).unwrap().as_deref(), Some(&[number as u8; 500][..]));
        assert!(matches!(table.get_hot(&key).unwrap(), Hot::Found(_)));
    }
    assert!(is_cold > 1000, "{is_cold}");
    assert!(engine.cached_bytes() > 128 << 10, "{} bytes", engine.cached_bytes());
    assert_eq!(table.get_hot(b"nothing").unwrap(), Hot::Absent);
    engine.drop_table("t").unwrap();
    assert_eq!(engine.cached_bytes(), 0);
}

#[test]
fn only_new_keys_are_refused_when_their_memory_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let open_with = |key_bytes_max: u64| {
        let options = LogOptions {
            key_bytes_max,
            segment_bytes: SEGMENT_BYTES,
            disk_reserve_bytes: 0,
            ..LogOptions::default()
        };
        LogEngine::open(dir.path(), options).unwrap()
    };
    let write = |engine: &LogEngine, table: &dyn Table, number: u32| {
        let mut batch = WriteBatch::new();
        batch.put(table, number.to_be_bytes().to_vec().into(), vec![7; 50].into());
        engine.write(batch)
    };
    let engine = open_with(100_000);
    let table = engine.open_table("t").unwrap();
    let mut count = 0;
    let refused = loop {
        match write(&engine, &*table, count) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    let memory = engine.key_memory().unwrap();
    assert!(
        (800..1000).contains(&count) && memory.keys == u64::from(count),
        "{memory:?}"
    );
    assert!((100_000..110_000).contains(&memory.bytes), "{memory:?}");
    let expected = format!(
        "{count} keys take {} bytes of memory, and may take 100000",
        memory.bytes
    );
    assert!(refused.to_string().starts_with(&expected), "{refused}");
    assert!(engine.check_new_keys().is_err());
    // A batch with one new key is refused whole.
    let mut batch = WriteBatch::new();
    batch.put(&*table, 0_u32.to_be_bytes().to_vec().into(), "new".into());
    batch.put(&*table, count.to_be_bytes().to_vec().into(), "new".into());
    assert!(matches!(engine.write(batch), Err(EngineError::KeysFull { .. })));
    assert_eq!(table.get(&0_u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 50][..]));
    put(&engine, &*table, &0_u32.to_be_bytes(), b"newer");
    delete(&engine, &*table, b"never there");
    // Deletions make room.
    for number in 0..count / 2 {
        delete(&engine, &*table, &number.to_be_bytes());
    }
    assert!(engine.check_new_keys().is_ok());
    write(&engine, &*table, count).unwrap();
    let before = engine.key_memory().unwrap();
    drop((table, engine));
    // The engine opens and serves, even if it finds more keys than the limit.
    let engine = open_with(1000);
    let table = engine.open_table("t").unwrap();
    let memory = engine.key_memory().unwrap();
    assert_eq!((memory.keys, memory.bytes), (before.keys, before.bytes));
    assert!(table.get(&count.to_be_bytes()).unwrap().is_some());
    write(&engine, &*table, count).unwrap();
    assert!(matches!(write(&engine, &*table, 0), Err(EngineError::KeysFull { .. })));
    engine.drop_table("t").unwrap();
    assert_eq!(
        engine.key_memory().map(|memory| (memory.keys, memory.bytes)),
        Some((0, 0))
    );
    write(&engine, &*engine.open_table("t").unwrap(), 0).unwrap();
}

#[test]
fn a_damaged_record_fails_alone_and_is_not_cleaned_away() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    for number in 0..2000_u32 {
        put(&engine, &*table, &number.to_be_bytes(), &[number as u8; 500]);
    }
    wait_until("nothing is sealed", DEADLINE, || {
        segments(dir.path())[0].with_extension("keys").exists()
    });
    drop((table, engine));
    let first = segments(dir.path())[0].clone();
    let mut bytes = fs::read(&first).unwrap();
    bytes[5000] ^= 1;
    fs::write(&first, bytes).unwrap();

    let (engine, table) = open_table(dir.path());
    let is_damaged = |number: u32| matches!(table.get(&number.to_be_bytes()), Err(EngineError::Corrupt { .. }));
    let damaged: Vec<_> = (0..2000).filter(|&number| is_damaged(number)).collect();
    let [damaged] = damaged[..] else { panic!("{damaged:?}") };
    // A scan reports the damage, and continues.
    for (number, entry) in table.scan(b"", None).unwrap().enumerate() {
        let key = (number as u32).to_be_bytes();
        match entry {
            Err(EngineError::Corrupt { key: Some(named), .. }) => {
                assert_eq!((number as u32, &named[..]), (damaged, &key[..]));
            }
            entry => assert_eq!(entry.unwrap(), (key.to_vec().into(), vec![number as u8; 500].into())),
        }
    }
    assert_eq!(table.scan(b"", None).unwrap().count(), 2000);
    // Everything around the record is overwritten, so the rest of its segment would be cleaned.
    for _ in 0..4 {
        for number in (100..2000_u32).chain(0..5) {
            put(&engine, &*table, &number.to_be_bytes(), &[7; 500]);
        }
    }
    wait_until("it is not cleaned", DEADLINE, || {
        put(&engine, &*table, b"one more", b"");
        segments(dir.path()).len() < 50
    });
    assert_eq!((0..2000).filter(|&number| is_damaged(number)).count(), 1);
    assert!(first.exists());
    // The record is repaired from another replica.
    put(&engine, &*table, &damaged.to_be_bytes(), &[7; 500]);
    wait_until("the segment stays", DEADLINE, || {
        put(&engine, &*table, b"one more", &[0; 800]);
        !first.exists()
    });
    drop((table, engine));
    let engine = open(dir.path());
    assert_eq!(all(&*engine.open_table("t").unwrap()).len(), 2001);
}

#[test]
fn a_missing_segment_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    for number in 0..500_u32 {
        put(&engine, &*table, &number.to_be_bytes(), &[number as u8; 500]);
    }
    let first = segments(dir.path())[0].clone();
    wait_until("nothing is sealed", DEADLINE, || first.with_extension("keys").exists());
    drop((table, engine));
    fs::remove_file(&first).unwrap();
    let error = LogEngine::open(dir.path(), LogOptions::default()).err().unwrap();
    assert!(matches!(error, EngineError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("segment 1 of the log"), "{error}");
}

#[test]
fn a_last_segment_that_was_cleaned_away_is_not_missed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let table = engine.open_table("dropped").unwrap();
    // One batch, more than a segment and more garbage than is tolerated, is in a segment of its own.
    put(&engine, &*table, b"long", &vec![1; 8 * SEGMENT_BYTES as usize]);
    engine.sync().unwrap();
    drop((table, engine));
    // As if the process was killed before it had made the next one.
    segments(dir.path())
        .iter()
        .skip(1)
        .for_each(|unused| fs::remove_file(unused).unwrap());
    let engine = open(dir.path());
    engine.drop_table("dropped").unwrap();
    wait_until("the segment is cleaned", DEADLINE, || segments(dir.path()).is_empty());
    drop(engine);
    // A loss would be refused.
    let engine = open(dir.path());
    let table = engine.open_table("t").unwrap();
    put(&engine, &*table, b"key", b"value");
    drop((table, engine));
    assert_eq!(all(&*open(dir.path()).open_table("t").unwrap()).len(), 1);
}

#[test]
fn unreadable_data_blocks_neither_the_cleaner_nor_writers() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    for number in 0..2000_u32 {
        put(&engine, &*table, &number.to_be_bytes(), &[number as u8; 500]);
    }
    let first = segments(dir.path())[0].clone();
    wait_until("nothing is sealed", DEADLINE, || first.with_extension("keys").exists());
    let unreadable = fail_reads(&first, 5000..5001);
    let is_damaged = |number: u32| match table.get(&number.to_be_bytes()) {
        Ok(_) => false,
        Err(error) => error.damaged_key() == Some(&number.to_be_bytes()[..]),
    };
    let damaged: Vec<_> = (0..2000).filter(|&number| is_damaged(number)).collect();
    let [damaged] = damaged[..] else { panic!("{damaged:?}") };
    assert!(engine.damage().is_some());
    for _ in 0..4 {
        for number in (0..2000_u32).filter(|number| *number != damaged) {
            put(&engine, &*table, &number.to_be_bytes(), &[7; 500]);
        }
    }
    wait_until(
        "the cleaner did not reach the damage, or did not continue behind it",
        DEADLINE,
        || {
            put(&engine, &*table, b"one more", &[0; 800]);
            engine.damage().is_some_and(|damage| damage.contains("segments")) && segments(dir.path()).len() < 50
        },
    );
    wait_for_rest(&engine, dir.path());
    assert!(first.exists() && is_damaged(damaged));
    put(&engine, &*table, &damaged.to_be_bytes(), &[7; 500]);
    wait_until("the segment stays", DEADLINE, || {
        put(&engine, &*table, b"one more", &[0; 800]);
        !first.exists()
    });
    wait_until("the damage is still reported", DEADLINE, || engine.damage().is_none());
    drop(unreadable);
}

#[test]
fn a_segment_of_another_version_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    put(&engine, &*table, b"key", b"value");
    drop((table, engine));
    let segment = segments(dir.path())[0].clone();
    let ours = fs::read(&segment).unwrap();
    let noted = Arc::<Noted>::default();
    let going_on = || LogOptions {
        on_loss: noted.reaction(),
        ..LogOptions::default()
    };
    // A segment of another version. The other segments have damaged heads, which lose nothing.
    for (at, head, is_refused) in [(0, &b"fondseg3"[..], true), (8, &[7], false), (0, &[0; 16], false)] {
        let mut theirs = ours.clone();
        theirs[at..at + head.len()].copy_from_slice(head);
        fs::write(&segment, &theirs).unwrap();
        match LogEngine::open(dir.path(), going_on()) {
            Ok(engine) => {
                assert!(!is_refused, "{head:?}");
                assert_eq!(noted.text(), None);
                let table = engine.open_table("t").unwrap();
                assert_eq!(table.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
            }
            Err(error) => {
                assert!(is_refused && error.to_string().contains("another version"), "{error}");
                assert!(fs::read(&segment).unwrap() == theirs, "the segment was changed");
            }
        }
    }
    fs::write(&segment, &ours).unwrap();
    // A segment to which its process had not written anything yet.
    let last = segments(dir.path()).len() as u32;
    fs::write(dir.path().join(format!("{:010}.segment", last + 1)), b"").unwrap();
    assert_eq!(all(&*open(dir.path()).open_table("t").unwrap()).len(), 1);
}

#[test]
fn an_unused_store_takes_no_space() {
    let dir = tempfile::tempdir().unwrap();
    let engine = LogEngine::open(dir.path(), LogOptions::default()).unwrap();
    engine.open_table("t").unwrap();
    assert!(engine.disk_bytes() < 64 << 10, "{} bytes", engine.disk_bytes());
}
