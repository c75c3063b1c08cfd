//! The steps of a row that generate load: on a server or an engine, alone or beside other work. Their figures are recorded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fondaco_client::ReadOptions;
use fondaco_client::read::{ClientRate, FanOut, FanOutController, Pd, ReadCounts, named};
use fondaco_model::StrategyName;

use super::Running;
use crate::dataset::Dataset;
use crate::engines::mixed::EngineMix;
use crate::load::library::{Library, LibraryLoad, Pace, owners};
use crate::load::sql::{self, SqlLoad};
use crate::load::{self, Costed, Group, GroupReport, KeyChoice, Span, Writes};
use crate::machine::process::{cpu_time_of, with_pauses};
use crate::machine::{disk, settled};
use crate::rows::calls;
use crate::rows::spec::{Client, Distribution, Place, Step};
use crate::servers::Server;
use crate::servers::control::PUSH_LIMIT;
use crate::servers::direct::BATCH_MAX;
use crate::servers::redis;

const HOT_KEYS: u64 = 1000;
const PAUSE: Duration = Duration::from_millis(100);
/// The time from one pause to the next. A third of the requests go to the pausing node: with a pause every half second,
/// they would exceed the twentieth of requests that may be hedged.
const PERIOD: Duration = Duration::from_secs(1);

/// The reports of a load, and of its company, and the counters of a client library.
struct Generated {
    reports: Vec<GroupReport>,
    counts: Option<ReadCounts>,
}

impl Generated {
    fn of(reports: Vec<GroupReport>) -> Self {
        Self { reports, counts: None }
    }
}

/// The CPU time of servers and of this process so far.
#[derive(Clone, Copy)]
struct Times {
    nodes: Duration,
    router: Duration,
    own: Duration,
}

