//! Load through the client library: one client on one thread, like an application.
//!
//! Requests are sent at their due times at a fixed rate, whether or not others were answered, or with a fixed number in
//! flight. Latency counts from the due time. Every value is checked.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fondaco_client::{Client, ClientStats, ReadOptions};
use fondaco_model::cluster::Topology;
use fondaco_model::{NodeId, StoreName, slot_of_key};
use fondaco_protocol::WireKey;
use hdrhistogram::Histogram;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::{GroupReport, KeyChoice, Keys, Records, Span, new_histogram, record};
use crate::dataset::{is_value_of, key};

/// The limit of requests in flight at a fixed rate; further due requests wait.
const UNDER_WAY_MAX: usize = 10_000;
const CLOCK_TICK_MAX: Duration = Duration::from_millis(10);

/// A client. Its connections are active only while it runs a load.
pub struct Library {
    runtime: Runtime,
    client: Client,
    options: ReadOptions,
}

/// The requests of a load.
#[derive(Debug, Clone)]
pub struct LibraryLoad {
    /// The store.
    pub store: StoreName,
    /// The distribution of keys.
    pub keys: KeyChoice,
    /// The number of keys per request.
    pub keys_per_request: usize,
    /// The pace of requests.
    pub pace: Pace,
}

/// The pace of requests.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// This many per second.
    Rate(f64),
    /// This many in flight.
    AtATime(usize),
}

/// An answered request.
struct Done {
    due: Instant,
    answered: Instant,
}

/// Wakes at fixed intervals with microsecond precision: the runtime's timers are a thousand times coarser.
struct Ticker(AsyncFd<OwnedFd>);

impl Library {
    /// A client that learns the cluster from one of its processes.
    pub fn connect(seed: SocketAddr, options: ReadOptions) -> Result<Self> {
        // Timers are exact, not up to 50 µs late.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(Client::builder().seeds([seed.to_string()]).connect())?;
        Ok(Self {
            runtime,
            client,
            options,
        })
    }

    /// The topology that it uses.
    pub fn topology(&self) -> Result<Arc<Topology>> {
        self.client.topology().context("a client without a topology")
    }

    /// Its counters so far.
    pub fn stats(&self) -> ClientStats {
        self.client.stats()
    }

    /// Generates load from this thread.
    ///
    /// # Errors
    /// A request that fails, or a value that is not that of its key.
    pub fn run(&self, load: &LibraryLoad, span: Span<'_>, seed: u64) -> Result<GroupReport> {
        self.runtime.block_on(self.generate(load, span, seed))
    }

    async fn generate(&self, load: &LibraryLoad, span: Span<'_>, seed: u64) -> Result<GroupReport> {
        let mut keys = Keys::new(load.keys.clone(), seed);
        let (interval, under_way_max) = match load.pace {
            Pace::Rate(rate) => (Some(Duration::from_secs_f64(1.0 / rate)), UNDER_WAY_MAX),
            Pace::AtATime(requests) => (None, requests),
        };
        let ticker = Ticker::every(interval.unwrap_or(CLOCK_TICK_MAX))?;
        let started = Instant::now();
        let counted_from = started + span.warm_up;
        let end = counted_from + span.measured;
        let mut due = started;
        let mut under_way = JoinSet::new();
        let mut latencies = new_histogram()?;
        let mut requests = 0;
        let ended = loop {
            let now = Instant::now();
            if now >= end {
                break now;
            }
            if interval.is_none() {
                due = now;
            }
            while under_way.len() < under_way_max && due <= now {
                under_way.spawn(self.request(load, &mut keys, due)?);
                due = interval.map_or(now, |interval| due + interval);
            }
            tokio::select! {
                biased;
                ticked = ticker.tick() => ticked?,
                Some(done) = under_way.join_next() => requests += count(done??, counted_from, &mut latencies),
            }
        };
        // Requests have a deadline, so this loop ends.
        while let Some(done) = under_way.join_next().await {
            requests += count(done??, counted_from, &mut latencies);
        }
        ensure!(requests > 0, "no request was answered: {load:?}");
        Ok(GroupReport {
            requests,
            late: 0,
            seconds: (ended - counted_from).as_secs_f64(),
            latencies,
            each: Vec::new(),
            error: None,
        })
    }

    /// One request, with a check of the answer.
    fn request(
        &self,
        load: &LibraryLoad,
        keys: &mut Keys,
        due: Instant,
    ) -> Result<impl Future<Output = Result<Done>> + Send + use<>> {
        let numbers: Vec<u64> = (0..load.keys_per_request).map(|_| keys.next()).collect();
        let wire_keys = numbers.iter().map(|&number| WireKey::new(&load.store, &key(number)));
        let wire_keys = wire_keys.collect::<Result<Vec<_>, _>>()?;
        let (client, options) = (self.client.clone(), self.options.clone());
        Ok(async move {
            let reply = client.read(wire_keys, &options).await?;
            let answered = Instant::now();
            for (number, value) in numbers.into_iter().zip(reply.values) {
                match value? {
                    Some(value) if is_value_of(number, &value) => {}
                    _ => bail!("the value of record {number} is wrong"),
                }
            }
            Ok(Done { due, answered })
        })
    }
}

/// The first node that owns each record of a store, given one process of the cluster: its address, with its records.
pub fn owners(seed: SocketAddr, store: &str, records: u64) -> Result<Vec<(SocketAddr, Records)>> {
    let topology = Library::connect(seed, ReadOptions::default())?.topology()?;
    let store: StoreName = store.parse()?;
    let of_store = topology.stores.get(&store).context("no store in the topology")?;
    let mut numbers = BTreeMap::<NodeId, Vec<u32>>::new();
    for record in 0..records {
        let slot = slot_of_key(&store, &key(record));
        let mut owners = topology.replicas(of_store, topology.partitions.partition_of(slot));
        let owner = owners.next().context("a partition without an owner")?;
        numbers.entry(owner).or_default().push(u32::try_from(record)?);
    }
    let with_address = |(owner, numbers)| {
        let node = topology.nodes.get(&owner).context("an owner that is not a node")?;
        Ok((
            node.resp.parse()?,
            Records::new(numbers).context("an owner of nothing")?,
        ))
    };
    numbers.into_iter().map(with_address).collect()
}

fn count(done: Done, counted_from: Instant, latencies: &mut Histogram<u64>) -> u64 {
    if done.due < counted_from {
        return 0;
    }
    record(latencies, done.answered - done.due);
    1
}

impl Ticker {
    fn every(interval: Duration) -> Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let interval = Timespec {
            tv_sec: interval.as_secs() as i64,
            tv_nsec: i64::from(interval.subsec_nanos()),
        };
        let times = Itimerspec {
            it_interval: interval,
            it_value: interval,
        };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
        // SAFETY: the timer is open, owned by the value made here, and never exchanged.
        Ok(Self(unsafe { AsyncFd::register(timer) }?))
    }

    async fn tick(&self) -> Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|timer| {
                let mut expirations = [0; 8];
                rustix::io::read(timer, &mut expirations).map_err(io::Error::from)
            });
            if let Ok(read) = read {
                read?;
                return Ok(());
            }
        }
    }
}
