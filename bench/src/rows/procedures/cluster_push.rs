//! A push to three nodes: its duration and the bytes written, compared with `cp` of the same bytes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::runner::Running;
use super::super::spec::Step;
use crate::bench::Bench;
use crate::machine::process::Launch;
use crate::servers::fondaco::STORE;

const REPLICAS: u32 = 2;
const COPY_LIMIT: Duration = Duration::from_secs(120);

/// Pushes to all nodes, and copies the same bytes: seconds, and bytes that the nodes wrote.
pub fn measure(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let bench = running.bench;
    let source = bench.version_elsewhere(STORE, running.dataset, running.round)?;
    let bytes = source.bytes()? * u64::from(REPLICAS);
    let cluster = running.fondaco()?;
    let (before, started) = (cluster.written_bytes()?, Instant::now());
    cluster.control().deploy(STORE, source.path(), &[])?;
    let (took, written) = (started.elapsed(), cluster.written_bytes()? - before);
    let copied = copy(bench, source.path())?;
    let megabytes = bytes as f64 / 1e6;
    let values = [
        ("push", "s", took.as_secs_f64()),
        ("written", "× replicas × data", written as f64 / bytes as f64),
        ("cp and sync", "s", copied.as_secs_f64()),
        ("megabytes", "MB", megabytes),
        ("push rate", "MB/s", megabytes / took.as_secs_f64()),
        ("cp rate", "MB/s", megabytes / copied.as_secs_f64()),
    ];
    running.record("", values);
    Ok(())
}

/// The minimum: copies the same bytes on the same disk, durably.
fn copy(bench: &Bench, source: &Path) -> Result<Duration> {
    let dir = bench.fresh_dir("copies")?;
    let log = bench.log("cp");
    let started = Instant::now();
    for replica in 1..=REPLICAS {
        let to = dir.join(replica.to_string());
        let copy = Launch::new("cp").args(["-r".as_ref(), source.as_os_str(), to.as_os_str()]);
        copy.log_to(&log).run(COPY_LIMIT)?;
    }
    let sync = Launch::new("sync").args(["-f".as_ref(), dir.as_os_str()]);
    sync.log_to(&log).run(COPY_LIMIT)?;
    let took = started.elapsed();
    std::fs::remove_dir_all(&dir)?;
    Ok(took)
}
