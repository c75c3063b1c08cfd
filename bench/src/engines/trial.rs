//! Tests one engine in its own process: fill, sync, read while writing, read alone, scan, reopen.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use hdrhistogram::Histogram;
use xxhash_rust::xxh3::xxh3_64;

use super::{Candidate, WritableEngine};
use crate::dataset::{Dataset, Random, Scattered, append_value, key};
use crate::load::new_histogram;
use crate::machine::disk;
use crate::machine::process::status_bytes_of;

/// The size of a group commit on a busy node.
const BATCH_RECORDS: u64 = 64;

/// A result of a trial: its name, its unit, and its value. All are printed as JSON.
pub type Finding = (String, String, f64);

/// Keys are in the order of their hashes, like those of stores.
pub(super) fn scattered_key(id: u64) -> Vec<u8> {
    let key = key(id);
    [&xxh3_64(&key).to_be_bytes()[..], &key].concat()
}

fn record(id: u64, dataset: Dataset) -> (Vec<u8>, Vec<u8>) {
    let mut value = Vec::new();
    append_value(id, dataset.value_bytes, &mut value);
    (scattered_key(id), value)
}

fn tails(latencies: &Histogram<u64>) -> [f64; 2] {
    [0.99, 0.999].map(|quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0)
}

/// Tests an engine in an empty directory, and prints the results.
pub fn run(candidate: Candidate, dir: &Path, dataset: Dataset, cache_bytes: u64, phase: Duration) -> Result<()> {
    let engine = candidate.open(dir, cache_bytes)?;
    let (written_per_s, batch_us) = fill(&*engine, dataset)?;
    let synced_per_s = write_synced(&*engine, dataset, phase)?;
    let (busy, overwritten_per_s) = read_while_writing(&*engine, dataset, phase)?;
    let alone = read(&*engine, dataset, phase, &AtomicBool::new(false))?;
    let many_per_s = read_many(&*engine, dataset, phase)?;
    let started = Instant::now();
    let (keys, bytes) = engine.scan()?;
    let scanned_per_s = keys as f64 / started.elapsed().as_secs_f64();
    ensure!(
        keys == dataset.records,
        "a scan found {keys} keys of {}",
        dataset.records
    );
    let resident_mib = resident_mib()?;
    drop(engine);
    let started = Instant::now();
    let engine = candidate.open(dir, cache_bytes)?;
    let open_ms = started.elapsed().as_secs_f64() * 1000.0;
    ensure!(engine.get(&scattered_key(0))?.is_some(), "the first key is gone");
    drop(engine);
    let space = used_bytes(dir)? as f64 / bytes as f64;
    let findings = [
        // In random order, in batches, each in the operating system's page cache.
        ("written", "records/s", written_per_s),
        ("batch p99", "µs", batch_us[0]),
        ("batch p99.9", "µs", batch_us[1]),
        ("synced", "records/s", synced_per_s),
        ("reads", "reads/s", alone.0),
        ("reads of 64", "reads/s", many_per_s),
        ("read p99", "µs", alone.1[0]),
        ("read p99.9", "µs", alone.1[1]),
        // While another thread writes as fast as it can.
        ("busy read p99", "µs", busy.1[0]),
        ("busy read p99.9", "µs", busy.1[1]),
        ("overwritten", "records/s", overwritten_per_s),
        ("scanned", "records/s", scanned_per_s),
        // Bytes on disk per byte of keys and values, at the end.
        ("space", "bytes", space),
        ("resident", "MiB", resident_mib),
        ("open", "ms", open_ms),
    ];
    println!("{}", serde_json::to_string(&findings)?);
    Ok(())
}

pub(super) fn fill(engine: &dyn WritableEngine, dataset: Dataset) -> Result<(f64, [f64; 2])> {
    let order = Scattered::new(dataset.records);
    let mut latencies = new_histogram()?;
    let mut took = Duration::ZERO;
    for first in (0..dataset.records).step_by(BATCH_RECORDS as usize) {
        let numbers = first..dataset.records.min(first + BATCH_RECORDS);
        let batch: Vec<_> = numbers.map(|number| record(order.place(number), dataset)).collect();
        let started = Instant::now();
        engine.write(&batch)?;
        took += started.elapsed();
        latencies.record(started.elapsed().as_nanos() as u64)?;
    }
    Ok((dataset.records as f64 / took.as_secs_f64(), tails(&latencies)))
}

