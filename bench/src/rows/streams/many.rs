//! What it costs that one node reads the streams of many stores.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use fondaco_testing::Kafka;

use super::{Writer, create, events_read};
use crate::bench::Bench;
use crate::dataset::{Dataset, Random};
use crate::machine::settled;
use crate::report::Rounds;
use crate::report::markdown::number;
use crate::rows::Measured;
use crate::servers::cluster::wait_until;
use crate::servers::fondaco::{Fondaco, Settings};

/// Events of all stores together a second.
const RATE: u64 = 10_000;
const TICK: Duration = Duration::from_millis(1);
const ROUNDS: u64 = 3;
/// The names of the figures.
const COSTS: [&str; 4] = ["threads", "context switches", "processor time", "resident memory"];
/// So many stores are deployed at a time.
const DEPLOYING: usize = 6;

pub(in crate::rows) fn measure(bench: &Bench) -> Result<Measured> {
    let steps: [usize; 3] = if bench.quick { [1, 5, 10] } else { [1, 100, 500] };
    let dataset = Dataset {
        records: 1000,
        value_bytes: 100,
    };
    let kafka = Kafka::start();
    let server = Fondaco::start(bench, "many-streams", Settings::default())?;
    let mut writer = Writer::new(&kafka)?;
    let mut costs: Vec<(usize, Rounds)> = Vec::new();
    let mut stores = Vec::new();
    for step in steps {
        let began = Instant::now();
        let new: Vec<String> = (stores.len()..step).map(|number| format!("store-{number}")).collect();
        for store in &new {
            drop(kafka.make_topic(store, 1));
            create(server.control(), store, &kafka, store)?;
        }
        deploy_all(bench, &server, &new, dataset)?;
        stores.extend(new);
        eprintln!("  {step} stores after {:.0} s", began.elapsed().as_secs_f64());
        settled(|| server.process().cpu_time())?;
        let mut cost = Rounds::default();
        for round in 0..bench.rounds().min(ROUNDS) {
            add_cost(&mut cost, bench, &server, &mut writer, &stores, round)?;
        }
        costs.push((step, cost));
    }
    server.end()?;
    let (_, one) = costs.remove(0);
    let mut lines = Vec::new();
    for (count, many) in costs {
        for name in COSTS {
            let line = many.line(format!("{count} stores: {name}"), name);
            lines.push(line.peer("one store", one.figure(name)).over_peer("one store"));
        }
    }
    Ok(Measured {
        lines,
        notes: vec![format!(
            "One node with hybrid stores of {} records of 100 B, each with a topic of one partition of the same Kafka; {} events of 100 B a second for all stores together, in turn. Stores are added while the node runs, so the memory of one store is measured first. Threads and switches from one context to another, voluntary or not, are those of the whole process.",
            number(dataset.records as f64),
            number(RATE as f64),
        )],
        ..Measured::default()
    })
}

/// Deploys a version to each of these stores, several at a time.
fn deploy_all(bench: &Bench, server: &Fondaco, stores: &[String], dataset: Dataset) -> Result<()> {
    bench.parquet(dataset)?;
    thread::scope(|scope| {
        let parts = stores.chunks(stores.len().div_ceil(DEPLOYING).max(1));
        let deploying = parts.map(|part| {
            scope.spawn(move || -> Result<()> {
                for store in part {
                    server.control().deploy(store, &bench.version_for(store, dataset)?)?;
                }
                Ok(())
            })
        });
        for thread in deploying.collect::<Vec<_>>() {
            thread.join().map_err(|_| anyhow!("a thread that deploys panicked"))??;
        }
        Ok(())
    })
}

/// Measures what a number of stores costs while events come.
fn add_cost(
    cost: &mut Rounds,
    bench: &Bench,
    server: &Fondaco,
    writer: &mut Writer,
    stores: &[String],
    seed: u64,
) -> Result<()> {
    let process = server.process();
    let read = |store: &String| events_read(server.control(), store);
    let before = stores.iter().map(read).sum::<Result<u64>>()?;
    let (cpu, (_, switches), started) = (process.cpu_time()?, process.threads()?, Instant::now());
    let (mut random, mut sent) = (Random::new(seed), 0);
    while started.elapsed() < bench.round_time() {
        let due = (started.elapsed().as_secs_f64() * RATE as f64) as u64;
        while sent < due {
            let store = &stores[sent as usize % stores.len()];
            writer.send_record(store, 0, random.below(1000), 100)?;
            sent += 1;
        }
        thread::sleep(TICK);
    }
    let seconds = started.elapsed().as_secs_f64();
    let (threads, switches_after) = process.threads()?;
    let used = process.cpu_time()? - cpu;
    let resident = process.status_bytes("VmRSS")?;
    let [threads_name, switches_name, time_name, memory_name] = COSTS;
    cost.add(threads_name, "threads", threads as f64);
    let switched = switches_after.saturating_sub(switches) as f64;
    cost.add(switches_name, "switches/s", switched / seconds);
    cost.add(time_name, "ms/s", used.as_secs_f64() * 1e3 / seconds);
    cost.add(memory_name, "MiB", resident as f64 / f64::from(1 << 20));
    writer.flush()?;
    wait_until("all events are read", || {
        Ok(stores.iter().map(read).sum::<Result<u64>>()? >= before + sent)
    })
}
