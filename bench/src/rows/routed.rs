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
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Line, Rounds};
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
/// The names of the ways.
const ROUTED: &str = "through the router";
const DIRECT: &str = "direct";
const DIRECT_OF_NODES: &str = "direct, of nodes";
const LIBRARY: &str = "client library, direct";

/// The results of a load, and the CPU time that it used, in seconds.
struct Outcome {
    report: GroupReport,
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
#[derive(Default)]
struct Capacity {
    throughput: Rounds,
    /// Requests per second of CPU time of all servers.
    of_all: Rounds,
    /// Requests per second of the router's CPU time, and of the nodes' when asked directly.
    of_one: Rounds,
    /// CPU time per request: of the nodes directly, of the nodes through the router, of the router.
    costs: Rounds,
}

/// A path to the keys: groups that run together, for `GET`s.
struct Way(Vec<Group>);

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let cluster = Cluster::serving(bench, "routed", REPLICAS, dataset)?;
    let router = cluster.router().resp();
    let library = Library::connect(router, ReadOptions::default())?;
    let store: StoreName = STORE.parse()?;

    let routed = Group::uniform(router, STORE, dataset.records);
    let mget = Group {
        keys_per_request: MGET_KEYS,
        connections: MGETS_AT_A_TIME,
        pipeline: 1,
        ..routed.clone()
    };
    let library_mget = |pace| LibraryLoad {
        store: store.clone(),
        keys: mget.keys.clone(),
        keys_per_request: MGET_KEYS,
        pace,
    };
    let direct = Way::direct(&library, &store, dataset.records)?;
    let ways = [(ROUTED, Way(vec![routed])), (DIRECT, direct)];
    let mut latency = Rounds::default();
    let mut capacities = PIPELINES.map(|_| Capacity::default());
    let [mut mget_latency, mut mget_capacity, mut mget_of_servers] = [(); 3].map(|()| Rounds::default());
    let span = Span::of(bench.round_time() * 2 / 3);
    // CPU time is counted from the first request on.
    let busy = Span::whole(bench.round_time() / 2);
    for (_, way) in &ways {
        way.run(Pace::Pipeline(PIPELINES[USUAL]), span, 0)?;
    }
    for round in 0..bench.rounds() {
        for (name, way) in &ways {
            latency.add_latency(name, &way.run(Pace::Rate(RATE), span, round)?);
            for (pipeline, capacity) in PIPELINES.into_iter().zip(&mut capacities) {
                let outcome = watched(&cluster, || way.run(Pace::Pipeline(pipeline), busy, round))?;
                capacity.note(name, &outcome);
            }
        }
        let through_router = |rate, span| Group { rate, ..mget.clone() }.run(span, round);
        let through_library = |pace, span| library.run(&library_mget(pace), span, round);
        mget_latency.add_latency(ROUTED, &through_router(Some(MGET_RATE), span)?);
        mget_latency.add_latency(LIBRARY, &through_library(library::Pace::Rate(MGET_RATE), span)?);
        let at_a_time = library::Pace::AtATime(MGETS_AT_A_TIME);
        for (name, many) in [
            (ROUTED, watched(&cluster, || through_router(None, busy))?),
            (LIBRARY, watched(&cluster, || through_library(at_a_time, busy))?),
        ] {
            let (requests, servers) = (many.report.requests as f64, many.nodes + many.router);
            mget_capacity.add(name, "mgets/s", requests / (servers + many.load_generator));
            mget_of_servers.add(name, "mgets/s", requests / servers);
        }
    }
    drop(library);
    cluster.end()?;

    let p50 = |work: String, rounds: &Rounds, peer: &str| {
        let [ours, theirs] = [ROUTED, peer].map(|name| rounds.figure(&format!("{name}, median")));
        Line::new(work, ours).peer(peer, theirs).over_peer(peer)
    };
    let work = format!("GET through the router at {RATE:.0}/s, p50");
    let mut lines = vec![p50(work, &latency, DIRECT).at_most(LATENCY_MAX)];
    let mut costs = Vec::new();
    for (at, (pipeline, capacity)) in PIPELINES.into_iter().zip(&capacities).enumerate() {
        let [direct, nodes, router] = ["direct", "nodes", "router"].map(|of| capacity.costs.shown(of));
        costs.push(format!(
            "{router} + {nodes} µs instead of {direct} at pipeline {pipeline}"
        ));
        let load = format!("GET of {CONNECTIONS} connections with {pipeline} in flight");
        for (rounds, of) in [
            (&capacity.of_all, "router and nodes"),
            (&capacity.of_one, "the router alone"),
        ] {
            let work = format!("{load}, for each second of processor time of {of}");
            let line = rounds.line(work, ROUTED);
            let line = line.peer(DIRECT_OF_NODES, rounds.figure(DIRECT));
            lines.push(line.over_peer(DIRECT_OF_NODES).at_least(CAPACITY_MIN));
        }
        if at == USUAL {
            let work = format!("{load}, all sharing two cores");
            lines.push(capacity.throughput.compare(work, ROUTED, DIRECT, DIRECT));
        }
    }
    let mgets = format!("MGET of {MGET_KEYS} through the router");
    let by_cpu_time = |of: &str| format!("{mgets}, for each second of processor time{of}");
    lines.extend([
        p50(format!("{mgets} at {MGET_RATE:.0}/s, p50"), &mget_latency, LIBRARY),
        mget_capacity.compare(by_cpu_time(", clients counted"), ROUTED, LIBRARY, LIBRARY),
        mget_of_servers.compare(by_cpu_time(" of router and nodes"), ROUTED, LIBRARY, LIBRARY),
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
        ..Measured::default()
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
    /// Records a round of a way.
    fn note(&mut self, way: &str, outcome: &Outcome) {
        let Outcome {
            report, nodes, router, ..
        } = outcome;
        let requests = report.requests as f64;
        let (all, one) = match way {
            ROUTED => (nodes + router, router),
            _ => (*nodes, nodes),
        };
        self.throughput.add(way, "gets/s", report.requests_per_second());
        self.of_all.add(way, "gets/s", requests / all);
        self.of_one.add(way, "gets/s", requests / one);
        let mut cost = |of: &str, seconds: f64| self.costs.add(of, "µs", seconds / requests * 1e6);
        match way {
            ROUTED => {
                cost("nodes", *nodes);
                cost("router", *router);
            }
            _ => cost("direct", *nodes),
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
        report,
        nodes,
        router,
        load_generator,
    })
}
