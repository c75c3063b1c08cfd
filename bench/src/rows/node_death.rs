//! The effect of a node's death on readers: requests through the router while one of three nodes is killed, or hangs
//! without closing its connections.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Measured;
use crate::bench::Bench;
use crate::load::{self, Answered, Group, GroupReport, Span};
use crate::peers::fondaco::STORE;
use crate::report::Rounds;
use crate::report::markdown::number;
use crate::servers::cluster::{Cluster, wait_until};

const REPLICAS: u32 = 2;
const RATE: f64 = 2_000.0;
/// A slower request was affected by the death.
const SLOW: Duration = Duration::from_millis(20);
/// After this time without a failed or slow request, the death counts as detected.
const QUIET: Duration = Duration::from_millis(500);
/// How long reads continue after a death.
const AFTERWARDS: Duration = Duration::from_secs(4);

/// How a node dies.
#[derive(Debug, Clone, Copy)]
enum Manner {
    /// Its connections are closed, so others notice.
    Killed,
    /// It sends nothing any more, like a machine without power.
    Hangs,
}

const MANNERS: [(Manner, &str); 2] = [(Manner::Killed, "a node is killed"), (Manner::Hangs, "a node hangs")];

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let mut cluster = Cluster::serving(bench, "node-death", REPLICAS, dataset)?;
    let group = Group {
        rate: Some(RATE),
        keep_each: true,
        ..Group::uniform(cluster.router().resp(), STORE, dataset.records)
    };
    let mut all = MANNERS.map(|_| Rounds::default());
    let (mut requests, mut error, mut victim) = (0, None, 0);
    for round in 0..bench.rounds() {
        for ((manner, _), rounds) in MANNERS.into_iter().zip(&mut all) {
            wait_until_asked(&cluster, victim, &group)?;
            let (report, died_at) = load_and_end(bench, &mut cluster, victim, manner, &group, round)?;
            let death = Death::seen_in(&report.each, died_at);
            rounds.add("detected", "ms", death.detected.as_secs_f64() * 1e3);
            rounds.add("failed", "requests", death.failed as f64);
            rounds.add("failed later", "requests", death.failed_later as f64);
            rounds.add("before", "µs", percentile_us(death.before, 0.99));
            rounds.add("after", "µs", percentile_us(death.after, 0.99));
            requests += report.each.len();
            error = error.or(report.error);
            cluster.node(victim).start_again()?;
            victim = (victim + 1) % cluster.nodes().len();
        }
    }
    cluster.end()?;
    let first_error = error.map_or_else(String::new, |error| format!(" The first error: {error:?}."));
    let lines = MANNERS.iter().zip(&all).flat_map(|((_, manner), rounds)| {
        let line = |what: &str, ours: &str| rounds.line(format!("{manner}: {what}"), ours);
        let later = line("failed requests once that is detected", "failed later");
        let none_later = later.ours.rounds.iter().all(|&failed| failed == 0.0);
        [
            later.target("0 in all rounds", none_later),
            line("failed requests until then", "failed"),
            line("time until no request fails or is slow", "detected"),
            rounds.compare(format!("{manner}: p99 without it"), "after", "before", "before"),
        ]
    });
    Ok(Measured {
        lines: lines.collect(),
        notes: vec![
            format!(
                "GETs of 100 B at {RATE:.0}/s through the router, its cache off, {REPLICAS} replicas on three nodes. In turns a node is killed (SIGKILL: its connections are reset) or hangs (SIGSTOP: they are not), and is restarted afterwards; {} requests in all.{first_error}",
                number(requests as f64)
            ),
            format!(
                "A request is slow when it takes more than {SLOW:?} from its due time; a death is detected when none was slow or failed for {QUIET:?}, and 0 ms means that none was. All processes share two cores, so a slow request may have other reasons."
            ),
        ],
        ..Measured::default()
    })
}

