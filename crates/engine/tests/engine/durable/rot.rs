//! Bit flips on the disk: a read returns an error or the right answer, never a wrong one, and a loss is never silent.
//! Trees promise that for their tables, and in their log for keys and values and for its end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fondaco_engine::{Engine, EngineError, OnLoss, WriteBatch};
use fondaco_testing::{fail_syncs_of_this_thread, wait_until};
use memchr::memmem;

use super::engines::{Kind, Options};
use crate::losses::{Noted, Unwritable};

const FLIPS: usize = 150;

pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database with files of several levels, and a log with batches that are in no other file yet.
pub fn written(kind: Kind, dir: &Path) -> Records {
    let mut random = fastrand::Rng::with_seed(3);
    let mut records = Records::new();
    let engine = kind.open(dir, Options::default()).unwrap();
    let table = engine.open_table("t").unwrap();
    let mut write = |batches: usize| {
        for _ in 0..batches {
            let mut batch = WriteBatch::new();
            for _ in 0..5 {
                let key = random.u16(..2000).to_be_bytes().to_vec();
                let length = random.usize(..800);
                let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
                batch.put(&*table, key.clone().into(), value.clone().into());
                records.insert(key, value);
            }
            engine.write(batch).unwrap();
        }
        engine.sync().unwrap();
    };
    write(600);
    // The files beside the log are written in the background.
    wait_until("files beside the log", Duration::from_secs(30), || {
        files(dir).iter().filter(|path| !is_log(path)).count() > 5
    });
    // Too few to be written to a table.
    write(10);
    records
}

/// Waits until an open engine has compacted what it wants to.
pub fn wait_until_still(dir: &Path) {
    let (mut before, mut looks) = (Vec::new(), 0);
    wait_until("the files to stay the same", Duration::from_secs(60), || {
        thread::sleep(Duration::from_millis(500));
        let length = |path: PathBuf| (fs::metadata(&path).map_or(0, |file| file.len()), path);
        let now: Vec<_> = files(dir).into_iter().map(length).collect();
        looks = if now == before { looks + 1 } else { 0 };
        before = now;
        looks == 3
    });
}

pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The content of a file, without the trailing zeros of a log.
pub fn content(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    if is_log(path) {
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(end);
    }
    bytes
}

pub fn is_log(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "jnl" || extension == "segment")
}

/// Whether a file is a table of a tree.
fn is_table(path: &Path) -> bool {
    path.parent().is_some_and(|dir| dir.ends_with("tables"))
}

/// The last file of the log that has content.
pub fn last_log(dir: &Path) -> PathBuf {
    let is_written = |path: &PathBuf| is_log(path) && content(path).len() > 4096;
    files(dir).into_iter().rfind(is_written).unwrap()
}

/// A copy of a database, with one bit of one file flipped.
pub fn copy_with_a_flip(from: &Path, to: &Path, flipped: &Path, offset: usize, bit: u8) {
    for path in files(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let mut bytes = content(&path);
        if path == flipped {
            bytes[offset] ^= 1 << bit;
        }
        fs::write(target, bytes).unwrap();
    }
}

/// An engine, and the losses that it noted when it was opened.
pub struct Opened {
    pub engine: Box<dyn Engine>,
    pub lost_writes: Option<String>,
}

/// Opens an engine that notes lost writes, and continues without them.
pub fn open_noting(kind: Kind, dir: &Path) -> Result<Opened, EngineError> {
    let noted = Arc::<Noted>::default();
    let options = Options {
        on_loss: noted.reaction(),
        ..Options::default()
    };
    let engine = kind.open(dir, options)?;
    let lost_writes = noted.text();
    Ok(Opened { engine, lost_writes })
}

/// A copy of a database, with one bit of its log flipped, as after a kill: without the files of keys that a clean stop
/// leaves beside the log. Returns the content of the damaged file.
pub fn copy_with_damage(from: &Path, to: &Path, damaged: &Path, offset: usize) -> Vec<u8> {
    copy_with_a_flip(from, to, damaged, offset, 3);
    remove_keys(to);
    fs::read(to.join(damaged.strip_prefix(from).unwrap())).unwrap()
}

/// The same, without a flipped bit.
pub fn copy_without_keys(from: &Path, to: &Path) {
    copy_with_a_flip(from, to, Path::new(""), 0, 0);
    remove_keys(to);
}

