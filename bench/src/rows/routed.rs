//! The cost of the router: the same reads through it, and directly at the nodes that own the keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use fondaco_client::ReadOptions;
use fondaco_model::{NodeId, StoreName, slot_of_key};

use super::Measured;
use crate::bench::Bench;
use crate::dataset::key;
use crate::load::library::{self, Library, LibraryLoad};
use crate::load::{self, Group, GroupReport, KeyChoice, Records, Span};
use crate::machine::process::cpu_time_of;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Figure, Line, Target};
use crate::servers::cluster::Cluster;

const REPLICAS: u32 = 2;
const RATE: f64 = 4_000.0;
/// The total number of connections, and the requests in flight on each: the loads that `redis-benchmark` is run with.
const CONNECTIONS: usize = 48;
const PIPELINES: [usize; 3] = [1, 16, 64];
/// The pipeline whose throughput is reported as well.
const USUAL: usize = 1;
const MGET_KEYS: usize = 100;
const MGET_RATE: f64 = 200.0;
const MGETS_AT_A_TIME: usize = 16;
const LATENCY_MAX: f64 = 1.6;
const CAPACITY_MIN: f64 = 0.5;

/// The results of a load, and the CPU time that it used, in seconds.
struct Outcome {
    a_second: f64,
    requests: f64,
    nodes: f64,
    router: f64,
    load_generator: f64,
}

/// The pace of requests.
#[derive(Clone, Copy)]
enum Pace {
    /// This many per second in total.
    Rate(f64),
    /// Unlimited, with this many in flight on each connection.
    Pipeline(usize),
}

/// The results of one pipeline depth, through the router and directly.
struct Capacity {
    throughput: [Figure; 2],
    /// Requests per second of CPU time of all servers.
    of_all: [Figure; 2],
    /// Requests per second of the router's CPU time, and of the nodes' when asked directly.
    of_one: [Figure; 2],
    /// CPU time per request in microseconds: of the nodes directly, of the nodes through the router, of the router.
    costs: [Vec<f64>; 3],
}

