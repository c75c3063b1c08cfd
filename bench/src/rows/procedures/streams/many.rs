//! The cost of reading the streams of many stores on one node.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::{Writer, events_read};
use crate::bench::Bench;
use crate::dataset::{Dataset, Random};
use crate::machine::settled;
use crate::rows::runner::Running;
use crate::rows::spec::Step;
use crate::servers::control::ControlPort;
use crate::servers::wait_until;

/// Events of all stores together a second.
const RATE: u64 = 10_000;
const TICK: Duration = Duration::from_millis(1);
/// So many stores are deployed at a time.
const DEPLOYING: usize = 6;

/// The stores that are missing until there are as many as the argument says; in a quick run, as the second one.
pub(in crate::rows) fn missing_stores(running: &Running<'_>, step: &Step) -> Result<Vec<String>> {
    let count = step
        .arguments
        .get(usize::from(running.bench.quick))
        .context("no number of stores")?;
    let names = (running.kept.stores.len()..count.parse()?).map(|number| format!("store-{number}"));
    Ok(names.collect())
}

/// Adds hybrid stores, each with a topic of its own, until there are as many as the argument says.
pub fn add_stores(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let began = Instant::now();
    let new = missing_stores(running, step)?;
    let (kafka, control) = (running.kafka()?, running.control()?);
    for store in &new {
        drop(kafka.make_topic(store, 1));
        let source = format!("kafka://{}/{store}", kafka.address());
        let options = ["--stream", &source, "--rewind", "1h", "--engine", "log"];
        control.create("hybrid", store, &options)?;
    }
    let sized: Vec<(String, Dataset)> = new.iter().map(|store| (store.clone(), running.dataset)).collect();
    deploy_all(running.bench, control, &sized)?;
    let count = running.kept.stores.len() + new.len();
    eprintln!("  {count} stores after {:.0} s", began.elapsed().as_secs_f64());
    let process = running.fondaco()?.front().process();
    settled(|| process.cpu_time())?;
    running.figures.set(&step.name, count.to_string());
    running.kept.stores.extend(new);
    Ok(())
}

/// Deploys a version with its records to each of these stores, several at a time.
pub(in crate::rows) fn deploy_all(bench: &Bench, control: &ControlPort, stores: &[(String, Dataset)]) -> Result<()> {
    for (_, dataset) in stores {
        bench.parquet(*dataset)?;
    }
    thread::scope(|scope| {
        let parts = stores.chunks(stores.len().div_ceil(DEPLOYING).max(1));
        let deploying = parts.map(|part| {
            scope.spawn(move || -> Result<()> {
                for (store, dataset) in part {
                    control.deploy(store, &bench.version_for(store, *dataset)?, &[])?;
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

/// The cost of the stores while events arrive.
pub fn measure(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let (bench, stores) = (running.bench, std::mem::take(&mut running.kept.stores));
    let front = running.fondaco()?.front();
    let (process, mut writer) = (front.process(), Writer::new(running.kafka()?)?);
    let read = || {
        stores
            .iter()
            .map(|store| events_read(front.control(), store))
            .sum::<Result<u64>>()
    };
    let before = read()?;
    let (cpu, (_, switches), started) = (process.cpu_time()?, process.threads()?, Instant::now());
    let (mut random, mut sent) = (Random::new(running.round), 0);
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
    writer.flush()?;
    wait_until("all events are read", || Ok(read()? >= before + sent))?;
    let switched = switches_after.saturating_sub(switches) as f64;
    let values = [
        ("threads", "threads", threads as f64),
        ("context switches", "switches/s", switched / seconds),
        ("processor time", "ms/s", used.as_secs_f64() * 1e3 / seconds),
        ("resident memory", "MiB", resident as f64 / f64::from(1 << 20)),
    ];
    running.record(&step.name, values);
    running.kept.stores = stores;
    Ok(())
}
