//! What readers notice of a node's death: requests through the router while one of three nodes is killed.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::Measured;
use crate::bench::Bench;
use crate::load::{self, Answered, Group, GroupReport, KeyChoice, Span};
use crate::machine::prefer_thread;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::servers::cluster::{Cluster, wait_until};

const REPLICAS: u32 = 2;
const RATE: f64 = 2_000.0;
/// A request that takes longer met something unusual.
const SLOW: Duration = Duration::from_millis(20);
/// After so long without a failed or slow request the death is over.
const QUIET: Duration = Duration::from_millis(500);

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let mut cluster = Cluster::start(bench, "node-death", REPLICAS)?;
    cluster.serve(&version, dataset)?;
    cluster.control().set("router-cache-bytes", 0)?;
    let group = Group {
        rate: Some(RATE),
        keep_each: true,
        ..Group::gets(
            cluster.router().resp(),
            STORE,
            KeyChoice::Uniform {
                records: dataset.records,
            },
        )
    };
    let mut detected = Figure::new("ms", Vec::new());
    let mut failed = Figure::new("requests", Vec::new());
    let mut failed_later = Figure::new("requests", Vec::new());
    let microseconds = || Figure::new("µs", Vec::new());
    let (mut before, mut after) = (microseconds(), microseconds());
    let mut requests = 0;
    let mut error = None;
    for round in 0..bench.rounds() {
        let victim = round as usize % cluster.nodes().len();
        wait_until_asked(&cluster, victim, &group)?;
        let (report, killed_at) = load_and_kill(bench, &mut cluster, victim, &group, round)?;
        let death = Death::seen_in(&report.each, killed_at);
        requests += report.each.len();
        error = error.or(report.error);
        detected.rounds.push(death.detected.as_secs_f64() * 1e3);
        failed.rounds.push(death.failed as f64);
        failed_later.rounds.push(death.failed_later as f64);
        before.rounds.push(percentile_us(death.before, 0.99));
        after.rounds.push(percentile_us(death.after, 0.99));
        cluster.node(victim).start_again()?;
    }
    cluster.end()?;
    let any_later = failed_later.rounds.iter().sum::<f64>();
    let first_error = error.map_or_else(String::new, |error| format!(" The first error: {error:?}."));
    let bars = detected.rounds.iter().enumerate();
    let bars = bars
        .map(|(at, ms)| (format!("fondaco, round {}", at + 1), *ms))
        .collect();
    let line = |work: &str, ours: Figure| Line {
        work: work.to_owned(),
        ours,
        peers: Vec::new(),
        ratio: None,
        targets: Vec::new(),
        memory: String::new(),
    };
    let ratio = after.over(&before);
    Ok(Measured {
        lines: vec![
            Line {
                targets: vec![Target {
                    text: "0".into(),
                    reached: any_later == 0.0,
                }],
                ..line("failed requests once the death is detected", failed_later)
            },
            line("failed requests until then", failed),
            line("from the kill to the last failed or slow request", detected),
            Line {
                peers: vec![("before".into(), before)],
                ratio: Some((ratio, "before".into())),
                ..line("p99 with the node dead", after)
            },
        ],
        notes: vec![format!(
            "GETs of 100 B at {RATE:.0}/s through the router, its cache off, {REPLICAS} replicas on three nodes; each round another node is killed (SIGKILL), and started again afterwards. A request is slow when it takes more than {SLOW:?} from when it was due; the death is detected when none was slow or failed for {QUIET:?}. {} requests in all.{first_error} Everything shares two cores, so that a slow request may have other reasons.",
            number(requests as f64)
        )],
        charts: vec![Chart::Bars {
            file: "node-death".into(),
            title: "from a node's death to the last failed or slow request".into(),
            unit: "ms, less is better".into(),
            bars,
        }],
    })
}

/// Reads from before the death of a node until well after it.
fn load_and_kill(
    bench: &Bench,
    cluster: &mut Cluster,
    victim: usize,
    group: &Group,
    seed: u64,
) -> Result<(GroupReport, Instant)> {
    let quiet = bench.round_time();
    let span = Span {
        warm_up: quiet / 5,
        measured: quiet + 4 * QUIET.max(quiet / 2),
        stop: None,
    };
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            load::run(std::slice::from_ref(group), span, seed)
        });
        thread::sleep(span.warm_up + quiet);
        let killed_at = cluster.node(victim).kill();
        let reports = client.join().map_err(|_| anyhow!("the load generator panicked"))??;
        Ok((GroupReport::of_all(reports)?, killed_at?))
    })
}

/// Reads until the router asks a node that was dead before.
fn wait_until_asked(cluster: &Cluster, node: usize, group: &Group) -> Result<()> {
    let node = &cluster.nodes()[node];
    let before = node.looked_up()?;
    let span = Span::of(Duration::from_millis(100));
    wait_until("the router asks a node that is there again", || {
        load::run(std::slice::from_ref(group), span, 0)?;
        Ok(node.looked_up()? > before)
    })
    .context("a node was started again in vain")
}

/// What became of requests around a death.
struct Death {
    before: Vec<Duration>,
    /// From the kill to the end of the last request that failed or was slow because of it.
    detected: Duration,
    /// Requests that failed until then, and later.
    failed: usize,
    failed_later: usize,
    /// Once it was detected.
    after: Vec<Duration>,
}

impl Death {
    fn seen_in(answered: &[Answered], killed_at: Instant) -> Self {
        let ended = |request: &Answered| request.due + request.latency;
        let (before, since): (Vec<Answered>, Vec<Answered>) =
            answered.iter().copied().partition(|request| ended(request) < killed_at);
        let mut trouble: Vec<Instant> = since
            .iter()
            .filter(|request| request.failed || request.latency > SLOW)
            .map(ended)
            .collect();
        trouble.sort_unstable();
        let mut detected_at = killed_at;
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
            detected: detected_at - killed_at,
            failed: count_failed(&until_then),
            failed_later: count_failed(&later),
            after: latencies(&later),
        }
    }
}

/// The latency that this share of requests did not exceed, in microseconds.
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
    fn a_death_ends_with_its_last_trouble_and_later_trouble_is_another_matter() {
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
