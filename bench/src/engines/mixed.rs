//! Our disk engine, called directly, under the mixes of reads and writes that its stores are measured with: its
//! requests per second of CPU time, including the time for flushes and compactions.
//!
//! As for servers, CPU time is counted until the background work is done. Generating the requests is not the engine's
//! work: it is repeated without the engine, and its time is subtracted. It is little, so the difference between running
//! beside the engine and alone does not matter: values are slices of random bytes that are made before.

use std::hint::black_box;
use std::io::BufRead;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::trial::{fill, scattered_key};
use super::{Candidate, WritableEngine};
use crate::dataset::{Dataset, append_value, is_value_of, key};
use crate::load::{KeyChoice, Keys};
use crate::machine::settled;

/// How many requests to send between checks of the clock.
const LOOK_EACH: u64 = 64;
/// The number of random bytes that values are slices of.
const CUT_FROM_BYTES: usize = 256 << 10;

/// The requests: a share of writes from 0 to 1, and a uniform or Zipfian distribution of keys.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct EngineMix {
    /// The share of writes.
    pub writes: f64,
    /// Whether the keys have a Zipfian distribution.
    pub zipf: bool,
    /// Whether each batch must be on disk before the next one.
    pub synced: bool,
    /// The number of writes per batch.
    pub batch: u64,
    /// The duration.
    pub lasts: Duration,
}

/// Fills an engine in an empty directory, and runs a mix for each line of standard input, an [`EngineMix`] as JSON.
/// Answers each with a line with the requests per second of CPU time.
pub fn run(candidate: Candidate, dir: &Path, dataset: Dataset, cache_bytes: u64) -> Result<()> {
    let engine = candidate.open(dir, cache_bytes)?;
    fill(&*engine, dataset)?;
    for (seed, mix) in (0..).zip(std::io::stdin().lock().lines()) {
        println!(
            "{}",
            per_cpu_second(&*engine, dataset, serde_json::from_str(&mix?)?, seed)?
        );
    }
    Ok(())
}

fn per_cpu_second(engine: &dyn WritableEngine, dataset: Dataset, mix: EngineMix, seed: u64) -> Result<f64> {
    let Dataset { records, .. } = dataset;
    let choice = match mix.zipf {
        true => KeyChoice::Zipf { records },
        false => KeyChoice::Uniform { records },
    };
    let keys = Keys::new(choice, seed);
    let values = Values::new(dataset.value_bytes);
    // Earlier writes must not count for this mix.
    engine.sync()?;
    rustix::fs::sync();
    let end = Instant::now() + mix.lasts;
    let before = process_time();
    let requests = requests(
        keys.reseeded(seed),
        mix,
        &values,
        |_| Instant::now() < end,
        |request| match request {
            Request::Write(batch) => {
                engine.write(batch)?;
                match mix.synced {
                    true => engine.sync(),
                    false => Ok(()),
                }
            }
            Request::Read(id, key) => {
                let value = engine.get(key)?;
                ensure!(
                    value.is_some_and(|value| is_value_of(id, &value)),
                    "record {id} is wrong"
                );
                Ok(())
            }
        },
    )?;
    let used = settled(|| Ok(process_time()))? - before;
    let before = process_time();
    self::requests(
        keys.reseeded(seed),
        mix,
        &values,
        |made| made < requests,
        |request| {
            black_box(request);
            Ok(())
        },
    )?;
    let making = process_time() - before;
    Ok(requests as f64 / used.saturating_sub(making).as_secs_f64().max(f64::EPSILON))
}

/// A request to the engine.
enum Request<'a> {
    /// A batch.
    Write(&'a [(Vec<u8>, Vec<u8>)]),
    /// A read of the record with this number and key.
    Read(u64, &'a [u8]),
}

/// Generates values quickly. Values of neighbouring records usually have nothing in common, since an engine would
/// compress them otherwise.
struct Values {
    random: Vec<u8>,
    value_bytes: usize,
}

impl Values {
    fn new(value_bytes: usize) -> Self {
        let mut random = Vec::new();
        append_value(0, CUT_FROM_BYTES + value_bytes, &mut random);
        Self { random, value_bytes }
    }

    /// A value of the record with this number.
    fn of(&self, id: u64) -> Vec<u8> {
        let key = key(id);
        let from = xxh3_64(&key) as usize % CUT_FROM_BYTES;
        let mut value = Vec::with_capacity(self.value_bytes);
        value.extend_from_slice(&key[..self.value_bytes.min(key.len())]);
        value.extend_from_slice(&self.random[from..from + self.value_bytes - value.len()]);
        value
    }
}

/// Sends requests while more are wanted; returns their number, counting each record of a batch.
fn requests(
    mut keys: Keys,
    mix: EngineMix,
    values: &Values,
    mut wants: impl FnMut(u64) -> bool,
    mut ask: impl FnMut(Request<'_>) -> Result<()>,
) -> Result<u64> {
    let mut batch = Vec::new();
    let mut made: u64 = 0;
    while !made.is_multiple_of(LOOK_EACH) || wants(made) {
        let is_write = keys.chance(mix.writes);
        let id = keys.next();
        match is_write {
            true => batch.push((scattered_key(id), values.of(id))),
            false => ask(Request::Read(id, &scattered_key(id)))?,
        }
        if batch.len() as u64 == mix.batch {
            ask(Request::Write(&batch))?;
            batch.clear();
        }
        made += 1;
    }
    Ok(made)
}

/// The CPU time of all threads of this process so far.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_belong_to_their_records_and_differ() {
        for value_bytes in [0, 5, 12, 1024] {
            let values = Values::new(value_bytes);
            for id in 0..1000 {
                let value = values.of(id);
                assert_eq!(value.len(), value_bytes);
                assert!(value_bytes < 12 || is_value_of(id, &value));
            }
        }
        let values = Values::new(1024);
        assert_ne!(values.of(1)[12..], values.of(2)[12..]);
    }

    #[test]
    fn the_same_number_of_requests_runs_without_the_engine() {
        let values = Values::new(20);
        let keys = Keys::new(KeyChoice::Uniform { records: 100 }, 1);
        let (mut reads, mut written) = (0, 0);
        let mix = EngineMix {
            writes: 0.5,
            zipf: false,
            synced: false,
            batch: 40,
            lasts: Duration::ZERO,
        };
        let made = requests(
            keys,
            mix,
            &values,
            |made| made < 1000,
            |request| {
                match request {
                    Request::Read(..) => reads += 1,
                    Request::Write(batch) => written += batch.len() as u64,
                }
                Ok(())
            },
        );
        let made = made.unwrap();
        assert_eq!(made, 1024);
        assert!(reads + written <= made && made - reads - written < mix.batch);
    }
}
