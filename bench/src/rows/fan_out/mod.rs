//! The evaluation of Cho et al., "Moolle: Fan-out Control for Scalable Distributed Data Stores" (V), on a simulated cluster
//! of its size: figures 5 to 9, and the strategies against each other. [`measured`] has the same from a real cluster.

mod cluster;
mod contender;
mod figures;
pub(super) mod measured;
mod model;
mod outcome;
mod planning;
mod simulation;

use std::thread;

use anyhow::{Result, anyhow};

use super::Measured;
use crate::bench::Bench;
use crate::report::markdown::number;
use crate::report::{Figure, Line};
use cluster::{Cluster, GROUPS};
use contender::Contender;
use model::{CLIENT_RATE, Costs, Kind};
use outcome::{Outcome, quantile_ms};
use simulation::{Load, Traffic, simulate};

/// The contenders, ours last.
const CONTENDERS: [Contender; 4] = [
    Contender::RoundRobin,
    Contender::SetCover,
    Contender::Hedged,
    Contender::Controlled,
];
/// Client processes, as in the paper (II.A): those that look up single keys and search for common entities, and those with a
/// cache of networks, which answer queries of several keys. So each makes about as many requests, by round-robin.
const CLIENTS: [usize; 2] = [2, 1];
/// Queries a second. At the last, round-robin takes seven tenths of the time of the client with the cache.
const RATES: [f64; 6] = [75.0, 150.0, 225.0, 300.0, 375.0, 450.0];
/// Two of these rates: their names, and their places.
const TRAFFIC: [(&str, usize); 2] = [("medium traffic", 2), ("peak traffic", 5)];
/// The kinds of queries whose figures are shown.
const SCOPES: [(&str, Option<Kind>); 4] = [
    ("all queries", None),
    ("one key", Some(Kind::Single)),
    ("several keys", Some(Kind::Multi)),
    ("searches", Some(Kind::Common)),
];
/// The goals: requests, and latencies, against round-robin.
const REQUESTS_MAX: f64 = 0.5;
const LATENCY_MAX: f64 = 0.65;

/// How much is simulated.
#[derive(Clone, Copy)]
struct Size {
    rounds: u64,
    /// Queries of a simulation.
    queries: usize,
    /// Queries of a point of figures 7 and 9a.
    plans: usize,
    /// Simulated seconds of figures 9b to 9d.
    seconds: usize,
    warm_up_us: u64,
}

const QUICK: Size = Size {
    rounds: 1,
    queries: 200,
    plans: 2,
    seconds: 10,
    warm_up_us: 1_000_000,
};
const WHOLE: Size = Size {
    rounds: 3,
    queries: 10_000,
    plans: 50,
    seconds: 40,
    warm_up_us: 15_000_000,
};

impl Size {
    /// So many queries a second.
    fn load(&self, traffic: Traffic, clients: [usize; 2], queries_per_second: f64) -> Load {
        Load {
            clients,
            queries_per_second,
            queries: self.queries,
            traffic,
            costs: Costs::default(),
            warm_up_us: self.warm_up_us,
        }
    }
}

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let size = if bench.quick { QUICK } else { WHOLE };
    let cluster = Cluster::new(GROUPS)?;
    let outcomes = outcomes(&cluster, size)?;
    let (mut lines, mut notes) = (Vec::new(), model::described());
    for (traffic, place) in TRAFFIC {
        for scope in SCOPES {
            lines.extend(lines_of(traffic, scope, &outcomes[place]));
        }
        lines.extend(share_line(traffic, &outcomes[place]));
    }
    notes.push(format!(
        "{} clients look up single keys and search for common entities, {} has the cache of networks. Medium traffic are {} queries a second, peak traffic {}. Each round has another seed, and {} queries. Hedging, which the paper does not have, is off for all but the peer with its name.",
        CLIENTS[0], CLIENTS[1], RATES[TRAFFIC[0].1], RATES[TRAFFIC[1].1], size.queries
    ));
    let (charts, difference) = figures::charts(&cluster, size, &outcomes)?;
    let difference = Figure::new("%", vec![difference]);
    let work = format!("searches at 25 to 200 queries/s: largest difference from {CLIENT_RATE:.0} requests/s");
    lines.push(Line::new(work, difference).figure_at_most(5.0));
    notes.extend(variations(&cluster, size)?);
    notes.push(planning_note(&cluster)?);
    Ok(Measured { lines, notes, charts })
}

