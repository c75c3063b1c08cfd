//! Engines that lose writes, or take no more.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fondaco_engine::{Engine, LogEngine, LogOptions, LossNotes, OnLoss};
use fondaco_stream::{EventLog, Found, Ingest, LogTopic, drop_after_loss, drop_after_losses};
use fondaco_testing::eventually;

use super::{START_MS, event, feed_all, value_of};
use crate::overlay::{feed, memory, options, overlay_in, partitions, value};

const KEYS: usize = 500;

/// The losses that engines have noted.
#[derive(Debug, Default)]
struct Noted(Mutex<String>);

impl LossNotes for Noted {
    fn note(&self, lost: &str) -> io::Result<()> {
        self.0.lock().unwrap().push_str(lost);
        Ok(())
    }
}

fn open(dir: &Path, key_bytes_max: u64, on_loss: OnLoss) -> Arc<dyn Engine> {
    let options = LogOptions {
        key_bytes_max,
        on_loss,
        ..LogOptions::default()
    };
    Arc::new(LogEngine::open(dir, options).unwrap())
}

/// Opens an engine that finds lost writes. Returns the loss, too.
fn open_after_loss(dir: &Path) -> (Arc<dyn Engine>, String) {
    let noted = Arc::<Noted>::default();
    let engine = open(dir, u64::MAX, OnLoss::Note(Arc::clone(&noted) as _));
    let lost = noted.0.lock().unwrap().clone();
    assert!(!lost.is_empty());
    (engine, lost)
}

/// A topic with an event of each key.
fn topic() -> Arc<LogTopic> {
    let topic = EventLog::new(memory()).topic("t", 1).unwrap();
    let events: Vec<_> = (0..KEYS)
        .map(|key| event(&format!("k{key}"), Some("x"), None))
        .collect();
    topic.append(&events, START_MS).unwrap();
    topic
}

/// Feeds the overlay in an engine. Returns how many keys have their value then, and how many events were applied.
fn fed(engine: &Arc<dyn Engine>, topic: &Arc<LogTopic>) -> (usize, u64) {
    let overlay = overlay_in(engine, options(1), &partitions(0..8));
    feed_all(&[feed(&overlay, topic)]);
    let found = (0..KEYS).filter(|key| value_of(&overlay, &format!("k{key}")) == value("x"));
    (found.count(), overlay.applied().applied)
}

#[test]
fn overlays_read_everything_again_after_losses() {
    let (dir, topic) = (tempfile::tempdir().unwrap(), topic());
    let open = || open(dir.path(), u64::MAX, OnLoss::Refuse);
    assert_eq!(fed(&open(), &topic), (KEYS, KEYS as u64));
    damage(dir.path());
    let (engine, lost) = open_after_loss(dir.path());
    drop_after_loss(&*engine, &options(1), &lost).unwrap();
    assert_eq!(fed(&engine, &topic), (KEYS, KEYS as u64));
    drop(engine);
    // Of the loss that is known there is nothing to do.
    let engine = open();
    drop_after_losses(&*engine, &lost).unwrap();
    assert_eq!(fed(&engine, &topic), (KEYS, 0));
    let overlay = overlay_in(&engine, options(2), &partitions(0..8));
    assert_eq!(value_of(&overlay, "k0"), Found::Behind, "it has read nothing");
}

#[test]
fn losses_that_are_forgotten_before_overlays_open_count() {
    let (dir, topic) = (tempfile::tempdir().unwrap(), topic());
    let intact = open(dir.path(), u64::MAX, OnLoss::Refuse);
    assert_eq!(fed(&intact, &topic), (KEYS, KEYS as u64));
    drop(intact);
    damage(dir.path());
    let (engine, lost) = open_after_loss(dir.path());
    drop_after_losses(&*engine, &lost).unwrap();
    assert_eq!(fed(&engine, &topic), (KEYS, KEYS as u64));
}

#[test]
fn events_wait_until_there_is_memory_for_keys() {
    let (dir, topic) = (tempfile::tempdir().unwrap(), topic());
    let applied = {
        let overlay = overlay_in(&open(dir.path(), 20_000, OnLoss::Refuse), options(1), &partitions(0..8));
        let feed = feed(&overlay, &topic);
        let ingest = Ingest::start(1).unwrap();
        ingest.set_feeds(vec![Arc::clone(&feed)]);
        let error = eventually("the feed to have an error", || feed.status().error);
        assert!(error.contains("memory"), "{error}");
        overlay.applied().applied
    };
    assert!((1..KEYS as u64).contains(&applied), "{applied}");
    let rest = KEYS as u64 - applied;
    assert_eq!(fed(&open(dir.path(), u64::MAX, OnLoss::Refuse), &topic), (KEYS, rest));
}

/// Damages a batch in the middle of the log; the last ones, with the offsets that were reached, stay.
fn damage(dir: &Path) {
    let files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let of = |kind: &'static str| {
        files
            .iter()
            .filter(move |path| path.extension().is_some_and(|extension| extension == kind))
    };
    // As after a kill: with its keys, a segment is not read.
    of("keys").for_each(|keys| fs::remove_file(keys).unwrap());
    let segment = of("segment").min().unwrap();
    let mut bytes = fs::read(segment).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    bytes[end / 2] ^= 0xFF;
    fs::write(segment, bytes).unwrap();
}
