//! The effect of a moving partition on readers: throughput through the router while one of three nodes gets a partition,
//! with a sixteenth of the keys.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::Measured;
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::load::{self, Answered, Group, GroupReport, KeyChoice, Span};
use crate::machine::prefer_thread;
use crate::peers::fondaco::{PARTITIONS, STORE};
use crate::report::{Figure, Line, Target};
use crate::servers::cluster::{Cluster, NODES};
use crate::servers::control::COMMAND_LIMIT;

const REPLICAS: u32 = 2;
/// The least part of the throughput that is to be left.
const KEPT_MIN: f64 = 0.98;
/// In windows of this length none is to fall below the next part of the median.
const WINDOW: Duration = Duration::from_millis(100);
const WORST_MIN: f64 = 0.80;
/// The least rate of the move, in MB/s, and what it is held at: faster, it would take more from readers.
const RATE_MIN: f64 = 20.0;
const RATE_MAX: u64 = 26;

/// What one move did to readers.
struct Moved {
    /// Throughput while the partition moved, as a part of that before.
    kept: f64,
    /// The slowest window after the beginning, as a part of the median before.
    worst: f64,
    /// The slowest one in as long a time before.
    worst_before: f64,
    seconds: f64,
    failed: usize,
}

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = Dataset {
        records: if bench.quick { 40_000 } else { 1_000_000 },
        value_bytes: 1024,
    };
    let source = bench.version_elsewhere(dataset)?;
    let megabytes = source.bytes()? as f64 / f64::from(PARTITIONS) / 1e6;
    let mut cluster = Cluster::start(bench, "rebalance", REPLICAS)?;
    cluster.serve(source.path(), dataset)?;
    cluster.control().set("router-cache-bytes", 0)?;
    cluster
        .control()
        .set("move-rate-bytes-per-second", RATE_MAX * 1_000_000)?;
    let keys = KeyChoice::Uniform {
        records: dataset.records,
    };
    let group = Group {
        keep_each: true,
        ..Group::gets(cluster.router().resp(), STORE, keys)
    };
    let (mut kept, mut worst) = (
        Figure::new("of before", Vec::new()),
        Figure::new("of the median", Vec::new()),
    );
    let mut worst_before = Figure::new("of the median", Vec::new());
    let mut rate = Figure::new("MB/s", Vec::new());
    let mut failed = 0;
    for round in 0..bench.rounds() {
        let moved = load_and_move(bench, &cluster, &group, round)?;
        kept.rounds.push(moved.kept);
        worst.rounds.push(moved.worst);
        worst_before.rounds.push(moved.worst_before);
        rate.rounds.push(megabytes / moved.seconds);
        failed += moved.failed;
    }
    cluster.end()?;
    let line = |work: &str, ours: Figure, peers: Vec<(String, Figure)>, target: Target| Line {
        work: work.to_owned(),
        targets: vec![target],
        ours,
        peers,
        ratio: None,
        memory: String::new(),
    };
    let at_least = |figure: &Figure, min: f64| Target {
        text: format!("≥ {min}"),
        reached: figure.median() >= min,
    };
    Ok(Measured {
        lines: vec![
            line(
                "throughput while a partition moves",
                kept.clone(),
                Vec::new(),
                at_least(&kept, KEPT_MIN),
            ),
            line(
                "its slowest window of 100 ms",
                worst.clone(),
                vec![("in as long a time before".to_owned(), worst_before)],
                at_least(&worst, WORST_MIN),
            ),
            line("rate of the move", rate.clone(), Vec::new(), at_least(&rate, RATE_MIN)),
        ],
        notes: vec![format!(
            "GETs of 1 KiB through the router, its cache off, as fast as they are answered, {NODES} nodes with {REPLICAS} replicas: a \
             partition of {PARTITIONS} ({megabytes:.0} MB) goes from one node to another, at {RATE_MAX} MB/s at most, from the command to \
             the end of the plan. The slowest window is of the time from its begin to two seconds after its end. {failed} requests failed. All processes share two \
             cores: what the move costs is taken from readers."
        )],
        charts: Vec::new(),
    })
}

