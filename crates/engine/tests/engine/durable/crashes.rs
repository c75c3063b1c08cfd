//! A process that writes to an engine on disk is killed at random times, again and again. Afterwards all acknowledged
//! writes are there, batches are whole, and nothing else is there.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fondaco_engine::Table;
use fondaco_testing::random;

use super::batches::{KEYS, last, number, once, open, value};
use super::engines::Kind;

const KILLS: usize = 25;

pub fn acknowledged_writes_survive_kills_at_random_times(kind: Kind) {
    let mut random = random("kills of an engine");
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
    let mut child = Command::new(env!("CARGO_BIN_EXE_fondaco-engine-writer"))
        .arg(dir)
        .arg(kind.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = |line: &str| -> Option<u64> { line.parse().ok() };
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
    // Lines that it wrote before it was killed. A line that it did not finish has a smaller number.
    for line in lines {
        acknowledged = said(&line.unwrap()).max(acknowledged);
    }
    acknowledged
}

/// Checks that a table has the content of `written` batches, and nothing else.
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
