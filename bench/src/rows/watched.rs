//! What it costs that a node reports its load and decides about it, and that its requests are traced.

use anyhow::Result;
use fondaco_testing::serve_http;

use super::Measured;
use crate::bench::Bench;
use crate::load::{Costed, Group, Span};
use crate::peers::fondaco::STORE;
use crate::report::Rounds;
use crate::servers::fondaco::{Fondaco, Settings};

/// The least part of the throughput that is to be left.
const KEPT_MIN: f64 = 0.98;
/// A window of load, in milliseconds: a report is made in each tenth of it, and a decision in three fifths. The usual one is five
/// times as long.
const WINDOW_MS: &str = "10000";
/// So long that nothing is reported.
const QUIET_MS: &str = "3600000";
const PIPELINES: [usize; 2] = [1, 16];

/// States of the server: the name, the window, and the share of requests that are traced.
const STATES: [(&str, &str, Option<&str>); 5] = [
    (QUIET, QUIET_MS, None),
    ("with reports and decisions", WINDOW_MS, None),
    ("traced, share 0", WINDOW_MS, Some("0")),
    ("traced, share 0.001", WINDOW_MS, Some("0.001")),
    ("traced, share 1", WINDOW_MS, Some("1")),
];
/// The state that the others are compared with.
const QUIET: &str = "without reports";

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let server = Fondaco::serving(bench, "watched", Settings::one_loop(), dataset)?;
    let load = |pipeline: usize, round: u64| -> Result<f64> {
        let group = Group {
            connections: 16,
            pipeline,
            ..Group::uniform(server.resp(), STORE, dataset.records)
        };
        let load = || group.run(Span::whole(bench.round_time()), round);
        Ok(Costed::measure(|| server.process().cpu_time(), load)?.per_cpu_second())
    };
    // It takes all spans, and forgets them.
    let collector = format!("http://{}", serve_http(|_, _| Some(("200 OK", b"{}".to_vec())))?);
    let mut by_pipeline = PIPELINES.map(|_| Rounds::default());
    // Each round tells the loops how many requests to look at, before a long silence.
    for round in 0..bench.rounds() {
        for (name, window_ms, share) in STATES {
            let control = server.control();
            control.set_text("traces-endpoint", share.map_or("", |_| &collector))?;
            if let Some(share) = share {
                control.set_text("traces-sample", share)?;
            }
            if window_ms == QUIET_MS {
                control.set_text("balance-window-ms", WINDOW_MS)?;
                load(16, round)?;
            }
            control.set_text("balance-window-ms", window_ms)?;
            for (rounds, pipeline) in by_pipeline.iter_mut().zip(PIPELINES) {
                rounds.add(name, "requests/s of processor time", load(pipeline, round)?);
            }
        }
    }
    server.end()?;
    let mut lines = Vec::new();
    for (rounds, pipeline) in by_pipeline.iter().zip(PIPELINES) {
        for (name, _, share) in &STATES[1..] {
            let work = format!("GETs of 100 B, pipeline {pipeline}, {name}");
            let line = rounds.compare(work, name, QUIET, QUIET);
            lines.push(match share {
                Some("1") => line,
                _ => line.at_least(KEPT_MIN),
            });
        }
    }
    Ok(Measured {
        lines,
        notes: vec![
            "One node with one event loop, 16 connections; requests for each second of processor time of the whole process, so reports, decisions and the \
             sending of spans count. Reports are made every second and decisions every six: five times as often as usual. Without \
             reports, requests are still sampled. Spans go to a collector in the process of the load generator, which answers at once."
                .to_owned(),
        ],
        ..Measured::default()
    })
}
