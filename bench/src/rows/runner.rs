//! Measures a row: starts its servers, fills them, runs its phases in rounds, and makes the lines of the figures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use fondaco_client::ReadOptions;
use fondaco_client::read::{ClientRate, FanOut, FanOutController, Pd, ReadCounts, named};
use fondaco_model::StrategyName;
use fondaco_testing::{Kafka, serve_http};

use super::calls;
use super::procedures::{Kept, streams};
use super::spec::{
    Client, Distribution, Fill, Phase, Place, RowSpec, ServerKind, ServerSpec, Step, StoreKind, StoreSpec,
};
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::engines::Candidate;
use crate::engines::mixed::EngineMix;
use crate::load::library::{Library, LibraryLoad, Pace, owners};
use crate::load::sql::{self, SqlLoad};
use crate::load::{self, Costed, Group, GroupReport, KeyChoice, Span, Writes};
use crate::machine::memory_group::MemoryGroup;
use crate::machine::process::{cpu_time_of, with_pauses};
use crate::machine::{disk, settled};
use crate::report::markdown::number;
use crate::report::{Chart, Figures, Line};
use crate::servers::Server;
use crate::servers::control::{ControlPort, PUSH_LIMIT};
use crate::servers::direct::{BATCH_MAX, Direct};
use crate::servers::fondaco::{Fondaco, Limits};
use crate::servers::mariadb::MariaDb;
use crate::servers::redis::{self, Redis};

const HOT_KEYS: u64 = 1000;
const PAUSE: Duration = Duration::from_millis(100);
/// The time from one pause to the next. A third of the requests go to the pausing node: with a pause every half second,
/// they would exceed the twentieth of requests that may be hedged.
const PERIOD: Duration = Duration::from_secs(1);

/// A row that is being measured.
pub struct Running<'a> {
    pub bench: &'a Bench,
    pub spec: &'a RowSpec,
    /// The records of the row.
    pub dataset: Dataset,
    pub figures: Figures,
    /// Lines, notes and charts that functions of the row have made.
    pub lines: Vec<Line>,
    pub notes: Vec<String>,
    pub charts: Vec<Chart>,
    /// Whether the current round counts, and its number.
    pub counts: bool,
    pub round: u64,
    /// What the functions of the row keep from one call to the next.
    pub kept: Kept,
    servers: Vec<(&'a str, Server)>,
    /// Dropped after the servers.
    memory: Option<MemoryGroup>,
    began: Instant,
}

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

impl<'a> Running<'a> {
    /// Starts the servers of a row, and fills them.
    pub fn start(bench: &'a Bench, spec: &'a RowSpec) -> Result<Self> {
        let mut running = Self {
            bench,
            spec,
            dataset: bench.dataset(&spec.data)?,
            figures: Figures::default(),
            lines: Vec::new(),
            notes: Vec::new(),
            charts: Vec::new(),
            counts: true,
            round: 0,
            kept: Kept::default(),
            servers: Vec::new(),
            memory: None,
            began: Instant::now(),
        };
        if let Some(limits) = spec.limit_bytes {
            let limit_bytes = limits[usize::from(!bench.quick)];
            running.memory = Some(MemoryGroup::new(&spec.name, limit_bytes)?);
            running
                .figures
                .set("limit", number(limit_bytes as f64 / f64::from(1 << 20)));
        }
        let Dataset { records, value_bytes } = running.dataset;
        running.figures.set("records", number(records as f64));
        running.figures.set("value_bytes", value_bytes.to_string());
        running
            .figures
            .set("megabytes", number(running.dataset.bytes() as f64 / 1e6));
        for server in &spec.servers {
            let started = running.start_server(server)?;
            running.servers.push((&server.name, started));
        }
        for store in &spec.stores {
            running.fill(store)?;
        }
        Ok(running)
    }

