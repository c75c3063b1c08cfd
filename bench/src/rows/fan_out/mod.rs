//! The evaluation of Cho et al., "Moolle: Fan-out Control for Scalable Distributed Data Stores" (V), on a simulated cluster
//! of its size: figures 5 to 9, and the strategies against each other.

mod cluster;
mod contender;
mod model;
mod planning;
mod simulation;

use std::thread;

use anyhow::{Result, anyhow};
use fastrand::Rng;

use super::Measured;
use crate::bench::Bench;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use cluster::{Cluster, GROUPS, NODES_PER_GROUP};
use contender::Contender;
use model::{CLIENT_RATE, Costs, Kind};
use planning::Points;
use simulation::{Load, Outcome, Sample, Traffic, quantile_ms, simulate};

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
/// Queries a second. At the last, round-robin takes four fifths of a client's time.
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
    let size = match bench.quick {
        true => Size {
            rounds: 1,
            queries: 200,
            plans: 2,
            seconds: 10,
            warm_up_us: 1_000_000,
        },
        false => Size {
            rounds: bench.rounds(),
            queries: 10_000,
            plans: 50,
            seconds: 40,
            warm_up_us: 15_000_000,
        },
    };
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
    let mut charts = vec![latency_chart(size), groups_chart(&cluster, size)?];
    charts.extend(fan_out_charts(&cluster, size)?);
    charts.extend(traffic_charts(&outcomes));
    charts.extend(penalty_charts(&cluster, size)?);
    charts.extend(rate_charts(&cluster, size, &mut lines)?);
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
fn figures(rounds: &[[Outcome; CONTENDERS.len()]], unit: &str, of: impl Fn(&Outcome) -> f64) -> Vec<Figure> {
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
    let target = |&(contender, max): &(Contender, f64)| {
        let target = Target::at_most(ratio_to(contender), max);
        Target {
            text: format!("{} {}", target.text, contender.name()),
            ..target
        }
    };
    let first = targets
        .first()
        .map_or(Contender::RoundRobin, |(contender, _)| *contender);
    Some(Line {
        work,
        ratio: Some((ratio_to(first), first.name())),
        targets: targets.iter().map(target).collect(),
        ours,
        peers,
        memory: String::new(),
    })
}

/// Median, 99th percentile and requests of a kind of queries. Only for all queries, and for those of several keys, there
/// are goals.
fn lines_of(
    traffic: &str,
    (scope, kind): (&str, Option<Kind>),
    rounds: &[[Outcome; CONTENDERS.len()]],
) -> impl Iterator<Item = Line> {
    let has_goals = matches!(kind, None | Some(Kind::Multi));
    let targets = |max: f64, against_set_cover: bool| {
        let targets = [(Contender::RoundRobin, max), (Contender::SetCover, 1.0)];
        targets[..if has_goals {
            1 + usize::from(against_set_cover)
        } else {
            0
        }]
            .to_vec()
    };
    let latency = |share: f64| figures(rounds, "ms", |outcome| quantile_ms(&outcome.latencies_us(kind), share));
    let requests = figures(rounds, "requests", |outcome| outcome.requests_per_query(kind));
    let lines = [
        line(
            format!("{traffic}, {scope}: median"),
            latency(0.5),
            &targets(LATENCY_MAX, false),
        ),
        line(
            format!("{traffic}, {scope}: p99"),
            latency(0.99),
            &targets(LATENCY_MAX, true),
        ),
        line(
            format!("{traffic}, {scope}: requests for a query"),
            requests,
            &targets(REQUESTS_MAX, false),
        ),
    ];
    lines.into_iter().flatten()
}

/// The largest share of keys on one node, which should be below that of set cover.
fn share_line(traffic: &str, rounds: &[[Outcome; CONTENDERS.len()]]) -> Option<Line> {
    let mean = |outcome: &Outcome| outcome.shares.iter().sum::<f64>() / outcome.shares.len() as f64;
    let work = format!("{traffic}, several keys: largest share of keys on one node, mean");
    line(work, figures(rounds, "%", mean), &[(Contender::SetCover, 1.0)])
}

