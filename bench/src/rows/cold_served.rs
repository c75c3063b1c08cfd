//! Look-ups over the network of data that is not in memory, compared with the random reads that the disk itself can do,
//! as measured by `fio`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Measured;
use crate::bench::Bench;
use crate::load::{self, Group, Span};
use crate::machine::disk;
use crate::machine::memory_group::MemoryGroup;
use crate::machine::process::Launch;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::{Chart, Rounds};
use crate::servers::fondaco::{Fondaco, Settings};

const CONNECTIONS: usize = 64;
const RATIO_MIN: f64 = 0.7;
const FIO_LIMIT: Duration = Duration::from_secs(60);
/// The peer's name.
const FIO: &str = "fio, 4 KiB random reads, queue depth 32, direct";

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.large_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let memory = MemoryGroup::new("served", bench.memory_limit_bytes())?;
    let settings = Settings {
        group: Some(&memory),
        ..Settings::default()
    };
    let server = Fondaco::serving(bench, "cold-served", settings, dataset)?;
    disk::forget(&version)?;
    let uniform = Group {
        connections: CONNECTIONS,
        pipeline: 1,
        ..Group::uniform(server.resp(), STORE, dataset.records)
    };
    let files = data_files(&version)?;
    let mut rounds = Rounds::default();
    for round in 0..=bench.rounds() {
        let disk_before = disk::reads_completed(&bench.work)?;
        let report = &load::run(std::slice::from_ref(&uniform), Span::whole(bench.round_time()), round)?[0];
        let disk_reads = disk::reads_completed(&bench.work)? - disk_before;
        let fio = fio_reads_a_second(bench, &files)?;
        // The first round fills the memory.
        if round > 0 {
            rounds.add("gets", "gets/s", report.requests_per_second());
            rounds.add(FIO, "reads/s", fio);
            rounds.add("reads a get", "reads/get", disk_reads as f64 / report.requests as f64);
            rounds.add("p99", "µs", report.latency_us(0.99));
        }
    }
    server.end()?;
    let work = format!("{CONNECTIONS} connections, one request each in flight");
    let bars = vec![
        ("fondaco, GET over RESP".to_owned(), rounds.median("gets")),
        ("fio, direct random reads".to_owned(), rounds.median(FIO)),
    ];
    Ok(Measured {
        lines: vec![
            rounds
                .compare(work, "gets", FIO, "fio's rate")
                .at_least(RATIO_MIN)
                .memory(bench.memory_limit_text()),
        ],
        notes: vec![
            format!(
                "The server (memory limit: a tenth of the data) and the load generator share the two cores; {} disk reads a get, p99 {} µs.",
                rounds.shown("reads a get"),
                rounds.shown("p99")
            ),
            "fio reads the same data files, with io_uring, between the rounds.".into(),
        ],
        charts: vec![Chart::bars(
            "cold-served",
            "cold GET over RESP against the disk itself",
            "a second, more is better",
            bars,
        )],
    })
}

/// The data files of a version, in the syntax of fio.
fn data_files(version: &Path) -> Result<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(version)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "data") {
            names.push(path.to_str().context("a path that is not text")?.to_owned());
        }
    }
    ensure!(!names.is_empty(), "{version:?} has no data files");
    Ok(names.join(":"))
}

fn fio_reads_a_second(bench: &Bench, files: &str) -> Result<f64> {
    const OPTIONS: &str = "--name=reads --rw=randread --bs=4k --iodepth=32 --direct=1 --readonly --ioengine=io_uring \
         --time_based --output-format=json --file_service_type=random";
    let runtime = bench.round_time().as_secs().max(1);
    let output = Launch::new("fio")
        .args(OPTIONS.split_whitespace())
        .args([format!("--runtime={runtime}"), format!("--filename={files}")])
        .log_to(bench.log("fio"))
        .output(FIO_LIMIT)?;
    // Messages may precede the JSON.
    let json = &output[output.find('{').context("fio printed no JSON")?..];
    let json: serde_json::Value = serde_json::from_str(json)?;
    json["jobs"][0]["read"]["iops"].as_f64().context("fio printed no rate")
}
