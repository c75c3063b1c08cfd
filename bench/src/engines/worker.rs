//! One engine in its own process: opened once, then measured round by round on demand.
//!
//! So each engine has its own memory (and memory limit), all stay warm, and their rounds alternate. The bench writes a
//! line of JSON to the worker's standard input, a [`Task`], and reads a line of JSON, an [`Answer`], from its standard
//! output.

use std::io::BufRead;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::dataset::{KEY_BYTES, Random, key};
use crate::machine::dialogue::Dialogue;
use crate::machine::process::{Launch, status_bytes_of};
use crate::peers::{EngineKind, OpenSettings, ReadOnlyEngine, Reader, with_engine};

/// A task for a worker.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Task {
    /// Get every record once, in key order.
    Warm,
    /// Get this many random records, one after the other.
    Hot { gets: u64, seed: u64 },
    /// Get this many random records in one batch.
    HotMany { gets: u64, seed: u64 },
    /// Get random records with this many threads for this long.
    Cold { threads: u64, milliseconds: u64, seed: u64 },
}

/// The result of a task.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Answer {
    /// The number of gets.
    pub gets: u64,
    /// The duration, in nanoseconds.
    pub nanoseconds: u64,
    /// The size of the engine's index, in bytes.
    pub index_bytes: u64,
    /// The anonymous resident memory of the process, in bytes; mapped files do not count.
    pub anonymous_bytes: u64,
}

/// A worker, from the side of the bench.
pub struct Worker {
    dialogue: Dialogue,
}

impl Worker {
    /// Starts a worker.
    pub fn start(launch: &Launch) -> Result<Self> {
        let dialogue = Dialogue::start(launch)?;
        Ok(Self { dialogue })
    }

    /// Sends a task, and waits for the answer.
    pub fn ask(&mut self, task: Task, limit: Duration) -> Result<Answer> {
        let answer = self.dialogue.ask(&serde_json::to_string(&task)?, limit)?;
        Ok(serde_json::from_str(&answer)?)
    }
}

/// The worker process: answers tasks until its input ends.
pub fn run(engine: EngineKind, dir: &Path, records: u64, cache_bytes: u64) -> Result<()> {
    ensure!(records > 0, "a dataset without records");
    with_engine!(engine, serve(dir, records, cache_bytes))
}

fn serve<E: ReadOnlyEngine>(dir: &Path, records: u64, cache_bytes: u64) -> Result<()> {
    let engine = E::open(dir, OpenSettings { cache_bytes })?;
    for line in std::io::stdin().lock().lines() {
        let (gets, took) = match serde_json::from_str(&line?)? {
            Task::Warm => get_all(&engine, records)?,
            Task::Hot { gets, seed } => get_hot(&engine, records, gets, seed)?,
            Task::HotMany { gets, seed } => get_hot_many(&engine, records, gets, seed)?,
            Task::Cold {
                threads,
                milliseconds,
                seed,
            } => get_cold(&engine, records, threads, Duration::from_millis(milliseconds), seed)?,
        };
        let answer = Answer {
            gets,
            nanoseconds: took.as_nanos() as u64,
            index_bytes: engine.index_bytes()?,
            anonymous_bytes: status_bytes_of(std::process::id(), "RssAnon")?,
        };
        println!("{}", serde_json::to_string(&answer)?);
    }
    Ok(())
}

fn get_all<E: ReadOnlyEngine>(engine: &E, records: u64) -> Result<(u64, Duration)> {
    let mut reader = engine.reader()?;
    let started = Instant::now();
    for id in 0..records {
        get_checked(&mut reader, &key(id))?;
    }
    Ok((records, started.elapsed()))
}

/// Keys are generated before the clock starts, so only look-ups are measured.
fn random_keys(records: u64, count: u64, seed: u64) -> Vec<[u8; KEY_BYTES]> {
    let mut random = Random::new(seed);
    (0..count).map(|_| key(random.below(records))).collect()
}

fn get_hot_many<E: ReadOnlyEngine>(engine: &E, records: u64, gets: u64, seed: u64) -> Result<(u64, Duration)> {
    let keys = random_keys(records, gets, seed);
    let mut reader = engine.reader()?;
    let mut wrong = 0u64;
    let started = Instant::now();
    reader.get_many(&keys, |key, value| {
        wrong += u64::from(!value.is_some_and(|value| value.starts_with(key)));
    })?;
    let took = started.elapsed();
    ensure!(wrong == 0, "{wrong} keys of {gets} have a wrong value");
    Ok((gets, took))
}

fn get_hot<E: ReadOnlyEngine>(engine: &E, records: u64, gets: u64, seed: u64) -> Result<(u64, Duration)> {
    let keys = random_keys(records, gets, seed);
    let mut reader = engine.reader()?;
    let started = Instant::now();
    for key in &keys {
        get_checked(&mut reader, key)?;
    }
    Ok((gets, started.elapsed()))
}

fn get_cold<E: ReadOnlyEngine>(
    engine: &E,
    records: u64,
    threads: u64,
    wanted: Duration,
    seed: u64,
) -> Result<(u64, Duration)> {
    let started = Instant::now();
    let gets = thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || -> Result<u64> {
                    let mut reader = engine.reader()?;
                    let mut random = Random::new(seed * threads + thread);
                    let mut gets = 0;
                    while started.elapsed() < wanted {
                        get_checked(&mut reader, &key(random.below(records)))?;
                        gets += 1;
                    }
                    Ok(gets)
                })
            })
            .collect();
        let joined = readers
            .into_iter()
            .map(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?);
        joined.sum::<Result<u64>>()
    })?;
    Ok((gets, started.elapsed()))
}

/// A look-up that must find the right value.
#[inline]
fn get_checked(reader: &mut impl Reader, key: &[u8]) -> Result<()> {
    match reader.get(key, |value| value.starts_with(key))? {
        Some(true) => Ok(()),
        found => bail!(
            "the key {:?} has a wrong value: {found:?}",
            String::from_utf8_lossy(key)
        ),
    }
}
