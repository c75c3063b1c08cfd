//! A load generator for RESP servers: one thread, any number of connections, checked answers, latencies measured from
//! the due time of a request.
//!
//! `redis-benchmark` supports neither key sets nor rates, and measures latency from the time when it sends. Where the
//! table compares two servers, it is used all the same, for both.

pub mod arguments;
mod connection;
mod fill;
mod keys;
pub mod library;
mod reply;
pub mod sql;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll as poll_until};

use crate::machine::prefer_thread;
use connection::Connection;
pub use connection::key_head;
pub use fill::{fill, write_records};
pub use keys::{KeyChoice, Keys, Records};

/// The longest wait before checking the clock.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// The largest distinguishable latency, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
const EVENTS: usize = 256;
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// After this time without an answer, the server counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(30);

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
}

/// The results of a group.
#[derive(Debug, Clone)]
pub struct GroupReport {
    /// The number of requests answered after the warm-up.
    pub requests: u64,
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
            writes: Writes::default(),
            keep_each: false,
        }
    }
}

impl GroupReport {
    /// The combined results of several groups that ran at the same time.
    pub fn of_all(reports: Vec<Self>) -> Result<Self> {
        let mut reports = reports.into_iter();
        let mut all = reports.next().context("no load")?;
        for report in reports {
            all.requests += report.requests;
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

/// A running group.
struct Running {
    group: Group,
    key_head: Vec<u8>,
    keys: Keys,
    /// The indices of its connections.
    connections: std::ops::Range<usize>,
    turn: usize,
    /// The due time of a paced group's next request.
    due: Instant,
    requests: u64,
    latencies: Histogram<u64>,
    each: Vec<Answered>,
    error: Option<String>,
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
}

/// Generates load from a thread with higher priority, if permitted.
///
/// # Errors
/// Those of [`run`].
pub fn run_preferred(groups: &[Group], span: Span<'_>, seed: u64) -> Result<Vec<GroupReport>> {
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            run(groups, span, seed)
        });
        client.join().map_err(|_| anyhow!("the load generator panicked"))?
    })
}

