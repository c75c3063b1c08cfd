//! fondaco itself: `fondaco dev`, commanded as its users do.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::machine::free_address;
use crate::machine::memory_group::MemoryGroup;
use crate::machine::process::{Launch, Process};
use crate::servers::{last_record_exchange, wait_for_reply};

const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a push or a deploy may take.
pub const PUSH_LIMIT: Duration = Duration::from_secs(240);
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// How to run the server.
#[derive(Clone, Copy, Default)]
pub struct Settings<'a> {
    /// The cores that it may use, all if `None`.
    pub cpus: Option<&'a str>,
    /// How many event loops; 0 for one a core.
    pub loops: usize,
    /// The memory that it may use, page cache included.
    pub group: Option<&'a MemoryGroup>,
}

/// A running node.
pub struct Fondaco {
    process: Process,
    resp: SocketAddr,
    http: SocketAddr,
    program: PathBuf,
    data: PathBuf,
    log: PathBuf,
}

impl Fondaco {
    /// Starts a node on a data directory in the work directory, new unless it is there.
    pub fn start(bench: &Bench, data: &str, settings: Settings<'_>) -> Result<Self> {
        ensure!(
            bench.fondaco.exists(),
            "there is no server at {:?}: build it with `cargo build --release`",
            bench.fondaco
        );
        let (resp, http) = (free_address()?, free_address()?);
        let log = bench.log(&format!("{data}-server"));
        let data = bench.work.join(data);
        let mut launch = Launch::new(&bench.fondaco)
            .args(["dev", "--resp", &resp.to_string(), "--http", &http.to_string()])
            .args(["--loops", &settings.loops.to_string(), "--data"])
            .args([&data])
            .within(settings.group)
            .log_to(&log);
        if let Some(cpus) = settings.cpus {
            launch = launch.on_cpus(cpus);
        }
        let mut process = launch.start()?;
        wait_for_reply(&mut process, resp, b"PING\r\n", b"+PONG\r\n", START_LIMIT)?;
        Ok(Self {
            process,
            resp,
            http,
            program: bench.fondaco.clone(),
            data,
            log,
        })
    }

    /// Where it serves RESP.
    pub fn resp(&self) -> SocketAddr {
        self.resp
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Waits until the last record of a dataset is served.
    pub fn wait_for_last(&mut self, dataset: Dataset) -> Result<()> {
        let (request, reply) = last_record_exchange(dataset);
        wait_for_reply(&mut self.process, self.resp, &request, &reply, COMMAND_LIMIT)
    }

    /// A command line that asks this node.
    pub fn command(&self, arguments: &[&str]) -> Launch {
        Launch::new(&self.program)
            .args(arguments)
            .args(["--quiet", "--http", &self.http.to_string()])
            .log_to(&self.log)
    }

    /// Makes a store.
    pub fn create(&self, store: &str) -> Result<()> {
        self.command(&["store", "create", store]).run(COMMAND_LIMIT)?;
        Ok(())
    }

    /// Serves a built version from a store.
    pub fn deploy(&self, store: &str, version: &Path) -> Result<()> {
        let version = version.to_str().context("a path that is no text")?;
        self.command(&["deploy", store, version]).run(PUSH_LIMIT)?;
        Ok(())
    }

    /// Swaps a version in over the control port; returns when it serves.
    pub fn swap(&self, agent: &ureq::Agent, store: &str, version: u64) -> Result<()> {
        let url = format!("http://{}/v1/stores/{store}/swap", self.http);
        agent.post(&url).send_json(serde_json::json!({ "version": version }))?;
        Ok(())
    }

    /// Ends it and deletes its data.
    pub fn end(self) -> Result<()> {
        let data = self.data.clone();
        drop(self);
        fs::remove_dir_all(&data).with_context(|| format!("could not delete {data:?}"))
    }
}
