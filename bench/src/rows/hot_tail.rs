//! Whether cold reads delay hot ones: latencies of hot keys while the same number of requests, on other connections,
//! are hot, or cold.

use std::thread;

use anyhow::{Result, anyhow};

use super::Measured;
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::load::{self, Group, GroupReport, KeyChoice, Span, Writes};
use crate::machine::memory_group::MemoryGroup;
use crate::machine::{disk, pin_thread, prefer_thread};
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::servers::fondaco::{Fondaco, Settings};

const RATE: f64 = 8_000.0;
const CONNECTIONS: usize = 16;
const PIPELINE_MAX: usize = 16;
const HOT_KEYS: u64 = 1000;
const RATIO_MAX: f64 = 2.0;

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.large_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let group = MemoryGroup::new("hot-tail", bench.memory_limit_bytes())?;
    let server_cpu = bench.server_cpu().to_string();
    let settings = Settings {
        group: Some(&group),
        cpus: Some(&server_cpu),
        loops: 1,
    };
    let server = Fondaco::start(bench, "hot-tail", settings)?;
    server.control().create(STORE)?;
    server.control().deploy(STORE, &version)?;
    disk::forget(&version)?;

    let hot = KeyChoice::Hot {
        records: dataset.records,
        count: HOT_KEYS,
    };
    let cold = KeyChoice::Uniform {
        records: dataset.records,
    };
    let run = |background: &KeyChoice, seed: u64| on_client_core(bench, &server, background, &hot, seed);
    let mut all_hot = Figure::new("µs", Vec::new());
    let mut half_cold = Figure::new("µs", Vec::new());
    let (mut median_hot, mut median_half) = (all_hot.clone(), all_hot.clone());
    let mut cold_median = all_hot.clone();
    let mut distributions = None;
    for round in 0..=bench.rounds() {
        let quiet = run(&hot, round)?;
        let mixed = run(&cold, round)?;
        // The first round loads the hot keys into memory, and fills the rest of it.
        if round > 0 {
            all_hot.rounds.push(quiet[0].latency_us(0.99));
            median_hot.rounds.push(quiet[0].latency_us(0.5));
            half_cold.rounds.push(mixed[0].latency_us(0.99));
            median_half.rounds.push(mixed[0].latency_us(0.5));
            cold_median.rounds.push(mixed[1].latency_us(0.5));
            distributions = Some((
                quiet[0].distribution(),
                mixed[0].distribution(),
                mixed[1].distribution(),
            ));
        }
    }
    server.end()?;
    let ratio = half_cold.over(&all_hot);
    let charts = distributions.map(|(quiet, mixed, cold)| Chart::Latencies {
        file: "hot-tail".into(),
        title: "latency of hot keys, with and without cold company (last round)".into(),
        series: vec![
            ("hot keys, all requests hot".into(), quiet),
            ("hot keys, half of the requests cold".into(), mixed),
            ("the cold ones".into(), cold),
        ],
    });
    Ok(Measured {
        lines: vec![Line {
            work: "p99 of hot keys, half of the requests cold".into(),
            ours: half_cold,
            peers: vec![("all hot".into(), all_hot)],
            ratio: Some((ratio, "itself, all hot".into())),
            targets: vec![Target::at_most(ratio, RATIO_MAX)],
            memory: format!(
                "limit {} MiB",
                number(bench.memory_limit_bytes() as f64 / f64::from(1 << 20))
            ),
        }],
        notes: vec![
            format!(
                "{RATE:.0} requests a second for {HOT_KEYS} hot keys are measured; on other connections the same number of requests are hot, or uniform over {dataset} records, under a memory limit of a tenth of the data. Server on one core, load generator on the other; latency counts from the due time of a request.",
                dataset = Dataset::to_string(&dataset)
            ),
            format!(
                "Medians: hot keys {} µs all hot, {} µs with cold company; the cold requests {} µs.",
                number(median_hot.median()),
                number(median_half.median()),
                number(cold_median.median())
            ),
        ],
        charts: charts.into_iter().collect(),
    })
}

/// Measured hot keys and the other requests, from a thread on the clients' core.
fn on_client_core(
    bench: &Bench,
    server: &Fondaco,
    background: &KeyChoice,
    hot: &KeyChoice,
    seed: u64,
) -> Result<Vec<GroupReport>> {
    let group = |keys: &KeyChoice| Group {
        address: server.resp(),
        connections: CONNECTIONS,
        pipeline: PIPELINE_MAX,
        rate: Some(RATE),
        prefix: format!("{STORE}:"),
        keys: keys.clone(),
        keys_per_request: 1,
        writes: Writes::default(),
        keep_each: false,
    };
    let groups = [group(hot), group(background)];
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            pin_thread(bench.client_cpu())?;
            prefer_thread();
            load::run(&groups, Span::of(bench.round_time()), seed)
        });
        client.join().map_err(|_| anyhow!("the load generator panicked"))?
    })
}
