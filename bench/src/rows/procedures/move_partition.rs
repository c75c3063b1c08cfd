//! The effect of a moving partition on readers: throughput through the router while one of three nodes gets a partition,
//! with a sixteenth of the keys.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::super::runner::Running;
use super::super::spec::Step;
use crate::load::{Answered, Group};
use crate::servers::fondaco::{Fondaco, PARTITIONS};

/// The slowest one of this length is compared with the median.
const WINDOW: Duration = Duration::from_millis(100);
/// A move takes less time than this.
const LOAD_MAX: Duration = Duration::from_secs(120);

/// The effect of one move on readers.
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

/// Reads while a partition moves.
pub fn measure(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let (before, after, round) = (running.bench.round_time(), Duration::from_secs(2), running.round);
    let group = Group {
        keep_each: true,
        ..running.groups(step)?.swap_remove(0)
    };
    let cluster = running.fondaco()?;
    let (report, (began, ended)) = group.during(LOAD_MAX, round, || {
        thread::sleep(before * 4 / 3);
        let began = Instant::now();
        move_one(cluster, round)?;
        let ended = Instant::now();
        thread::sleep(after);
        Ok((began, ended))
    })?;
    // The first requests warm up.
    let counted_from = began - before;
    let counted: Vec<Answered> = report.each.into_iter().filter(|one| one.due >= counted_from).collect();
    let moved = seen_in(&counted, began, ended, ended + after);
    let source = running.kept.source.as_ref().context("no version was prepared")?;
    let megabytes = source.bytes()? as f64 / f64::from(PARTITIONS) / 1e6;
    let values = [
        ("kept", "of before", moved.kept),
        ("worst", "of the median", moved.worst),
        ("in as long a time before", "of the median", moved.worst_before),
        ("rate", "MB/s", megabytes / moved.seconds),
        ("failed", "requests", moved.failed as f64),
        ("megabytes", "MB", megabytes),
    ];
    running.record("", values);
    Ok(())
}

/// Moves a replica of a partition to the node that does not have it.
fn move_one(cluster: &Fondaco, round: u64) -> Result<()> {
    let partition = round as usize % PARTITIONS as usize;
    let routing = cluster.control().show("/v1/routing")?;
    let owners = routing["owners"][partition]
        .as_array()
        .context("a partition has owners")?;
    let owners: Vec<u64> = owners.iter().filter_map(serde_json::Value::as_u64).collect();
    let to = (1..=cluster.nodes().len() as u64)
        .find(|node| !owners.contains(node))
        .context("a node does not have it")?;
    let from = owners.first().context("a partition has owners")?;
    let one = format!("{partition}:{from}:{to}");
    cluster.control().run(&["rebalance", "run", "--move", &one])
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
