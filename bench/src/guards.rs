//! Two builds of fondaco against each other: `fondaco-bench guards --before FILE --after FILE`.
//!
//! Both get the same load in alternating rounds of one run, so that a disturbance of the machine affects both. The ratio of a
//! guard is the median of the ratios of its rounds, turned so that more is better. Nothing is written to the results.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::load::{self, Costed, Group, GroupReport, Span, Writes};
use crate::machine::process::cpu_time_of_ended_children;
use crate::machine::settled;
use crate::report::Figure;
use crate::report::markdown::number;
use crate::rows::procedures::loading::push_to_fresh_node;
use crate::servers::fondaco::{Fondaco, Limits, STORE, Shape};

/// The versioned store, beside the batch store [`STORE`].
const VERSIONED: &str = "records";
const VALUE_BYTES: usize = 100;
const REPLICAS: u32 = 2;
const CONNECTIONS: usize = 48;
/// A push takes longer than a round of the other guards.
const PUSHES_MAX: u64 = 5;
/// How many times the records of the served stores are pushed.
const PUSHED_TIMES: u64 = 10;

/// The options of the comparison.
#[derive(Debug, Args)]
pub struct GuardArguments {
    /// The server program before a change.
    #[arg(long, value_name = "FILE")]
    before: PathBuf,
    /// The server program after it.
    #[arg(long, value_name = "FILE")]
    after: PathBuf,
    /// Only the guards whose names contain one of these: `routed`, `p16`.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// The records of the served stores; a push has ten times as many.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// The rounds of each guard, at most 5 of pushes.
    #[arg(long, default_value_t = 9)]
    rounds: u64,
    /// The duration of a round, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// The least ratio of a guard; exits with 1 if one is below.
    #[arg(long, default_value_t = 0.97)]
    min: f64,
    /// The directory for temporary files: some 10 GB.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    temporary: PathBuf,
}

/// A load that both builds get.
struct Guard {
    name: &'static str,
    place: Place,
    store: &'static str,
    pipeline: usize,
    keys: usize,
    writes: f64,
}

/// The server that answers requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// One node, with one event loop on one core; the load generator is on the other.
    Node,
    /// The router of three nodes, which share all cores with the load generator.
    Router,
    /// A fresh node in each round, to which a Parquet file is pushed.
    Fresh,
}

const fn guard(
    name: &'static str,
    place: Place,
    store: &'static str,
    [pipeline, keys]: [usize; 2],
    writes: f64,
) -> Guard {
    Guard {
        name,
        place,
        store,
        pipeline,
        keys,
        writes,
    }
}

/// All guards, in the order in which they run: the place, the store, requests in flight, keys per request, share of writes.
const GUARDS: [Guard; 13] = [
    guard("GET p1", Place::Node, STORE, [1, 1], 0.0),
    guard("GET p16", Place::Node, STORE, [16, 1], 0.0),
    guard("GET p64", Place::Node, STORE, [64, 1], 0.0),
    guard("MGET 100", Place::Node, STORE, [1, 100], 0.0),
    guard("versioned GET p1", Place::Node, VERSIONED, [1, 1], 0.0),
    guard("versioned GET p16", Place::Node, VERSIONED, [16, 1], 0.0),
    guard("versioned GET p64", Place::Node, VERSIONED, [64, 1], 0.0),
    guard("SET p16", Place::Node, VERSIONED, [16, 1], 1.0),
    guard("mixed p16, half of them writes", Place::Node, VERSIONED, [16, 1], 0.5),
    guard("routed GET p1", Place::Router, STORE, [1, 1], 0.0),
    guard("routed GET p16", Place::Router, STORE, [16, 1], 0.0),
    guard("routed MGET 100", Place::Router, STORE, [1, 100], 0.0),
    guard("push", Place::Fresh, STORE, [1, 1], 0.0),
];

/// The servers of one build, while some run.
type Running = Option<Fondaco>;

/// The rate that a build reached in a round: requests or records per second, and per second of CPU time of its processes.
struct Reached {
    per_second: f64,
    per_cpu_second: f64,
}

/// Compares the builds; returns whether no guard is below the least ratio.
pub fn run(arguments: &GuardArguments) -> Result<bool> {
    let chosen = |guard: &&Guard| {
        arguments.only.is_empty() || arguments.only.iter().any(|text| guard.name.contains(text.as_str()))
    };
    let guards: Vec<&Guard> = GUARDS.iter().filter(chosen).collect();
    ensure!(!guards.is_empty(), "no guard has a name like {:?}", arguments.only);
    let work = tempfile::Builder::new()
        .prefix("fondaco-guards-")
        .tempdir_in(&arguments.temporary)
        .with_context(|| format!("could not create a directory in {:?}", arguments.temporary))?;
    let [before, after] = ["before", "after"].map(|name| work.path().join(name));
    std::fs::create_dir(&before)?;
    std::fs::create_dir(&after)?;
    let program = |path: &PathBuf| std::path::absolute(path);
    let before = Bench::new(before, program(&arguments.before)?, false, false)?;
    let after = before.with_program(after, program(&arguments.after)?);
    let builds = [before, after];

    println!(
        "{:32} {:>16} {:>16} {:>9} {:>9}",
        "per second of CPU time", "before", "after", "ratio", "per second"
    );
    let mut all_kept = true;
    let mut place = None;
    let mut running = [None, None];
    for guard in guards {
        if place != Some(guard.place) {
            // The former servers must not take part of the machine any more.
            drop(std::mem::take(&mut running));
            let [before, after] = [&builds[0], &builds[1]].map(|build| start(build, guard.place, arguments.records));
            running = [before?, after?];
            place = Some(guard.place);
        }
        all_kept &= compare(guard, &builds, &running, arguments)?;
    }
    Ok(all_kept)
}

