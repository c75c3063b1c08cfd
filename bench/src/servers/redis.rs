//! `redis-server`, with or without its log, or `valkey-server`, how it is filled, and `redis-benchmark`, the usual client for measurements of it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::{Wait, wait_for_reply, wait_until};
use crate::bench::Bench;
use crate::dataset::convert::{self, Form};
use crate::load::{GroupReport, new_histogram};
use crate::machine::free_address;
use crate::machine::process::{Launch, Process};

const START_LIMIT: Duration = Duration::from_secs(20);
const LOAD_LIMIT: Duration = Duration::from_secs(240);
const BENCHMARK_LIMIT: Duration = Duration::from_secs(60);
const BENCHMARK_CONNECTIONS: &str = "50";

/// A running server.
pub struct Redis {
    process: Process,
    address: SocketAddr,
    replicas: Vec<Redis>,
    /// Deleted after the process has ended: its log may have gigabytes.
    _dir: TempDir,
}

impl Redis {
    /// Starts one on this core, or on all. It writes all changes to its log, synced once a second, or none.
    pub fn start(bench: &Bench, cpu: Option<usize>, logs: bool) -> Result<Self> {
        Self::start_program("redis-server", bench, cpu, logs)
    }

    /// Starts a Valkey instead, which has the same options, without a log.
    pub fn start_valkey(bench: &Bench, cpu: Option<usize>) -> Result<Self> {
        Self::start_program("valkey-server", bench, cpu, false)
    }

    fn start_program(program: &str, bench: &Bench, cpu: Option<usize>, logs: bool) -> Result<Self> {
        let address = free_address()?;
        let port = address.port().to_string();
        let dir = tempfile::Builder::new().prefix("redis-").tempdir_in(&bench.work)?;
        let mut launch = Launch::new(program)
            .args([
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--daemonize",
                "no",
            ])
            .args([
                "--auto-aof-rewrite-percentage",
                "0",
                "--appendonly",
                if logs { "yes" } else { "no" },
            ])
            .args(["--dir".as_ref(), dir.path().as_os_str()])
            .log_to(bench.log(program));
        if let Some(cpu) = cpu {
            launch = launch.on_cpu(cpu);
        }
        let mut process = launch.start()?;
        wait_for_reply(&mut process, address, b"PING\r\n", b"+PONG\r\n", START_LIMIT)?;
        Ok(Self {
            process,
            address,
            replicas: Vec::new(),
            _dir: dir,
        })
    }

    /// Starts so many replicas with the same settings, and waits until they are connected.
    pub fn add_replicas(&mut self, bench: &Bench, cpu: Option<usize>, logs: bool, count: usize) -> Result<()> {
        for _ in 0..count {
            let replica = Self::start(bench, cpu, logs)?;
            let mut replicate = redis::cmd("REPLICAOF");
            let port = self.address.port();
            replicate.arg("127.0.0.1").arg(port).exec(&mut replica.connect()?)?;
            self.replicas.push(replica);
        }
        self.await_replicas()
    }

    /// Waits until all replicas have all that is written so far.
    fn await_replicas(&self) -> Result<()> {
        let mut connection = self.connect()?;
        wait_until("all replicas follow", || {
            let acknowledged: usize = redis::cmd("WAIT")
                .arg(self.replicas.len())
                .arg(100)
                .query(&mut connection)?;
            Ok(acknowledged == self.replicas.len())
        })
    }

    /// Whether it has replicas.
    pub fn has_replicas(&self) -> bool {
        !self.replicas.is_empty()
    }

    /// The CPU time so far of all its processes.
    pub fn cpu_time(&self) -> Result<Duration> {
        let replicas = self.replicas.iter().map(|replica| replica.process.cpu_time());
        replicas.fold(self.process.cpu_time(), |sum, time| Ok(sum? + time?))
    }

    /// A connection of the client library.
    pub fn connect(&self) -> Result<redis::Connection> {
        connect(self.address)
    }

