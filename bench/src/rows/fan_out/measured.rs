//! Figures 5 to 9 from a real cluster of as many processes as fit on one machine, and look-ups of many keys while a replica
//! pauses.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fondaco_client::ReadOptions;
use fondaco_client::read::{ClientRate, FanOut, FanOutController, Pd, ReadCounts, named};
use fondaco_model::StrategyName;

use super::figures::lines_chart;
use super::planning::Points;
use crate::bench::Bench;
use crate::load::library::{Library, LibraryLoad, Pace};
use crate::load::{GroupReport, KeyChoice, Span};
use crate::machine::process::with_pauses;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::{Chart, Line, Rounds};
use crate::rows::Measured;
use crate::servers::cluster::{Cluster, Shape};

/// The groups of the cluster, each of which has all data, and the nodes of each.
const GROUPS: usize = 4;
const NODES: usize = 2;
const PAUSE: Duration = Duration::from_millis(100);
const PERIOD: Duration = Duration::from_secs(1);
/// Keys of the requests beside which a replica pauses, and how many of them are sent a second.
const PAUSED: [(usize, f64); 2] = [(100, 100.0), (1000, 20.0)];
/// Keys of a page of results, as in the paper.
const PAGE: usize = 25;
const KEYS: [usize; 6] = [2, 10, PAGE, 100, 300, 1000];
/// Requests of a page a second, for figure 8.
const RATES: [f64; 5] = [100.0, 200.0, 400.0, 600.0, 800.0];
/// Requests of 100 keys a second, for figure 9c, and the requests to nodes that the controller is to make of them.
const QUERY_RATES: [f64; 5] = [50.0, 100.0, 150.0, 200.0, 300.0];
const REQUESTS_PER_SECOND: f64 = 600.0;
const ROUNDS_MAX: u64 = 2;

/// How nodes are chosen: the name, the strategy, and the number of groups.
type Contender = (&'static str, StrategyName, FanOut);

const CONTENDERS: [Contender; 6] = [
    ("sticky", StrategyName::Sticky, FanOut::All),
    ("round-robin", StrategyName::RoundRobin, FanOut::All),
    ("set cover", StrategyName::SetCover, FanOut::All),
    (OURS, StrategyName::Cluster, FanOut::Groups(1)),
    ("cluster-aware, 2 groups", StrategyName::Cluster, FanOut::Groups(2)),
    ("cluster-aware, 4 groups", StrategyName::Cluster, FanOut::Groups(4)),
];
/// The contender that the others are the peers of.
const OURS: &str = "cluster-aware, 1 group";

/// What a load was answered with.
struct Outcome {
    report: GroupReport,
    counts: ReadCounts,
}

/// A cluster that serves the dataset, and for how long it is asked.
struct Measuring<'a> {
    cluster: &'a Cluster,
    records: u64,
    span: Span<'a>,
}

pub(in crate::rows) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let shape = Shape {
        replicas: GROUPS as u32,
        nodes: GROUPS * NODES,
        groups: Some(GROUPS),
        ..Shape::default()
    };
    let mut cluster = Cluster::start_shaped(bench, "fan-out", shape)?;
    cluster.serve(&version, dataset)?;
    let rounds = bench.rounds().min(ROUNDS_MAX);
    let measuring = Measuring {
        cluster: &cluster,
        records: dataset.records,
        span: Span::of(bench.round_time()),
    };
    let mut lines = Vec::new();
    for keys in [PAGE, 100, 1000] {
        lines.extend(measuring.lines(keys, rounds)?);
    }
    for (keys, rate) in PAUSED {
        lines.extend(measuring.paused_lines(keys, rate, rounds)?);
    }
    let charts = measuring.charts()?;
    cluster.end()?;
    Ok(Measured {
        lines,
        notes: vec![
            format!(
                "{} nodes in {} groups, each a process with one event loop, and the client share two cores: a request to a node costs CPU time of the same machine, so that fewer requests count for more than on a machine for each. A million records of 100 B, 256 partitions; uniform keys, one request at a time, no hedging unless a replica pauses.",
                GROUPS * NODES,
                GROUPS
            ),
            format!(
                "Pauses are SIGSTOP of one node for {PAUSE:?} every {PERIOD:?}; hedging is on, as it is by default. Latency counts from the due time of a request."
            ),
        ],
        charts,
    })
}

