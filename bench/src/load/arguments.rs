//! The load generator as a command: `fondaco-bench load`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::{Group, GroupReport, KeyChoice, Span, Writes, run as generate};

/// The options of a load.
#[derive(Debug, Args)]
pub struct LoadArguments {
    /// The server.
    #[arg(long, default_value = "127.0.0.1:6500", value_name = "HOST:PORT")]
    resp: SocketAddr,
    /// The store of the keys.
    #[arg(long, default_value = "key")]
    store: String,
    /// The number of its records: 12-digit keys from 0.
    #[arg(long)]
    records: u64,
    /// The distribution of keys.
    #[arg(long, value_enum, default_value_t = Distribution::Uniform)]
    distribution: Distribution,
    /// The number of hot keys, for `hot` and `mixed`.
    #[arg(long, default_value_t = 1000)]
    hot_keys: u64,
    /// The number of connections.
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// The number of requests in flight on each connection.
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Requests per second of all connections together; unlimited by default.
    #[arg(long)]
    rate: Option<f64>,
    /// The number of keys per request: GET for one, MGET for more.
    #[arg(long, default_value_t = 1)]
    keys_per_request: usize,
    /// The share of SETs among the requests, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    writes: f64,
    /// The length of the written values, in bytes.
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// The duration in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Distribution {
    /// All keys equally often.
    Uniform,
    /// A Zipfian distribution: few keys most of the time.
    Zipf,
    /// A few keys only.
    Hot,
    /// A few keys on half of the connections, uniform ones on the other half.
    Mixed,
}

/// Generates the load and prints the results.
pub fn run(arguments: &LoadArguments) -> Result<()> {
    let records = arguments.records;
    let uniform = KeyChoice::Uniform { records };
    let hot = KeyChoice::Hot {
        records,
        count: arguments.hot_keys,
    };
    let choices = match arguments.distribution {
        Distribution::Uniform => vec![("uniform", uniform)],
        Distribution::Zipf => vec![("zipf", KeyChoice::Zipf { records })],
        Distribution::Hot => vec![("hot", hot)],
        Distribution::Mixed => vec![("hot", hot), ("uniform", uniform)],
    };
    let share = choices.len();
    let groups: Vec<Group> = choices
        .iter()
        .map(|(_, keys)| Group {
            address: arguments.resp,
            connections: arguments.connections.div_ceil(share),
            pipeline: arguments.pipeline,
            rate: arguments.rate.map(|rate| rate / share as f64),
            prefix: format!("{}:", arguments.store),
            keys: keys.clone(),
            keys_per_request: arguments.keys_per_request,
            deadline_ms: None,
            writes: Writes {
                share: arguments.writes,
                value_bytes: arguments.value_bytes,
                ..Writes::default()
            },
            keep_each: false,
        })
        .collect();
    let span = Span::of(Duration::from_secs_f64(arguments.seconds));
    let reports = generate(&groups, span, 1)?;
    for ((name, _), report) in choices.iter().zip(&reports) {
        print(name, report);
    }
    Ok(())
}

fn print(name: &str, report: &GroupReport) {
    println!("{name}: {:.0} requests/s", report.requests_per_second());
    for (label, quantile) in [
        ("p50", 0.5),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("max", 1.0),
    ] {
        println!("  {label:6} {:9.1} µs", report.latency_us(quantile));
    }
}
