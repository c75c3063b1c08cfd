//! `redis-server`, with or without its log, and how it is filled.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::bench::Bench;
use crate::dataset::convert::{self, Form};
use crate::machine::free_address;
use crate::machine::process::{Launch, Process};
use crate::servers::{ask, wait_for_reply};

const START_LIMIT: Duration = Duration::from_secs(20);
const LOAD_LIMIT: Duration = Duration::from_secs(240);
const REWRITE_POLL: Duration = Duration::from_millis(50);
const OK: &[u8] = b"+OK\r\n";

/// A running server.
pub struct Redis {
    process: Process,
    address: SocketAddr,
}

impl Redis {
    /// Starts one without persistence, on these cores, or on all.
    pub fn start(bench: &Bench, cpus: Option<&str>) -> Result<Self> {
        Self::start_with(bench, cpus, ["--appendonly", "no"])
    }

    /// Starts one that writes all changes to its log, synced once a second, on these cores, or on all.
    pub fn start_logging(bench: &Bench, cpus: Option<&str>) -> Result<Self> {
        Self::start_with(bench, cpus, ["--appendonly", "yes"])
    }

    fn start_with(bench: &Bench, cpus: Option<&str>, kept: [&str; 2]) -> Result<Self> {
        let address = free_address()?;
        let mut launch = Launch::new("redis-server")
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--daemonize", "no", "--auto-aof-rewrite-percentage", "0"])
            .args(kept)
            .args([
                "--dir".as_ref(),
                bench.fresh_dir(&format!("redis-{}", address.port()))?.as_os_str(),
            ])
            .log_to(bench.log("redis-server"));
        if let Some(cpus) = cpus {
            launch = launch.on_cpus(cpus);
        }
        let mut process = launch.start()?;
        wait_for_reply(&mut process, address, b"PING\r\n", b"+PONG\r\n", START_LIMIT)?;
        Ok(Self { process, address })
    }

    /// Makes it sync its log before it acknowledges a change.
    pub fn sync_always(&self) -> Result<()> {
        let answer = ask(self.address, b"CONFIG SET appendfsync always\r\n", OK.len())?;
        ensure!(
            answer == OK,
            "CONFIG SET is answered by {:?}",
            String::from_utf8_lossy(&answer)
        );
        Ok(())
    }

    /// Makes it rewrite its log. Returns the CPU time that it and its child use for that.
    pub fn rewrite_log(&self) -> Result<Duration> {
        const STARTED: &[u8] = b"+Background append only file rewriting started\r\n";
        let before = self.process.cpu_time_with_children()?;
        let answer = ask(self.address, b"BGREWRITEAOF\r\n", STARTED.len())?;
        ensure!(
            answer == STARTED,
            "BGREWRITEAOF is answered by {:?}",
            String::from_utf8_lossy(&answer)
        );
        let is_done = || -> Result<bool> {
            let info = Launch::new("redis-cli")
                .args(["-p", &self.address.port().to_string(), "INFO", "persistence"])
                .output(START_LIMIT)?;
            Ok(info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0"))
        };
        let deadline = Instant::now() + LOAD_LIMIT;
        while !is_done()? {
            ensure!(
                Instant::now() < deadline,
                "rewriting the log takes more than {LOAD_LIMIT:?}"
            );
            std::thread::sleep(REWRITE_POLL);
        }
        Ok(self.process.cpu_time_with_children()? - before)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The process, to check whether it still runs.
    pub fn process_mut(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Fills it from a Parquet file: our converter writes commands, `redis-cli --pipe` sends them.
    pub fn fill(&self, bench: &Bench, parquet: &Path) -> Result<()> {
        let port = self.address.port().to_string();
        let sender = Launch::new("redis-cli").args(["-p", &port, "--pipe"]);
        convert::pipe_into(sender, parquet, Form::Redis, &bench.log("redis-fill"), LOAD_LIMIT)
    }
}
