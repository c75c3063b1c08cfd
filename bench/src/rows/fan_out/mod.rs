//! The evaluation of Cho et al., "Moolle: Fan-out Control for Scalable Distributed Data Stores" (V), on a simulated cluster
//! of its size: figures 5 to 9, and the strategies against each other. The row `fan-out-cluster` has the same from a real one.

mod cluster;
mod contender;
mod model;
mod outcome;
mod planning;
mod simulation;

use std::collections::hash_map::Entry;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use fastrand::Rng;

use super::runner::Running;
use super::spec::Step;
use crate::report::Chart;
use crate::report::markdown::number;
pub use cluster::Cluster;
use cluster::{GROUPS, NODES_PER_GROUP};
use contender::Contender;
use model::{CLIENT_RATE, Costs, Kind};
use outcome::{Outcome, quantile_ms};
use simulation::{Load, Traffic, simulate};

/// The kinds of queries whose figures are shown.
const SCOPES: [(&str, Option<Kind>); 4] = [
    ("all queries", None),
    ("one key", Some(Kind::Single)),
    ("several keys", Some(Kind::Multi)),
    ("searches", Some(Kind::Common)),
];

/// How much is simulated.
struct Size {
    /// Queries of a simulation.
    queries: usize,
    /// Queries of a point of figures 7 and 9a.
    plans: usize,
    /// Simulated seconds of searches.
    seconds: usize,
    warm_up_us: u64,
}

impl Size {
    fn of(running: &Running<'_>) -> Self {
        let [queries, plans, seconds, warm_up] = match running.bench.quick {
            true => [200, 2, 10, 1],
            false => [10_000, 50, 40, 15],
        };
        Self {
            queries,
            plans,
            seconds,
            warm_up_us: warm_up as u64 * 1_000_000,
        }
    }
}

/// The arguments of a call.
struct Arguments<'a>(std::slice::Iter<'a, String>);

impl<'a> Arguments<'a> {
    fn text(&mut self) -> Result<&'a str> {
        self.0.next().map(String::as_str).context("an argument is missing")
    }

    fn number(&mut self) -> Result<usize> {
        let text = self.text()?;
        text.parse().with_context(|| format!("{text:?} is no number"))
    }

    fn contenders(&mut self) -> Result<Vec<Contender>> {
        self.0.by_ref().map(|name| Contender::named(name)).collect()
    }
}

/// Simulates queries. The arguments are their kind, the numbers of clients that look up single keys and search for common
/// entities, and of those with a cache of networks, and the contenders; the rate is that of the step.
pub fn simulate_queries(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let mut arguments = Arguments(step.arguments.iter());
    let kind = arguments.text()?;
    let clients = [arguments.number()?, arguments.number()?];
    let (size, rate) = (Size::of(running), step.rate.context("no rate of queries")?);
    let mut load = load_of(&size, Traffic::Mix, clients, rate);
    match kind {
        "mix" => {}
        "pages" => {
            load.traffic = Traffic::Badges;
            load.costs.badges = Some(model::PAGE);
        }
        "searches" => {
            load.traffic = Traffic::Searches;
            load.queries = rate as usize * size.seconds;
        }
        other => bail!("no queries are called {other:?}"),
    }
    let contenders = arguments.contenders()?;
    let round = running.round;
    let outcomes = all(cluster(running, GROUPS)?, &contenders, load, round)?;
    for (contender, outcome) in contenders.iter().zip(&outcomes) {
        record(running, &format!("{} {}", step.name, contender.name()), outcome);
        // The rates of groups at which the desired rate can be reached.
        let groups = f64::from(NODES_PER_GROUP)..=f64::from(NODES_PER_GROUP * GROUPS);
        if kind == "searches" && *contender == Contender::Controlled && groups.contains(&(CLIENT_RATE / rate)) {
            let difference = (outcome.requests_per_second() / CLIENT_RATE - 1.0).abs() * 100.0;
            let farthest = running.figures.median("difference").max(difference);
            running
                .figures
                .put("difference", crate::report::Figure::new("%", vec![farthest]));
        }
    }
    Ok(())
}

fn load_of(size: &Size, traffic: Traffic, clients: [usize; 2], queries_per_second: f64) -> Load {
    Load {
        clients,
        queries_per_second,
        queries: size.queries,
        traffic,
        costs: Costs::default(),
        warm_up_us: size.warm_up_us,
    }
}

/// A cluster of so many groups, which is made once.
fn cluster<'a>(running: &'a mut Running<'_>, groups: u32) -> Result<&'a Cluster> {
    Ok(match running.kept.simulated.entry(groups) {
        Entry::Occupied(made) => made.into_mut(),
        Entry::Vacant(place) => place.insert(Cluster::new(groups)?),
    })
}

/// The outcomes of contenders under a load.
fn all(cluster: &Cluster, contenders: &[Contender], load: Load, seed: u64) -> Result<Vec<Outcome>> {
    thread::scope(|scope| {
        let begin = |&contender| scope.spawn(move || simulate(cluster, contender, load, seed));
        let threads: Vec<_> = contenders.iter().map(begin).collect();
        let outcomes = threads.into_iter().map(|thread| {
            let outcome = thread.join();
            outcome.map_err(|_| anyhow!("a thread of the simulation panicked"))?
        });
        outcomes.collect()
    })
}