pub fn remove_keys(dir: &Path) {
    let keys = files(dir)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "keys"));
    keys.for_each(|path| fs::remove_file(path).unwrap());
}

/// Reads everything, by lookups and by a scan. Returns how many reads failed; all others must return the right answer.
pub fn read(engine: &dyn Engine, records: &Records) -> usize {
    let mut refused = 0;
    let table = match engine.open_table("t") {
        Ok(table) => table,
        Err(_) => return 1,
    };
    for (key, value) in records {
        match table.get(key) {
            Ok(found) => assert!(found.as_deref() == Some(&value[..]), "{key:?} has a wrong value"),
            Err(EngineError::Corrupt { .. }) => refused += 1,
            Err(other) => panic!("unexpected error: {other}"),
        }
    }
    let mut expected = records.iter();
    let mut scan = table.scan(b"", None).unwrap();
    let has_ended = loop {
        let (key, value) = match scan.next() {
            Some(Ok((key, value))) => (key.to_vec(), Some(value)),
            Some(Err(EngineError::Corrupt { key: Some(key), .. })) => (key.into_vec(), None),
            Some(Err(_)) => break true,
            None => break false,
        };
        refused += usize::from(value.is_none());
        let (expected_key, expected_value) = expected.next().expect("no more records than were written");
        assert!(
            key == *expected_key && value.is_none_or(|value| value == expected_value[..]),
            "a scan returns a record that was not written"
        );
    };
    match has_ended {
        true => assert!(scan.next().is_none(), "a scan continues after an error without a key"),
        false => assert!(expected.next().is_none(), "a scan omits a record"),
    }
    refused + usize::from(has_ended)
}

pub fn a_flipped_bit_never_leads_to_a_wrong_answer(kind: Kind) {
    let source = tempfile::tempdir().unwrap();
    let records = written(kind, source.path());
    let (logs, others): (Vec<_>, Vec<_>) = files(source.path()).into_iter().partition(|path| is_log(path));
    let is_promised = |path: &PathBuf| kind == Kind::Log || is_table(path);
    let others: Vec<_> = others.into_iter().filter(is_promised).collect();
    let mut random = fastrand::Rng::with_seed(11);
    let mut refused = 0;
    for flip in 0..FLIPS {
        // The files beside the log of records can be rebuilt, and a part of the log is no longer needed.
        let is_log = kind == Kind::Log && flip % 4 > 0;
        let among = if is_log { &logs } else { &others };
        let path = &among[random.usize(..among.len())];
        let length = content(path).len();
        if length == 0 {
            continue;
        }
        let (offset, bit) = (random.usize(..length), random.u8(..8));
        println!("flip {flip}: bit {bit} of byte {offset} of {length} of {path:?}");
        let copy = tempfile::tempdir().unwrap();
        copy_with_a_flip(source.path(), copy.path(), path, offset, bit);
        match kind.open(copy.path(), Options::default()) {
            Ok(opened) => refused += usize::from(read(&*opened, &records) > 0),
            Err(EngineError::Corrupt { .. }) => refused += 1,
            Err(other) => panic!("unexpected error: {other}"),
        }
    }
    assert!(
        refused > FLIPS / if kind == Kind::Log { 4 } else { 2 },
        "only {refused} of {FLIPS} flips were detected: most flipped bits were not read"
    );
}

pub fn a_damaged_log_loses_only_damaged_batches_and_reports_them(kind: Kind) {
    match kind {
        // One batch with five records.
        Kind::Log => {
            let (lost, of) = records_lost(kind, |length| vec![length / 2]);
            assert!((1..=5).contains(&lost[0]), "{lost:?} of {of}");
        }
        // Its tables stay. The records of an early batch may be in a table by now, too, or overwritten later. If the last
        // batches fill the table in memory, all of the log may be; the next database fills it at another point.
        Kind::Tree => {
            let loses = (0..10).any(|_| {
                let (lost, of) = records_lost(kind, |end| vec![end / 2, end / 4 * 3, end - 6000, end - 4000]);
                assert!(lost.iter().all(|&lost| lost < of), "{lost:?} of {of}");
                lost.iter().any(|&lost| lost > 0)
            });
            assert!(loses, "nothing is lost");
        }
    }
}