/// Generates load from this thread.
///
/// # Errors
/// A connection that fails, any answer that is not the value of its key, unless it is an error and the group continues
/// after errors, and a group without any answer.
pub fn run(groups: &[Group], span: Span<'_>, seed: u64) -> Result<Vec<GroupReport>> {
    // Send requests at their due times, not up to 50 µs later.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut connections = Vec::new();
    let mut running = Vec::new();
    let started = Instant::now();
    for (number, group) in groups.iter().enumerate() {
        ensure!(
            group.connections > 0 && group.pipeline > 0 && group.keys_per_request > 0,
            "a group that sends nothing: {group:?}"
        );
        ensure!(
            group.writes.share == 0.0 || group.keys_per_request == 1,
            "a group that writes several keys at once: {group:?}"
        );
        let first = connections.len();
        for _ in 0..group.connections {
            let connection = Connection::open(group.address)?;
            let place = epoll::EventData::new_u64(connections.len() as u64);
            epoll::add(&poll, connection.as_fd(), place, epoll::EventFlags::IN)?;
            connections.push((number, connection));
        }
        running.push(Running {
            group: group.clone(),
            key_head: key_head(&group.prefix),
            keys: Keys::new(group.keys.clone(), seed.wrapping_mul(31).wrapping_add(number as u64)),
            connections: first..connections.len(),
            turn: 0,
            due: started,
            requests: 0,
            latencies: new_histogram()?,
            each: Vec::new(),
            error: None,
        });
    }

    let counted_from = started + span.warm_up;
    let end = counted_from + span.measured;
    let mut events = Vec::with_capacity(EVENTS);
    let mut last_answer = started;
    let ended = loop {
        let now = Instant::now();
        if now >= end || span.stop.is_some_and(|stop| stop.load(Relaxed)) {
            break now;
        }
        ensure!(
            now - last_answer < SILENCE_MAX,
            "no answer for {SILENCE_MAX:?} to {groups:?}"
        );
        let mut wait = WAIT_MAX.min(end - now);
        for group in &mut running {
            group.send(&mut connections, now)?;
            if group.group.rate.is_some() {
                wait = wait.min(group.due.saturating_duration_since(Instant::now()));
            }
        }
        for (_, connection) in &mut connections {
            if connection.flush()? {
                // The server does not read as fast as we write: check again soon.
                wait = wait.min(Duration::from_micros(100));
            }
        }
        events.clear();
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        // `epoll::wait` would round the time up to milliseconds, and send requests that late.
        poll_until(&mut [PollFd::new(&poll, PollFlags::IN)], Some(&timeout))?;
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&NO_TIME))?;
        for event in &events {
            let (number, connection) = &mut connections[event.data.u64() as usize];
            let group = &mut running[*number];
            let Group {
                prefix,
                keys_per_request,
                keep_each,
                ..
            } = &group.group;
            connection.receive(prefix, *keys_per_request, |due, answered, error| {
                last_answer = answered;
                if due < counted_from {
                    return Ok(());
                }
                let latency = answered - due;
                match (&error, keep_each) {
                    (Some(error), false) => bail!("the server answers {error:?}"),
                    (Some(_), true) => {}
                    (None, _) => {
                        group.requests += 1;
                        record(&mut group.latencies, latency);
                    }
                }
                if *keep_each {
                    let failed = error.is_some();
                    group.each.push(Answered { due, latency, failed });
                    group.error = group.error.take().or(error);
                }
                Ok(())
            })?;
        }
    };
    // Unanswered and unsent requests have waited at least until now.
    for (number, connection) in &connections {
        let group = &mut running[*number];
        let late = connection.unanswered().filter(|due| *due >= counted_from);
        late.for_each(|due| record(&mut group.latencies, ended - due));
    }
    for group in &mut running {
        if let Some(interval) = group.interval() {
            group.due = group.due.max(counted_from);
            while group.due < ended {
                record(&mut group.latencies, ended - group.due);
                group.due += interval;
            }
        }
        ensure!(group.requests > 0, "no request was answered: {:?}", group.group);
    }
    let seconds = ended.saturating_duration_since(counted_from).as_secs_f64();
    let report = |group: Running| GroupReport {
        requests: group.requests,
        seconds,
        latencies: group.latencies,
        each: group.each,
        error: group.error,
    };
    Ok(running.into_iter().map(report).collect())
}

fn new_histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)?)
}

fn record(latencies: &mut Histogram<u64>, latency: Duration) {
    latencies.saturating_record((latency.as_nanos() as u64).max(1));
}

/// Adds the next request to the buffer of a connection.
#[inline]
fn send_next(group: &Group, key_head: &[u8], keys: &mut Keys, connection: &mut Connection, due: Instant) {
    if group.writes.share > 0.0 && keys.chance(group.writes.share) {
        connection.write(key_head, group.writes.value_bytes, keys.next(), due);
    } else {
        connection.request(key_head, group.keys_per_request, keys, due);
    }
}

impl Running {
    /// The interval between requests of a paced group.
    fn interval(&self) -> Option<Duration> {
        self.group.rate.map(|rate| Duration::from_secs_f64(1.0 / rate))
    }

    /// Adds all due requests to the buffers of the connections.
    fn send(&mut self, connections: &mut [(usize, Connection)], now: Instant) -> Result<()> {
        match self.interval() {
            None => {
                for at in self.connections.clone() {
                    let connection = &mut connections[at].1;
                    while connection.in_flight() < self.group.pipeline {
                        send_next(&self.group, &self.key_head, &mut self.keys, connection, now);
                    }
                }
            }
            Some(interval) => {
                while self.due <= now {
                    let Some(at) = self.next_free(connections) else {
                        // All connections are busy; the requests stay due, and their latency counts.
                        return Ok(());
                    };
                    let connection = &mut connections[at].1;
                    send_next(&self.group, &self.key_head, &mut self.keys, connection, self.due);
                    self.due += interval;
                }
            }
        }
        Ok(())
    }

    fn next_free(&mut self, connections: &[(usize, Connection)]) -> Option<usize> {
        let count = self.connections.len();
        let start = self.connections.start;
        for step in 1..=count {
            let turn = (self.turn + step) % count;
            if connections[start + turn].1.in_flight() < self.group.pipeline {
                self.turn = turn;
                return Some(start + turn);
            }
        }
        None
    }
}
