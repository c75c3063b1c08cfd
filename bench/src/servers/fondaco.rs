//! fondaco itself: `fondaco dev`, or a realistic cluster of ZooKeeper, two controllers, nodes and a router, each a separate
//! process with its own ports and directory.
//!
//! Dropping it ends all processes by their ids.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use fondaco_testing::{CpuGroup, ZooKeeper};
use serde::Deserialize;

use super::control::{COMMAND_LIMIT, ControlPort};
use super::replicas::Replicas;
use super::{Wait, last_record_exchange, wait_for_reply, wait_until};
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::machine::free_address;
use crate::machine::memory_group::MemoryGroup;
use crate::machine::process::{Launch, Process};

/// The store of the versions: with this name, a key on the wire is one that `redis-benchmark` requests.
pub const STORE: &str = "key";
/// The default number of partitions of `fondaco dev`.
pub const PARTITIONS: u32 = 16;
/// One leads, the other stands by.
const CONTROLLERS: usize = 2;
/// The session timeout of a process: shorter than the default, so that a row which kills processes has time for several
/// rounds.
const SESSION_TIMEOUT_MS: u64 = 4_000;

/// The processes that are started.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// The nodes of a cluster; 0 is `fondaco dev`, one process.
    pub nodes: usize,
    /// How many nodes hold each partition.
    pub replicas: u32,
    /// The groups that the nodes form; 0 without.
    pub groups: usize,
    pub partitions: u32,
    /// Whether each node of a cluster has a control group of its own, for limits of its processors.
    pub confined: bool,
    /// The event loops of `fondaco dev`; 0 is one per core. Each process of a cluster has one.
    pub loops: usize,
}

/// The cores of `fondaco dev`, and the memory of it or of all nodes of a cluster; all without.
#[derive(Clone, Copy, Default)]
pub struct Limits<'a> {
    pub cpu: Option<usize>,
    /// The limit of the memory, including page cache.
    pub memory: Option<&'a MemoryGroup>,
}

/// Running processes.
pub struct Fondaco {
    /// The process that clients use.
    front: Option<Member>,
    nodes: Vec<Member>,
    _controllers: Vec<Member>,
    /// Dropped last, so that no process misses it.
    zookeeper: Option<ZooKeeper>,
    dir: PathBuf,
    shape: Shape,
    /// Where nodes that are not confined enter the limit of their memory.
    memory: Option<PathBuf>,
}

/// One process.
pub struct Member {
    launch: Launch,
    process: Process,
    resp: SocketAddr,
    control: ControlPort,
    /// Dropped after the process.
    group: Option<CpuGroup>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            nodes: 0,
            replicas: 1,
            groups: 0,
            partitions: PARTITIONS,
            confined: false,
            loops: 0,
        }
    }
}

impl Shape {
    /// Three nodes.
    pub fn of_three(replicas: u32) -> Self {
        Self {
            nodes: 3,
            replicas,
            ..Self::default()
        }
    }
}

impl Fondaco {
    /// Starts it without data in a subdirectory of the work directory.
    pub fn start(bench: &Bench, name: &str, shape: Shape, limits: Limits<'_>) -> Result<Self> {
        let program = &bench.fondaco;
        ensure!(
            program.exists(),
            "there is no server at {program:?}: build it with `cargo build --release`"
        );
        let dir = bench.fresh_dir(name)?;
        if shape.nodes > 0 {
            return Self::start_cluster(bench, dir, shape, limits);
        }
        let (resp, http) = (free_address()?, free_address()?);
        let mut launch = Launch::new(program)
            .args(["dev", "--resp", &resp.to_string(), "--http", &http.to_string()])
            .args(["--loops", &shape.loops.to_string(), "--data"])
            .args([&dir])
            .within(limits.memory.map(MemoryGroup::processes_file));
        if let Some(cpu) = limits.cpu {
            launch = launch.on_cpu(cpu);
        }
        let mut node = Member::start(bench, &format!("{name}-server"), launch, [resp, http], None)?;
        wait_for_reply(&mut node.process, resp, b"PING\r\n", b"+PONG\r\n", COMMAND_LIMIT)?;
        Ok(Self {
            front: None,
            nodes: vec![node],
            _controllers: Vec::new(),
            zookeeper: None,
            dir,
            shape,
            memory: None,
        })
    }

