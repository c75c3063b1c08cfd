//! Whether questions to a graph delay point reads of the same node: latencies of a store in memory, quiet and beside
//! questions that each unite hundreds of sets.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::Measured;
use crate::bench::Bench;
use crate::load::{Group, Span, beside_clients};
use crate::report::Rounds;
use crate::servers::control::PUSH_LIMIT;
use crate::servers::fondaco::{Fondaco, Settings};

const RATE: f64 = 10_000.0;
const CONNECTIONS: usize = 16;
/// How many clients ask the graph, each one question after the other.
const ASKING: u64 = 2;
const EDGES_OF_A_VERTEX: usize = 100;
const RATIO_MAX: f64 = 1.5;

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let served = bench.served_values();
    let server = Fondaco::start(bench, "graph-tail", Settings::default())?;
    server.control().create("read")?;
    server.control().deploy("read", &bench.version_for("read", served)?)?;
    let vertices = if bench.quick { 2_000 } else { 50_000 };
    push_graph(bench, &server, vertices)?;
    // Otherwise an answer is a look-up in the cache of networks.
    server.control().set("graph-cache-bytes", 0)?;

    let group = Group {
        connections: CONNECTIONS,
        rate: Some(RATE),
        ..Group::uniform(server.resp(), "read", served.records)
    };
    let span = Span::of(bench.round_time());
    let mut rounds = Rounds::default();
    for round in 0..bench.rounds() {
        rounds.add_latency("quiet", &group.run(span, round)?);
        let ask = |seed, stop: &AtomicBool| ask_until(server.resp(), vertices, seed, stop);
        let (busy, answered) = beside_clients(ASKING, ask, || group.run(span, round))?;
        rounds.add_latency("beside questions", &busy);
        rounds.add("answered", "/s", answered as f64 / span.seconds());
    }
    server.end()?;
    let work = "p99 of point reads beside questions to a graph";
    Ok(Measured {
        lines: vec![
            rounds
                .compare(work, "beside questions", "quiet", "itself, quiet")
                .at_most(RATIO_MAX),
        ],
        notes: vec![format!(
            "{RATE:.0} GETs a second over {CONNECTIONS} connections, uniform over a store in memory, beside {ASKING} clients that ask for sizes of networks without a cache: each answer unites about {EDGES_OF_A_VERTEX} sets of as many ids, {} answers a second. Server, load generator and asking clients share two cores; the load generator goes first, as far as the system allows.",
            rounds.shown("answered")
        )],
        charts: vec![rounds.latencies(
            "graph-tail",
            "latency of point reads, quiet and beside questions to a graph",
            &["quiet", "beside questions"],
        )],
    })
}

/// Pushes a random graph.
fn push_graph(bench: &Bench, server: &Fondaco, vertices: usize) -> Result<()> {
    let mut random = Rng::with_seed(1);
    let mut edges = String::from("from,to\n");
    for _ in 0..vertices * EDGES_OF_A_VERTEX / 2 {
        writeln!(edges, "{},{}", random.usize(..vertices), random.usize(..vertices))?;
    }
    let file = bench.work.join("graph-tail.csv");
    std::fs::write(&file, edges).with_context(|| format!("could not write {file:?}"))?;
    let path = file.to_str().context("a path that is not text")?;
    let resp = server.resp().to_string();
    let edges = ["--edges", "from,to", "--symmetric"];
    let push = [&["push", "social", path, "--create", "--resp", &resp][..], &edges].concat();
    server.control().command(&push).run(PUSH_LIMIT)?;
    std::fs::remove_file(&file).with_context(|| format!("could not delete {file:?}"))
}

/// Asks for sizes of networks; returns how many were answered.
fn ask_until(address: SocketAddr, vertices: usize, seed: u64, stop: &AtomicBool) -> Result<u64> {
    let mut random = Rng::with_seed(seed);
    let mut stream = TcpStream::connect(address)?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let mut answered = 0;
    while !stop.load(Relaxed) {
        let vertex = random.usize(..vertices);
        stream.write_all(format!("FONDACO.GRAPH SIZE social EDGE {vertex}\r\n").as_bytes())?;
        // An array of two numbers.
        for _ in 0..3 {
            let mut line = String::new();
            replies.read_line(&mut line)?;
            ensure!(line.starts_with(['*', ':']), "the answer is {line:?}");
        }
        answered += 1;
    }
    Ok(answered)
}
