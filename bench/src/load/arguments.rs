//! The load generator as a command: `fondaco-bench load`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::{Group, GroupReport, KeyChoice, Span, Writes, run as generate};

/// What to send, where.
#[derive(Debug, Args)]
pub struct LoadArguments {
    /// The server.
    #[arg(long, default_value = "127.0.0.1:6500", value_name = "HOST:PORT")]
    resp: SocketAddr,
    /// The store whose keys are asked for.
    #[arg(long, default_value = "key")]
    store: String,
    /// How many records it has: 12-digit keys from 0.
    #[arg(long)]
    records: u64,
    /// Which keys are asked for.
    #[arg(long, value_enum, default_value_t = Distribution::Uniform)]
    distribution: Distribution,
    /// How many keys are hot, for `hot` and `mixed`.
    #[arg(long, default_value_t = 1000)]
    hot_keys: u64,
    /// How many connections.
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// How many requests each has under way.
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Requests a second of all connections; as many as are answered unless given.
    #[arg(long)]
    rate: Option<f64>,
    /// How many keys a request asks for: GET for one, MGET for more.
    #[arg(long, default_value_t = 1)]
    keys_per_request: usize,
    /// Which share of the requests are SETs, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    writes: f64,
    /// The length of the values that are written, in bytes.
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// For how long.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Distribution {
    /// Each as often as any other.
    Uniform,
    /// Few of them most of the time.
    Zipf,
    /// A few only.
    Hot,
    /// A few on half of the connections, uniform ones on the other half.
    Mixed,
}

/// Generates the load and prints what came of it.
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
            writes: Writes {
                share: arguments.writes,
                value_bytes: arguments.value_bytes,
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