/// A path to the keys: groups that run together, for `GET`s.
struct Way(Vec<Group>);

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let mut cluster = Cluster::start(bench, "routed", REPLICAS)?;
    cluster.serve(&version, dataset)?;
    cluster.control().set("router-cache-bytes", 0)?;
    let library = Library::connect(cluster.router().resp(), ReadOptions::default())?;
    let store: StoreName = STORE.parse()?;

    let uniform = KeyChoice::Uniform {
        records: dataset.records,
    };
    let routed = Group::gets(cluster.router().resp(), STORE, uniform.clone());
    let mget = Group {
        keys_per_request: MGET_KEYS,
        connections: MGETS_AT_A_TIME,
        pipeline: 1,
        ..routed.clone()
    };
    let library_mget = |pace| LibraryLoad {
        store: store.clone(),
        keys: uniform.clone(),
        keys_per_request: MGET_KEYS,
        pace,
    };
    let ways = [Way(vec![routed]), Way::direct(&library, &store, dataset.records)?];
    // Latencies and capacities: through the router, then directly.
    let mut latency = [(); 2].map(|()| Figure::new("µs", Vec::new()));
    let mut capacities = PIPELINES.map(|_| Capacity::new());
    let mut mget_latency = latency.clone();
    let mut mget_capacity = [(); 2].map(|()| Figure::new("mgets/s", Vec::new()));
    let mut mget_of_servers = mget_capacity.clone();
    let span = Span::of(bench.round_time() * 2 / 3);
    // CPU time is counted from the first request on.
    let busy = Span {
        warm_up: Duration::ZERO,
        ..Span::of(bench.round_time() / 2)
    };
    for way in &ways {
        way.run(Pace::Pipeline(PIPELINES[USUAL]), span, 0)?;
    }
    for round in 0..bench.rounds() {
        for (at, way) in ways.iter().enumerate() {
            latency[at]
                .rounds
                .push(way.run(Pace::Rate(RATE), span, round)?.latency_us(0.5));
            for (pipeline, capacity) in PIPELINES.into_iter().zip(&mut capacities) {
                let outcome = watched(&cluster, || way.run(Pace::Pipeline(pipeline), busy, round))?;
                capacity.note(at, &outcome);
            }
        }
        let through_router = |rate, span| {
            let group = Group { rate, ..mget.clone() };
            GroupReport::of_all(load::run_preferred(&[group], span, round)?)
        };
        let through_library = |pace, span| library.run(&library_mget(pace), span, round);
        let paced = [
            through_router(Some(MGET_RATE), span)?,
            through_library(library::Pace::Rate(MGET_RATE), span)?,
        ];
        let many = [
            watched(&cluster, || through_router(None, busy))?,
            watched(&cluster, || {
                through_library(library::Pace::AtATime(MGETS_AT_A_TIME), busy)
            })?,
        ];
        for (at, (paced, many)) in paced.iter().zip(many).enumerate() {
            mget_latency[at].rounds.push(paced.latency_us(0.5));
            let servers = many.nodes + many.router;
            mget_capacity[at]
                .rounds
                .push(many.requests / (servers + many.load_generator));
            mget_of_servers[at].rounds.push(many.requests / servers);
        }
    }
    drop(library);
    cluster.end()?;

    let line = |work: String, [ours, direct]: [Figure; 2], peer: &str| {
        let ratio = ours.over(&direct);
        Line {
            work,
            ours,
            peers: vec![(peer.to_owned(), direct)],
            ratio: Some((ratio, peer.to_owned())),
            targets: Vec::new(),
            memory: String::new(),
        }
    };
    let mut p50 = line(format!("GET through the router at {RATE:.0}/s, p50"), latency, "direct");
    let ratio = |line: &Line| line.ratio.as_ref().map_or(f64::NAN, |ratio| ratio.0);
    p50.targets = vec![Target::at_most(ratio(&p50), LATENCY_MAX)];
    let mut lines = vec![p50];
    let mut costs = Vec::new();
    for (at, (pipeline, capacity)) in PIPELINES.into_iter().zip(capacities).enumerate() {
        let [direct, nodes, router] = capacity.costs.map(|rounds| number(crate::report::median(&rounds)));
        costs.push(format!(
            "{router} + {nodes} µs instead of {direct} at pipeline {pipeline}"
        ));
        let load = format!("GET of {CONNECTIONS} connections with {pipeline} in flight");
        let by_core = [
            line(
                format!("{load}, for each second of processor time of router and nodes"),
                capacity.of_all,
                "direct, of nodes",
            ),
            line(
                format!("{load}, for each second of processor time of the router alone"),
                capacity.of_one,
                "direct, of nodes",
            ),
        ];
        for mut line in by_core {
            line.targets = vec![Target::at_least(ratio(&line), CAPACITY_MIN)];
            lines.push(line);
        }
        if at == USUAL {
            lines.push(line(
                format!("{load}, all sharing two cores"),
                capacity.throughput,
                "direct",
            ));
        }
    }
    let library = "client library, direct";
    lines.extend([
        line(
            format!("MGET of {MGET_KEYS} through the router at {MGET_RATE:.0}/s, p50"),
            mget_latency,
            library,
        ),
        line(
            format!("MGET of {MGET_KEYS} through the router, for each second of processor time, clients counted"),
            mget_capacity,
            library,
        ),
        line(
            format!("MGET of {MGET_KEYS} through the router, for each second of processor time of router and nodes"),
            mget_of_servers,
            library,
        ),
    ]);
    Ok(Measured {
        lines,
        notes: vec![
            format!(
                "{} records of 100 B in memory, {REPLICAS} replicas on three nodes, uniform keys; router and nodes with one event loop each, the router's cache off. All share two cores with the load generator, ZooKeeper and two controllers. `direct` reads each key from the first node that owns it, with the same total number of connections.",
                number(dataset.records as f64)
            ),
            format!(
                "Capacity is the number of GETs per second of CPU time: as many GETs as are answered, divided by the CPU time used for them. Of router and nodes: the nodes' work counts on both sides, and a request through the router is received, answered and sent twice. Of the router alone: a core as a router compared with a core as a node. CPU time per request, of router and nodes: {}. Throughput itself is limited by the two cores that all share, and says less.",
                costs.join(", ")
            ),
            "The router does the work for its clients that the client library does in its own process: where clients are counted, this work of the library is included. The load generator at the router is a minimal one, the library on its side a tokio application.".into(),
        ],
        charts: Vec::new(),
    })
}

