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
use crate::peers::fondaco::STORE;
use crate::report::Rounds;
use crate::servers::cluster::Cluster;

const REPLICAS: u32 = 3;
const RATE: f64 = 2_000.0;
const PAUSE: Duration = Duration::from_millis(100);
/// The time from one pause to the next. A third of the requests go to the pausing node: with a pause every half second,
/// they would exceed the twentieth of requests that may be hedged.
const PERIOD: Duration = Duration::from_secs(1);
const RATIO_MAX: f64 = 2.0;
const EXTRA_MAX: f64 = 5.0;
/// The names of the latencies.
const CALM: &str = "no pauses";
const PLAIN: &str = "pauses, no hedging";
const HEDGED: &str = "pauses, hedging";

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let cluster = Cluster::serving(bench, "hedging", REPLICAS, dataset)?;
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
    let stopped = cluster.nodes()[0].process();
    let [mut latencies, mut extra] = [Rounds::default(), Rounds::default()];
    for round in 0..bench.rounds() {
        for (name, hedge, pauses) in [(CALM, true, false), (PLAIN, false, true), (HEDGED, true, true)] {
            let run = || outcome(&cluster, &load, hedge, span, round);
            let (report, more) = match pauses {
                true => with_pauses(stopped, PAUSE, PERIOD, run)?,
                false => run()?,
            };
            latencies.add_latency(name, &report);
            extra.add(name, "%", more);
        }
    }
    cluster.end()?;

    let work = format!("p99 with a replica stopped for {PAUSE:?} every {PERIOD:?}, hedging");
    let p99 = latencies.beside(work, HEDGED, &[CALM, PLAIN]);
    let median = |name: &str| latencies.shown(&format!("{name}, median"));
    Ok(Measured {
        lines: vec![
            p99.over_peer("itself without pauses").at_most(RATIO_MAX),
            extra
                .beside("extra requests", HEDGED, &[CALM])
                .figure_at_most(EXTRA_MAX),
        ],
        notes: vec![
            format!(
                "GETs of 100 B, uniform, at {RATE:.0}/s, through the client library with default settings: each key has its own replica, a second one is asked when the first takes longer than 1.5 times the 95th percentile, and at least 100 µs, within a budget of a twentieth. A replica that owes an answer for that long and sends nothing gets no requests until it does."
            ),
            format!(
                "Pauses are SIGSTOP and SIGCONT: a thirtieth of all requests meet one. Latency counts from the due time of a request. Medians: {} µs without pauses, {} µs with pauses and no hedging, {} µs with both. Extra requests are all beyond one for each GET. Three nodes and the client share two cores.",
                median(CALM),
                median(PLAIN),
                median(HEDGED)
            ),
        ],
        charts: vec![latencies.latencies(
            "hedging",
            "latency of the client library, one of three replicas pausing",
            &[PLAIN, HEDGED, CALM],
        )],
    })
}

/// Latencies, and the extra requests in percent, of a load on its own client, which has to learn the usual latency by itself.
fn outcome(
    cluster: &Cluster,
    load: &LibraryLoad,
    hedge: bool,
    span: Span<'_>,
    seed: u64,
) -> Result<(GroupReport, f64)> {
    let options = ReadOptions {
        hedge,
        ..ReadOptions::default()
    };
    let library = Library::connect(cluster.router().resp(), options)?;
    let report = library.run(load, span, seed)?;
    let counts = library.stats().reads;
    let extra = (counts.sub_requests as f64 / counts.requests as f64 - 1.0) * 100.0;
    Ok((report, extra))
}
