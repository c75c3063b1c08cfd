//! Reads of a hybrid store against reads of a batch store with the same records.

use anyhow::Result;
use fondaco_testing::Kafka;

use super::{PARTITIONS, Writer, create, wait_until_read};
use crate::bench::Bench;
use crate::load::{Costed, Group, Span};
use crate::machine::settled;
use crate::report::Rounds;
use crate::report::markdown::number;
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
    let server = Fondaco::start(bench, "stream-reads", Settings::one_loop())?;
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
        writer.send_all(TOPIC, sent..keys, dataset.value_bytes)?;
        sent = keys;
        wait_until_read(control, HYBRID, sent)?;
        settled(|| server.process().cpu_time())?;
        for pipeline in PIPELINES {
            let mut rounds = Rounds::default();
            for round in 0..bench.rounds() {
                for (store, name) in [(BATCH, "a batch store"), (HYBRID, "a hybrid store")] {
                    let group = Group {
                        connections: 16,
                        pipeline,
                        ..Group::uniform(server.resp(), store, dataset.records)
                    };
                    let load = || group.run(Span::whole(bench.round_time()), round);
                    let costed = Costed::measure(|| server.process().cpu_time(), load)?;
                    rounds.add(name, "requests/s of processor time", costed.per_cpu_second());
                }
            }
            let work = format!("GETs of 100 B, pipeline {pipeline}, {title}");
            let line = rounds.compare(work, "a hybrid store", "a batch store", "the batch store");
            lines.push(line.at_least(KEPT_MIN));
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