/// How many records of a new database are lost with the parts of its log at each of the offsets, and of how many.
fn records_lost(kind: Kind, offsets: impl Fn(usize) -> Vec<usize>) -> (Vec<usize>, usize) {
    let source = tempfile::tempdir().unwrap();
    let records = written(kind, source.path());
    let log = last_log(source.path());
    let whole = content(&log);
    let offsets = offsets(whole.len()).into_iter().map(|offset| match kind {
        Kind::Log => offset,
        // fjall refuses that. If a length changes, it leaves out the rest of the file.
        Kind::Tree => in_a_value(&whole, &records, offset),
    });
    let lost = offsets.map(|offset| records_lost_at(kind, source.path(), &records, &log, offset));
    (lost.collect(), records.len())
}

/// The offset in a value of a log that is the nearest one to an offset.
fn in_a_value(log: &[u8], records: &Records, offset: usize) -> usize {
    let start = offset.saturating_sub(5000);
    let near = &log[start..log.len().min(offset + 5000)];
    let values = records.values().filter(|value| value.len() > 100);
    let found = values.filter_map(|value| Some(start + memmem::find(near, value)? + value.len() / 2));
    found.min_by_key(|at| at.abs_diff(offset)).expect("values in the log")
}

/// How many records are lost with the part of the log at an offset. The loss is reported once.
fn records_lost_at(kind: Kind, source: &Path, records: &Records, log: &Path, offset: usize) -> usize {
    let copy = tempfile::tempdir().unwrap();
    let damaged = copy_with_damage(source, copy.path(), log, offset);
    let refused = kind.open(copy.path(), Options::default());
    assert!(
        matches!(refused, Err(EngineError::Corrupt { .. })),
        "the damaged log is not refused"
    );
    let Opened { engine, lost_writes } = open_noting(kind, copy.path()).unwrap();
    let lost = lost_writes.unwrap();
    let place = match kind {
        Kind::Log => log.file_name(),
        Kind::Tree => copy.path().file_name(),
    };
    assert!(lost.contains(place.unwrap().to_str().unwrap()), "{lost}");
    let table = engine.open_table("t").unwrap();
    let kept: Records = table
        .scan(b"", None)
        .unwrap()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect();
    let differing = records
        .iter()
        .filter(|(key, value)| kept.get(*key) != Some(*value))
        .count();
    // The damaged part is kept.
    let copies = files(copy.path()).into_iter();
    let mut copies = copies
        .filter(|path| path.to_str().unwrap().contains("-damaged"))
        .map(|path| fs::read(path).unwrap());
    assert!(
        copies.any(|bytes| bytes.starts_with(&damaged)),
        "the damaged file is not kept"
    );
    drop((table, engine));
    // It is not reported again, neither as an error nor as a loss.
    drop(kind.open(copy.path(), Options::default()).unwrap());
    assert_eq!(open_noting(kind, copy.path()).unwrap().lost_writes, None);
    differing
}

pub fn a_log_is_cut_off_only_after_a_note_and_a_durable_copy(kind: Kind) {
    let source = tempfile::tempdir().unwrap();
    let records = written(kind, source.path());
    let log = last_log(source.path());
    let copy = tempfile::tempdir().unwrap();
    let offset = in_a_value(&content(&log), &records, content(&log).len() / 2);
    copy_with_damage(source.path(), copy.path(), &log, offset);
    let damaged = copy.path().join(log.strip_prefix(source.path()).unwrap());
    let before = fs::read(&damaged).unwrap();
    let unnoted = Options {
        on_loss: OnLoss::Note(Arc::new(Unwritable)),
        ..Options::default()
    };
    let error = kind.open(copy.path(), unnoted).err();
    assert!(matches!(error, Some(EngineError::Io { .. })), "{error:?}");
    assert!(fs::read(&damaged).unwrap() == before, "the log was cut off");
    thread::scope(|scope| {
        let failing = scope.spawn(|| {
            fail_syncs_of_this_thread();
            open_noting(kind, copy.path()).err()
        });
        let error = failing.join().unwrap();
        assert!(matches!(error, Some(EngineError::Io { .. })), "{error:?}");
    });
    assert!(fs::read(&damaged).unwrap() == before, "the log was cut off");
    assert!(open_noting(kind, copy.path()).unwrap().lost_writes.is_some());
}