/// Overwrites random records until told to stop: how many a second.
fn overwrite(
    engine: &dyn WritableEngine,
    dataset: Dataset,
    seed: u64,
    sync: bool,
    stop: impl Fn() -> bool,
) -> Result<f64> {
    let mut random = Random::new(seed);
    let mut took = Duration::ZERO;
    let mut written = 0;
    while !stop() {
        let batch: Vec<_> = (0..BATCH_RECORDS)
            .map(|_| record(random.below(dataset.records), dataset))
            .collect();
        let started = Instant::now();
        engine.write(&batch)?;
        if sync {
            engine.sync()?;
        }
        took += started.elapsed();
        written += BATCH_RECORDS;
    }
    Ok(written as f64 / took.as_secs_f64())
}

fn write_synced(engine: &dyn WritableEngine, dataset: Dataset, phase: Duration) -> Result<f64> {
    engine.sync()?;
    let started = Instant::now();
    overwrite(engine, dataset, 1, true, || started.elapsed() > phase)
}

fn read(engine: &dyn WritableEngine, dataset: Dataset, phase: Duration, done: &AtomicBool) -> Result<(f64, [f64; 2])> {
    let mut random = Random::new(2);
    let mut latencies = new_histogram()?;
    let started = Instant::now();
    while started.elapsed() < phase {
        let id = random.below(dataset.records);
        let wanted = scattered_key(id);
        let asked = Instant::now();
        let value = engine.get(&wanted)?;
        latencies.record(asked.elapsed().as_nanos() as u64)?;
        ensure!(
            value.is_some_and(|value| value.starts_with(&key(id))),
            "record {id} is wrong"
        );
    }
    done.store(true, Ordering::Release);
    Ok((
        latencies.len() as f64 / started.elapsed().as_secs_f64(),
        tails(&latencies),
    ))
}

/// Reads random records, as many at a time as a batch has: how many a second.
fn read_many(engine: &dyn WritableEngine, dataset: Dataset, phase: Duration) -> Result<f64> {
    let mut random = Random::new(4);
    let (mut took, mut read) = (Duration::ZERO, 0);
    let started = Instant::now();
    while started.elapsed() < phase {
        let ids: Vec<u64> = (0..BATCH_RECORDS).map(|_| random.below(dataset.records)).collect();
        let wanted: Vec<_> = ids.iter().map(|&id| scattered_key(id)).collect();
        let asked = Instant::now();
        let values = engine.get_many(&wanted)?;
        took += asked.elapsed();
        read += BATCH_RECORDS;
        let is_right = |(id, value): (&u64, &Option<Vec<u8>>)| {
            let value = value.as_ref();
            value.is_some_and(|value| value.starts_with(&key(*id)))
        };
        ensure!(ids.iter().zip(&values).all(is_right), "a record of {ids:?} is wrong");
    }
    Ok(read as f64 / took.as_secs_f64())
}

type Reads = (f64, [f64; 2]);

fn read_while_writing(engine: &dyn WritableEngine, dataset: Dataset, phase: Duration) -> Result<(Reads, f64)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| overwrite(engine, dataset, 3, false, || done.load(Ordering::Acquire)));
        let reads = read(engine, dataset, phase, &done);
        // Also if reading failed.
        done.store(true, Ordering::Release);
        let written = writer.join().map_err(|_| anyhow!("the writer panicked"))?;
        Ok((reads?, written?))
    })
}

/// LMDB's files are mapped: their pages in memory belong to the page cache, and do not count.
fn resident_mib() -> Result<f64> {
    let bytes = status_bytes_of(std::process::id(), "RssAnon")?;
    Ok(bytes as f64 / f64::from(1 << 20))
}

fn used_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    disk::each_file(dir, &mut |path| {
        bytes += fs::metadata(path)?.blocks() * 512;
        Ok(())
    })?;
    Ok(bytes)
}
