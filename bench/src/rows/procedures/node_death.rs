//! The effect of a node's death on readers: requests through the router while one of three nodes is killed, or hangs
//! without closing its connections.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::super::runner::Running;
use super::super::spec::Step;
use crate::load::{self, Answered, Group, GroupReport, Span};
use crate::servers::fondaco::Member;
use crate::servers::wait_until;

/// A slower request was affected by the death.
const SLOW: Duration = Duration::from_millis(20);
/// After this time without a failed or slow request, the death counts as detected.
const QUIET: Duration = Duration::from_millis(500);
/// How long reads continue after a death.
const AFTERWARDS: Duration = Duration::from_secs(4);

/// Reads while a node dies, and starts it again: it is killed, so that its connections are closed and others notice; or, with the
/// argument `hang`, it sends nothing any more, like a machine without power.
pub fn measure(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let (victim, round) = (running.kept.victim, running.round);
    let hangs = step.arguments.iter().any(|argument| argument == "hang");
    let group = Group {
        keep_each: true,
        ..running.groups(step)?.swap_remove(0)
    };
    let before = running.bench.round_time() * 2 / 3;
    let cluster = running.fondaco_mut()?;
    wait_until_asked(&cluster.nodes()[victim], &group)?;
    let span = Span {
        warm_up: before / 5,
        measured: before + AFTERWARDS,
        stop: None,
    };
    let end = || {
        thread::sleep(span.warm_up + before);
        let died_at = Instant::now();
        match hangs {
            true => cluster.node(victim).process().pause()?,
            false => cluster.node(victim).kill()?,
        }
        Ok(died_at)
    };
    let (died_at, reports) = load::beside(end, || load::run(std::slice::from_ref(&group), span, round))?;
    cluster.node(victim).kill()?;
    cluster.node(victim).start_again()?;
    let nodes = cluster.nodes().len();
    let report = GroupReport::of_all(reports)?;
    let death = Death::seen_in(&report.each, died_at);
    let name = &step.name;
    let values = [
        ("detected", "ms", death.detected.as_secs_f64() * 1e3),
        ("failed", "requests", death.failed as f64),
        ("failed later", "requests", death.failed_later as f64),
        ("before", "µs", percentile_us(death.before, 0.99)),
        ("after", "µs", percentile_us(death.after, 0.99)),
    ];
    running.record(&format!("{name}:"), values);
    running.add("requests", "", report.each.len() as f64);
    if let Some(error) = report.error {
        running
            .figures
            .set("first_error", format!(" The first error: {error:?}."));
    }
    running.kept.victim = (victim + 1) % nodes;
    Ok(())
}

/// Reads until the router sends requests to the restarted node.
fn wait_until_asked(node: &Member, group: &Group) -> Result<()> {
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
pub(super) fn percentile_us(mut latencies: Vec<Duration>, quantile: f64) -> f64 {
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