    fn start_server(&mut self, spec: &ServerSpec) -> Result<Server> {
        let bench = self.bench;
        let cpu = spec.pinned.then(|| bench.server_cpu());
        Ok(match spec.kind {
            ServerKind::Fondaco => {
                let limits = Limits {
                    cpu,
                    memory: self.memory.as_ref().filter(|_| spec.limited),
                };
                let name = format!("{}-{}", self.spec.name, spec.name);
                Server::Fondaco(Box::new(Fondaco::start(bench, &name, spec.shape, limits)?))
            }
            ServerKind::Redis => Server::Redis(Redis::start(bench, cpu, spec.logs)?),
            ServerKind::Mariadb => Server::MariaDb(MariaDb::start(bench, cpu, true)?),
            ServerKind::Bare => Server::start_bare(bench, "records:", self.dataset.value_bytes)?,
            ServerKind::Kafka => {
                let kafka = Kafka::start();
                drop(kafka.make_topic(streams::TOPIC, streams::PARTITIONS));
                Server::Kafka(kafka)
            }
            ServerKind::Engine => {
                let engine = Candidate::named(&spec.name).with_context(|| format!("no engine {:?}", spec.name))?;
                Server::Engine(Direct::start(bench, engine, self.dataset)?)
            }
            ServerKind::Collector => {
                let address = serve_http(|_, _| Some(("200 OK", b"{}".to_vec())))?;
                self.figures.set("collector", format!("http://{address}"));
                Server::Collector
            }
        })
    }

    fn fill(&mut self, spec: &StoreSpec) -> Result<()> {
        let dataset = spec
            .data
            .as_ref()
            .map_or(Ok(self.dataset), |name| self.bench.dataset(name))?;
        let (bench, store) = (self.bench, spec.name.as_str());
        let kafka = self.servers.iter().find_map(|(_, server)| match server {
            Server::Kafka(kafka) => Some(kafka.address()),
            _ => None,
        });
        let options: Vec<String> = spec
            .options
            .iter()
            .map(|option| option.replace("KAFKA", kafka.as_deref().unwrap_or_default()))
            .collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let fills_bulk = spec.fill == Fill::Bulk;
        match self.server_mut(&spec.on)? {
            Server::Fondaco(fondaco) => match (spec.kind, spec.fill) {
                (StoreKind::Batch, Fill::Bulk) => fondaco.serve(store, &bench.version_for(store, dataset)?, dataset)?,
                (StoreKind::Batch, _) => fondaco.control().create("batch", store, &options)?,
                (StoreKind::Hybrid, fill) => {
                    fondaco.control().create("hybrid", store, &options)?;
                    if fill == Fill::Bulk {
                        fondaco
                            .control()
                            .deploy(store, &bench.version_for(store, dataset)?, &[])?;
                    }
                }
                (StoreKind::Versioned, fill) => {
                    fondaco.control().create("versioned", store, &options)?;
                    match fill {
                        Fill::Nothing => {}
                        Fill::Replicas => fondaco.fill_replicas(store, dataset)?,
                        _ => load::fill(fondaco.front().resp(), &format!("{store}:"), dataset)?,
                    }
                }
            },
            Server::Redis(redis) if fills_bulk => redis.fill(bench, &bench.parquet(dataset)?)?,
            Server::Redis(redis) => load::fill(redis.address(), &format!("{store}:"), dataset)?,
            Server::MariaDb(mariadb) => mariadb.load(&bench.parquet(dataset)?, dataset)?,
            _ => bail!("{:?} cannot be filled", spec.on),
        }
        Ok(())
    }

    /// Runs all phases, ends the servers, and makes the lines, notes and charts of the figures.
    pub fn measure(mut self) -> Result<(Vec<Line>, Vec<String>, Vec<Chart>)> {
        for phase in &self.spec.phases {
            self.run_phase(phase)?;
        }
        let Self { spec, figures, .. } = &self;
        let lines = spec
            .lines
            .iter()
            .map(|line| line.line(figures))
            .collect::<Result<Vec<_>>>()?;
        let notes = spec
            .notes
            .iter()
            .map(|note| figures.text(note))
            .collect::<Result<Vec<_>>>()?;
        let charts = spec
            .charts
            .iter()
            .map(|chart| chart.chart(figures))
            .collect::<Result<Vec<_>>>()?;
        for (_, server) in self.servers.drain(..) {
            server.end()?;
        }
        let notes = notes.into_iter().filter(|note| !note.is_empty());
        Ok((
            [lines, self.lines].concat(),
            notes.chain(self.notes).collect(),
            [charts, self.charts].concat(),
        ))
    }

