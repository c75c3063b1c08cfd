//! What the router costs: the same reads through it, and directly at the nodes that own the keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use fondaco_client::ReadOptions;
use fondaco_model::{NodeId, StoreName, slot_of_key};

use super::Measured;
use crate::bench::Bench;
use crate::dataset::key;
use crate::load::library::{Library, LibraryLoad, Pace};
use crate::load::{self, Group, GroupReport, KeyChoice, Records, Span};
use crate::machine::process::cpu_time_of;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Figure, Line, Target};
use crate::servers::cluster::Cluster;

const REPLICAS: u32 = 2;
const RATE: f64 = 4_000.0;
const MGET_KEYS: usize = 100;
const MGET_RATE: f64 = 200.0;
const MGETS_AT_A_TIME: usize = 16;
const LATENCY_MAX: f64 = 1.6;
const CAPACITY_MIN: f64 = 0.5;

/// Requests a second, and what they took of processors.
struct Outcome {
    a_second: f64,
    per_server_second: f64,
    /// The load generator's processor time counted, too.
    per_second_of_all: f64,
    /// The router's share of the processor time of the servers.
    router_share: f64,
}

/// A way to the keys: groups to be run together, for `GET`s.
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
    let mut throughput = [(); 2].map(|()| Figure::new("gets/s", Vec::new()));
    let mut capacity = throughput.clone();
    let mut router_share = Vec::new();
    let mut mget_latency = latency.clone();
    let mut mget_capacity = [(); 2].map(|()| Figure::new("mgets/s", Vec::new()));
    let mut mget_of_servers = mget_capacity.clone();
    let span = Span::of(bench.round_time() * 2 / 3);
    // Processor time is counted from the first request on.
    let busy = Span {
        warm_up: Duration::ZERO,
        ..span
    };
    for way in &ways {
        way.run(None, span, 0)?;
    }
    for round in 0..bench.rounds() {
        for (at, way) in ways.iter().enumerate() {
            latency[at]
                .rounds
                .push(way.run(Some(RATE), span, round)?.latency_us(0.5));
            let outcome = watched(&cluster, || way.run(None, busy, round))?;
            throughput[at].rounds.push(outcome.a_second);
            capacity[at].rounds.push(outcome.per_server_second);
            if at == 0 {
                router_share.push(outcome.router_share * 100.0);
            }
        }
        let through_router = |rate, span| {
            let group = Group { rate, ..mget.clone() };
            GroupReport::of_all(load::run_preferred(&[group], span, round)?)
        };
        let through_library = |pace, span| library.run(&library_mget(pace), span, round);
        let paced = [
            through_router(Some(MGET_RATE), span)?,
            through_library(Pace::Rate(MGET_RATE), span)?,
        ];
        let many = [
            watched(&cluster, || through_router(None, busy))?,
            watched(&cluster, || through_library(Pace::AtATime(MGETS_AT_A_TIME), busy))?,
        ];
        for (at, (paced, many)) in paced.iter().zip(many).enumerate() {
            mget_latency[at].rounds.push(paced.latency_us(0.5));
            mget_capacity[at].rounds.push(many.per_second_of_all);
            mget_of_servers[at].rounds.push(many.per_server_second);
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
    let mut by_core = line(
        "GET through the router, for each second of processor time of router and nodes".into(),
        capacity,
        "direct",
    );
    let ratio = |line: &Line| line.ratio.as_ref().map_or(f64::NAN, |ratio| ratio.0);
    p50.targets = vec![Target::at_most(ratio(&p50), LATENCY_MAX)];
    by_core.targets = vec![Target::at_least(ratio(&by_core), CAPACITY_MIN)];
    let used = number(crate::report::median(&router_share));
    let library = "client library, direct";
    Ok(Measured {
        lines: vec![
            p50,
            by_core,
            line(
                "GET through the router, all sharing two cores".into(),
                throughput,
                "direct",
            ),
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
        ],
        notes: vec![
            format!(
                "{} records of 100 B in memory, {REPLICAS} replicas on three nodes, uniform keys; router and nodes with one event loop each, the router's cache off. All share two cores with the load generator, ZooKeeper and two controllers. `direct` asks each key of the first node that owns it, with as many connections in all.",
                number(dataset.records as f64)
            ),
            format!(
                "A core's work is what is done with a second of processor time: GETs as many as are answered, 15 connections of 16 under way each, divided by the processor time that router and nodes used for them, so that the nodes' work counts on both sides. Through the router, {used} % of it was the router's. Throughput as such is bounded by the two cores that all share, and says less."
            ),
            "The router does for others what the client library does in its own process: where clients are counted, its work is, too. The load generator at the router is a bare one, the library on its side a tokio application.".into(),
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
            let node = topology.nodes.get(&owner).context("an owner that is no node")?;
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

    /// `GET`s at so many a second in all, or as many as are answered.
    fn run(&self, rate: Option<f64>, span: Span<'_>, seed: u64) -> Result<GroupReport> {
        let share = self.0.len() as f64;
        let paced = |group: &Group| Group {
            rate: rate.map(|rate| rate / share),
            ..group.clone()
        };
        let groups: Vec<Group> = self.0.iter().map(paced).collect();
        GroupReport::of_all(load::run_preferred(&groups, span, seed)?)
    }
}

/// Runs a load, and watches the processors.
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
    let [nodes, router, own] = [0, 1, 2].map(|at| (after[at] - before[at]).as_secs_f64());
    let servers = (nodes + router).max(0.01);
    let requests = report.requests as f64;
    Ok(Outcome {
        a_second: report.requests_per_second(),
        per_server_second: requests / servers,
        per_second_of_all: requests / (servers + own),
        router_share: router / servers,
    })
}
