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
mod push_cluster;
mod push_tail;
mod push_zipf;
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

/// All rows, in the order of the table.
pub const ROWS: [RowSpec; 35] = [
    RowSpec {
        name: "hot-get",
        work: "hot GET in process, 10 M × 100 B, one core",
        measure: hot_get::measure,
    },
    RowSpec {
        name: "cold-get",
        work: "cold GET in process, data 10 × memory limit, uniform keys",
        measure: cold_get::measure,
    },
    RowSpec {
        name: "cold-served",
        work: "cold GET over RESP, 64 connections, same data",
        measure: cold_served::measure,
    },
    RowSpec {
        name: "hot-tail",
        work: "hot-key p99 while half the requests are cold",
        measure: hot_tail::measure,
    },
    RowSpec {
        name: "get-served",
        work: "GET over RESP, 1 M keys, pipeline 1, 16, 64, server on one core, client on the other",
        measure: against_redis::measure_get,
    },
    RowSpec {
        name: "mget-served",
        work: "MGET of 100 keys",
        measure: against_redis::measure_mget,
    },
    RowSpec {
        name: "two-loops",
        work: "server with two cores",
        measure: two_loops::measure,
    },
    RowSpec {
        name: "watched",
        work: "reports of load, decisions and traces against none",
        measure: watched::measure,
    },
    RowSpec {
        name: "loading",
        work: "Parquet of 10 M × 100 B and 2 M × 1 KiB to serving, conversions counted for everyone",
        measure: loading::measure,
    },
    RowSpec {
        name: "engines",
        work: "records that change, 1 M × 1 KiB: the engine on disk against others",
        measure: engines::measure,
    },
    RowSpec {
        name: "versioned-one",
        work: "reads and writes of 1 M × 1 KiB over RESP, one node, server on one core, client on the other",
        measure: versioned::measure_one,
    },
    RowSpec {
        name: "versioned-three",
        work: "the same on three nodes, N 3, R 2, W 2",
        measure: versioned::measure_three,
    },
    RowSpec {
        name: "long-values",
        work: "p99 of small GETs through a router, beside values of 15 MiB",
        measure: long_values::measure,
    },
    RowSpec {
        name: "convergence",
        work: "a node is killed and misses 1 % of 10 M × 1 KiB, N 2: hints, and comparing replicas",
        measure: convergence::measure,
    },
    RowSpec {
        name: "swap",
        work: "swap, store of 1 MB against a large one",
        measure: swap::measure,
    },
    RowSpec {
        name: "push-tail",
        work: "p99 of reads during a push",
        measure: push_tail::measure,
    },
    RowSpec {
        name: "push-zipf",
        work: "a push beside Zipfian readers beyond memory",
        measure: push_zipf::measure,
    },
    RowSpec {
        name: "routed",
        work: "reads through the router against reads at the nodes, three nodes",
        measure: routed::measure,
    },
    RowSpec {
        name: "rebalance",
        work: "reads while a partition moves from one of three nodes to another",
        measure: rebalance::measure,
    },
    RowSpec {
        name: "balance",
        work: "two nodes of different size, whose load is evened out by hand, or by the cluster",
        measure: balance::measure_two,
    },
    RowSpec {
        name: "balance-joins",
        work: "a third node joins two, and the cluster evens out its load",
        measure: balance::measure_joins,
    },
    RowSpec {
        name: "router-cache",
        work: "hot keys from the router's cache, and which replica answers the others",
        measure: router_cache::measure,
    },
    RowSpec {
        name: "hedging",
        work: "p99 with one of three replicas pausing",
        measure: hedging::measure,
    },
    RowSpec {
        name: "push-cluster",
        work: "push of 1 GB to three nodes",
        measure: push_cluster::measure,
    },
    RowSpec {
        name: "node-death",
        work: "reads while one of three nodes is killed, or hangs",
        measure: node_death::measure,
    },
    RowSpec {
        name: "streams",
        work: "events of Kafka into the overlay of a hybrid store",
        measure: streams::applied::measure,
    },
    RowSpec {
        name: "fresh",
        work: "from sending an event to Kafka to reading it",
        measure: streams::fresh::measure,
    },
    RowSpec {
        name: "stream-tail",
        work: "p99 of reads while events come",
        measure: streams::tail::measure,
    },
    RowSpec {
        name: "stream-reads",
        work: "reads of a hybrid store against reads of a batch store",
        measure: streams::reads::measure,
    },
    RowSpec {
        name: "large-overlay",
        work: "10 M events of 200 B into an overlay three times the memory, and reads of it",
        measure: streams::large::measure,
    },
    RowSpec {
        name: "many-streams",
        work: "one node that reads the streams of many stores",
        measure: streams::many::measure,
    },
    RowSpec {
        name: "bulk",
        work: "the same records through Kafka, as a version and as events",
        measure: bulk::measure,
    },
    RowSpec {
        name: "graph-tail",
        work: "point reads beside questions to a graph",
        measure: graph_tail::measure,
    },
    RowSpec {
        name: "fan-out-simulated",
        work: "strategies and fan-out controllers on a simulated cluster of 10 groups × 20 nodes",
        measure: fan_out::measure,
    },
    RowSpec {
        name: "fan-out-cluster",
        work: "strategies and fan-out controllers on four groups of two nodes, and a replica that pauses",
        measure: fan_out::measured::measure,
    },
];

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
