//! What it costs that a node reports its load and decides about it, and that its requests are traced.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use fondaco_testing::serve_http;

use super::Measured;
use crate::bench::Bench;
use crate::load::{self, Group, KeyChoice, Span};
use crate::machine::prefer_thread;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::{Figure, Line, Target};
use crate::servers::fondaco::{Fondaco, Settings};

/// The least part of the throughput that is to be left.
const KEPT_MIN: f64 = 0.98;
/// A window of load, in milliseconds: a report is made in each tenth of it, and a decision in three fifths. The usual one is five
/// times as long.
const WINDOW_MS: &str = "10000";
/// So long that nothing is reported.
const QUIET_MS: &str = "3600000";

/// A state of the server: its name, and its settings.
struct State {
    name: &'static str,
    window_ms: &'static str,
    share: Option<&'static str>,
}

const STATES: [State; 5] = [
    State {
        name: "without reports",
        window_ms: QUIET_MS,
        share: None,
    },
    State {
        name: "with reports and decisions",
        window_ms: WINDOW_MS,
        share: None,
    },
    State {
        name: "traced, share 0",
        window_ms: WINDOW_MS,
        share: Some("0"),
    },
    State {
        name: "traced, share 0.001",
        window_ms: WINDOW_MS,
        share: Some("0.001"),
    },
    State {
        name: "traced, share 1",
        window_ms: WINDOW_MS,
        share: Some("1"),
    },
];

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let settings = Settings {
        loops: 1,
        ..Settings::default()
    };
    let server = Fondaco::start(bench, "watched", settings)?;
    server.control().create(STORE)?;
    server.control().deploy(STORE, &version)?;
    // It takes all spans, and forgets them.
    let collector = format!("http://{}", serve_http(|_, _| Some(("200 OK", b"{}".to_vec())))?);
    let mut figures =
        [1, 16].map(|_| [(); STATES.len()].map(|()| Figure::new("requests/s of processor time", Vec::new())));
    // Each round tells the loops how many requests to look at, before a long silence.
    for round in 0..bench.rounds() {
        for (at, state) in STATES.iter().enumerate() {
            let control = server.control();
            control.set_text("traces-endpoint", state.share.map_or("", |_| &collector))?;
            if let Some(share) = state.share {
                control.set_text("traces-sample", share)?;
            }
            if state.window_ms == QUIET_MS {
                control.set_text("balance-window-ms", WINDOW_MS)?;
                load(bench, &server, dataset.records, 16, round)?;
            }
            control.set_text("balance-window-ms", state.window_ms)?;
            for (figures, pipeline) in figures.iter_mut().zip([1, 16]) {
                figures[at]
                    .rounds
                    .push(load(bench, &server, dataset.records, pipeline, round)?);
            }
        }
    }
    server.end()?;
    let mut lines = Vec::new();
    for (figures, pipeline) in figures.into_iter().zip([1, 16]) {
        let before = figures[0].clone();
        for (state, figure) in STATES.iter().zip(figures).skip(1) {
            let kept = figure.over(&before);
            lines.push(Line {
                work: format!("GETs of 100 B, pipeline {pipeline}, {}", state.name),
                ours: figure,
                peers: vec![(STATES[0].name.to_owned(), before.clone())],
                ratio: Some((kept, STATES[0].name.to_owned())),
                targets: match state.share {
                    Some("1") => Vec::new(),
                    _ => vec![Target::at_least(kept, KEPT_MIN)],
                },
                memory: String::new(),
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
        charts: Vec::new(),
    })
}

fn load(bench: &Bench, server: &Fondaco, records: u64, pipeline: usize, round: u64) -> Result<f64> {
    let group = Group {
        connections: 16,
        pipeline,
        ..Group::gets(server.resp(), STORE, KeyChoice::Uniform { records })
    };
    let span = Span {
        warm_up: Duration::ZERO,
        measured: bench.round_time(),
        stop: None,
    };
    let before = server.process().cpu_time()?;
    let reports = thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            load::run(std::slice::from_ref(&group), span, round)
        });
        client.join().map_err(|_| anyhow!("the load generator panicked"))?
    })?;
    let used = server.process().cpu_time()? - before;
    Ok(reports[0].requests as f64 / used.as_secs_f64().max(0.01))
}
