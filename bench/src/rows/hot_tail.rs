//! Whether cold reads delay hot ones: latencies of hot keys while the same number of requests, on other connections,
//! are hot, or cold.

use anyhow::Result;

use super::Measured;
use crate::bench::Bench;
use crate::load::{self, Group, KeyChoice, Span};
use crate::machine::disk;
use crate::machine::memory_group::MemoryGroup;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::Rounds;
use crate::servers::fondaco::{Fondaco, Settings};

const RATE: f64 = 8_000.0;
const CONNECTIONS: usize = 16;
const HOT_KEYS: u64 = 1000;
const RATIO_MAX: f64 = 2.0;
/// The names of the latencies in the chart.
const ALL_HOT: &str = "hot keys, all requests hot";
const HALF_COLD: &str = "hot keys, half of the requests cold";
const COLD: &str = "the cold ones";

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.large_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let memory = MemoryGroup::new("hot-tail", bench.memory_limit_bytes())?;
    let cpu = bench.server_cpu().to_string();
    let settings = Settings {
        group: Some(&memory),
        cpus: Some(&cpu),
        loops: 1,
    };
    let server = Fondaco::serving(bench, "hot-tail", settings, dataset)?;
    disk::forget(&version)?;

    let cold = Group {
        connections: CONNECTIONS,
        rate: Some(RATE),
        ..Group::uniform(server.resp(), STORE, dataset.records)
    };
    let keys = KeyChoice::Hot {
        records: dataset.records,
        count: HOT_KEYS,
    };
    let hot = Group { keys, ..cold.clone() };
    let run = |other: &Group, seed: u64| {
        let groups = [hot.clone(), other.clone()];
        load::run_on(Some(bench.client_cpu()), &groups, Span::of(bench.round_time()), seed)
    };
    let mut rounds = Rounds::default();
    for round in 0..=bench.rounds() {
        let quiet = run(&hot, round)?;
        let mixed = run(&cold, round)?;
        // The first round loads the hot keys into memory, and fills the rest of it.
        if round > 0 {
            rounds.add_latency(ALL_HOT, &quiet[0]);
            rounds.add_latency(HALF_COLD, &mixed[0]);
            rounds.add_latency(COLD, &mixed[1]);
        }
    }
    server.end()?;
    let median = |name: &str| rounds.shown(&format!("{name}, median"));
    let line = rounds.line("p99 of hot keys, half of the requests cold", HALF_COLD);
    Ok(Measured {
        lines: vec![
            line.peer("all hot", rounds.figure(ALL_HOT))
                .over_peer("itself, all hot")
                .at_most(RATIO_MAX)
                .memory(bench.memory_limit_text()),
        ],
        notes: vec![
            format!(
                "{RATE:.0} requests a second for {HOT_KEYS} hot keys are measured; on other connections the same number of requests are hot, or uniform over {dataset} records, under a memory limit of a tenth of the data. Server on one core, load generator on the other; latency counts from the due time of a request."
            ),
            format!(
                "Medians: hot keys {} µs all hot, {} µs with cold company; the cold requests {} µs.",
                median(ALL_HOT),
                median(HALF_COLD),
                median(COLD)
            ),
        ],
        charts: vec![rounds.latencies(
            "hot-tail",
            "latency of hot keys, with and without cold company",
            &[ALL_HOT, HALF_COLD, COLD],
        )],
    })
}