fn lines_chart(file: &str, title: String, axes: [&str; 2], series: Vec<(String, Points)>) -> Chart {
    Chart::Lines {
        file: format!("fan-out-{file}"),
        title,
        axes: (axes[0].into(), axes[1].into()),
        logarithmic: false,
        series,
    }
}

/// Figure 5.
fn latency_chart(size: Size) -> Chart {
    const QUANTILES: [f64; 13] = [
        0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999,
    ];
    let mut random = Rng::with_seed(1);
    let mut latencies: Vec<u64> = (0..size.queries * 50).map(|_| model::latency_us(&mut random)).collect();
    latencies.sort_unstable();
    let point = |share| (quantile_ms(&latencies, share) * 1e3, share * 100.0);
    Chart::Latencies {
        file: "fan-out-5".into(),
        title: "figure 5: latency of a request for one key, as simulated".into(),
        series: vec![("requests".into(), QUANTILES.map(point).to_vec())],
    }
}

/// Figure 6: the two parts of equation 4.
fn groups_chart(cluster: &Cluster, size: Size) -> Result<Chart> {
    let parts = ["whole", "slowest node", "client"];
    let mut series = parts.map(|part| (part.to_owned(), Points::new()));
    for groups in 1..=GROUPS as usize {
        let mut load = size.load(Traffic::Badges, [0, 1], 10.0);
        load.costs.badges = Some(model::PAGE);
        let samples = simulate(cluster, Contender::Groups(groups), load, 1)?.samples;
        let mean = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>() as f64 / samples.len() as f64 / 1e3;
        let (whole, slowest) = (mean(|sample| sample.latency_us), mean(|sample| sample.slowest_us));
        for ((_, points), ms) in series.iter_mut().zip([whole, slowest, whole - slowest]) {
            points.push((groups as f64, ms));
        }
    }
    let title = format!("figure 6: mean latency of look-ups of {} keys", model::PAGE);
    Ok(lines_chart("6", title, ["groups asked", "ms"], series.to_vec()))
}

/// Figure 7.
fn fan_out_charts(cluster: &Cluster, size: Size) -> Result<[Chart; 2]> {
    let by_groups = format!("figure 7b: requests for a query of {} keys", planning::KEYS_BY_GROUPS);
    Ok([
        lines_chart(
            "7a",
            "figure 7a: requests for a query, 10 groups of 20 nodes".into(),
            ["keys of the query", "requests"],
            planning::requests_by_keys(cluster, size.plans)?,
        ),
        lines_chart(
            "7b",
            by_groups,
            ["groups of the cluster", "requests"],
            planning::requests_by_groups(size.plans)?,
        ),
    ])
}

/// Figure 8.
fn traffic_charts(outcomes: &Outcomes) -> [Chart; 2] {
    let chart = |file: &str, name: &str, share: f64| {
        let line = |at: usize| {
            let point = |(rounds, rate): (&Vec<[Outcome; CONTENDERS.len()]>, f64)| {
                let latencies = rounds[0][at].latencies_us(Some(Kind::Multi));
                (rate, quantile_ms(&latencies, share))
            };
            (CONTENDERS[at].name(), outcomes.iter().zip(RATES).map(point).collect())
        };
        Chart::Lines {
            file: format!("fan-out-{file}"),
            title: format!("figure {file}: {name} of queries of several keys"),
            axes: ("queries a second".into(), "ms".into()),
            logarithmic: true,
            series: (0..CONTENDERS.len()).map(line).collect(),
        }
    };
    [chart("8a", "median latency", 0.5), chart("8b", "99th percentile", 0.99)]
}

