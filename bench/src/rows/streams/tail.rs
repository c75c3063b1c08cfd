//! Whether events delay reads: latencies of reads of a hybrid store, quiet and while it reads a topic as fast as it can.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use fondaco_testing::Kafka;

use super::applied::drop_records;
use super::{LIMIT, PARTITIONS, Writer, create, events_read, wait_until_read};
use crate::bench::Bench;
use crate::dataset::{Dataset, Random};
use crate::load::{self, Group, GroupReport, KeyChoice, Span};
use crate::machine::{prefer_thread, settled};
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::rows::Measured;
use crate::servers::fondaco::{Fondaco, Settings};

const TOPIC: &str = "tail";
const RATE: f64 = 10_000.0;
const CONNECTIONS: usize = 16;
const RATIO_MAX: f64 = 1.5;

pub(in crate::rows) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let events = if bench.quick { 100_000 } else { 1_000_000 };
    let kafka = Kafka::start();
    drop(kafka.make_topic(TOPIC, PARTITIONS));
    let server = Fondaco::start(bench, "stream-tail", Settings::default())?;
    create(server.control(), STORE, &kafka, TOPIC)?;
    server.control().deploy(STORE, &bench.version_for(STORE, dataset)?)?;

    let keys = KeyChoice::Uniform {
        records: dataset.records,
    };
    let group = Group {
        connections: CONNECTIONS,
        rate: Some(RATE),
        ..Group::gets(server.resp(), STORE, keys)
    };
    let figure = |unit: &str| Figure::new(unit, Vec::new());
    let [mut quiet, mut beside, mut busy] = ["µs"; 3].map(figure);
    let mut rates = figure("events/s");
    let mut distributions = None;
    // The first round gives half of the keys an event.
    for round in 0..=bench.rounds() {
        server.control().alter(STORE, &["--paused", "true"])?;
        fill(&kafka, dataset, events, round)?;
        settled(|| server.process().cpu_time())?;
        let calm = load::run_preferred(std::slice::from_ref(&group), Span::of(bench.round_time()), round)?;
        let calm = GroupReport::of_all(calm)?;
        let drop_all = || drop_records(bench, &kafka.address(), TOPIC, (round + 1) * events);
        let (dropping, ()) = during(&group, round, drop_all)?;
        settled(|| server.process().cpu_time())?;
        let (reads, rate) = during_events(&server, &group, events, (round + 1) * events)?;
        if round > 0 {
            quiet.rounds.push(calm.latency_us(0.99));
            beside.rounds.push(dropping.latency_us(0.99));
            busy.rounds.push(reads.latency_us(0.99));
            rates.rounds.push(rate);
            distributions = Some((calm.distribution(), reads.distribution()));
        }
    }
    server.end()?;
    let ratio = busy.over(&quiet);
    let charts = distributions.map(|(calm, busy)| Chart::Latencies {
        file: "stream-tail".into(),
        title: "latency of reads, quiet and while events come (last round)".into(),
        series: vec![("quiet".into(), calm), ("while events come".into(), busy)],
    });
    Ok(Measured {
        lines: vec![Line {
            work: "p99 of reads while events come as fast as they can be applied".into(),
            ours: busy,
            peers: vec![
                ("quiet".into(), quiet),
                ("while another process reads the topic and drops all".into(), beside),
            ],
            ratio: Some((ratio, "itself, quiet".into())),
            targets: vec![Target::at_most(ratio, RATIO_MAX)],
            memory: String::new(),
        }],
        notes: vec![format!(
            "{RATE:.0} GETs a second over {CONNECTIONS} connections, uniform over a hybrid store of {dataset} in memory, half of whose keys have events. Each round, the store is paused, {} events of as many bytes for these keys are sent to a topic of {PARTITIONS} partitions, and the store goes on: {} events a second, from then until the last one is applied. The other process is a consumer of librdkafka, which reads all events that were sent so far. Kafka, the node and the load generator share the two cores.",
            number(events as f64),
            number(rates.median()),
        )],
        charts: charts.into_iter().collect(),
    })
}

/// Sends events for the first half of the records.
fn fill(kafka: &Kafka, dataset: Dataset, events: u64, seed: u64) -> Result<()> {
    let mut writer = Writer::new(kafka)?;
    let mut random = Random::new(seed);
    for number in 0..events {
        let partition = (number % PARTITIONS as u64) as i32;
        let record = random.below(dataset.records / 2);
        writer.send_record(TOPIC, partition, record, dataset.value_bytes)?;
    }
    writer.flush()
}

/// Reads until the store has read so many events in all. Returns how many it has read each second.
fn during_events(server: &Fondaco, group: &Group, events: u64, in_all: u64) -> Result<(GroupReport, f64)> {
    let control = server.control();
    control.alter(STORE, &["--paused", "false"])?;
    let (started, before) = (Instant::now(), in_all - events_read(control, STORE)?);
    ensure!(before > 0, "all {events} events were applied before the first read");
    during(group, in_all, || {
        wait_until_read(control, STORE, in_all)?;
        Ok(before as f64 / started.elapsed().as_secs_f64())
    })
}

/// Reads until some other work is done.
fn during<T>(group: &Group, seed: u64, work: impl FnOnce() -> Result<T>) -> Result<(GroupReport, T)> {
    let stop = AtomicBool::new(false);
    let span = Span {
        warm_up: Duration::ZERO,
        measured: LIMIT,
        stop: Some(&stop),
    };
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            load::run(std::slice::from_ref(group), span, seed)
        });
        let done = work();
        stop.store(true, Relaxed);
        let reports = client.join().map_err(|_| anyhow!("the load generator panicked"))??;
        let report = reports.into_iter().next().context("a load without a report")?;
        Ok((report, done?))
    })
}
