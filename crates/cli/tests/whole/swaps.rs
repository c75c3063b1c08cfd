//! Readers that never stop, through a hundred swaps and rollbacks: no wrong and no failed answer.
//!
//! Every value names its version and its key, so that any mixing shows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use serde_json::json;

use super::node::Dev;

const KEYS: u64 = 2000;
const SWAPS: u64 = 100;
const VERSIONS: u64 = 3;
const VERSIONS_PUSHED: u64 = 6;

fn value(version: u64, key: u64) -> String {
    // Many lengths, so that records have different offsets in each version.
    format!(
        "version-{version} key-{key} {}",
        "x".repeat((key * (version + 7) % 300) as usize)
    )
}

/// The version of a value; the value must be that of the key.
fn version_of(text: &str, key: u64) -> u64 {
    let version = text
        .strip_prefix("version-")
        .and_then(|rest| rest.split(' ').next()?.parse().ok());
    let version = version.unwrap_or_else(|| panic!("key {key} has value {text:?}"));
    assert_eq!(text, value(version, key), "key {key}");
    version
}

fn with_versions() -> Dev {
    let dev = Dev::start();
    dev.done(&["store", "create", "s", "--backups", "5"]);
    for version in 1..=VERSIONS {
        let rows = (0..KEYS).map(|key| (key.to_string(), value(version, key)));
        let path = dev.csv(&format!("{version}.csv"), rows);
        dev.done(&["push", "s", path.to_str().unwrap(), "--key", "key", "--value", "value"]);
    }
    dev
}

/// Reads until told to stop; returns the number of answers.
type Reader = fn(&mut redis::Connection, &AtomicBool) -> u64;

fn read_one_by_one(redis: &mut redis::Connection, stop: &AtomicBool) -> u64 {
    let mut answers = 0;
    while !stop.load(SeqCst) {
        let key = answers * 7 % KEYS;
        let text: String = redis::cmd("GET").arg(format!("s:{key}")).query(redis).unwrap();
        version_of(&text, key);
        answers += 1;
    }
    answers
}

fn read_many_at_once(redis: &mut redis::Connection, stop: &AtomicBool) -> u64 {
    let mut answers = 0;
    while !stop.load(SeqCst) {
        let keys: Vec<u64> = (0..100).map(|at| (answers + at * 13) % KEYS).collect();
        let wire_keys: Vec<String> = keys.iter().map(|key| format!("s:{key}")).collect();
        let texts: Vec<String> = redis::cmd("MGET").arg(wire_keys).query(redis).unwrap();
        let versions: Vec<u64> = keys
            .iter()
            .zip(&texts)
            .map(|(&key, text)| version_of(text, key))
            .collect();
        assert!(
            versions.iter().all(|&version| version == versions[0]),
            "one MGET, versions {versions:?}"
        );
        answers += 1;
    }
    answers
}

fn read_in_pipelines(redis: &mut redis::Connection, stop: &AtomicBool) -> u64 {
    let mut answers = 0;
    while !stop.load(SeqCst) {
        let mut pipeline = redis::pipe();
        let keys: Vec<u64> = (0..64).map(|at| (answers + at) % KEYS).collect();
        for key in &keys {
            pipeline.cmd("GET").arg(format!("s:{key}"));
        }
        let texts: Vec<String> = pipeline.query(redis).unwrap();
        for (&key, text) in keys.iter().zip(&texts) {
            version_of(text, key);
        }
        answers += 64;
    }
    answers
}

#[test]
fn a_hundred_swaps_and_rollbacks_disturb_no_reader() {
    let dev = with_versions();
    let stop = AtomicBool::new(false);
    let answers = AtomicU64::new(0);
    let readers: [Reader; 6] = [
        read_one_by_one,
        read_one_by_one,
        read_many_at_once,
        read_many_at_once,
        read_in_pipelines,
        read_in_pipelines,
    ];
    std::thread::scope(|scope| {
        for reader in readers {
            let (dev, stop, answers) = (&dev, &stop, &answers);
            scope.spawn(move || {
                // A reader that fails must not leave the others waiting.
                let _stop = StopOnDrop(stop);
                answers.fetch_add(reader(&mut dev.redis(), stop), SeqCst)
            });
        }
        let _stop = StopOnDrop(&stop);
        let mut redis = dev.redis();
        for swap in 0..SWAPS {
            let current = if swap % 2 == 0 {
                // Never the oldest version, since the next step is a rollback from it.
                let version = swap / 2 % (VERSIONS - 1) + 2;
                dev.http_post("/v1/stores/s/swap", json!({ "version": version }));
                version
            } else {
                let store = dev.http_post("/v1/stores/s/rollback", json!({}));
                store["current_version"].as_u64().unwrap()
            };
            // A request after the answer gets the new version.
            let text: String = redis::cmd("GET").arg("s:1").query(&mut redis).unwrap();
            assert_eq!(version_of(&text, 1), current, "after swap {swap}");
            assert!(!stop.load(SeqCst), "a reader failed before swap {swap}");
        }
    });
    println!("{} answers during {SWAPS} swaps, all right", answers.load(SeqCst));
    assert!(answers.load(SeqCst) > SWAPS);
}

#[test]
fn no_read_fails_while_versions_come_and_are_deleted() {
    let dev = Dev::start();
    dev.done(&["store", "create", "s", "--backups", "0"]);
    let stop = AtomicBool::new(false);
    let version = |number: u64| {
        let rows = (0..KEYS).map(|key| (key.to_string(), value(number, key)));
        let csv = dev.csv("next.csv", rows);
        let pushed = dev.done(&["push", "s", csv.to_str().unwrap(), "--key", "key", "--value", "value"]);
        print!("{pushed}");
    };
    version(1);
    std::thread::scope(|scope| {
        for reader in [read_one_by_one as Reader, read_many_at_once] {
            let (dev, stop) = (&dev, &stop);
            scope.spawn(move || {
                let _stop = StopOnDrop(stop);
                reader(&mut dev.redis(), stop)
            });
        }
        let _stop = StopOnDrop(&stop);
        for number in 2..=VERSIONS_PUSHED {
            version(number);
            assert!(!stop.load(SeqCst), "a reader failed before version {number}");
        }
    });
    let kept = dev.json(&["versions", "s"]);
    assert_eq!(kept["versions"].as_array().unwrap().len(), 1);
    assert_eq!(kept["versions"][0]["version"], VERSIONS_PUSHED);
}

#[test]
fn a_scan_during_swaps_returns_all_permanent_keys() {
    let dev = with_versions();
    let mut redis = dev.redis();
    let mut found = std::collections::BTreeSet::new();
    let (mut cursor, mut swap) = (0u64, 0);
    loop {
        let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("COUNT")
            .arg(50)
            .query(&mut redis)
            .unwrap();
        found.extend(keys);
        swap += 1;
        dev.http_post("/v1/stores/s/swap", json!({ "version": swap % VERSIONS + 1 }));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert!(swap > 10, "the scan took only {swap} steps");
    let expected: std::collections::BTreeSet<String> = (0..KEYS).map(|key| format!("s:{key}")).collect();
    assert_eq!(found, expected);
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