impl Way {
    /// Each key at the first node that owns it.
    fn direct(library: &Library, name: &StoreName, records: u64) -> Result<Self> {
        let topology = library.topology()?;
        let store = topology.stores.get(name).context("no store in the topology")?;
        let mut numbers = BTreeMap::<NodeId, Vec<u32>>::new();
        for record in 0..records {
            let slot = slot_of_key(name, &key(record));
            let mut owners = topology.replicas(store, topology.partitions.partition_of(slot));
            let owner = owners.next().context("a partition without an owner")?;
            numbers.entry(owner).or_default().push(u32::try_from(record)?);
        }
        let nodes = numbers.len();
        let group = |(owner, numbers)| {
            let node = topology.nodes.get(&owner).context("an owner that is not a node")?;
            let address: SocketAddr = node.resp.parse()?;
            let keys = Records::new(numbers).context("an owner of nothing")?;
            let all = Group::gets(address, STORE, KeyChoice::Among(keys));
            Ok(Group {
                connections: all.connections / nodes,
                ..all
            })
        };
        Ok(Self(numbers.into_iter().map(group).collect::<Result<_>>()?))
    }

    /// `GET`s at this pace.
    fn run(&self, pace: Pace, span: Span<'_>, seed: u64) -> Result<GroupReport> {
        let share = self.0.len();
        let paced = |group: &Group| match pace {
            Pace::Rate(rate) => Group {
                rate: Some(rate / share as f64),
                ..group.clone()
            },
            Pace::Pipeline(pipeline) => Group {
                connections: CONNECTIONS / share,
                pipeline,
                ..group.clone()
            },
        };
        let groups: Vec<Group> = self.0.iter().map(paced).collect();
        GroupReport::of_all(load::run_preferred(&groups, span, seed)?)
    }
}

impl Capacity {
    fn new() -> Self {
        let figures = || [(); 2].map(|()| Figure::new("gets/s", Vec::new()));
        Self {
            throughput: figures(),
            of_all: figures(),
            of_one: figures(),
            costs: Default::default(),
        }
    }

    /// Records a round through the router (0) or directly (1).
    fn note(&mut self, way: usize, outcome: &Outcome) {
        let Outcome {
            a_second,
            requests,
            nodes,
            router,
            ..
        } = *outcome;
        let micros = |seconds: f64| seconds / requests * 1e6;
        self.throughput[way].rounds.push(a_second);
        match way {
            0 => {
                self.of_all[way].rounds.push(requests / (nodes + router));
                self.of_one[way].rounds.push(requests / router);
                self.costs[1].push(micros(nodes));
                self.costs[2].push(micros(router));
            }
            _ => {
                self.of_all[way].rounds.push(requests / nodes);
                self.of_one[way].rounds.push(requests / nodes);
                self.costs[0].push(micros(nodes));
            }
        }
    }
}

/// Runs a load, and measures CPU time.
fn watched(cluster: &Cluster, load: impl FnOnce() -> Result<GroupReport>) -> Result<Outcome> {
    let times = || -> Result<[Duration; 3]> {
        Ok([
            cluster.cpu_time_of_nodes()?,
            cluster.router().process().cpu_time()?,
            cpu_time_of(std::process::id())?,
        ])
    };
    let before = times()?;
    let report = load()?;
    let after = times()?;
    // At least a tick of the clock for CPU time.
    let [nodes, router, load_generator] = [0, 1, 2].map(|at| (after[at] - before[at]).as_secs_f64().max(0.01));
    Ok(Outcome {
        a_second: report.requests_per_second(),
        requests: report.requests as f64,
        nodes,
        router,
        load_generator,
    })
}