/// Latencies and requests of each kind of queries, and means.
fn record(running: &mut Running<'_>, name: &str, outcome: &Outcome) {
    for (scope, kind) in SCOPES {
        let latencies = outcome.latencies_us(kind);
        let values = [
            ("median", "ms", quantile_ms(&latencies, 0.5)),
            ("p99", "ms", quantile_ms(&latencies, 0.99)),
            ("requests", "requests", outcome.requests_per_query(kind)),
        ];
        running.record(&format!("{name}, {scope}:"), values);
    }
    let share = outcome.shares.iter().sum::<f64>() / outcome.shares.len() as f64;
    let samples = || outcome.samples.iter();
    let mean = |sum: u64| sum as f64 / outcome.samples.len() as f64 / 1e3;
    let whole = mean(samples().map(|sample| sample.latency_us).sum());
    let slowest = mean(samples().map(|sample| sample.slowest_us).sum());
    let values = [
        ("share", "%", share),
        ("rate", "requests/s", outcome.requests_per_second()),
        ("whole", "ms", whole),
        ("slowest node", "ms", slowest),
        ("client", "ms", whole - slowest),
    ];
    running.record(&format!("{name}:"), values);
}

/// Plans requests, which are answered at once: the nodes that a query asks, and the penalty of equation 5. The arguments are the
/// groups of the cluster, the keys of a query, and contenders.
pub fn plan(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let mut arguments = Arguments(step.arguments.iter());
    let (groups, keys, plans) = (arguments.number()? as u32, arguments.number()?, Size::of(running).plans);
    for contender in arguments.contenders()? {
        let [nodes, penalty] = planning::means(cluster(running, groups)?, contender, keys, plans)?;
        let name = format!("{} {}:", step.name, contender.name());
        running.record(&name, [("nodes", "requests", nodes), ("penalty", "", penalty)]);
    }
    Ok(())
}

/// How long planning requests for so many keys takes, on this machine, in real time.
pub fn plan_time(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let mut arguments = Arguments(step.arguments.iter());
    let keys = arguments.number()?;
    for contender in arguments.contenders()? {
        let took = planning::planning_time(cluster(running, GROUPS)?, contender, keys)?;
        running.add(
            &format!("{} {}", step.name, contender.name()),
            "µs",
            took.as_secs_f64() * 1e6,
        );
    }
    Ok(())
}

/// Requests for each query by the desired rate of a node, the argument.
pub fn plan_at_node_rate(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let rate = step.rate.context("no rate of a node")?;
    let requests = planning::requests_at_node_rate(rate, Size::of(running).seconds);
    running.add(&step.name, "requests", requests);
    Ok(())
}

/// Figure 5: the latency of a request, as simulated.
pub fn latency_chart(running: &mut Running<'_>, _: &Step) -> Result<()> {
    const QUANTILES: [f64; 13] = [
        0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999,
    ];
    let queries = Size::of(running).queries;
    let mut random = Rng::with_seed(1);
    let mut latencies: Vec<u64> = (0..queries * 50).map(|_| model::latency_us(&mut random)).collect();
    latencies.sort_unstable();
    let point = |share| (quantile_ms(&latencies, share) * 1e3, share * 100.0);
    running.charts.push(Chart::Latencies {
        file: "fan-out-5".into(),
        title: "figure 5: latency of a request for one key, as simulated".into(),
        series: vec![("requests".into(), QUANTILES.map(point).to_vec())],
    });
    running.figures.set("queries", queries.to_string());
    Ok(())
}

/// The ratios to round-robin and to set cover if one of the assumptions is another, at peak traffic, as a note.
pub fn vary(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let mut load = load_of(
        &Size::of(running),
        Traffic::Mix,
        [2, 1],
        step.rate.context("no rate of queries")?,
    );
    let costs = &mut load.costs;
    match step.name.as_str() {
        "as assumed" => {}
        "a request costs its client 20 µs" => costs.client_request_us = 10,
        "a partition of a search costs its node 50 µs" => costs.node_partition_us = 50,
        "a key costs its node 100 µs" => costs.node_key_us = 100,
        "queries of several keys have 25" => costs.badges = Some(model::PAGE),
        other => bail!("no assumption is called {other:?}"),
    }
    let contenders = [Contender::RoundRobin, Contender::SetCover, Contender::Controlled];
    let outcomes = all(cluster(running, GROUPS)?, &contenders, load, 0)?;
    let [round_robin, set_cover, ours] = &outcomes[..] else {
        bail!("an outcome for each contender");
    };
    let ratios = |(scope, kind): (&str, Option<Kind>)| {
        let ratio = |peer: &Outcome, share: f64| {
            let latency = |outcome: &Outcome| quantile_ms(&outcome.latencies_us(kind), share);
            number(latency(ours) / latency(peer))
        };
        format!(
            "{scope}: requests {}×, median {}×, p99 {}× round-robin; median {}×, p99 {}× set cover",
            number(ours.requests_per_query(kind) / round_robin.requests_per_query(kind)),
            ratio(round_robin, 0.5),
            ratio(round_robin, 0.99),
            ratio(set_cover, 0.5),
            ratio(set_cover, 0.99),
        )
    };
    let scopes = SCOPES.map(ratios).join("; ");
    running.notes.push(format!("Peak traffic, {}: {scopes}.", step.name));
    Ok(())
}
