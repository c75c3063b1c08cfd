//! A load generator for RESP servers: one thread, any number of connections, checked answers, latencies measured from
//! the due time of a request.
//!
//! `redis-benchmark` supports neither key sets nor rates, and measures latency from the time when it sends. Where the
//! table compares two servers, it is used all the same, for both.

pub mod arguments;
mod beside;
mod connection;
mod fill;
mod generator;
mod keys;
pub mod library;
mod reply;
pub mod sql;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;

use crate::machine::{pin_thread, prefer_thread};
pub use beside::{beside, beside_clients};
pub use connection::key_head;
pub use fill::{fill, write_records};
pub use generator::run;
pub use keys::{KeyChoice, Keys, Records};

/// The largest distinguishable latency, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Connections with the same load.
#[derive(Debug, Clone)]
pub struct Group {
    /// The server.
    pub address: SocketAddr,
    /// The number of connections.
    pub connections: usize,
    /// The number of requests in flight on each connection.
    pub pipeline: usize,
    /// Requests per second of all connections together; unlimited if `None`.
    pub rate: Option<f64>,
    /// The prefix of each key on the wire: `store:`.
    pub prefix: String,
    /// The distribution of keys.
    pub keys: KeyChoice,
    /// The number of keys per request: `GET` for one, `MGET` for more.
    pub keys_per_request: usize,
    /// The deadline of each request, at which keys may be late: `FONDACO.MGET`.
    pub deadline_ms: Option<u64>,
    /// The writes among the requests.
    pub writes: Writes,
    /// Keep each answered request, and continue after an error.
    pub keep_each: bool,
}

/// The share of requests (0 to 1) that are `SET`s, with values of this size. A value is derived from its key, so that
/// reads can check it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Writes {
    /// The share of writes, 0 to 1.
    pub share: f64,
    /// The length of the values, in bytes.
    pub value_bytes: usize,
    /// A `WAIT` for a replica follows each write, and belongs to it.
    pub waits: bool,
}

/// The results of a group.
#[derive(Debug, Clone)]
pub struct GroupReport {
    /// The number of requests answered after the warm-up.
    pub requests: u64,
    /// The number of their keys that were late.
    pub late: u64,
    /// The measured time.
    pub seconds: f64,
    /// Latencies from due time to answer, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Each answered request, in the order of answers, if they were kept.
    pub each: Vec<Answered>,
    /// The first error answered to a request.
    pub error: Option<String>,
}

/// An answered request.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// The due time.
    pub due: Instant,
    /// The time from then to the answer.
    pub latency: Duration,
    /// Whether the answer was an error.
    pub failed: bool,
}

impl Group {
    /// `GET`s of a store, unlimited, with a few in flight on each connection.
    pub fn gets(address: SocketAddr, store: &str, keys: KeyChoice) -> Self {
        Self {
            address,
            connections: 15,
            pipeline: 16,
            rate: None,
            prefix: format!("{store}:"),
            keys,
            keys_per_request: 1,
            deadline_ms: None,
            writes: Writes::default(),
            keep_each: false,
        }
    }

    /// The same for all records of a store, equally often.
    pub fn uniform(address: SocketAddr, store: &str, records: u64) -> Self {
        Self::gets(address, store, KeyChoice::Uniform { records })
    }

    /// As [`during`], this load alone.
    pub fn during<T>(&self, limit: Duration, seed: u64, work: impl FnOnce() -> Result<T>) -> Result<(GroupReport, T)> {
        during(std::slice::from_ref(self), limit, seed, work)
    }
}

/// Generates a load until some work is done, for at most this time.
///
/// # Errors
/// Those of [`run`], and those of the work.
pub fn during<T>(
    groups: &[Group],
    limit: Duration,
    seed: u64,
    work: impl FnOnce() -> Result<T>,
) -> Result<(GroupReport, T)> {
    let stop = AtomicBool::new(false);
    let span = Span {
        stop: Some(&stop),
        ..Span::whole(limit)
    };
    let work = || {
        let done = work();
        stop.store(true, Relaxed);
        done
    };
    let (done, reports) = beside(work, || run(groups, span, seed))?;
    Ok((GroupReport::of_all(reports)?, done))
}