/// Figure 9a.
fn penalty_charts(cluster: &Cluster, size: Size) -> Result<[Chart; 2]> {
    let [penalties, requests] = planning::penalties_by_keys(cluster, size.plans)?;
    let title = |what: &str| format!("figure 9a: {what} of unions in the background");
    Ok([
        Chart::Lines {
            file: "fan-out-9a-penalty".into(),
            title: title("penalty P (equation 5)"),
            axes: ("keys of the query".into(), "P".into()),
            logarithmic: false,
            series: penalties,
        },
        lines_chart(
            "9a-requests",
            title("requests"),
            ["keys of the query", "requests"],
            requests,
        ),
    ])
}

/// Figures 9b to 9d, and how far the rate of requests is from the desired one.
fn rate_charts(cluster: &Cluster, size: Size, lines: &mut Vec<Line>) -> Result<[Chart; 3]> {
    const RATES: [f64; 9] = [10.0, 25.0, 40.0, 60.0, 80.0, 100.0, 125.0, 150.0, 200.0];
    let contenders = [Contender::RoundRobin, Contender::SetCover, Contender::Controlled];
    let mut by_query = contenders.map(|contender| (contender.name(), Points::new()));
    let (mut by_second, mut farthest) = (by_query.clone(), 0.0_f64);
    for queries_per_second in RATES {
        let load = Load {
            queries: queries_per_second as usize * size.seconds,
            ..size.load(Traffic::Searches, [1, 0], queries_per_second)
        };
        for (at, contender) in contenders.into_iter().enumerate() {
            let outcome = simulate(cluster, contender, load, 1)?;
            let made = outcome.requests_per_second();
            by_query[at]
                .1
                .push((queries_per_second, outcome.requests_per_query(None)));
            by_second[at].1.push((queries_per_second, made));
            let nodes = f64::from(NODES_PER_GROUP);
            let can_be_reached = (nodes..=nodes * f64::from(GROUPS)).contains(&(CLIENT_RATE / queries_per_second));
            if contender == Contender::Controlled && can_be_reached {
                farthest = farthest.max((made / CLIENT_RATE - 1.0).abs() * 100.0);
            }
        }
    }
    let difference = Figure::new("%", vec![farthest]);
    lines.push(Line {
        work: format!("searches at 25 to 200 queries/s: largest difference from {CLIENT_RATE:.0} requests/s"),
        targets: vec![Target::figure_at_most(&difference, 5.0)],
        ours: difference,
        peers: Vec::new(),
        ratio: None,
        memory: String::new(),
    });
    let by_node_rate = planning::requests_by_node_rate(size.seconds);
    let title = format!(
        "figure 9d: requests for a search, {} clients at {} queries/s",
        planning::CLIENTS,
        planning::QUERIES_PER_SECOND
    );
    let queries = "queries a second";
    Ok([
        lines_chart(
            "9b",
            "figure 9b: requests for a search".into(),
            [queries, "requests"],
            by_query.to_vec(),
        ),
        lines_chart(
            "9c",
            "figure 9c: requests a second of a client".into(),
            [queries, "requests a second"],
            by_second.to_vec(),
        ),
        lines_chart(
            "9d",
            title,
            ["desired requests a second of a node", "requests"],
            vec![(Contender::Controlled.name(), by_node_rate)],
        ),
    ])
}

/// The ratios to round-robin and to set cover if one of the assumptions is another, at peak traffic.
fn variations(cluster: &Cluster, size: Size) -> Result<Vec<String>> {
    let costs = Costs::default();
    let variations = [
        ("as assumed", costs),
        (
            "a request costs its client 20 µs",
            Costs {
                client_request_us: 10,
                ..costs
            },
        ),
        (
            "a partition of a search costs its node 50 µs",
            Costs {
                node_partition_us: 50,
                ..costs
            },
        ),
        (
            "queries of several keys have 25",
            Costs {
                badges: Some(model::PAGE),
                ..costs
            },
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
