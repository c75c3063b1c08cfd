//! Measures a row: starts its servers, fills them, runs its phases in rounds, and makes the lines of the figures.

mod load_step;

use std::time::Instant;

use anyhow::{Context, Result, bail};
use fondaco_testing::{Kafka, serve_http};

use super::calls;
use super::procedures::{Kept, streams};
use super::spec::{Fill, Phase, RowSpec, ServerKind, ServerSpec, Step, StoreKind, StoreSpec};
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::engines::Candidate;
use crate::load;
use crate::machine::memory_group::MemoryGroup;
use crate::report::markdown::number;
use crate::report::{Chart, Figures, Line};
use crate::servers::Server;
use crate::servers::control::ControlPort;
use crate::servers::direct::Direct;
use crate::servers::fondaco::{Fondaco, Limits};
use crate::servers::mariadb::MariaDb;
use crate::servers::redis::Redis;

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
    /// The state of the row's functions between calls.
    pub kept: Kept,
    servers: Vec<(&'a str, Server)>,
    /// Dropped after the servers.
    memory: Option<MemoryGroup>,
    began: Instant,
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
            ServerKind::Redis => {
                let mut redis = Redis::start(bench, cpu, spec.logs)?;
                redis.add_replicas(bench, cpu, spec.logs, spec.replicas)?;
                Server::Redis(redis)
            }
            ServerKind::Valkey => Server::Redis(Redis::start_valkey(bench, cpu)?),
            ServerKind::Mariadb => Server::MariaDb(MariaDb::start(bench, cpu, true)?),
            ServerKind::Bare => Server::start_bare(bench, &spec.prefix, self.dataset.value_bytes)?,
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
}