impl GroupReport {
    /// The combined results of several groups that ran at the same time.
    pub fn of_all(reports: Vec<Self>) -> Result<Self> {
        let mut reports = reports.into_iter();
        let mut all = reports.next().context("no load")?;
        for report in reports {
            all.requests += report.requests;
            all.late += report.late;
            all.latencies.add(&report.latencies)?;
            all.each.extend(report.each);
            all.error = all.error.or(report.error);
        }
        Ok(all)
    }

    /// Answered requests per second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// The latency at this quantile (0 to 1), in microseconds.
    pub fn latency_us(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// The distribution, as points of microseconds and percentile.
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        const QUANTILES: [f64; 20] = [
            0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995,
            0.9999, 0.99999,
        ];
        QUANTILES
            .map(|quantile| (self.latency_us(quantile), quantile * 100.0))
            .to_vec()
    }
}

/// The duration of a load.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// The time that does not count.
    pub warm_up: Duration,
    /// The longest counted time.
    pub measured: Duration,
    /// Ends the load earlier when set.
    pub stop: Option<&'a AtomicBool>,
}

impl Span<'_> {
    /// This duration, after a tenth of it to warm up.
    pub fn of(measured: Duration) -> Self {
        Self {
            warm_up: measured / 10,
            measured,
            stop: None,
        }
    }

    /// This duration, from the first request on.
    pub fn whole(measured: Duration) -> Self {
        Self {
            warm_up: Duration::ZERO,
            ..Self::of(measured)
        }
    }

    /// Warm-up and measured time together, in seconds.
    pub fn seconds(&self) -> f64 {
        (self.warm_up + self.measured).as_secs_f64()
    }
}

/// Generates load from a thread with higher priority, if permitted, on this core, or on any.
///
/// # Errors
/// Those of [`run`].
pub fn run_on(cpu: Option<usize>, groups: &[Group], span: Span<'_>, seed: u64) -> Result<Vec<GroupReport>> {
    run_threads(cpu, 1, groups, span, seed)
}

/// The same load from each of several threads at a time; the first one's reports come first.
///
/// # Errors
/// Those of [`run`].
pub fn run_threads(
    cpu: Option<usize>,
    threads: u64,
    groups: &[Group],
    span: Span<'_>,
    seed: u64,
) -> Result<Vec<GroupReport>> {
    let generate = |number: u64| {
        prefer_thread();
        cpu.map_or(Ok(()), pin_thread)?;
        run(groups, span, seed * threads + number)
    };
    thread::scope(|scope| {
        let generators: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || generate(number)))
            .collect();
        let reports = generators.into_iter().map(|generator| {
            let report = generator.join();
            report.map_err(|_| anyhow!("a load generator panicked"))?
        });
        Ok(reports.collect::<Result<Vec<_>>>()?.concat())
    })
}

/// A load, and the CPU time that it cost.
pub struct Costed {
    /// The results of the load.
    pub report: GroupReport,
    /// The CPU time, in seconds; at least a tick of the clock.
    pub cpu_seconds: f64,
}

impl Costed {
    /// A load that cost this.
    pub fn of(report: GroupReport, used: Duration) -> Self {
        let cpu_seconds = used.as_secs_f64().max(0.01);
        Self { report, cpu_seconds }
    }

    /// Requests per second of CPU time.
    pub fn per_cpu_second(&self) -> f64 {
        self.report.requests as f64 / self.cpu_seconds
    }
}

pub fn new_histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)?)
}

#[inline]
fn record(latencies: &mut Histogram<u64>, latency: Duration) {
    latencies.saturating_record((latency.as_nanos() as u64).max(1));
}