    fn start_cluster(bench: &Bench, dir: PathBuf, shape: Shape, limits: Limits<'_>) -> Result<Self> {
        let mut cluster = Self {
            front: None,
            nodes: Vec::new(),
            _controllers: Vec::new(),
            zookeeper: Some(ZooKeeper::start()),
            dir,
            shape,
            memory: limits.memory.map(MemoryGroup::processes_file),
        };
        let start = |role, count: usize| -> Result<Vec<Member>> {
            (1..=count)
                .map(|number| cluster.start_role(bench, role, number))
                .collect()
        };
        let (controllers, nodes) = (start("controller", CONTROLLERS)?, start("server", shape.nodes)?);
        let router = start("router", 1)?.pop();
        (cluster._controllers, cluster.nodes, cluster.front) = (controllers, nodes, router);
        wait_until("the cluster has a routing table", || {
            let shown = cluster.control().show("/v1/cluster");
            Ok(shown.is_ok_and(|shown| !shown["routing_epoch"].is_null()))
        })?;
        for member in cluster.nodes.iter_mut().chain(&mut cluster.front) {
            member.wait_until_ready()?;
        }
        Ok(cluster)
    }

    /// Starts a process of a cluster.
    fn start_role(&self, bench: &Bench, role: &str, number: usize) -> Result<Member> {
        let Shape {
            nodes,
            replicas,
            groups,
            partitions,
            confined,
            ..
        } = self.shape;
        let (resp, http) = (free_address()?, free_address()?);
        let name = format!("{role}-{number}");
        let dir = self.dir.join(&name);
        fs::create_dir(&dir)?;
        let (group, placement) = match groups {
            0 => (String::new(), ""),
            _ => (
                format!("group = \"group-{}\"\n", number % groups),
                "placement = \"grouped\"\n",
            ),
        };
        let data = dir.join("data");
        let zookeeper = self.zookeeper.as_ref().context("no cluster")?.address();
        // One text for all roles: a role ignores the settings that it does not need.
        let configuration = format!(
            "data = {data:?}\nresp = \"{resp}\"\nhttp = \"{http}\"\nloops = 1\n{group}\
             [zookeeper]\nconnect = \"{zookeeper}\"\nroot = \"/fondaco/bench\"\n\
             session-timeout-ms = {SESSION_TIMEOUT_MS}\n\
             [cluster]\npartitions = {partitions}\nreplicas = {replicas}\nnodes-initial = {nodes}\n{placement}"
        );
        let file = dir.join("configuration.toml");
        fs::write(&file, configuration)?;
        // Before the limit is known: as many cores as there are.
        let is_confined = confined && role == "server";
        let group = is_confined.then(|| CpuGroup::new(&name, bench.cpus.len() as f64));
        let group = group.transpose().map_err(|reason| anyhow!(reason))?;
        let memory = self.memory.clone().filter(|_| role == "server");
        let within = group.as_ref().map(CpuGroup::processes_file).or(memory);
        let launch = Launch::new(&bench.fondaco)
            .args([role, "--config"])
            .args([&file])
            .within(within);
        Member::start(bench, &format!("cluster-{name}"), launch, [resp, http], group)
    }

    /// Starts one that serves a dataset from the store [`STORE`], without a cache in its router.
    pub fn serving(bench: &Bench, name: &str, shape: Shape, limits: Limits<'_>, dataset: Dataset) -> Result<Self> {
        let mut started = Self::start(bench, name, shape, limits)?;
        started.serve(STORE, &bench.version_for(STORE, dataset)?, dataset)?;
        Ok(started)
    }

    /// Starts one more node, which waits for partitions.
    pub fn add_node(&mut self, bench: &Bench) -> Result<&Member> {
        let node = self.start_role(bench, "server", self.nodes.len() + 1)?;
        self.nodes.push(node);
        self.nodes.last().context("a node that was just added")
    }

    /// The router of a cluster, or the only process.
    pub fn front(&self) -> &Member {
        self.front.as_ref().unwrap_or(&self.nodes[0])
    }

    /// Whether requests to the front go through a router.
    pub fn has_router(&self) -> bool {
        self.front.is_some()
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Member] {
        &self.nodes
    }

