//! A push to three nodes: its duration and the bytes written, compared with `cp` of the same bytes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Measured;
use crate::bench::Bench;
use crate::machine::process::Launch;
use crate::peers::fondaco::STORE;
use crate::report::Rounds;
use crate::report::markdown::number;
use crate::servers::cluster::{Cluster, NODES};

const REPLICAS: u32 = 2;
const WRITTEN_MAX: f64 = 1.05;
const COPY_LIMIT: Duration = Duration::from_secs(120);
const COPY: &str = "cp and sync";

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let cluster = Cluster::start(bench, "push-cluster", REPLICAS)?;
    cluster.control().create(STORE)?;
    let mut rounds = Rounds::default();
    let mut bytes = 0;
    for round in 0..bench.rounds() {
        let source = bench.version_elsewhere(STORE, bench.moved_values(), round)?;
        bytes = source.bytes()? * u64::from(REPLICAS);
        let before = written_by_nodes(&cluster)?;
        let started = Instant::now();
        cluster.control().deploy(STORE, source.path())?;
        rounds.add("push", "s", started.elapsed().as_secs_f64());
        let written = written_by_nodes(&cluster)? - before;
        rounds.add("written", "× replicas × data", written as f64 / bytes as f64);
        rounds.add(COPY, "s", copy(bench, source.path())?.as_secs_f64());
    }
    cluster.end()?;
    let megabytes = bytes as f64 / 1e6;
    let rate = |name: &str| number(megabytes / rounds.median(name));
    let work = format!(
        "push to {NODES} nodes at {REPLICAS} replicas, {} MB in all",
        number(megabytes)
    );
    Ok(Measured {
        lines: vec![
            rounds.compare(work, "push", COPY, "the time of cp"),
            rounds
                .line("bytes that the nodes wrote", "written")
                .figure_at_most(WRITTEN_MAX),
        ],
        notes: vec![format!(
            "From the command to the swap: each node copies its partitions from a file system in memory (so nothing is linked, and the network is no limit), verifies all checksums, makes the files durable, and opens them; there are no reads meanwhile. {} MB/s of replicas, `cp -r` of the version {REPLICAS} times and `sync` {} MB/s: what this disk takes. Bytes are `write_bytes` of the nodes in `/proc`, manifests and logs of theirs counted. The three nodes share a disk and two cores.",
            rate("push"),
            rate(COPY)
        )],
        ..Measured::default()
    })
}

fn written_by_nodes(cluster: &Cluster) -> Result<u64> {
    let nodes = cluster.nodes().iter();
    nodes.map(|node| node.process().written_bytes()).sum()
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
