//! A realistic cluster on one machine: ZooKeeper, controllers, nodes and a router, each a separate process, with its
//! own ports and directory.
//!
//! Dropping it ends all processes by their ids.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fondaco_testing::{CpuGroup, ZooKeeper, free_port};

use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::machine::process::{Launch, Process};
use crate::peers::EngineKind;
use crate::peers::fondaco::{PARTITIONS, STORE};
use crate::servers::control::{COMMAND_LIMIT, ControlPort};
use crate::servers::replicas::Replicas;
use crate::servers::{last_record_exchange, wait_for_reply};

/// The number of nodes.
pub const NODES: usize = 3;
/// One leads, the other stands by.
const CONTROLLERS: usize = 2;
/// The session timeout of a process: shorter than the default, so that a row which kills processes has time for several
/// rounds.
const SESSION_TIMEOUT_MS: u64 = 4_000;
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A running cluster.
pub struct Cluster {
    router: Server,
    nodes: Vec<Server>,
    _controllers: Vec<Server>,
    /// Dropped last, so that no process misses it.
    zookeeper: ZooKeeper,
    dir: PathBuf,
    shape: Shape,
}

/// What a cluster is made of.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How many nodes hold each partition.
    pub replicas: u32,
    /// How many nodes there are at first.
    pub nodes: usize,
    /// How many groups they form, if any.
    pub groups: Option<usize>,
    /// How many partitions there are.
    pub partitions: u32,
    /// Whether each node has a control group of its own, for limits of its processors.
    pub confined: bool,
}

/// One process of a cluster.
pub struct Server {
    launch: Launch,
    process: Process,
    resp: SocketAddr,
    control: ControlPort,
    /// Dropped after the process.
    group: Option<CpuGroup>,
}

/// The role of a process, and the address of its cluster.
struct Role<'a> {
    bench: &'a Bench,
    command: &'static str,
    name: String,
    dir: &'a Path,
    zookeeper: &'a str,
    shape: Shape,
    /// The group of a node, if there are groups.
    group: Option<usize>,
}

impl Cluster {
    /// Starts a cluster without data in a subdirectory of the work directory. `replicas` nodes hold each partition;
    /// each process that serves has one event loop.
    pub fn start(bench: &Bench, name: &str, replicas: u32) -> Result<Self> {
        let shape = Shape {
            replicas,
            ..Shape::default()
        };
        Self::start_shaped(bench, name, shape)
    }

    /// Starts a cluster of any shape.
    pub fn start_shaped(bench: &Bench, name: &str, shape: Shape) -> Result<Self> {
        ensure!(
            bench.fondaco.exists(),
            "there is no server at {:?}: build it with `cargo build --release`",
            bench.fondaco
        );
        let dir = bench.fresh_dir(name)?;
        let zookeeper = start_zookeeper()?;
        let address = zookeeper.address();
        let start = |command, number| {
            let role = Role {
                bench,
                command,
                name: format!("{command}-{number}"),
                dir: &dir,
                zookeeper: &address,
                shape,
                group: shape.groups.map(|groups| number % groups),
            };
            role.start()
        };
        let many =
            |command, count| -> Result<Vec<Server>> { (1..=count).map(|number| start(command, number)).collect() };
        let controllers = many("controller", CONTROLLERS)?;
        let nodes = many("server", shape.nodes)?;
        let router = start("router", 1)?;
        let mut cluster = Self {
            router,
            nodes,
            _controllers: controllers,
            zookeeper,
            dir,
            shape,
        };
        wait_until("the cluster has a routing table", || {
            cluster.router.check_alive()?;
            Ok(cluster.has_routing_table().unwrap_or(false))
        })?;
        for server in cluster.nodes.iter_mut().chain([&mut cluster.router]) {
            server.wait_until_ready()?;
        }
        Ok(cluster)
    }

    /// Starts one more node, which waits for partitions; returns its place.
    pub fn add_node(&mut self, bench: &Bench) -> Result<usize> {
        let role = Role {
            bench,
            command: "server",
            name: format!("server-{}", self.nodes.len() + 1),
            dir: &self.dir,
            zookeeper: &self.zookeeper.address(),
            shape: self.shape,
            group: None,
        };
        self.nodes.push(role.start()?);
        Ok(self.nodes.len() - 1)
    }

    fn has_routing_table(&self) -> Result<bool> {
        let shown = self.router.control.show("/v1/cluster")?;
        Ok(!shown["routing_epoch"].is_null())
    }