    fn run_phase(&mut self, phase: &Phase) -> Result<()> {
        (self.counts, self.round) = (true, 0);
        self.run_steps(&phase.before)?;
        let rounds = self.bench.rounds().min(phase.rounds_max.unwrap_or(u64::MAX));
        for round in 0..rounds + u64::from(phase.warm_up) {
            let is_over = phase
                .minutes_max
                .is_some_and(|minutes| self.began.elapsed().as_secs() > 60 * minutes);
            if round > 0 && is_over {
                break;
            }
            (self.counts, self.round) = (round > 0 || !phase.warm_up, round);
            self.run_steps(&phase.steps)?;
        }
        self.counts = true;
        self.run_steps(&phase.after)
    }

    fn run_steps(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            match &step.call {
                Some(call) => calls::call(self, call, step),
                None => self.load(step),
            }
            .with_context(|| format!("{:?}", step.call.as_ref().unwrap_or(&step.name)))?;
        }
        Ok(())
    }

    /// A server by its name.
    pub fn server(&self, name: &str) -> Result<&Server> {
        let found = self.servers.iter().find(|(known, _)| *known == name);
        Ok(&found.with_context(|| format!("the row has no server {name:?}"))?.1)
    }

    fn server_mut(&mut self, name: &str) -> Result<&mut Server> {
        let found = self.servers.iter_mut().find(|(known, _)| *known == name);
        Ok(&mut found.with_context(|| format!("the row has no server {name:?}"))?.1)
    }

    /// The fondaco of the row.
    pub fn fondaco(&self) -> Result<&Fondaco> {
        match self.server("fondaco")? {
            Server::Fondaco(fondaco) => Ok(fondaco),
            _ => bail!("another server is called fondaco"),
        }
    }

    /// The fondaco of the row, to change its processes.
    pub fn fondaco_mut(&mut self) -> Result<&mut Fondaco> {
        match self.server_mut("fondaco")? {
            Server::Fondaco(fondaco) => Ok(fondaco),
            _ => bail!("another server is called fondaco"),
        }
    }

    /// The Kafka of the row.
    pub fn kafka(&self) -> Result<&Kafka> {
        match self.server("kafka")? {
            Server::Kafka(kafka) => Ok(kafka),
            _ => bail!("another server is called kafka"),
        }
    }

    /// The control port of the fondaco of the row.
    pub fn control(&self) -> Result<&ControlPort> {
        Ok(self.fondaco()?.control())
    }

    /// Adds the value of a round, if it counts.
    pub fn add(&mut self, name: &str, unit: &str, value: f64) {
        if self.counts {
            self.figures.add(name, unit, value);
        }
    }

    /// Adds values of a round, whose names begin with the same, if it counts.
    pub fn record<const N: usize>(&mut self, name: &str, values: [(&str, &str, f64); N]) {
        for (aspect, unit, value) in values {
            self.add(format!("{name} {aspect}").trim_start(), unit, value);
        }
    }

    /// Generates a load, and records its figures.
    fn load(&mut self, step: &Step) -> Result<()> {
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
                    keys: self.keys(step.keys),
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
            keys: self.keys(step.keys),
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
        Ok(keys
            .into_iter()
            .flatten()
            .map(|keys| group(address, self.keys(keys), 1))
            .collect())
    }

    fn span(&self, step: &Step) -> Span<'static> {
        let seconds = (self.bench.round_time().as_secs_f64() * step.time).max(step.seconds_min);
        match step.whole {
            true => Span::whole(Duration::from_secs_f64(seconds)),
            false => Span::of(Duration::from_secs_f64(seconds)),
        }
    }

    fn keys(&self, distribution: Distribution) -> KeyChoice {
        let Dataset { records, .. } = self.dataset;
        match distribution {
            Distribution::Uniform => KeyChoice::Uniform { records },
            Distribution::Zipf => KeyChoice::Zipf { records },
            Distribution::Hot => KeyChoice::Hot {
                records,
                count: HOT_KEYS,
            },
        }
    }

    fn writes(&self, step: &Step) -> Writes {
        Writes {
            share: step.writes,
            value_bytes: self.dataset.value_bytes,
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
