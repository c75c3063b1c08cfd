//! An overlay larger than the memory: how fast events are applied, and what reads of their values cost.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use fondaco_testing::Kafka;

use super::{LIMIT, PARTITIONS, Writer, create_on, wait_until_read_for};
use crate::bench::Bench;
use crate::dataset::{Random, append_value, key};
use crate::load::{self, Group, GroupReport, Span};
use crate::machine::disk;
use crate::machine::memory_group::MemoryGroup;
use crate::peers::fondaco::STORE;
use crate::report::Rounds;
use crate::report::markdown::number;
use crate::rows::Measured;
use crate::servers::fondaco::{Fondaco, Settings};

const TOPIC: &str = "large";
const VALUE_BYTES: usize = 200;
/// How much larger than the memory the overlay is to be.
const RATIO_MIN: f64 = 3.0;
/// How many keys are compared with what was sent.
const COMPARED: u64 = 10_000;

pub(in crate::rows) fn measure(bench: &Bench) -> Result<Measured> {
    let (events, limit_bytes) = if bench.quick {
        (200_000, 192 << 20)
    } else {
        (10_000_000, 640 << 20)
    };
    let kafka = Kafka::start();
    drop(kafka.make_topic(TOPIC, PARTITIONS));
    let group = MemoryGroup::new("large-overlay", limit_bytes)?;
    let settings = Settings {
        group: Some(&group),
        ..Settings::default()
    };
    let server = Fondaco::start(bench, "large-overlay", settings)?;
    create_on("disk", server.control(), STORE, &kafka, TOPIC)?;
    let control = server.control();
    control.deploy(STORE, &bench.version_for(STORE, bench.served_values())?)?;
    control.alter(STORE, &["--paused", "true"])?;
    Writer::new(&kafka)?.send_all(TOPIC, 0..events, VALUE_BYTES)?;
    let started = Instant::now();
    control.alter(STORE, &["--paused", "false"])?;
    wait_until_read_for(control, STORE, events, 3 * LIMIT)?;
    let rate = events as f64 / started.elapsed().as_secs_f64();
    compare(&server, events)?;
    let on_disk = bytes_below(&bench.work.join("large-overlay").join("versioned"))?;
    let gets = Group {
        connections: 16,
        ..Group::uniform(server.resp(), STORE, events)
    };
    let mut rounds = Rounds::default();
    for round in 0..bench.rounds() {
        let reports = load::run(std::slice::from_ref(&gets), Span::whole(bench.round_time()), round)?;
        let report = GroupReport::of_all(reports)?;
        rounds.add("gets", "gets/s", report.requests_per_second());
        rounds.add("p99", "µs", report.latency_us(0.99));
    }
    server.end()?;
    let times = on_disk as f64 / limit_bytes as f64;
    let mebibytes = |bytes: u64| number(bytes as f64 / f64::from(1 << 20));
    Ok(Measured {
        lines: vec![
            rounds
                .line(
                    format!("uniform GETs of {} keys with events", number(events as f64)),
                    "gets",
                )
                .ratio(times, "the memory: the overlay on the disk")
                .at_least(RATIO_MIN)
                .memory(format!("limit {} MiB", mebibytes(limit_bytes))),
        ],
        notes: vec![format!(
            "A node whose processes and page cache have {} MiB reads {} events of {VALUE_BYTES} B, each of another key, from a topic of {PARTITIONS} partitions: {} events a second, an overlay of {} MiB. {} keys are compared with what was sent. p99 of the GETs is {} µs.",
            mebibytes(limit_bytes),
            number(events as f64),
            number(rate),
            mebibytes(on_disk),
            number(COMPARED as f64),
            rounds.shown("p99")
        )],
        ..Measured::default()
    })
}

/// Compares values with what was sent.
fn compare(server: &Fondaco, events: u64) -> Result<()> {
    let mut connection = redis::Client::open(format!("redis://{}", server.resp()))?.get_connection()?;
    let (mut random, mut expected) = (Random::new(7), Vec::new());
    for _ in 0..COMPARED {
        let record = random.below(events);
        expected.clear();
        append_value(record, VALUE_BYTES, &mut expected);
        let name = [format!("{STORE}:").as_bytes(), &key(record)].concat();
        let found: Option<Vec<u8>> = redis::cmd("GET").arg(name).query(&mut connection)?;
        ensure!(found.as_ref() == Some(&expected), "record {record} is {found:?}");
    }
    Ok(())
}

/// The bytes of all files in a directory.
fn bytes_below(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    disk::each_file(dir, &mut |path| {
        // Files may be deleted meanwhile.
        bytes += fs::metadata(path).map_or(0, |found| found.len());
        Ok(())
    })?;
    Ok(bytes)
}
