//! Commands, pushes, and measurements of the disk itself, between loads.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;

use crate::dataset::elsewhere::Elsewhere;
use crate::machine::process::Launch;
use crate::machine::{disk, settled};
use crate::peers::EngineKind;
use crate::report::markdown::number;
use crate::rows::runner::Running;
use crate::rows::spec::Step;
use crate::servers::control::PUSH_LIMIT;

const EDGES_OF_A_VERTEX: usize = 100;
const FIO_LIMIT: Duration = Duration::from_secs(60);

/// Vertices of the graph.
pub fn vertices(running: &Running<'_>) -> usize {
    if running.bench.quick { 2_000 } else { 50_000 }
}

/// Runs a command of fondaco.
pub fn command(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let arguments = step.arguments.iter().map(|argument| running.figures.text(argument));
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    running.control()?.run(&arguments)
}

/// Drops the row's version from the page cache.
pub fn forget(running: &mut Running<'_>, _: &Step) -> Result<()> {
    disk::forget(&running.bench.engine_dir(EngineKind::Fondaco, running.dataset)?)
}

/// Waits until the background work of fondaco is over.
pub fn settle(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let fondaco = running.fondaco()?;
    settled(|| fondaco.cpu_time_of_nodes()).map(drop)
}

/// Deploys the version of a store and its records, the arguments, once more: the node uses the files again.
pub fn deploy_again(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let [store, data] = &step.arguments[..] else {
        bail!("a store and its records are needed");
    };
    let version = running.bench.version_for(store, running.bench.dataset(data)?)?;
    running.control()?.deploy(store, &version, &["--again"]).map(drop)
}

/// Sets variables for texts: `NAME=TEXT`, which may refer to figures. `NAME=FACTOR*FIGURE` is a multiple of a median.
pub fn texts(running: &mut Running<'_>, step: &Step) -> Result<()> {
    for argument in &step.arguments {
        let (name, text) = argument.split_once('=').context("a variable without a text")?;
        let text = match text.split_once('*') {
            Some((factor, figure)) => number(factor.parse::<f64>()? * running.figures.figure(figure)?.median()),
            None => running.figures.text(text)?,
        };
        running.figures.set(name, text);
    }
    Ok(())
}

/// Prepares a version of a store of records: the arguments are both names.
pub fn prepare_push(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let [store, data] = &step.arguments[..] else {
        bail!("a store and its records are needed");
    };
    // The former one is deleted first.
    running.kept.source = None;
    let dataset = running.bench.dataset(data)?;
    running
        .figures
        .set("pushed_megabytes", number(dataset.bytes() as f64 / 1e6));
    let source = running.bench.version_elsewhere(store, dataset, running.kept.sources)?;
    running.kept.sources += 1;
    running.kept.source = Some(source);
    Ok(())
}

/// Pushes the prepared version to its store, the first argument, and records the duration as `NAME push`.
pub fn push(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let store = step.arguments.first().context("a push needs a store")?;
    let source = running
        .kept
        .source
        .as_ref()
        .map(Elsewhere::path)
        .context("no version is prepared")?;
    let took = running.control()?.deploy(store, source, &[])?;
    running.add(&format!("{} push", step.name), "s", took.as_secs_f64());
    Ok(())
}

/// Pushes a random graph.
pub fn push_graph(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let vertices = vertices(running);
    let mut random = Rng::with_seed(1);
    let mut edges = String::from("from,to\n");
    for _ in 0..vertices * EDGES_OF_A_VERTEX / 2 {
        writeln!(edges, "{},{}", random.usize(..vertices), random.usize(..vertices))?;
    }
    let file = running.bench.work.join("graph-tail.csv");
    std::fs::write(&file, edges).with_context(|| format!("could not write {file:?}"))?;
    let path = file.to_str().context("a path that is not text")?;
    let front = running.fondaco()?.front();
    let resp = front.resp().to_string();
    let push = [
        "push",
        "social",
        path,
        "--create",
        "--resp",
        &resp,
        "--edges",
        "from,to",
        "--symmetric",
    ];
    front.control().command(&push).run(PUSH_LIMIT)?;
    std::fs::remove_file(&file).with_context(|| format!("could not delete {file:?}"))
}

/// The random reads a second that the disk itself can do, of the row's version.
pub fn fio(running: &mut Running<'_>, step: &Step) -> Result<()> {
    const OPTIONS: &str = "--name=reads --rw=randread --bs=4k --iodepth=32 --direct=1 --readonly --ioengine=io_uring \
         --time_based --output-format=json --file_service_type=random";
    let bench = running.bench;
    let version = bench.engine_dir(EngineKind::Fondaco, running.dataset)?;
    let mut files = Vec::new();
    disk::each_file(&version, &mut |path| {
        if path.extension().is_some_and(|extension| extension == "data") {
            files.push(path.to_str().context("a path that is not text")?.to_owned());
        }
        Ok(())
    })?;
    ensure!(!files.is_empty(), "{version:?} has no data files");
    let runtime = bench.round_time().as_secs().max(1);
    let output = Launch::new("fio")
        .args(OPTIONS.split_whitespace())
        .args([
            format!("--runtime={runtime}"),
            format!("--filename={}", files.join(":")),
        ])
        .log_to(bench.log("fio"))
        .output(FIO_LIMIT)?;
    // Messages may precede the JSON.
    let json = &output[output.find('{').context("fio printed no JSON")?..];
    let json: serde_json::Value = serde_json::from_str(json)?;
    let rate = json["jobs"][0]["read"]["iops"]
        .as_f64()
        .context("fio printed no rate")?;
    running.add(&step.name, "reads/s", rate);
    Ok(())
}
