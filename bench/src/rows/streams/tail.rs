//! Whether events delay reads: latencies of reads of a hybrid store, quiet and while it reads a topic as fast as it can.

use std::time::Instant;

use anyhow::{Result, ensure};
use fondaco_testing::Kafka;

use super::applied::drop_records;
use super::{LIMIT, PARTITIONS, Writer, create, events_read, wait_until_read};
use crate::bench::Bench;
use crate::dataset::Random;
use crate::load::{Group, GroupReport, Span};
use crate::machine::settled;
use crate::peers::fondaco::STORE;
use crate::report::Rounds;
use crate::report::markdown::number;
use crate::rows::Measured;
use crate::servers::fondaco::{Fondaco, Settings};

const TOPIC: &str = "tail";
const RATE: f64 = 10_000.0;
const CONNECTIONS: usize = 16;
const RATIO_MAX: f64 = 1.5;
/// The name of the latencies beside a consumer of librdkafka.
const DROPPING: &str = "while another process reads the topic and drops all";

pub(in crate::rows) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let events = if bench.quick { 100_000 } else { 1_000_000 };
    let kafka = Kafka::start();
    drop(kafka.make_topic(TOPIC, PARTITIONS));
    let server = Fondaco::start(bench, "stream-tail", Settings::default())?;
    create(server.control(), STORE, &kafka, TOPIC)?;
    server.control().deploy(STORE, &bench.version_for(STORE, dataset)?)?;

    let group = Group {
        connections: CONNECTIONS,
        rate: Some(RATE),
        ..Group::uniform(server.resp(), STORE, dataset.records)
    };
    let mut rounds = Rounds::default();
    // The first round gives half of the keys an event.
    for round in 0..=bench.rounds() {
        server.control().alter(STORE, &["--paused", "true"])?;
        let mut random = Random::new(round);
        let records = (0..events).map(|_| random.below(dataset.records / 2));
        Writer::new(&kafka)?.send_all(TOPIC, records, dataset.value_bytes)?;
        settled(|| server.process().cpu_time())?;
        let quiet = group.run(Span::of(bench.round_time()), round)?;
        let drop_all = || drop_records(bench, &kafka.address(), TOPIC, (round + 1) * events);
        let (dropping, ()) = group.during(LIMIT, round, drop_all)?;
        settled(|| server.process().cpu_time())?;
        let (busy, rate) = during_events(&server, &group, events, (round + 1) * events)?;
        if round > 0 {
            rounds.add_latency("quiet", &quiet);
            rounds.add_latency(DROPPING, &dropping);
            rounds.add_latency("while events come", &busy);
            rounds.add("rate", "events/s", rate);
        }
    }
    server.end()?;
    let work = "p99 of reads while events come as fast as they can be applied";
    Ok(Measured {
        lines: vec![
            rounds
                .beside(work, "while events come", &["quiet", DROPPING])
                .over_peer("itself, quiet")
                .at_most(RATIO_MAX),
        ],
        notes: vec![format!(
            "{RATE:.0} GETs a second over {CONNECTIONS} connections, uniform over a hybrid store of {dataset} in memory, half of whose keys have events. Each round, the store is paused, {} events of as many bytes for these keys are sent to a topic of {PARTITIONS} partitions, and the store goes on: {} events a second, from then until the last one is applied. The other process is a consumer of librdkafka, which reads all events that were sent so far. Kafka, the node and the load generator share the two cores.",
            number(events as f64),
            rounds.shown("rate"),
        )],
        charts: vec![rounds.latencies(
            "stream-tail",
            "latency of reads, quiet and while events come",
            &["quiet", "while events come"],
        )],
    })
}

/// Reads until the store has read so many events in all. Returns how many it has read each second.
fn during_events(server: &Fondaco, group: &Group, events: u64, in_all: u64) -> Result<(GroupReport, f64)> {
    let control = server.control();
    control.alter(STORE, &["--paused", "false"])?;
    let (started, before) = (Instant::now(), in_all - events_read(control, STORE)?);
    ensure!(before > 0, "all {events} events were applied before the first read");
    group.during(LIMIT, in_all, || {
        wait_until_read(control, STORE, in_all)?;
        Ok(before as f64 / started.elapsed().as_secs_f64())
    })
}