impl Running<'_> {
    /// Generates a load, and records its figures.
    pub(super) fn load(&mut self, step: &Step) -> Result<()> {
        if step.settle {
            // Disk writes left by earlier loads must not count for this one.
            rustix::fs::sync();
        }
        if let Server::Engine(engine) = self.server(&step.on)? {
            let reached = engine.per_cpu_second(self.engine_mix(step))?;
            let unit = if step.keys_per_request > 1 { "keys" } else { "requests" };
            self.add(&step.name, &format!("{unit}/CPU s"), reached);
            return Ok(());
        }
        let reads_before = disk::reads_completed(&self.bench.work).unwrap_or(0);
        let (before, started) = (self.times(step)?, Instant::now());
        let Generated { reports, counts } = self.generate(step)?;
        let seconds = started.elapsed().as_secs_f64();
        if step.settle {
            settled(|| self.server(&step.on)?.cpu_time())?;
        }
        let after = self.times(step)?;
        let reads = disk::reads_completed(&self.bench.work).unwrap_or(0) - reads_before;
        if step.name.is_empty() || !self.counts {
            return Ok(());
        }
        let mut reports = reports.into_iter();
        let (first, others) = (reports.next().context("no load")?, reports.next());
        if let (Some(other), Some((name, _))) = (&others, &step.company) {
            self.figures.add_latencies(name, other);
        }
        // At least a tick of the clock.
        let used = |of: fn(&Times) -> Duration| (of(&after) - of(&before)).as_secs_f64().max(0.01);
        let [nodes, router, own] = [
            used(|times| times.nodes),
            used(|times| times.router),
            used(|times| times.own),
        ];
        let is_routed = after.router > Duration::ZERO;
        let servers = if is_routed { nodes + router } else { nodes };
        let costed = Costed {
            report: first,
            cpu_seconds: servers,
        };
        let requests = costed.report.requests as f64;
        let name = &step.name;
        self.figures.add_latencies(name, &costed.report);
        self.figures
            .add_rates(name, &costed, if step.counts_keys { step.keys_per_request } else { 1 });
        let (loops, memory) = match self.server(&step.on)? {
            Server::Fondaco(fondaco) => (fondaco.loops(), fondaco.front().process().status_bytes("RssAnon")?),
            other => (
                1,
                other
                    .process()
                    .map_or(Ok(0), |process| process.status_bytes("RssAnon"))?,
            ),
        };
        let capacity = costed.per_cpu_second() * loops as f64;
        self.record(
            name,
            [
                // The rate that the loops would reach with a core each.
                ("capacity", "requests/s", capacity),
                ("cores", "cores", servers / seconds),
                ("memory", "MiB", memory as f64 / f64::from(1 << 20)),
                ("reads", "reads/get", reads as f64 / requests),
                ("router cpu", "requests/CPU s", requests / router),
                ("nodes cpu", "requests/CPU s", requests / nodes),
                ("all cpu", "requests/CPU s", requests / (servers + own)),
                ("router cost", "µs", router / requests * 1e6),
                ("nodes cost", "µs", nodes / requests * 1e6),
            ],
        );
        if step.deadline_ms.is_some() {
            let late = costed.report.late as f64 / requests / step.keys_per_request as f64;
            self.add(&format!("{name} late"), "%", late * 100.0);
        }
        if let Some(counts) = counts {
            self.count(step, &counts);
        }
        Ok(())
    }

    fn times(&self, step: &Step) -> Result<Times> {
        let server = self.server(&step.on)?;
        let (nodes, router) = match server {
            Server::Fondaco(fondaco) if step.at == Place::Front && step.by != Client::Library => {
                (fondaco.cpu_time_of_nodes()?, fondaco.cpu_time_of_router()?)
            }
            Server::Fondaco(fondaco) => (fondaco.cpu_time_of_nodes()?, Duration::ZERO),
            other => (other.cpu_time()?, Duration::ZERO),
        };
        let own = cpu_time_of(std::process::id())?;
        Ok(Times { nodes, router, own })
    }

    /// The reports of a load, and of its company.
    fn generate(&mut self, step: &Step) -> Result<Generated> {
        if !step.pauses {
            return self.generate_beside(step);
        }
        let stopped = self.fondaco()?.nodes()[0].process().id();
        with_pauses(stopped, PAUSE, PERIOD, || self.generate_beside(step))
    }

    fn generate_beside(&mut self, step: &Step) -> Result<Generated> {
        let span = self.span(step);
        if let Some(call) = &step.during {
            let group = self.groups(step)?.swap_remove(0);
            let round = self.round;
            let (report, ()) = group.during(PUSH_LIMIT, round, || calls::call(self, call, step))?;
            return Ok(Generated::of(vec![report]));
        }
        let Some(call) = &step.beside else {
            return self.generate_alone(step, span);
        };
        let client = calls::beside(self, call)?;
        let (generated, counted) = load::beside_clients(client.count, client.run, || self.generate_alone(step, span))?;
        self.add(&format!("{} counted", step.name), "/s", counted as f64 / span.seconds());
        Ok(generated)
    }

    fn generate_alone(&self, step: &Step, span: Span<'_>) -> Result<Generated> {
        let (server, bench, records) = (self.server(&step.on)?, self.bench, self.dataset.records);
        let reports = match (server, step.by) {
            (Server::MariaDb(mariadb), _) => {
                let load = SqlLoad {
                    url: mariadb.url(),
                    connections: step.connections,
                    keys: self.keys(step, step.keys)?,
                    writes: self.writes(step),
                };
                vec![sql::run(&load, span.measured, self.round)?]
            }
            (server, Client::RedisBenchmark) => {
                let requests = if bench.quick { step.requests / 5 } else { step.requests };
                let (address, cpu) = (server.resp()?, bench.client_cpu());
                let report = redis::benchmark(address, cpu, requests, step.pipeline, records, step.keys_per_request)?;
                vec![report]
            }
            (_, Client::Library) => return self.through_library(step, span),
            (_, Client::Generator) => {
                let cpu = step.pinned.then(|| bench.client_cpu());
                let reports = load::run_threads(cpu, step.threads, &self.groups(step)?, span, self.round)?;
                match &step.company {
                    Some(_) => reports,
                    None => vec![GroupReport::of_all(reports)?],
                }
            }
        };
        Ok(Generated::of(reports))
    }

    /// A load on its own client, which has to learn the usual latency by itself; its counters become figures.
    fn through_library(&self, step: &Step, span: Span<'_>) -> Result<Generated> {
        let fan_out = match (step.groups, step.controlled_rate) {
            (_, Some(rate)) => {
                let controller = Pd::around(Arc::new(ClientRate::new(rate)));
                FanOut::Controlled(Arc::new(controller) as Arc<dyn FanOutController>)
            }
            (Some(groups), None) => FanOut::Groups(groups),
            (None, None) => FanOut::All,
        };
        let strategy = step.strategy.as_deref().map(str::parse::<StrategyName>).transpose();
        let options = ReadOptions {
            strategy: strategy.map_err(|error| anyhow!("{error}"))?.map(named),
            fan_out,
            hedge: step.hedge,
            ..ReadOptions::default()
        };
        let library = Library::connect(self.fondaco()?.front().resp(), options)?;
        let load = LibraryLoad {
            store: step.store.parse()?,
            keys: self.keys(step, step.keys)?,
            keys_per_request: step.keys_per_request,
            pace: step.rate.map_or(Pace::AtATime(step.connections), Pace::Rate),
        };
        let report = library.run(&load, span, self.round)?;
        Ok(Generated {
            reports: vec![report],
            counts: Some(library.stats().reads),
        })
    }

    /// Records the counters of a client library: its requests to nodes, and the largest share of keys on one.
    fn count(&mut self, step: &Step, counts: &ReadCounts) {
        let requests = counts.requests as f64;
        let asked = counts.sub_requests as f64 / requests;
        let [server, client] = [counts.server_us, counts.client_us].map(|sum| sum as f64 / requests / 1e3);
        let rate = self
            .figures
            .figure(&format!("{} rate", step.name))
            .map_or(0.0, |rate| rate.rounds.last().copied().unwrap_or(0.0));
        let share = counts.largest_shares as f64 / requests / step.keys_per_request as f64;
        self.record(
            &step.name,
            [
                ("asked", "", asked),
                ("asked rate", "requests/s", rate * asked),
                ("extra", "%", (asked - 1.0) * 100.0),
                ("share", "%", share * 100.0),
                ("whole time", "ms", server + client),
                ("server time", "ms", server),
                ("client time", "ms", client),
            ],
        );
    }

    /// The groups of connections of a load.
    pub fn groups(&self, step: &Step) -> Result<Vec<Group>> {
        let server = self.server(&step.on)?;
        let address = match (server, step.at) {
            (Server::Fondaco(fondaco), Place::Node) => fondaco.nodes()[0].resp(),
            (other, _) => other.resp()?,
        };
        let rate = match &step.half_of {
            Some(figure) => Some(self.figures.figure(figure)?.median() / 2.0),
            None => step.rate,
        };
        let group = |address: SocketAddr, keys, share: usize| Group {
            connections: step.connections / share,
            pipeline: step.pipeline,
            rate: rate.map(|rate| rate / share as f64),
            keys_per_request: step.keys_per_request,
            deadline_ms: step.deadline_ms,
            writes: self.writes(step),
            ..Group::gets(address, &step.store, keys)
        };
        if step.at == Place::Owners {
            let owners = owners(address, &step.store, self.dataset.records)?;
            let share = owners.len();
            return Ok(owners
                .into_iter()
                .map(|(node, keys)| group(node, KeyChoice::Among(keys), share))
                .collect());
        }
        let keys = [Some(step.keys), step.company.as_ref().map(|(_, keys)| *keys)];
        keys.into_iter()
            .flatten()
            .map(|keys| Ok(group(address, self.keys(step, keys)?, 1)))
            .collect()
    }

    fn span(&self, step: &Step) -> Span<'static> {
        let seconds = (self.bench.round_time().as_secs_f64() * step.time).max(step.seconds_min);
        match step.whole {
            true => Span::whole(Duration::from_secs_f64(seconds)),
            false => Span::of(Duration::from_secs_f64(seconds)),
        }
    }

    fn keys(&self, step: &Step, distribution: Distribution) -> Result<KeyChoice> {
        let dataset = step.data.as_ref().map(|data| self.bench.dataset(data)).transpose()?;
        let Dataset { records, .. } = dataset.unwrap_or(self.dataset);
        Ok(match distribution {
            Distribution::Uniform => KeyChoice::Uniform { records },
            Distribution::Zipf => KeyChoice::Zipf { records },
            Distribution::Hot => KeyChoice::Hot {
                records,
                count: HOT_KEYS,
            },
        })
    }

    fn writes(&self, step: &Step) -> Writes {
        Writes {
            share: step.writes,
            value_bytes: self.dataset.value_bytes,
            waits: matches!(self.server(&step.on), Ok(Server::Redis(redis)) if redis.has_replicas()),
        }
    }

    /// The requests to an engine: in batches as large as the number of writes in flight. Each batch is synced if the mix syncs
    /// each write.
    fn engine_mix(&self, step: &Step) -> EngineMix {
        let under_way = (step.connections * step.pipeline) as f64 * step.writes;
        EngineMix {
            batch: (under_way.round() as u64).clamp(1, BATCH_MAX),
            writes: step.writes,
            zipf: step.keys == Distribution::Zipf,
            synced: step.synced,
            lasts: self.span(step).measured,
        }
    }
}
