//! A process that writes to an engine on disk is killed at random moments, again and again: what it was told is
//! written is there, batches are whole, and nothing else is.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_engine::{Engine, Table, WriteBatch};

use crate::engines::{Kind, Options};

const KILLS: usize = 25;
/// Where the child writes; it is no test without.
const DIR: &str = "FONDACO_TEST_ENGINE_DIR";
/// What it writes with.
const KIND: &str = "FONDACO_TEST_ENGINE";
const KEYS: u64 = 500;
const PADDING_BYTES: u64 = 3000;

/// Written out, merged and cleaned all the time, so that kills find that under way.
fn open(kind: Kind, dir: &Path) -> Box<dyn Engine> {
    let opened = kind.open(dir, Options::default()).unwrap();
    assert_eq!(opened.lost_writes, None);
    opened.engine
}

/// The number of a batch, and as much padding as the number says.
fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(8 + (number * 37 % PADDING_BYTES) as usize, number as u8);
    value
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// A key that is put and deleted once, and long, so that deletions are much of what is stored.
fn once(number: u64) -> Bytes {
    format!("once-{number:0200}").into()
}

fn last(table: &dyn Table) -> u64 {
    table.get(b"last").unwrap().map_or(0, |value| number(&value))
}

#[test]
#[ignore = "not a test: what the test of kills runs as a process of its own, and kills"]
fn write_until_killed() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let engine = open(Kind::of_environment(KIND), Path::new(&dir));
    let (one, two) = (engine.open_table("one").unwrap(), engine.open_table("two").unwrap());
    let mut said = std::io::stdout().lock();
    for number in last(&*one) + 1.. {
        let mut batch = WriteBatch::new();
        for table in [&*one, &*two] {
            batch.put(
                table,
                (number % KEYS).to_be_bytes().to_vec().into(),
                value(number).into(),
            );
            batch.put(table, "last".into(), value(number).into());
            // Of two neighbours, one is there at a time.
            batch.put(table, format!("neighbour-{}", number % 2).into(), value(number).into());
            batch.delete(table, format!("neighbour-{}", (number + 1) % 2).into());
            batch.put(table, once(number), value(number).into());
            batch.delete(table, once(number - 1));
        }
        engine.write(batch).unwrap();
        if number % 64 == 0 {
            engine.sync().unwrap();
        }
        writeln!(said, "written {number}").unwrap();
    }
}

pub fn what_was_acknowledged_is_there_after_kills_at_random_moments(kind: Kind) {
    let seed = std::env::var("FONDACO_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("FONDACO_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut written = 0;
    for kill in 0..KILLS {
        let acknowledged = write_and_kill(kind, dir.path(), &mut random);
        let engine = open(kind, dir.path());
        let (one, two) = (engine.open_table("one").unwrap(), engine.open_table("two").unwrap());
        let found = last(&*one);
        let acknowledged = acknowledged.unwrap_or(written);
        assert!(
            (acknowledged..=acknowledged + 1).contains(&found),
            "kill {kill}: {found} after {acknowledged}"
        );
        assert!(found >= written, "kill {kill}");
        written = found;
        for table in [&*one, &*two] {
            check(table, written);
        }
    }
    assert!(written > KILLS as u64, "the kills came before anything was written");
}

/// Runs the child for a random while. The number of the last batch that it said was written.
fn write_and_kill(kind: Kind, dir: &Path, random: &mut fastrand::Rng) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::write_until_killed", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .env(KIND, kind.name())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The harness may have begun the line.
    let said = |line: &str| -> Option<u64> { line.split_once("written ")?.1.parse().ok() };
    // Killed also while it opens: the log is replayed then, and files are deleted.
    let batches = if random.u8(..) < 50 { 0 } else { random.usize(1..1500) };
    let mut acknowledged = None;
    for line in lines.by_ref().take(batches) {
        acknowledged = said(&line.unwrap()).or(acknowledged);
    }
    let delay = Duration::from_micros(random.u64(..5000));
    let at = Instant::now() + delay;
    while Instant::now() < at {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What it had said before that; of a line that it did not finish, the number is smaller.
    for line in lines {
        acknowledged = said(&line.unwrap()).max(acknowledged);
    }
    acknowledged
}

/// What a table must have after so many batches: all of it, and nothing else.
fn check(table: &dyn Table, written: u64) {
    let mut expected: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    if written > 0 {
        let latest = written.saturating_sub(KEYS - 1).max(1)..=written;
        expected.extend(latest.map(|number| ((number % KEYS).to_be_bytes().to_vec(), value(number))));
        expected.push((b"last".to_vec(), value(written)));
        expected.push((format!("neighbour-{}", written % 2).into_bytes(), value(written)));
        expected.push((once(written).to_vec(), value(written)));
    }
    expected.sort();
    let found = table
        .scan(b"", None)
        .unwrap()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
    let found: Vec<_> = found.map(Result::unwrap).collect();
    let numbers =
        |entries: &[(Vec<u8>, Vec<u8>)]| -> Vec<_> { entries.iter().map(|(_, value)| number(value)).collect() };
    assert_eq!(
        numbers(&found),
        numbers(&expected),
        "of table {:?}, after {written}",
        table.name()
    );
    assert!(found == expected);
}
