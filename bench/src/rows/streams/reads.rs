//! Reads of a hybrid store against reads of a batch store with the same records.

use std::time::Duration;

use anyhow::Result;
use fondaco_testing::Kafka;

use super::{PARTITIONS, Writer, create, wait_until_read};
use crate::bench::Bench;
use crate::load::{self, Group, GroupReport, KeyChoice, Span};
use crate::machine::settled;
use crate::report::markdown::number;
use crate::report::{Figure, Line, Target};
use crate::rows::Measured;
use crate::servers::fondaco::{Fondaco, Settings};

const TOPIC: &str = "reads";
const BATCH: &str = "batch";
const HYBRID: &str = "hybrid";
const PIPELINES: [usize; 2] = [1, 16];
/// The least part of a batch store's reads that is to be left.
const KEPT_MIN: f64 = 0.9;

pub(in crate::rows) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let kafka = Kafka::start();
    drop(kafka.make_topic(TOPIC, PARTITIONS));
    let settings = Settings {
        loops: 1,
        ..Settings::default()
    };
    let server = Fondaco::start(bench, "stream-reads", settings)?;
    let control = server.control();
    control.create(BATCH)?;
    create(control, HYBRID, &kafka, TOPIC)?;
    for store in [BATCH, HYBRID] {
        control.deploy(store, &bench.version_for(store, dataset)?)?;
    }
    let mut writer = Writer::new(&kafka)?;
    let mut sent = 0;
    let mut lines = Vec::new();
    for (keys, title) in [
        (dataset.records / 1000, "one key in a thousand has an event"),
        (dataset.records / 2, "half of the keys have events"),
    ] {
        for number in sent..keys {
            let partition = (number % PARTITIONS as u64) as i32;
            writer.send_record(TOPIC, partition, number, dataset.value_bytes)?;
        }
        writer.flush()?;
        sent = keys;
        wait_until_read(control, HYBRID, sent)?;
        settled(|| server.process().cpu_time())?;
        for pipeline in PIPELINES {
            let figure = || Figure::new("requests/s of processor time", Vec::new());
            let (mut batch, mut hybrid) = (figure(), figure());
            for round in 0..bench.rounds() {
                batch
                    .rounds
                    .push(load(bench, &server, BATCH, dataset.records, pipeline, round)?);
                hybrid
                    .rounds
                    .push(load(bench, &server, HYBRID, dataset.records, pipeline, round)?);
            }
            let kept = hybrid.over(&batch);
            lines.push(Line {
                work: format!("GETs of 100 B, pipeline {pipeline}, {title}"),
                ours: hybrid,
                peers: vec![("a batch store".to_owned(), batch)],
                ratio: Some((kept, "the batch store".to_owned())),
                targets: vec![Target::at_least(kept, KEPT_MIN)],
                memory: String::new(),
            });
        }
    }
    server.end()?;
    Ok(Measured {
        lines,
        notes: vec![format!(
            "One node with one event loop and both stores, of {} records in memory each; uniform keys, 16 connections; requests for each second of processor time of the whole process, the threads that wait for events included. The events' values are those of the version.",
            number(dataset.records as f64)
        )],
        ..Measured::default()
    })
}

fn load(bench: &Bench, server: &Fondaco, store: &str, records: u64, pipeline: usize, round: u64) -> Result<f64> {
    let group = Group {
        connections: 16,
        pipeline,
        ..Group::gets(server.resp(), store, KeyChoice::Uniform { records })
    };
    let span = Span {
        warm_up: Duration::ZERO,
        ..Span::of(bench.round_time())
    };
    let before = server.process().cpu_time()?;
    let report = GroupReport::of_all(load::run_preferred(&[group], span, round)?)?;
    let used = server.process().cpu_time()? - before;
    Ok(report.requests as f64 / used.as_secs_f64().max(0.01))
}
