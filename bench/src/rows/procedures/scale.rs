//! More keys, and more stores, on one node.

use std::time::Instant;

use anyhow::{Context, Result};

use super::streams::many::{deploy_all, missing_stores};
use crate::dataset::Dataset;
use crate::machine::settled;
use crate::rows::runner::Running;
use crate::rows::spec::Step;

/// Builds a version of records, the argument, for a store of the same name, and deploys it. Records the time for each key,
/// and that of the deployment.
pub fn build_and_deploy(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let (bench, data) = (running.bench, step.arguments.first().context("no records")?);
    let dataset = bench.dataset(data)?;
    bench.parquet(dataset)?;
    let started = Instant::now();
    let version = bench.version_for(data, dataset)?;
    let built = started.elapsed();
    let control = running.control()?;
    control.create("batch", data, &[])?;
    let deployed = control.deploy(data, &version, &[])?;
    let built = built.as_secs_f64() * 1e9 / dataset.records as f64;
    let deployed = deployed.as_secs_f64() * 1e3;
    running.record(&step.name, [("built", "ns/key", built), ("deployed", "ms", deployed)]);
    Ok(())
}

/// Adds batch stores until there are as many as the argument says. Records the memory of the node, and the time for each added
/// store.
pub fn add_batch_stores(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let began = Instant::now();
    let new = missing_stores(running, step)?;
    let control = running.control()?;
    for store in &new {
        control.create("batch", store, &[])?;
    }
    let sized: Vec<(String, Dataset)> = new.iter().map(|store| (store.clone(), running.dataset)).collect();
    deploy_all(running.bench, control, &sized)?;
    let took = began.elapsed().as_secs_f64() * 1e3 / new.len().max(1) as f64;
    let process = running.fondaco()?.front().process();
    settled(|| process.cpu_time())?;
    let resident = process.status_bytes("RssAnon")? as f64 / f64::from(1 << 20);
    running.record(&step.name, [("added", "ms/store", took), ("resident", "MiB", resident)]);
    running.kept.stores.extend(new);
    Ok(())
}