/// Reads while a partition moves.
fn load_and_move(bench: &Bench, cluster: &Cluster, group: &Group, round: u64) -> Result<Moved> {
    let before = bench.round_time();
    let after = Duration::from_secs(2);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let span = Span {
        warm_up: before / 3,
        measured: Duration::from_secs(120),
        stop: Some(&stop),
    };
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            load::run(std::slice::from_ref(group), span, round)
        });
        thread::sleep(span.warm_up + before);
        let began = Instant::now();
        let moved = move_one(cluster, round);
        let ended = Instant::now();
        thread::sleep(after);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let reports = client.join().map_err(|_| anyhow!("the load generator panicked"))??;
        moved?;
        let report = GroupReport::of_all(reports)?;
        Ok(seen_in(&report.each, began, ended, ended + after))
    })
}

/// Moves a replica of a partition to the node that does not have it.
fn move_one(cluster: &Cluster, round: u64) -> Result<()> {
    let partition = round as usize % PARTITIONS as usize;
    let routing = cluster.control().show("/v1/routing")?;
    let owners = routing["owners"][partition]
        .as_array()
        .context("a partition has owners")?;
    let owners: Vec<u64> = owners.iter().filter_map(serde_json::Value::as_u64).collect();
    let to = (1..=NODES as u64)
        .find(|node| !owners.contains(node))
        .context("a node does not have it")?;
    let from = owners.first().context("a partition has owners")?;
    let one = format!("{partition}:{from}:{to}");
    cluster
        .control()
        .command(&["rebalance", "run", "--move", &one])
        .run(COMMAND_LIMIT)?;
    Ok(())
}

fn seen_in(answered: &[Answered], began: Instant, ended: Instant, until: Instant) -> Moved {
    let at = |request: &Answered| request.due + request.latency;
    let first = answered.iter().map(at).min().unwrap_or(began);
    let count = |from: Instant, to: Instant| {
        answered
            .iter()
            .filter(|request| (from..to).contains(&at(request)))
            .count() as f64
    };
    let per_second = |from: Instant, to: Instant| count(from, to) / (to - from).as_secs_f64().max(1e-3);
    let windows = |from: Instant, to: Instant| {
        let mut counts = Vec::new();
        let mut start = from;
        while start + WINDOW <= to {
            counts.push(count(start, start + WINDOW));
            start += WINDOW;
        }
        counts.sort_by(f64::total_cmp);
        counts
    };
    let least = |counts: &[f64]| counts.first().copied().unwrap_or(f64::NAN);
    let quiet = windows(first, began);
    let median = quiet.get(quiet.len() / 2).copied().unwrap_or(f64::NAN);
    let as_long = began.checked_sub(until - began).map_or(first, |from| from.max(first));
    let worst = least(&windows(began, until));
    let worst_before = least(&windows(as_long, began));
    Moved {
        kept: per_second(began, ended) / per_second(first, began),
        worst: worst / median,
        worst_before: worst_before / median,
        seconds: (ended - began).as_secs_f64(),
        failed: answered.iter().filter(|request| request.failed).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_seen_in_its_window() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let answered = |at: u64| Answered {
            due: start + ms(at),
            latency: Duration::ZERO,
            failed: at == 1_500,
        };
        // One each millisecond, but none from 1.2 to 1.3 s.
        let all: Vec<Answered> = (0..3_000)
            .filter(|at| !(1_200..1_300).contains(at))
            .map(answered)
            .collect();
        let moved = seen_in(&all, start + ms(1_000), start + ms(2_000), start + ms(3_000));
        assert!(
            (moved.kept - 0.9).abs() < 1e-6 && moved.worst == 0.0,
            "{} {}",
            moved.kept,
            moved.worst
        );
        assert_eq!((moved.seconds, moved.failed), (1.0, 1));
    }
}
