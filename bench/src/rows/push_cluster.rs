//! A push to three nodes: its duration and the bytes written, compared with `cp` of the same bytes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Measured;
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::machine::process::Launch;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Figure, Line, Target};
use crate::servers::cluster::{Cluster, NODES};

const REPLICAS: u32 = 2;
const WRITTEN_MAX: f64 = 1.05;
const COPY_LIMIT: Duration = Duration::from_secs(120);

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = Dataset {
        records: if bench.quick { 40_000 } else { 1_000_000 },
        value_bytes: 1024,
    };
    let source = bench.version_elsewhere(dataset)?;
    let bytes = source.bytes()? * u64::from(REPLICAS);
    let cluster = Cluster::start(bench, "push-cluster", REPLICAS)?;
    cluster.control().create(STORE)?;
    let seconds = || Figure::new("s", Vec::new());
    let (mut pushed, mut copied) = (seconds(), seconds());
    let mut written = Figure::new("× replicas × data", Vec::new());
    for _ in 0..bench.rounds() {
        let before = written_by_nodes(&cluster)?;
        let started = Instant::now();
        cluster.control().deploy(STORE, source.path())?;
        pushed.rounds.push(started.elapsed().as_secs_f64());
        let bytes_written = written_by_nodes(&cluster)? - before;
        written.rounds.push(bytes_written as f64 / bytes as f64);
        copied.rounds.push(copy(bench, source.path())?.as_secs_f64());
    }
    cluster.end()?;
    let megabytes = bytes as f64 / 1e6;
    let rate = |figure: &Figure| number(megabytes / figure.median());
    let (push_rate, copy_rate) = (rate(&pushed), rate(&copied));
    Ok(Measured {
        lines: vec![
            Line {
                work: format!(
                    "push to {NODES} nodes at {REPLICAS} replicas, {} MB in all",
                    number(megabytes)
                ),
                ratio: Some((pushed.over(&copied), "the time of cp".into())),
                ours: pushed,
                peers: vec![("cp and sync".into(), copied)],
                targets: Vec::new(),
                memory: String::new(),
            },
            Line {
                work: "bytes that the nodes wrote".into(),
                targets: vec![Target::figure_at_most(&written, WRITTEN_MAX)],
                ours: written,
                peers: Vec::new(),
                ratio: None,
                memory: String::new(),
            },
        ],
        notes: vec![format!(
            "From the command to the swap: each node copies its partitions from a file system in memory (so nothing is linked, and the network is no limit), verifies all checksums, makes the files durable, and opens them; there are no reads meanwhile. {push_rate} MB/s of replicas, `cp -r` of the version {REPLICAS} times and `sync` {copy_rate} MB/s: what this disk takes. Bytes are `write_bytes` of the nodes in `/proc`, manifests and logs of theirs counted. The three nodes share a disk and two cores."
        )],
        charts: Vec::new(),
    })
}

fn written_by_nodes(cluster: &Cluster) -> Result<u64> {
    let nodes = cluster.nodes().iter();
    nodes.map(|node| node.process().written_bytes()).sum()
}

/// The minimum: copies the same bytes on the same disk, durably.
fn copy(bench: &Bench, source: &Path) -> Result<Duration> {
    let dir = bench.fresh_dir("copies")?;
    let started = Instant::now();
    for replica in 1..=REPLICAS {
        let to = dir.join(replica.to_string());
        Launch::new("cp")
            .args(["-r".as_ref(), source.as_os_str(), to.as_os_str()])
            .log_to(bench.log("cp"))
            .run(COPY_LIMIT)?;
    }
    Launch::new("sync")
        .args(["-f".as_ref(), dir.as_os_str()])
        .log_to(bench.log("cp"))
        .run(COPY_LIMIT)?;
    let took = started.elapsed();
    std::fs::remove_dir_all(&dir)?;
    Ok(took)
}
