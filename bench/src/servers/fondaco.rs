//! fondaco itself: `fondaco dev`, used like by its operators.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::machine::free_address;
use crate::machine::memory_group::MemoryGroup;
use crate::machine::process::{Launch, Process};
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::servers::control::{COMMAND_LIMIT, ControlPort};
use crate::servers::{last_record_exchange, wait_for_reply};

const START_LIMIT: Duration = Duration::from_secs(30);

/// Settings of the server.
#[derive(Clone, Copy, Default)]
pub struct Settings<'a> {
    /// The cores that it may use; all if `None`.
    pub cpus: Option<&'a str>,
    /// The number of event loops; 0 is one per core.
    pub loops: usize,
    /// The limit of its memory, including page cache.
    pub group: Option<&'a MemoryGroup>,
}

impl Settings<'_> {
    /// One event loop.
    pub fn one_loop() -> Self {
        Self {
            loops: 1,
            ..Self::default()
        }
    }
}

/// A running node.
pub struct Fondaco {
    process: Process,
    resp: SocketAddr,
    control: ControlPort,
    data: PathBuf,
}

impl Fondaco {
    /// Starts a node on a data directory in the work directory, which is created if missing.
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
            control: ControlPort::new(&bench.fondaco, http, log),
            data,
        })
    }

    /// Starts a node that serves a dataset from the store [`STORE`].
    pub fn serving(bench: &Bench, data: &str, settings: Settings<'_>, dataset: Dataset) -> Result<Self> {
        let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
        let node = Self::start(bench, data, settings)?;
        node.control.create(STORE)?;
        node.control.deploy(STORE, &version)?;
        Ok(node)
    }

    /// Its RESP address.
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

    /// Its control port.
    pub fn control(&self) -> &ControlPort {
        &self.control
    }

    /// Ends it and deletes its data.
    pub fn end(self) -> Result<()> {
        let data = self.data.clone();
        drop(self);
        fs::remove_dir_all(&data).with_context(|| format!("could not delete {data:?}"))
    }
}
