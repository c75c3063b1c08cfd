//! The loop of the load generator: one thread over the connections of all groups (epoll).

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll as poll_until};

use super::connection::{Asked, Connection, key_head};
use super::{Answered, Group, GroupReport, Keys, Span, new_histogram, record};

/// The longest wait before checking the clock.
const WAIT_MAX: Duration = Duration::from_millis(10);
const EVENTS: usize = 256;
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// After this time without an answer, the server counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(30);

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
    late: u64,
    latencies: Histogram<u64>,
    each: Vec<Answered>,
    error: Option<String>,
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
            late: 0,
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
            let asked = asked(&group.group);
            let Group { prefix, keep_each, .. } = &group.group;
            connection.receive(prefix, asked, |due, answered, error, late| {
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
                        group.late += late;
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
        late: group.late,
        seconds,
        latencies: group.latencies,
        each: group.each,
        error: group.error,
    };
    Ok(running.into_iter().map(report).collect())
}

fn asked(group: &Group) -> Asked {
    Asked {
        keys_per_request: group.keys_per_request,
        deadline_ms: group.deadline_ms,
        waits: group.writes.waits,
    }
}

/// Adds the next request to the buffer of a connection.
#[inline]
fn send_next(group: &Group, key_head: &[u8], keys: &mut Keys, connection: &mut Connection, due: Instant) {
    if group.writes.share > 0.0 && keys.chance(group.writes.share) {
        connection.write(key_head, group.writes, keys.next(), due);
    } else {
        connection.request(key_head, asked(group), keys, due);
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
