//! The benefit of hedging: latencies of the client library while one of three replicas pauses repeatedly, like one with
//! a garbage collector.

use std::time::Duration;

use anyhow::Result;
use fondaco_client::ReadOptions;

use super::Measured;
use crate::bench::Bench;
use crate::load::library::{Library, LibraryLoad, Pace};
use crate::load::{GroupReport, KeyChoice, Span};
use crate::machine::process::with_pauses;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target, median};
use crate::servers::cluster::Cluster;

const REPLICAS: u32 = 3;
const RATE: f64 = 2_000.0;
const PAUSE: Duration = Duration::from_millis(100);
/// The time from one pause to the next. A third of the requests go to the pausing node: with a pause every half second,
/// they would exceed the twentieth of requests that may be hedged.
const PERIOD: Duration = Duration::from_secs(1);
const RATIO_MAX: f64 = 2.0;
const EXTRA_MAX: f64 = 5.0;

/// The results of a load: latencies, and the extra requests in percent.
struct Outcome {
    report: GroupReport,
    extra: f64,
}

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let mut cluster = Cluster::start(bench, "hedging", REPLICAS)?;
    cluster.serve(&version, dataset)?;
    let load = LibraryLoad {
        store: STORE.parse()?,
        keys: KeyChoice::Uniform {
            records: dataset.records,
        },
        keys_per_request: 1,
        pace: Pace::Rate(RATE),
    };
    // Several pauses, whatever the length of a round.
    let span = Span::of(bench.round_time().max(PERIOD) * 2);
    let run = |hedge: bool, seed: u64| outcome(&cluster, &load, hedge, span, seed);
    let stopped = &cluster.nodes()[0];
    let microseconds = || Figure::new("µs", Vec::new());
    let (mut healthy, mut off, mut on) = (microseconds(), microseconds(), microseconds());
    let (mut extra, mut extra_healthy) = (Figure::new("%", Vec::new()), Vec::new());
    let mut medians = [const { Vec::new() }; 3];
    let mut distributions = None;
    for round in 0..bench.rounds() {
        let calm = run(true, round)?;
        let plain = with_pauses(stopped.process(), PAUSE, PERIOD, || run(false, round))?;
        let hedged = with_pauses(stopped.process(), PAUSE, PERIOD, || run(true, round))?;
        extra.rounds.push(hedged.extra);
        extra_healthy.push(calm.extra);
        let reports = [calm.report, plain.report, hedged.report];
        for (at, figure) in [&mut healthy, &mut off, &mut on].into_iter().enumerate() {
            figure.rounds.push(reports[at].latency_us(0.99));
            medians[at].push(reports[at].latency_us(0.5));
        }
        distributions = Some(reports.map(|report| report.distribution()));
    }
    cluster.end()?;

    let ratio = on.over(&healthy);
    let medians = medians.map(|rounds| number(median(&rounds)));
    let charts = distributions.map(|[calm, plain, hedged]| Chart::Latencies {
        file: "hedging".into(),
        title: "latency of the client library, one of three replicas pausing (last round)".into(),
        series: vec![
            ("pauses, no hedging".into(), plain),
            ("pauses, hedging".into(), hedged),
            ("no pauses".into(), calm),
        ],
    });
    Ok(Measured {
        lines: vec![
            Line {
                work: format!("p99 with a replica stopped for {PAUSE:?} every {PERIOD:?}, hedging"),
                ours: on,
                peers: vec![("no pauses".into(), healthy), ("pauses, no hedging".into(), off)],
                ratio: Some((ratio, "itself without pauses".into())),
                targets: vec![Target::at_most(ratio, RATIO_MAX)],
                memory: String::new(),
            },
            Line {
                work: "extra requests".into(),
                targets: vec![Target::figure_at_most(&extra, EXTRA_MAX)],
                ours: extra,
                peers: vec![("no pauses".into(), Figure::new("%", extra_healthy))],
                ratio: None,
                memory: String::new(),
            },
        ],
        notes: vec![
            format!(
                "GETs of 100 B, uniform, at {RATE:.0}/s, through the client library with default settings: each key has its own replica, a second one is asked when the first takes longer than 1.5 times the 95th percentile, and at least 100 µs, within a budget of a twentieth. A replica that owes an answer for that long and sends nothing gets no requests until it does."
            ),
            format!(
                "Pauses are SIGSTOP and SIGCONT: a thirtieth of all requests meet one. Latency counts from the due time of a request. Medians: {} µs without pauses, {} µs with pauses and no hedging, {} µs with both. Extra requests are all beyond one for each GET. Three nodes and the client share two cores.",
                medians[0], medians[1], medians[2]
            ),
        ],
        charts: charts.into_iter().collect(),
    })
}

/// Runs a load on its own client, which has to learn the usual latency by itself.
fn outcome(cluster: &Cluster, load: &LibraryLoad, hedge: bool, span: Span<'_>, seed: u64) -> Result<Outcome> {
    let options = ReadOptions {
        hedge,
        ..ReadOptions::default()
    };
    let library = Library::connect(cluster.router().resp(), options)?;
    let report = library.run(load, span, seed)?;
    let counts = library.stats().reads;
    Ok(Outcome {
        report,
        extra: (counts.sub_requests as f64 / counts.requests as f64 - 1.0) * 100.0,
    })
}