/// The outcomes of the contenders, for each rate of queries and each round.
type Outcomes = Vec<Vec<[Outcome; CONTENDERS.len()]>>;

/// Simulates the mix at all rates; more than one round only where figures are shown.
fn outcomes(cluster: &Cluster, size: Size) -> Result<Outcomes> {
    let at_rate = |(place, rate): (usize, f64)| {
        let rounds = match TRAFFIC.iter().any(|(_, shown)| *shown == place) {
            true => size.rounds,
            false => 1,
        };
        (0..rounds)
            .map(|round| all(cluster, size.load(Traffic::Mix, CLIENTS, rate), round))
            .collect()
    };
    RATES.into_iter().enumerate().map(at_rate).collect()
}

/// The outcomes of all contenders under a load.
fn all(cluster: &Cluster, load: Load, seed: u64) -> Result<[Outcome; CONTENDERS.len()]> {
    let outcomes = thread::scope(|scope| {
        let begin = |contender| scope.spawn(move || simulate(cluster, contender, load, seed));
        CONTENDERS.map(begin).map(|thread| thread.join())
    });
    let mut found = Vec::new();
    for outcome in outcomes {
        found.push(outcome.map_err(|_| anyhow!("a thread of the simulation panicked"))??);
    }
    found.try_into().map_err(|_| anyhow!("an outcome for each contender"))
}

/// A figure of each contender, ours last.
fn rounds_of(rounds: &[[Outcome; CONTENDERS.len()]], unit: &str, of: impl Fn(&Outcome) -> f64) -> Vec<Figure> {
    let figure = |at: usize| Figure::new(unit, rounds.iter().map(|round| of(&round[at])).collect());
    (0..CONTENDERS.len()).map(figure).collect()
}

/// A line of these figures. Each target is a peer, and the ratio to it that must not be exceeded.
fn line(work: String, mut figures: Vec<Figure>, targets: &[(Contender, f64)]) -> Option<Line> {
    let ours = figures.pop()?;
    let peers: Vec<(String, Figure)> = CONTENDERS.map(Contender::name).into_iter().zip(figures).collect();
    let ratio_to = |contender: Contender| {
        let peer = peers.iter().find(|(name, _)| *name == contender.name());
        peer.map_or(f64::NAN, |(_, figure)| ours.over(figure))
    };
    let first = targets
        .first()
        .map_or(Contender::RoundRobin, |(contender, _)| *contender);
    let mut line = Line::new(work, ours.clone()).ratio(ratio_to(first), first.name());
    for (contender, max) in targets {
        let is_reached = ratio_to(*contender) <= *max;
        line = line.target(format!("≤ {max}× {}", contender.name()), is_reached);
    }
    Some(line.peers(peers))
}