    /// Makes it sync its log before it acknowledges a change.
    pub fn sync_always(&self) -> Result<()> {
        let mut set = redis::cmd("CONFIG");
        Ok(set
            .arg("SET")
            .arg("appendfsync")
            .arg("always")
            .exec(&mut self.connect()?)?)
    }

    /// Makes it rewrite its log. Returns the CPU time that it and its child use for that.
    pub fn rewrite_log(&self) -> Result<Duration> {
        let before = self.process.cpu_time_with_children()?;
        let mut connection = self.connect()?;
        redis::cmd("BGREWRITEAOF").exec(&mut connection)?;
        let wait = Wait {
            limit: LOAD_LIMIT,
            poll: Duration::from_millis(50),
        };
        wait.until("the log is rewritten", || {
            let info: String = redis::cmd("INFO").arg("persistence").query(&mut connection)?;
            Ok(info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0"))
        })?;
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

    /// Fills it from a Parquet file: our converter writes commands, `redis-cli --pipe` sends them.
    pub fn fill(&self, bench: &Bench, parquet: &Path) -> Result<()> {
        let port = self.address.port().to_string();
        let sender = Launch::new("redis-cli").args(["-p", &port, "--pipe"]);
        convert::pipe_into(sender, parquet, Form::Redis, &bench.log("redis-fill"), LOAD_LIMIT)?;
        self.await_replicas()
    }
}

/// A connection of the client library to any server of the protocol.
pub fn connect(address: SocketAddr) -> Result<redis::Connection> {
    Ok(redis::Client::open(format!("redis://{address}"))?.get_connection()?)
}

/// Sends so many requests for random ones of these keys, `GET` or `MGET`, with `redis-benchmark` on a core. The report has no
/// latencies.
pub fn benchmark(
    address: SocketAddr,
    cpu: usize,
    requests: u64,
    pipeline: usize,
    records: u64,
    keys_per_request: usize,
) -> Result<GroupReport> {
    // `__rand_int__` is replaced with 12 random digits.
    let command = if keys_per_request == 1 { "GET" } else { "MGET" };
    let launch = Launch::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-c", BENCHMARK_CONNECTIONS, "--csv"])
        .args([
            "-p".to_owned(),
            address.port().to_string(),
            "-P".into(),
            pipeline.to_string(),
        ])
        .args(["-n".to_owned(), requests.to_string(), "-r".into(), records.to_string()])
        .args([command])
        .args(vec!["key:__rand_int__"; keys_per_request])
        .on_cpu(cpu);
    let output = launch.output(BENCHMARK_LIMIT)?;
    let line = output.lines().last().unwrap_or_default();
    let per_second = second_field(line).with_context(|| format!("redis-benchmark printed {output:?}"))?;
    ensure!(per_second > 0.0, "redis-benchmark printed {output:?}");
    Ok(GroupReport {
        requests,
        late: 0,
        seconds: requests as f64 / per_second,
        latencies: new_histogram()?,
        each: Vec::new(),
        error: None,
    })
}

/// The second of the quoted fields of a CSV line; the first may contain commas.
fn second_field(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once("\",\"")?;
    rest.split('"').next()?.parse().ok()
}

/// How long it takes to fill a fresh server, until its last record is answered.
pub fn fill_time(bench: &Bench, parquet: &Path, exchange: (Vec<u8>, Vec<u8>)) -> Result<Duration> {
    let mut server = Redis::start(bench, None, false)?;
    let started = Instant::now();
    server.fill(bench, parquet)?;
    wait_for_reply(
        &mut server.process,
        server.address,
        &exchange.0,
        &exchange.1,
        LOAD_LIMIT,
    )?;
    Ok(started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_second_field() {
        let line = r#""GET key:__rand_int__","98765.43","0.255","0.080","0.255","0.303","0.391","1.087""#;
        assert_eq!(second_field(line), Some(98765.43));
        assert_eq!(second_field("no fields"), None);
    }
}
