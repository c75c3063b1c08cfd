//! Look-ups over the network of data that is not in memory, compared with the random reads that the disk itself can do,
//! as measured by `fio`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Measured;
use crate::bench::Bench;
use crate::load::{self, Group, KeyChoice, Span, Writes};
use crate::machine::disk;
use crate::machine::memory_group::MemoryGroup;
use crate::machine::process::Launch;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::servers::fondaco::{Fondaco, Settings};

const CONNECTIONS: usize = 64;
const RATIO_MIN: f64 = 0.7;
const FIO_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.large_values();
    let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
    let group = MemoryGroup::new("served", bench.memory_limit_bytes())?;
    let settings = Settings {
        group: Some(&group),
        ..Settings::default()
    };
    let server = Fondaco::start(bench, "cold-served", settings)?;
    server.control().create(STORE)?;
    server.control().deploy(STORE, &version)?;
    disk::forget(&version)?;
    let uniform = Group {
        address: server.resp(),
        connections: CONNECTIONS,
        pipeline: 1,
        rate: None,
        prefix: format!("{STORE}:"),
        keys: KeyChoice::Uniform {
            records: dataset.records,
        },
        keys_per_request: 1,
        writes: Writes::default(),
        keep_each: false,
    };
    let mut gets = Figure::new("gets/s", Vec::new());
    let mut reads = Figure::new("reads/s", Vec::new());
    let (mut reads_a_get, mut p99) = (Figure::new("reads/get", Vec::new()), Figure::new("µs", Vec::new()));
    let files = data_files(&version)?;
    for round in 0..=bench.rounds() {
        let disk_before = disk::reads_completed(&bench.work)?;
        let span = Span {
            warm_up: Duration::ZERO,
            measured: bench.round_time(),
            stop: None,
        };
        let report = load::run(std::slice::from_ref(&uniform), span, round)?;
        let disk_reads = disk::reads_completed(&bench.work)? - disk_before;
        let fio = fio_reads_a_second(bench, &files)?;
        // The first round fills the memory.
        if round > 0 {
            gets.rounds.push(report[0].requests_per_second());
            reads.rounds.push(fio);
            reads_a_get.rounds.push(disk_reads as f64 / report[0].requests as f64);
            p99.rounds.push(report[0].latency_us(0.99));
        }
    }
    let memory = format!(
        "limit {} MiB",
        number(bench.memory_limit_bytes() as f64 / f64::from(1 << 20))
    );
    server.end()?;
    let ratio = gets.over(&reads);
    let bars = vec![
        ("fondaco, GET over RESP".to_owned(), gets.median()),
        ("fio, direct random reads".to_owned(), reads.median()),
    ];
    Ok(Measured {
        lines: vec![Line {
            work: format!("{CONNECTIONS} connections, one request each in flight"),
            ours: gets,
            peers: vec![("fio, 4 KiB random reads, queue depth 32, direct".into(), reads)],
            ratio: Some((ratio, "fio's rate".into())),
            targets: vec![Target::at_least(ratio, RATIO_MIN)],
            memory,
        }],
        notes: vec![
            format!(
                "The server (memory limit: a tenth of the data) and the load generator share the two cores; {} disk reads a get, p99 {} µs.",
                number(reads_a_get.median()),
                number(p99.median())
            ),
            "fio reads the same data files, with io_uring, between the rounds.".into(),
        ],
        charts: vec![Chart::Bars {
            file: "cold-served".into(),
            title: "cold GET over RESP against the disk itself".into(),
            unit: "a second, more is better".into(),
            bars,
        }],
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
    let runtime = bench.round_time().as_secs().max(1).to_string();
    let output = Launch::new("fio")
        .args([
            "--name=reads",
            "--rw=randread",
            "--bs=4k",
            "--iodepth=32",
            "--direct=1",
            "--readonly",
        ])
        .args([
            "--ioengine=io_uring",
            "--time_based",
            "--output-format=json",
            "--file_service_type=random",
        ])
        .args([format!("--runtime={runtime}"), format!("--filename={files}")])
        .log_to(bench.log("fio"))
        .output(FIO_LIMIT)?;
    // Messages may precede the JSON.
    let json = &output[output.find('{').context("fio printed no JSON")?..];
    let json: serde_json::Value = serde_json::from_str(json)?;
    json["jobs"][0]["read"]["iops"].as_f64().context("fio printed no rate")
}