#[test]
fn what_was_synced_stays_when_a_later_batch_has_a_hole() {
    let source = tempfile::tempdir().unwrap();
    let records = written(Kind::Tree, source.path());
    let engine = Kind::Tree.open(source.path(), Options::default()).unwrap();
    // Compaction would remove files while they are copied.
    wait_until_still(source.path());
    engine.sync().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&*engine.open_table("t").unwrap(), "key".into(), vec![1; 10_000].into());
    engine.write(batch).unwrap();
    let copy = tempfile::tempdir().unwrap();
    copy_without_keys(source.path(), copy.path());
    let log = files(copy.path())
        .into_iter()
        .rfind(|path| content(path).len() > 10_000 && is_log(path));
    let log = log.unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let value = memmem::find(&bytes, &[1; 10_000]).expect("the last batch is in the log");
    // Pages of it were not written when the machine lost power.
    bytes[value + 2000..value + 6000].fill(0);
    fs::write(&log, bytes).unwrap();
    let Opened { engine, lost_writes } = open_noting(Kind::Tree, copy.path()).unwrap();
    assert!(lost_writes.is_some());
    assert_eq!(read(&*engine, &records), 0);
}

pub fn a_partial_batch_at_the_end_is_not_damage(kind: Kind) {
    let source = tempfile::tempdir().unwrap();
    let records = written(kind, source.path());
    // A log that continues in the same file. If the file is full, or is cleaned meanwhile, the next attempt finds
    // another one.
    let attempt = || {
        let before = tempfile::tempdir().unwrap();
        copy_without_keys(source.path(), before.path());
        let engine = kind.open(source.path(), Options::default()).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(&*engine.open_table("t").unwrap(), "key".into(), vec![1; 1500].into());
        engine.write(batch).unwrap();
        drop(engine);
        let log = last_log(source.path());
        let bytes = content(&log);
        let same = before.path().join(log.strip_prefix(source.path()).unwrap());
        (same.exists() && bytes.len() > content(&same).len() + 1500).then_some((before, log, bytes))
    };
    let (before, log, bytes) = (0..20).find_map(|_| attempt()).expect("a log that continues");
    for cut in [1, 5, 20, 100, 1000] {
        let copy = tempfile::tempdir().unwrap();
        copy_with_a_flip(before.path(), copy.path(), Path::new(""), 0, 0);
        // With the zeros of the preallocation.
        let mut torn = bytes[..bytes.len() - cut].to_vec();
        torn.resize(bytes.len() + 4096, 0);
        fs::write(copy.path().join(log.strip_prefix(source.path()).unwrap()), torn).unwrap();
        let engine = kind.open(copy.path(), Options::default()).unwrap();
        let table = engine.open_table("t").unwrap();
        for (key, value) in &records {
            assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]), "{cut}");
        }
    }
}

#[test]
fn a_log_of_another_fjall_version_is_left_alone() {
    let source = tempfile::tempdir().unwrap();
    written(Kind::Tree, source.path());
    let log = last_log(source.path());
    for version in [&b"FJL\x04"[..], b"FJL\x02", b""] {
        let copy = tempfile::tempdir().unwrap();
        copy_with_damage(source.path(), copy.path(), &log, content(&log).len() / 2);
        fs::write(copy.path().join("fjall/version"), version).unwrap();
        let before: Vec<_> = files(copy.path())
            .into_iter()
            .map(|path| (fs::read(&path).unwrap(), path))
            .collect();
        let error = kind_error(open_noting(Kind::Tree, copy.path()));
        assert!(error.contains("nothing was changed"), "{error}");
        let after: Vec<_> = files(copy.path())
            .into_iter()
            .map(|path| (fs::read(&path).unwrap(), path))
            .collect();
        assert!(before == after, "a file was changed");
    }
}

fn kind_error(opened: Result<Opened, EngineError>) -> String {
    match opened {
        Ok(_) => panic!("the engine opens"),
        Err(error) => error.to_string(),
    }
}

pub fn a_loss_that_a_former_release_noted_is_noted_once(kind: Kind) {
    let source = tempfile::tempdir().unwrap();
    let records = written(kind, source.path());
    let note = source.path().join("lost");
    fs::write(&note, "a segment is missing").unwrap();
    assert!(kind.open(source.path(), Options::default()).is_err() && note.exists());
    let Opened { engine, lost_writes } = open_noting(kind, source.path()).unwrap();
    assert_eq!(lost_writes.as_deref(), Some("a segment is missing"));
    assert_eq!(read(&*engine, &records), 0);
    drop(engine);
    assert_eq!(open_noting(kind, source.path()).unwrap().lost_writes, None);
}