/// Measures a guard in turns, and prints it; returns whether its ratio is not below the least.
fn compare(guard: &Guard, builds: &[Bench; 2], running: &[Running; 2], arguments: &GuardArguments) -> Result<bool> {
    let figures = |unit: &str| [(); 2].map(|()| Figure::new(unit, Vec::new()));
    let (mut per_second, mut per_cpu_second) = (figures("/s"), figures("/CPU s"));
    let (rounds, warm_ups) = match guard.place {
        Place::Fresh => (arguments.rounds.min(PUSHES_MAX), 0),
        Place::Node | Place::Router => (arguments.rounds, 1),
    };
    for round in 0..warm_ups + rounds {
        // Neither is always the first.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            let reached = guard.measure(&builds[at], &running[at], arguments, round)?;
            if round >= warm_ups {
                per_second[at].rounds.push(reached.per_second);
                per_cpu_second[at].rounds.push(reached.per_cpu_second);
            }
        }
    }
    let [before, after] = &per_cpu_second;
    let ratio = after.over(before);
    let is_kept = ratio >= arguments.min;
    println!(
        "{:32} {:>16} {:>16} {:>9.3} {:>9.3}{}",
        guard.name,
        number(before.median()),
        number(after.median()),
        ratio,
        per_second[1].over(&per_second[0]),
        if is_kept { "" } else { "  BELOW" }
    );
    Ok(is_kept)
}

impl Guard {
    fn measure(&self, build: &Bench, running: &Running, arguments: &GuardArguments, round: u64) -> Result<Reached> {
        if self.place == Place::Fresh {
            return push(build, arguments.records * PUSHED_TIMES);
        }
        let servers = running.as_ref().context("no server runs")?;
        let group = Group {
            connections: CONNECTIONS,
            pipeline: self.pipeline,
            keys_per_request: self.keys,
            writes: Writes {
                share: self.writes,
                value_bytes: VALUE_BYTES,
                ..Writes::default()
            },
            ..Group::uniform(servers.front().resp(), self.store, arguments.records)
        };
        let span = Span::whole(Duration::from_secs_f64(arguments.seconds));
        let client_cpu = (self.place == Place::Node).then(|| build.client_cpu());
        let cpu_time = || Ok(servers.cpu_time_of_nodes()? + servers.cpu_time_of_router()?);
        let before = cpu_time()?;
        let report = GroupReport::of_all(load::run_on(client_cpu, &[group], span, round)?)?;
        let after = match self.writes > 0.0 {
            // The work that a write leaves to the background is part of its cost.
            true => settled(cpu_time)?,
            false => cpu_time()?,
        };
        let costed = Costed::of(report, after - before);
        Ok(Reached {
            per_second: costed.report.requests_per_second(),
            per_cpu_second: costed.per_cpu_second(),
        })
    }
}

/// Starts the servers of a build, with their records.
fn start(build: &Bench, place: Place, records: u64) -> Result<Running> {
    let dataset = Dataset {
        records,
        value_bytes: VALUE_BYTES,
    };
    Ok(match place {
        Place::Node => {
            let shape = Shape {
                loops: 1,
                ..Shape::default()
            };
            let limits = Limits {
                cpu: Some(build.server_cpu()),
                ..Limits::default()
            };
            let node = Fondaco::serving(build, "guards", shape, limits, dataset)?;
            let options = ["--engine", "log", "--durability", "log"];
            node.control().create("versioned", VERSIONED, &options)?;
            load::fill(node.front().resp(), &format!("{VERSIONED}:"), dataset)?;
            Some(node)
        }
        Place::Router => {
            let shape = Shape::of_three(REPLICAS);
            Some(Fondaco::serving(
                build,
                "guards-cluster",
                shape,
                Limits::default(),
                dataset,
            )?)
        }
        Place::Fresh => None,
    })
}

/// Pushes records to a fresh node, until the last one is answered.
fn push(build: &Bench, records: u64) -> Result<Reached> {
    let dataset = Dataset {
        records,
        value_bytes: VALUE_BYTES,
    };
    let parquet = build.parquet(dataset)?;
    let before = cpu_time_of_ended_children()?;
    let usage = push_to_fresh_node(build, &parquet, dataset)?;
    // The command and the node have ended.
    let used = cpu_time_of_ended_children()? - before;
    Ok(Reached {
        per_second: records as f64 / usage.wall.as_secs_f64(),
        per_cpu_second: records as f64 / used.as_secs_f64().max(0.01),
    })
}