/// Median, 99th percentile and requests of a kind of queries. Only for all queries, and for those of several keys, there
/// are goals.
fn lines_of(
    traffic: &str,
    (scope, kind): (&str, Option<Kind>),
    rounds: &[[Outcome; CONTENDERS.len()]],
) -> impl Iterator<Item = Line> {
    let has_goals = matches!(kind, None | Some(Kind::Multi));
    let targets = |targets: &[(Contender, f64)]| if has_goals { targets.to_vec() } else { Vec::new() };
    let latency_max = (Contender::RoundRobin, LATENCY_MAX);
    let latency = |share: f64| rounds_of(rounds, "ms", |outcome| quantile_ms(&outcome.latencies_us(kind), share));
    let requests = rounds_of(rounds, "requests", |outcome| outcome.requests_per_query(kind));
    let lines = [
        line(
            format!("{traffic}, {scope}: median"),
            latency(0.5),
            &targets(&[latency_max]),
        ),
        line(
            format!("{traffic}, {scope}: p99"),
            latency(0.99),
            &targets(&[latency_max, (Contender::SetCover, 1.0)]),
        ),
        line(
            format!("{traffic}, {scope}: requests for a query"),
            requests,
            &targets(&[(Contender::RoundRobin, REQUESTS_MAX)]),
        ),
    ];
    // A query for one key is one request.
    let shown = if kind == Some(Kind::Single) { 2 } else { 3 };
    lines.into_iter().take(shown).flatten()
}

/// The largest share of keys on one node, which should be below that of set cover.
fn share_line(traffic: &str, rounds: &[[Outcome; CONTENDERS.len()]]) -> Option<Line> {
    let mean = |outcome: &Outcome| outcome.shares.iter().sum::<f64>() / outcome.shares.len() as f64;
    let work = format!("{traffic}, several keys: largest share of keys on one node, mean");
    line(work, rounds_of(rounds, "%", mean), &[(Contender::SetCover, 1.0)])
}

/// The ratios to round-robin and to set cover if one of the assumptions is another, at peak traffic.
fn variations(cluster: &Cluster, size: Size) -> Result<Vec<String>> {
    let vary = |change: fn(&mut Costs)| {
        let mut costs = Costs::default();
        change(&mut costs);
        costs
    };
    let variations = [
        ("as assumed", Costs::default()),
        (
            "a request costs its client 20 µs",
            vary(|costs| costs.client_request_us = 10),
        ),
        (
            "a partition of a search costs its node 50 µs",
            vary(|costs| costs.node_partition_us = 50),
        ),
        ("a key costs its node 100 µs", vary(|costs| costs.node_key_us = 100)),
        (
            "queries of several keys have 25",
            vary(|costs| costs.badges = Some(model::PAGE)),
        ),
    ];
    let mut notes = Vec::new();
    for (name, costs) in variations {
        let load = Load {
            costs,
            ..size.load(Traffic::Mix, CLIENTS, RATES[TRAFFIC[1].1])
        };
        let [round_robin, set_cover, _, ours] = all(cluster, load, 0)?;
        let ratios = |(scope, kind): (&str, Option<Kind>)| {
            let ratio = |peer: &Outcome, share: f64| {
                let latency = |outcome: &Outcome| quantile_ms(&outcome.latencies_us(kind), share);
                number(latency(&ours) / latency(peer))
            };
            format!(
                "{scope}: requests {}×, median {}×, p99 {}× round-robin; median {}×, p99 {}× set cover",
                number(ours.requests_per_query(kind) / round_robin.requests_per_query(kind)),
                ratio(&round_robin, 0.5),
                ratio(&round_robin, 0.99),
                ratio(&set_cover, 0.5),
                ratio(&set_cover, 0.99),
            )
        };
        let scopes: Vec<String> = SCOPES.map(ratios).to_vec();
        notes.push(format!("Peak traffic, {name}: {}.", scopes.join("; ")));
    }
    Ok(notes)
}

fn planning_note(cluster: &Cluster) -> Result<String> {
    let mut times = Vec::new();
    for contender in [Contender::RoundRobin, Contender::SetCover, Contender::Controlled] {
        for keys in [model::PAGE, 1000, 30_000] {
            let us = planning::planning_time(cluster, contender, keys)?.as_secs_f64() * 1e6;
            times.push(format!("{} {keys} keys {} µs", contender.name(), number(us)));
        }
    }
    Ok(format!(
        "Planning a request, on this machine, in real time: {}.",
        times.join(", ")
    ))
}