    /// The router.
    pub fn router(&self) -> &Server {
        &self.router
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// One of the nodes, to kill or restart.
    pub fn node(&mut self, at: usize) -> &mut Server {
        &mut self.nodes[at]
    }

    /// The control port of the router, which answers for the whole cluster.
    pub fn control(&self) -> &ControlPort {
        &self.router.control
    }

    /// Serves a dataset from the store [`STORE`]; returns when the router answers its last key.
    pub fn serve(&mut self, version: &Path, dataset: Dataset) -> Result<()> {
        self.control().create(STORE)?;
        self.control().deploy(STORE, version)?;
        let (request, reply) = last_record_exchange(dataset);
        let router = &mut self.router;
        wait_for_reply(&mut router.process, router.resp, &request, &reply, COMMAND_LIMIT)
    }

    /// Starts a cluster that serves a dataset from the store [`STORE`], its router's cache off.
    pub fn serving(bench: &Bench, name: &str, replicas: u32, dataset: Dataset) -> Result<Self> {
        let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
        let mut cluster = Self::start(bench, name, replicas)?;
        cluster.serve(&version, dataset)?;
        cluster.control().set("router-cache-bytes", 0)?;
        Ok(cluster)
    }

    /// Creates a versioned store on the engine `log`, with these numbers N, R and W, and writes a dataset to its replicas.
    pub fn fill_versioned(
        &self,
        store: &str,
        [replicas, reads, writes]: [u32; 3],
        dataset: Dataset,
    ) -> Result<Replicas> {
        let [replicas, reads, writes] = [replicas, reads, writes].map(|number| number.to_string());
        let numbers = ["--replicas", &replicas, "--reads", &reads, "--writes", &writes];
        let options = [&["--engine", "log"], &numbers[..]].concat();
        self.control().create_versioned(store, &options)?;
        let mut all = Replicas::of(self.nodes[0].resp(), store)?;
        all.fill(0..dataset.records, dataset.value_bytes)?;
        Ok(all)
    }

    /// The CPU time of all nodes so far.
    pub fn cpu_time_of_nodes(&self) -> Result<Duration> {
        self.nodes.iter().map(|node| node.process.cpu_time()).sum()
    }

    /// Ends it and deletes its data.
    pub fn end(self) -> Result<()> {
        let dir = self.dir.clone();
        drop(self);
        fs::remove_dir_all(&dir).with_context(|| format!("could not delete {dir:?}"))
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            replicas: 1,
            nodes: NODES,
            groups: None,
            partitions: PARTITIONS,
            confined: false,
        }
    }
}

impl Role<'_> {
    fn start(&self) -> Result<Server> {
        let address = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (resp, http) = (address(), address());
        let dir = self.dir.join(&self.name);
        fs::create_dir(&dir)?;
        let file = dir.join("configuration.toml");
        fs::write(&file, self.configuration(&dir.join("data"), resp, http))?;
        let log = self.bench.log(&format!("cluster-{}", self.name));
        let is_confined = self.shape.confined && self.command == "server";
        // Before the limit is known: as many cores as there are.
        let all = std::thread::available_parallelism()?.get() as f64;
        let group = is_confined.then(|| CpuGroup::new(&self.name, all));
        let group = group.transpose().map_err(|reason| anyhow!(reason))?;
        let launch = Launch::new(&self.bench.fondaco)
            .args([self.command, "--config"])
            .args([&file])
            .within_group(group.as_ref().map(CpuGroup::processes_file))
            .log_to(&log);
        Ok(Server {
            process: launch.start()?,
            launch,
            group,
            resp,
            control: ControlPort::new(&self.bench.fondaco, http, log),
        })
    }

    /// One text for all roles: a role ignores the settings that it does not need.
    fn configuration(&self, data: &Path, resp: SocketAddr, http: SocketAddr) -> String {
        let Self { zookeeper, shape, .. } = self;
        let Shape {
            replicas,
            nodes,
            partitions,
            ..
        } = shape;
        let group = self
            .group
            .map_or_else(String::new, |group| format!("group = \"group-{group}\"\n"));
        let placement = if self.group.is_some() {
            "placement = \"grouped\"\n"
        } else {
            ""
        };
        format!(
            "data = {data:?}\nresp = \"{resp}\"\nhttp = \"{http}\"\nloops = 1\n{group}\
             [zookeeper]\nconnect = \"{zookeeper}\"\nroot = \"/fondaco/bench\"\n\
             session-timeout-ms = {SESSION_TIMEOUT_MS}\n\
             [cluster]\npartitions = {partitions}\nreplicas = {replicas}\nnodes-initial = {nodes}\n{placement}"
        )
    }
}

impl Server {
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
            self.check_alive()?;
            Ok(self.control.is_ready())
        })
    }

    fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.process.ended()? {
            bail!("a process ended with {status}{}", self.process.last_words());
        }
        Ok(())
    }
}

/// The test helper fails by panicking; here, a failure only means that a row cannot be measured.
fn start_zookeeper() -> Result<ZooKeeper> {
    std::panic::catch_unwind(ZooKeeper::start).map_err(|panic| {
        let said = panic.downcast_ref::<String>().map_or("it panicked", String::as_str);
        anyhow!("no ZooKeeper: {said}")
    })
}

/// Polls until a condition holds, for a minute at most.
pub fn wait_until(what: &str, is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let wait = Wait {
        limit: START_LIMIT,
        poll: POLL,
    };
    wait.until(what, is_so)
}

/// The time limit and polling interval of a wait.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// The time limit.
    pub limit: Duration,
    /// The polling interval.
    pub poll: Duration,
}

impl Wait {
    /// Polls until a condition holds.
    pub fn until(self, what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
        let Self { limit, poll } = self;
        let deadline = Instant::now() + limit;
        while !is_so()? {
            ensure!(Instant::now() < deadline, "not within {limit:?}: {what}");
            std::thread::sleep(poll);
        }
        Ok(())
    }
}
