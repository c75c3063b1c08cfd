//! `redis-benchmark`, the usual client for measurements of Redis, against any RESP server: throughput, and the server's
//! CPU time per request.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::machine::process::{Launch, Process};

const LIMIT: Duration = Duration::from_secs(60);
const CONNECTIONS: &str = "50";

/// The options of a run.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The core of the client.
    pub cpu: usize,
    /// The number of requests in flight on each connection.
    pub pipeline: usize,
    /// The total number of requests.
    pub requests: u64,
    /// The number of distinct keys.
    pub keys: u64,
    /// The command; `__rand_int__` in it is replaced with 12 random digits.
    pub command: &'a [&'a str],
}

/// The results.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Requests per second.
    pub requests_per_second: f64,
    /// Requests per second of the server's CPU time.
    pub requests_per_cpu_second: f64,
}

/// Sends requests to a server and measures its CPU time.
pub fn measure(run: Run<'_>, address: SocketAddr, server: &Process) -> Result<Outcome> {
    let launch = Launch::new("redis-benchmark")
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &address.port().to_string(),
            "-c",
            CONNECTIONS,
            "--csv",
        ])
        .args(["-P", &run.pipeline.to_string(), "-n", &run.requests.to_string()])
        .args(["-r", &run.keys.to_string()])
        .args(run.command)
        .on_cpus(&run.cpu.to_string());
    let before = server.cpu_time()?;
    let output = launch.output(LIMIT)?;
    let used = server.cpu_time()? - before;
    ensure!(
        !used.is_zero(),
        "too few requests: the server's processor time cannot be measured"
    );
    let line = output.lines().last().unwrap_or_default();
    let requests_per_second = second_field(line).with_context(|| format!("redis-benchmark printed {output:?}"))?;
    Ok(Outcome {
        requests_per_second,
        requests_per_cpu_second: run.requests as f64 / used.as_secs_f64(),
    })
}

/// The second of the quoted fields of a CSV line; the first may contain commas.
fn second_field(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once("\",\"")?;
    rest.split('"').next()?.parse().ok()
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