impl Measuring<'_> {
    /// A load through a client of its own.
    fn run(&self, contender: &Contender, keys: usize, pace: Pace, hedge: bool, seed: u64) -> Result<Outcome> {
        let (_, strategy, fan_out) = contender;
        let options = ReadOptions {
            strategy: Some(named(*strategy)),
            fan_out: fan_out.clone(),
            hedge,
            ..ReadOptions::default()
        };
        let library = Library::connect(self.cluster.router().resp(), options)?;
        let load = LibraryLoad {
            store: STORE.parse()?,
            keys: KeyChoice::Uniform { records: self.records },
            keys_per_request: keys,
            pace,
        };
        let report = library.run(&load, self.span, seed)?;
        Ok(Outcome {
            report,
            counts: library.stats().reads,
        })
    }

    /// Requests, shares and latencies of requests of so many keys, one at a time.
    fn lines(&self, keys: usize, rounds: u64) -> Result<Vec<Line>> {
        let names = ["requests to nodes", "largest share of keys on a node", "median", "p99"];
        let mut all = names.map(|_| Rounds::default());
        for contender in &CONTENDERS {
            for round in 0..rounds {
                let Outcome { report, counts } = self.run(contender, keys, Pace::AtATime(1), false, round)?;
                let requests = counts.requests as f64;
                let [asked, share, median, p99] = &mut all;
                asked.add(contender.0, "", counts.sub_requests as f64 / requests);
                let largest = counts.largest_shares as f64 / requests / keys as f64;
                share.add(contender.0, "%", largest * 100.0);
                median.add(contender.0, "ms", report.latency_us(0.5) / 1e3);
                p99.add(contender.0, "ms", report.latency_us(0.99) / 1e3);
            }
        }
        let lines = names.iter().zip(&all);
        Ok(lines
            .map(|(name, rounds)| line(format!("{keys} keys: {name}"), rounds, &CONTENDERS))
            .collect())
    }

    /// Latencies of requests of so many keys while a replica pauses, and while none does.
    fn paused_lines(&self, keys: usize, rate: f64, rounds: u64) -> Result<[Line; 3]> {
        // Without the first, which does not choose for whole requests, and the last, which is round-robin for so many keys.
        let contenders = &CONTENDERS[1..5];
        let longer = Measuring {
            span: Span::of(self.span.measured.max(PERIOD) * 2),
            ..*self
        };
        let [mut calm, mut medians, mut tails] = [(); 3].map(|()| Rounds::default());
        for contender in contenders {
            for round in 0..rounds {
                let run = || longer.run(contender, keys, Pace::Rate(rate), true, round);
                calm.add(contender.0, "ms", run()?.report.latency_us(0.99) / 1e3);
                let paused = with_pauses(self.cluster.nodes()[0].process(), PAUSE, PERIOD, run)?;
                medians.add(contender.0, "ms", paused.report.latency_us(0.5) / 1e3);
                tails.add(contender.0, "ms", paused.report.latency_us(0.99) / 1e3);
            }
        }
        let of = |what: &str, rounds: &Rounds| line(format!("{keys} keys at {rate}/s: {what}"), rounds, contenders);
        Ok([
            of("p99 without pauses", &calm),
            of("median with a replica pausing", &medians),
            of("p99 with a replica pausing", &tails),
        ])
    }

    fn charts(&self) -> Result<Vec<Chart>> {
        let one = self.run(&CONTENDERS[0], 1, Pace::AtATime(1), false, 1)?;
        let mut charts = vec![Chart::Latencies {
            file: "fan-out-cluster-5".into(),
            title: "figure 5: latency of a request for one key, eight processes".into(),
            series: vec![("requests".into(), one.report.distribution())],
        }];
        charts.push(self.groups_chart()?);
        charts.push(self.keys_chart()?);
        charts.extend(self.traffic_charts()?);
        charts.push(self.rate_chart()?);
        Ok(charts)
    }

    /// Figure 6: the two parts of equation 4.
    fn groups_chart(&self) -> Result<Chart> {
        let mut series = ["whole", "slowest node", "client"].map(|part| (part.to_owned(), Points::new()));
        for groups in 1..=GROUPS {
            let contender = ("", StrategyName::Cluster, FanOut::Groups(groups));
            let counts = self.run(&contender, PAGE, Pace::AtATime(1), false, 1)?.counts;
            let mean = |sum: u64| sum as f64 / counts.requests as f64 / 1e3;
            let (server, client) = (mean(counts.server_us), mean(counts.client_us));
            for ((_, points), ms) in series.iter_mut().zip([server + client, server, client]) {
                points.push((groups as f64, ms));
            }
        }
        let title = format!("figure 6: mean latency of look-ups of {PAGE} keys, eight processes");
        Ok(lines_chart("cluster-6", title, ["groups asked", "ms"], series.to_vec()))
    }

    /// Figure 7a.
    fn keys_chart(&self) -> Result<Chart> {
        let mut series = Vec::new();
        for contender in &CONTENDERS[1..] {
            let mut points = Points::new();
            for keys in KEYS {
                let counts = self.run(contender, keys, Pace::AtATime(1), false, 1)?.counts;
                points.push((keys as f64, counts.sub_requests as f64 / counts.requests as f64));
            }
            series.push((contender.0.to_owned(), points));
        }
        let title = format!("figure 7a: requests for a query, {} groups of {} nodes", GROUPS, NODES);
        Ok(lines_chart(
            "cluster-7a",
            title,
            ["keys of the query", "requests"],
            series,
        ))
    }

    /// Figure 8.
    fn traffic_charts(&self) -> Result<[Chart; 2]> {
        let mut both = [Vec::new(), Vec::new()];
        for contender in &CONTENDERS[1..] {
            let mut points = [Points::new(), Points::new()];
            for rate in RATES {
                let report = self.run(contender, PAGE, Pace::Rate(rate), false, 1)?.report;
                for (points, share) in points.iter_mut().zip([0.5, 0.99]) {
                    points.push((rate, report.latency_us(share) / 1e3));
                }
            }
            for (series, points) in both.iter_mut().zip(points) {
                series.push((contender.0.to_owned(), points));
            }
        }
        let [medians, tails] = both;
        let chart = |file: &str, name: &str, series| {
            let title = format!("figure {file}: {name} of look-ups of {PAGE} keys, eight processes");
            lines_chart(&format!("cluster-{file}"), title, ["queries a second", "ms"], series)
        };
        Ok([
            chart("8a", "median latency", medians),
            chart("8b", "99th percentile", tails),
        ])
    }

    /// Figure 9c: the rate of requests that a controller makes of a rate of queries.
    fn rate_chart(&self) -> Result<Chart> {
        let controlled = || {
            let controller = Pd::around(Arc::new(ClientRate::new(REQUESTS_PER_SECOND)));
            FanOut::Controlled(Arc::new(controller) as Arc<dyn FanOutController>)
        };
        let mut series = Vec::new();
        for (name, strategy, is_controlled) in [
            ("round-robin", StrategyName::RoundRobin, false),
            ("set cover", StrategyName::SetCover, false),
            ("cluster-aware, controlled", StrategyName::Cluster, true),
        ] {
            let mut points = Points::new();
            for rate in QUERY_RATES {
                let fan_out = if is_controlled { controlled() } else { FanOut::All };
                let contender = (name, strategy, fan_out);
                let outcome = self.run(&contender, 100, Pace::Rate(rate), false, 1)?;
                let each = outcome.counts.sub_requests as f64 / outcome.counts.requests as f64;
                points.push((rate, outcome.report.requests_per_second() * each));
            }
            series.push((name.to_owned(), points));
        }
        let wanted = QUERY_RATES.iter().map(|&rate| (rate, REQUESTS_PER_SECOND)).collect();
        series.push(("wanted".into(), wanted));
        let title = "figure 9c: requests a second of queries of 100 keys, eight processes".into();
        Ok(lines_chart(
            "cluster-9c",
            title,
            ["queries a second", "requests a second"],
            series,
        ))
    }
}

/// One quantity: ours is the cluster-aware strategy with one group, the others are its peers.
fn line(work: String, rounds: &Rounds, contenders: &[Contender]) -> Line {
    let names = contenders.iter().map(|(name, ..)| *name);
    let peers: Vec<&str> = names.filter(|name| *name != OURS).collect();
    let ratio = rounds.figure(OURS).over(&rounds.figure("round-robin"));
    rounds.beside(work, OURS, &peers).ratio(ratio, "round-robin")
}
