//! The effect of a node's death on readers: requests through the router while one of three nodes is killed, or hangs
//! without closing its connections.

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
use crate::report::{Figure, Line, Target};
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

/// The results for all deaths of one kind.
struct Deaths {
    manner: Manner,
    detected: Figure,
    failed: Figure,
    failed_later: Figure,
    before: Figure,
    after: Figure,
}

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let mut cluster = Cluster::start(bench, "node-death", REPLICAS)?;
    cluster.serve(&version, dataset)?;
    cluster.control().set("router-cache-bytes", 0)?;
    let keys = KeyChoice::Uniform {
        records: dataset.records,
    };
    let group = Group {
        rate: Some(RATE),
        keep_each: true,
        ..Group::gets(cluster.router().resp(), STORE, keys)
    };
    let mut all = [Manner::Killed, Manner::Hangs].map(Deaths::of);
    let mut requests = 0;
    let mut error = None;
    let mut victim = 0;
    for round in 0..bench.rounds() {
        for deaths in &mut all {
            wait_until_asked(&cluster, victim, &group)?;
            let (report, died_at) = load_and_end(bench, &mut cluster, victim, deaths.manner, &group, round)?;
            deaths.add(Death::seen_in(&report.each, died_at));
            requests += report.each.len();
            error = error.or(report.error);
            cluster.node(victim).start_again()?;
            victim = (victim + 1) % cluster.nodes().len();
        }
    }
    cluster.end()?;
    let first_error = error.map_or_else(String::new, |error| format!(" The first error: {error:?}."));
    Ok(Measured {
        lines: all.into_iter().flat_map(Deaths::lines).collect(),
        notes: vec![
            format!(
                "GETs of 100 B at {RATE:.0}/s through the router, its cache off, {REPLICAS} replicas on three nodes. In turns a node is killed (SIGKILL: its connections are reset) or hangs (SIGSTOP: they are not), and is restarted afterwards; {} requests in all.{first_error}",
                number(requests as f64)
            ),
            format!(
                "A request is slow when it takes more than {SLOW:?} from its due time; a death is detected when none was slow or failed for {QUIET:?}, and 0 ms means that none was. All processes share two cores, so a slow request may have other reasons."
            ),
        ],
        charts: Vec::new(),
    })
}

impl Deaths {
    fn of(manner: Manner) -> Self {
        let figure = |unit| Figure::new(unit, Vec::new());
        Self {
            manner,
            detected: figure("ms"),
            failed: figure("requests"),
            failed_later: figure("requests"),
            before: figure("µs"),
            after: figure("µs"),
        }
    }

    fn add(&mut self, death: Death) {
        self.detected.rounds.push(death.detected.as_secs_f64() * 1e3);
        self.failed.rounds.push(death.failed as f64);
        self.failed_later.rounds.push(death.failed_later as f64);
        self.before.rounds.push(percentile_us(death.before, 0.99));
        self.after.rounds.push(percentile_us(death.after, 0.99));
    }

    fn lines(self) -> [Line; 4] {
        let manner = match self.manner {
            Manner::Killed => "a node is killed",
            Manner::Hangs => "a node hangs",
        };
        let line = |what: &str, ours: Figure| Line {
            work: format!("{manner}: {what}"),
            ours,
            peers: Vec::new(),
            ratio: None,
            targets: Vec::new(),
            memory: String::new(),
        };
        let none_later = Target {
            text: "0 in all rounds".into(),
            reached: self.failed_later.rounds.iter().all(|&failed| failed == 0.0),
        };
        let ratio = self.after.over(&self.before);
        [
            Line {
                targets: vec![none_later],
                ..line("failed requests once that is detected", self.failed_later)
            },
            line("failed requests until then", self.failed),
            line("time until no request fails or is slow", self.detected),
            Line {
                peers: vec![("before".into(), self.before)],
                ratio: Some((ratio, "before".into())),
                ..line("p99 without it", self.after)
            },
        ]
    }
}

/// Reads from before the death of a node until well after it.
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
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            load::run(std::slice::from_ref(group), span, seed)
        });
        thread::sleep(span.warm_up + before);
        let died_at = Instant::now();
        let ended = match manner {
            Manner::Killed => cluster.node(victim).kill(),
            Manner::Hangs => cluster.node(victim).process().pause(),
        };
        let reports = client.join().map_err(|_| anyhow!("the load generator panicked"))??;
        ended?;
        cluster.node(victim).kill()?;
        Ok((GroupReport::of_all(reports)?, died_at))
    })
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