/// Reads from before the death of a node until well after it; and when it died.
fn load_and_end(
    bench: &Bench,
    cluster: &mut Cluster,
    victim: usize,
    manner: Manner,
    group: &Group,
    seed: u64,
) -> Result<(GroupReport, Instant)> {
    let before = bench.round_time() * 2 / 3;
    let span = Span {
        warm_up: before / 5,
        measured: before + AFTERWARDS,
        stop: None,
    };
    let end = || {
        thread::sleep(span.warm_up + before);
        let died_at = Instant::now();
        match manner {
            Manner::Killed => cluster.node(victim).kill()?,
            Manner::Hangs => cluster.node(victim).process().pause()?,
        }
        Ok(died_at)
    };
    let (died_at, reports) = load::beside(end, || load::run(std::slice::from_ref(group), span, seed))?;
    cluster.node(victim).kill()?;
    Ok((GroupReport::of_all(reports)?, died_at))
}

/// Reads until the router sends requests to the restarted node.
fn wait_until_asked(cluster: &Cluster, node: usize, group: &Group) -> Result<()> {
    let node = &cluster.nodes()[node];
    let before = node.looked_up()?;
    let span = Span::of(Duration::from_millis(100));
    wait_until("the router asks a node that was restarted", || {
        load::run(std::slice::from_ref(group), span, 0)?;
        Ok(node.looked_up()? > before)
    })
    .context("the router does not use a restarted node")
}

/// The requests around one death.
struct Death {
    before: Vec<Duration>,
    /// From the death to the end of the last request that failed or was slow because of it.
    detected: Duration,
    /// Requests that failed until then, and later ones.
    failed: usize,
    failed_later: usize,
    /// Latencies after the detection.
    after: Vec<Duration>,
}

impl Death {
    fn seen_in(answered: &[Answered], died_at: Instant) -> Self {
        let ended = |request: &Answered| request.due + request.latency;
        let (before, since): (Vec<Answered>, Vec<Answered>) =
            answered.iter().copied().partition(|request| ended(request) < died_at);
        let mut trouble: Vec<Instant> = since
            .iter()
            .filter(|request| request.failed || request.latency > SLOW)
            .map(ended)
            .collect();
        trouble.sort_unstable();
        let mut detected_at = died_at;
        for at in trouble {
            if at - detected_at < QUIET {
                detected_at = at;
            }
        }
        let (until_then, later): (Vec<Answered>, Vec<Answered>) =
            since.into_iter().partition(|request| ended(request) <= detected_at);
        let count_failed = |requests: &[Answered]| requests.iter().filter(|request| request.failed).count();
        let latencies = |requests: &[Answered]| requests.iter().map(|request| request.latency).collect();
        Self {
            before: latencies(&before),
            detected: detected_at - died_at,
            failed: count_failed(&until_then),
            failed_later: count_failed(&later),
            after: latencies(&later),
        }
    }
}

/// The latency at this quantile, in microseconds.
fn percentile_us(mut latencies: Vec<Duration>, quantile: f64) -> f64 {
    latencies.sort_unstable();
    let place = (latencies.len() as f64 * quantile) as usize;
    let found = latencies.get(place.min(latencies.len().saturating_sub(1)));
    found.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_ends_with_its_last_slow_request() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let answered = |due_ms, latency_ms, failed| Answered {
            due: start + ms(due_ms),
            latency: ms(latency_ms),
            failed,
        };
        let requests = [
            answered(0, 1, false),
            answered(90, 1, false),
            answered(100, 30, false),
            answered(300, 2, true),
            answered(400, 1, false),
            answered(1000, 3, true),
        ];
        let death = Death::seen_in(&requests, start + ms(100));
        assert_eq!(death.before, [ms(1), ms(1)]);
        assert_eq!(death.detected, ms(202));
        assert_eq!((death.failed, death.failed_later), (1, 1));
        assert_eq!(death.after, [ms(1), ms(3)]);
        assert_eq!(percentile_us(death.after, 0.5), 3000.0);
        assert!(percentile_us(Vec::new(), 0.5).is_nan());
    }
}
