//! Whether questions to a graph delay point reads of the same node: latencies of a store in memory, quiet and beside
//! questions that each unite hundreds of sets.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use fastrand::Rng;

use super::Measured;
use crate::bench::Bench;
use crate::load::{self, Group, GroupReport, KeyChoice, Span};
use crate::machine::prefer_thread;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::servers::control::PUSH_LIMIT;
use crate::servers::fondaco::{Fondaco, Settings};

const RATE: f64 = 10_000.0;
const CONNECTIONS: usize = 16;
/// How many clients ask the graph, each one question after the other.
const ASKING: usize = 2;
const EDGES_OF_A_VERTEX: usize = 100;
const RATIO_MAX: f64 = 1.5;

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let served = bench.served_values();
    let server = Fondaco::start(bench, "graph-tail", Settings::default())?;
    server.control().create("read")?;
    let version = bench.version_for("read", served)?;
    server.control().deploy("read", &version)?;
    let vertices = if bench.quick { 2_000 } else { 50_000 };
    push_graph(bench, &server, vertices)?;
    // Otherwise an answer is a look-up in the cache of networks.
    server.control().set("graph-cache-bytes", 0)?;

    let uniform = KeyChoice::Uniform {
        records: served.records,
    };
    let group = Group {
        connections: CONNECTIONS,
        rate: Some(RATE),
        ..Group::gets(server.resp(), "read", uniform)
    };
    let span = Span::of(bench.round_time());
    let microseconds = || Figure::new("µs", Vec::new());
    let (mut quiet, mut beside, mut answered) = (microseconds(), microseconds(), Figure::new("/s", Vec::new()));
    let mut distributions = None;
    for round in 0..bench.rounds() {
        let reads = || GroupReport::of_all(load::run_preferred(std::slice::from_ref(&group), span, round)?);
        let calm = reads()?;
        let (busy, questions) = beside_questions(server.resp(), vertices, reads)?;
        quiet.rounds.push(calm.latency_us(0.99));
        beside.rounds.push(busy.latency_us(0.99));
        answered
            .rounds
            .push(questions as f64 / (span.warm_up + span.measured).as_secs_f64());
        distributions = Some((calm.distribution(), busy.distribution()));
    }
    server.end()?;
    let ratio = beside.over(&quiet);
    let charts = distributions.map(|(calm, busy)| Chart::Latencies {
        file: "graph-tail".into(),
        title: "latency of point reads, quiet and beside questions to a graph (last round)".into(),
        series: vec![("quiet".into(), calm), ("beside questions".into(), busy)],
    });
    Ok(Measured {
        lines: vec![Line {
            work: "p99 of point reads beside questions to a graph".into(),
            ours: beside,
            peers: vec![("quiet".into(), quiet)],
            ratio: Some((ratio, "itself, quiet".into())),
            targets: vec![Target::at_most(ratio, RATIO_MAX)],
            memory: String::new(),
        }],
        notes: vec![format!(
            "{RATE:.0} GETs a second over {CONNECTIONS} connections, uniform over a store in memory, beside {ASKING} clients that ask for sizes of networks without a cache: each answer unites about {EDGES_OF_A_VERTEX} sets of as many ids, {} answers a second. Server, load generator and asking clients share two cores; the load generator goes first, as far as the system allows.",
            number(answered.median())
        )],
        charts: charts.into_iter().collect(),
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
    let push = [
        "push",
        "social",
        path,
        "--edges",
        "from,to",
        "--symmetric",
        "--create",
        "--resp",
        &resp,
    ];
    server.control().command(&push).run(PUSH_LIMIT)?;
    std::fs::remove_file(&file).with_context(|| format!("could not delete {file:?}"))
}

/// Does work while the graph is asked; and how many questions were answered.
fn beside_questions<T>(address: SocketAddr, vertices: usize, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let ask = |seed| {
            let stop = &stop;
            scope.spawn(move || ask_until(address, vertices, seed, stop))
        };
        let asking: Vec<_> = (0..ASKING as u64).map(ask).collect();
        prefer_thread();
        let done = work();
        stop.store(true, Relaxed);
        let mut answered = 0;
        for asking in asking {
            answered += asking.join().map_err(|_| anyhow!("a thread that asks panicked"))??;
        }
        ensure!(answered > 0, "no question was answered");
        Ok((done?, answered))
    })
}

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
