//! The rows of the table, one module per family.

mod against_redis;
mod balance;
mod bulk;
mod cold_get;
mod cold_served;
mod convergence;
mod engines;
mod fan_out;
mod graph_tail;
mod hedging;
mod hot_get;
mod hot_tail;
mod loading;
mod long_values;
mod node_death;
mod push_beside_reads;
mod push_cluster;
mod rebalance;
mod routed;
mod router_cache;
pub mod streams;
mod swap;
mod two_loops;
mod versioned;
mod watched;

use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::bench::Bench;
use crate::report::{Chart, Line, Row};
pub use loading::push_to_fresh_node;

/// A row: its name, its description, and how to measure it.
pub struct RowSpec {
    /// The name for `--only`.
    pub name: &'static str,
    /// The description.
    pub work: &'static str,
    measure: fn(&Bench) -> Result<Measured>,
}

/// The results of a row.
#[derive(Default)]
pub struct Measured {
    lines: Vec<Line>,
    notes: Vec<String>,
    charts: Vec<Chart>,
}

/// All rows, in the order of the table: the name, the description, and how to measure it. One row a line.
#[rustfmt::skip]
pub const ROWS: [RowSpec; 35] = [
    row("hot-get", "hot GET in process, 10 M × 100 B, one core", hot_get::measure),
    row("cold-get", "cold GET in process, data 10 × memory limit, uniform keys", cold_get::measure),
    row("cold-served", "cold GET over RESP, 64 connections, same data", cold_served::measure),
    row("hot-tail", "hot-key p99 while half the requests are cold", hot_tail::measure),
    row("get-served", "GET over RESP, 1 M keys, pipeline 1, 16, 64, server on one core, client on the other", against_redis::measure_get),
    row("mget-served", "MGET of 100 keys", against_redis::measure_mget),
    row("two-loops", "server with two cores", two_loops::measure),
    row("watched", "reports of load, decisions and traces against none", watched::measure),
    row("loading", "Parquet of 10 M × 100 B and 2 M × 1 KiB to serving, conversions counted for everyone", loading::measure),
    row("engines", "records that change, 1 M × 1 KiB: the engine on disk against others", engines::measure),
    row("versioned-one", "reads and writes of 1 M × 1 KiB over RESP, one node, server on one core, client on the other", versioned::measure_one),
    row("versioned-three", "the same on three nodes, N 3, R 2, W 2", versioned::measure_three),
    row("long-values", "p99 of small GETs through a router, beside values of 15 MiB", long_values::measure),
    row("convergence", "a node is killed and misses 1 % of 10 M × 1 KiB, N 2: hints, and comparing replicas", convergence::measure),
    row("swap", "swap, store of 1 MB against a large one", swap::measure),
    row("push-tail", "p99 of reads during a push", push_beside_reads::measure_tail),
    row("push-zipf", "a push beside Zipfian readers beyond memory", push_beside_reads::measure_zipf),
    row("routed", "reads through the router against reads at the nodes, three nodes", routed::measure),
    row("rebalance", "reads while a partition moves from one of three nodes to another", rebalance::measure),
    row("balance", "two nodes of different size, whose load is evened out by hand, or by the cluster", balance::measure_two),
    row("balance-joins", "a third node joins two, and the cluster evens out its load", balance::measure_joins),
    row("router-cache", "hot keys from the router's cache, and which replica answers the others", router_cache::measure),
    row("hedging", "p99 with one of three replicas pausing", hedging::measure),
    row("push-cluster", "push of 1 GB to three nodes", push_cluster::measure),
    row("node-death", "reads while one of three nodes is killed, or hangs", node_death::measure),
    row("streams", "events of Kafka into the overlay of a hybrid store", streams::applied::measure),
    row("fresh", "from sending an event to Kafka to reading it", streams::fresh::measure),
    row("stream-tail", "p99 of reads while events come", streams::tail::measure),
    row("stream-reads", "reads of a hybrid store against reads of a batch store", streams::reads::measure),
    row("large-overlay", "10 M events of 200 B into an overlay three times the memory, and reads of it", streams::large::measure),
    row("many-streams", "one node that reads the streams of many stores", streams::many::measure),
    row("bulk", "the same records through Kafka, as a version and as events", bulk::measure),
    row("graph-tail", "point reads beside questions to a graph", graph_tail::measure),
    row("fan-out-simulated", "strategies and fan-out controllers on a simulated cluster of 10 groups × 20 nodes", fan_out::measure),
    row("fan-out-cluster", "strategies and fan-out controllers on four groups of two nodes, and a replica that pauses", fan_out::measured::measure),
];

const fn row(name: &'static str, work: &'static str, measure: fn(&Bench) -> Result<Measured>) -> RowSpec {
    RowSpec { name, work, measure }
}

impl RowSpec {
    /// Measures the row. A failure is a result, too.
    pub fn measure(&self, bench: &Bench) -> Row {
        let started = Instant::now();
        let measured = (self.measure)(bench);
        let (measured, failure) = match measured {
            Ok(measured) => (measured, None),
            Err(error) => (Measured::default(), Some(format!("{error:#}"))),
        };
        Row {
            name: self.name.to_owned(),
            work: self.work.to_owned(),
            quick: bench.quick,
            measured_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            commit: commit(),
            took_s: started.elapsed().as_secs_f64(),
            lines: measured.lines,
            notes: measured.notes,
            charts: measured.charts,
            failure,
        }
    }
}

fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok()
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "unknown".into())
}