    /// One of the nodes, to kill or restart.
    pub fn node(&mut self, at: usize) -> &mut Member {
        &mut self.nodes[at]
    }

    /// The number of event loops of its nodes.
    pub fn loops(&self) -> usize {
        self.shape.loops.max(1)
    }

    /// The control port of the front, which answers for the whole cluster.
    pub fn control(&self) -> &ControlPort {
        &self.front().control
    }

    /// Serves a version from a batch store; returns when the front answers its last key. A router's cache is switched off.
    pub fn serve(&mut self, store: &str, version: &Path, dataset: Dataset) -> Result<()> {
        self.control().create("batch", store, &[])?;
        self.control().deploy(store, version, &[])?;
        self.wait_for_last(store, dataset)?;
        if self.has_router() {
            self.control().set("router-cache-bytes", 0)?;
        }
        Ok(())
    }

    /// Waits until the last record of a dataset is served.
    pub fn wait_for_last(&mut self, store: &str, dataset: Dataset) -> Result<()> {
        let (request, reply) = last_record_exchange(store, dataset);
        let front = self.front.as_mut().unwrap_or(&mut self.nodes[0]);
        wait_for_reply(&mut front.process, front.resp, &request, &reply, COMMAND_LIMIT)
    }

    /// Writes a dataset to the replicas of a versioned store.
    pub fn fill_replicas(&self, store: &str, dataset: Dataset) -> Result<()> {
        Replicas::of(self.nodes[0].resp, store)?.fill(0..dataset.records, dataset.value_bytes)
    }

    /// The CPU time of all nodes so far.
    pub fn cpu_time_of_nodes(&self) -> Result<Duration> {
        self.nodes.iter().map(|node| node.process.cpu_time()).sum()
    }

    /// The CPU time of the router.
    pub fn cpu_time_of_router(&self) -> Result<Duration> {
        self.front
            .as_ref()
            .map_or(Ok(Duration::ZERO), |router| router.process.cpu_time())
    }

    /// The bytes that all nodes have caused to be written to disk so far.
    pub fn written_bytes(&self) -> Result<u64> {
        self.nodes.iter().map(|node| node.process.written_bytes()).sum()
    }

    /// The directory of its data; for a cluster, that of its processes.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends it and deletes its data.
    pub fn end(self) -> Result<()> {
        let dir = self.dir.clone();
        drop(self);
        fs::remove_dir_all(&dir).with_context(|| format!("could not delete {dir:?}"))
    }
}

impl Member {
    fn start(
        bench: &Bench,
        log: &str,
        launch: Launch,
        [resp, http]: [SocketAddr; 2],
        group: Option<CpuGroup>,
    ) -> Result<Self> {
        let log = bench.log(log);
        let launch = launch.log_to(&log);
        Ok(Self {
            process: launch.start()?,
            launch,
            group,
            resp,
            control: ControlPort::new(&bench.fondaco, http, log),
        })
    }

    /// Its RESP address.
    pub fn resp(&self) -> SocketAddr {
        self.resp
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its control port.
    pub fn control(&self) -> &ControlPort {
        &self.control
    }

    /// Limits its processors, if it is confined.
    pub fn limit_cores(&self, cores: f64) -> Result<()> {
        let group = self.group.as_ref().context("a process that is not confined")?;
        group.set(cores).map_err(|reason| anyhow!(reason))
    }

    /// The number of keys that it has looked up so far.
    pub fn looked_up(&self) -> Result<u64> {
        Ok(self.control.counter("hot_lookups")? + self.control.counter("cold_lookups")?)
    }

    /// Kills it, unless it was killed already.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Restarts it with its ports and its data, and waits until it is ready.
    pub fn start_again(&mut self) -> Result<()> {
        self.process = self.launch.start()?;
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        wait_until("a process of the cluster is ready", || {
            if let Some(status) = self.process.ended()? {
                bail!("a process ended with {status}{}", self.process.last_words());
            }
            Ok(self.control.is_ready())
        })
    }
}

/// A wait of a minute for a process.
pub const START_WAIT: Wait = Wait {
    limit: Duration::from_secs(60),
    poll: Duration::from_millis(20),
};
