//! How soon an event is read: from the call that sends it to Kafka until a read of its key has it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fondaco_testing::Kafka;
use redis::{Connection, cmd};

use super::{PARTITIONS, Writer, create};
use crate::bench::Bench;
use crate::dataset::{KEY_BYTES, Random, key};
use crate::load::beside_clients;
use crate::machine::prefer_thread;
use crate::peers::fondaco::STORE;
use crate::report::{Rounds, median};
use crate::rows::Measured;
use crate::servers::fondaco::{Fondaco, Settings};

const TOPIC: &str = "fresh";
/// The events a second, beside those that are looked for.
const RATES: [(u64, &str); 3] = [
    (0, "few events"),
    (1000, "1000 events a second"),
    (20_000, "20 000 events a second"),
];
/// So many keys are looked for: each is sent again some time after it was seen.
const PROBES: u64 = 16;
const PAUSE_MS_MAX: u64 = 200;
const TICK: Duration = Duration::from_millis(1);
const MEDIAN_MS_MAX: f64 = 50.0;
const TAIL_MS_MAX: f64 = 250.0;

pub(in crate::rows) fn measure(bench: &Bench) -> Result<Measured> {
    let dataset = bench.served_values();
    let kafka = Kafka::start();
    drop(kafka.make_topic(TOPIC, PARTITIONS));
    let server = Fondaco::start(bench, "fresh", Settings::default())?;
    create(server.control(), STORE, &kafka, TOPIC)?;
    server.control().deploy(STORE, &bench.version_for(STORE, dataset)?)?;
    let mut connection = redis::Client::open(format!("redis://{}", server.resp()))?.get_connection()?;

    let mut probes = Probes::new(dataset.records)?;
    let mut lines = Vec::new();
    for (rate, title) in RATES {
        let mut rounds = Rounds::default();
        for round in 0..bench.rounds() {
            let send =
                |_, end: &AtomicBool| send_at(rate, &kafka, dataset.records / 2, dataset.value_bytes, round, end);
            let look_for = || probes.look_for(bench.round_time() * 2, &kafka, &mut connection);
            let (mut latencies, _) = beside_clients(1, send, look_for)?;
            ensure!(!latencies.is_empty(), "no event was read");
            latencies.sort_by(f64::total_cmp);
            rounds.add("p50", "ms", median(&latencies));
            rounds.add("p99", "ms", latencies[(latencies.len() - 1) * 99 / 100]);
        }
        for (name, max) in [("p50", MEDIAN_MS_MAX), ("p99", TAIL_MS_MAX)] {
            let line = rounds.line(format!("{title}, {name}"), name);
            lines.push(line.figure_at_most(max));
        }
    }
    server.end()?;
    Ok(Measured {
        lines,
        notes: vec![format!(
            "From the call that sends an event to the end of the first MGET, one every millisecond, that has its value. {PROBES} keys are sent again and again, each at a random time of up to {PAUSE_MS_MAX} ms after it was read; other events, of 100 B, come at a constant rate. A topic of {PARTITIONS} partitions; producers have the defaults of librdkafka, which keep an event for up to 5 ms. Kafka, producers, the node and the reader share the two cores."
        )],
        ..Measured::default()
    })
}

/// Sends events at a rate, evenly, until the end; returns one more than it has sent.
fn send_at(rate: u64, kafka: &Kafka, records: u64, value_bytes: usize, seed: u64, end: &AtomicBool) -> Result<u64> {
    let mut writer = Writer::new(kafka)?;
    let mut random = Random::new(seed);
    let started = Instant::now();
    let mut sent = 0;
    while !end.load(Relaxed) {
        let due = (started.elapsed().as_secs_f64() * rate as f64) as u64;
        while sent < due {
            let partition = (sent % PARTITIONS as u64) as i32;
            writer.send_record(TOPIC, partition, random.below(records), value_bytes)?;
            sent += 1;
        }
        thread::sleep(TICK);
    }
    writer.flush()?;
    // At the rate 0 it sends nothing, and has done its work.
    Ok(sent + 1)
}

/// Keys whose events are looked for.
struct Probes {
    keys: Vec<Vec<u8>>,
    /// The number in the last event of each; they grow, so that the last one is the greatest value.
    numbers: Vec<u64>,
    random: Random,
}

/// What is known of a key.
enum Probe {
    Sent(Instant),
    Due(Instant),
}

impl Probes {
    /// Keys after these.
    fn new(records: u64) -> Result<Self> {
        Ok(Self {
            keys: (0..PROBES)
                .map(|number| [format!("{STORE}:").as_bytes(), &key(records + number)].concat())
                .collect(),
            numbers: vec![0; PROBES as usize],
            random: Random::new(1),
        })
    }

    /// The times in milliseconds until events were read. Those that were not have taken at least until now.
    fn look_for(&mut self, time: Duration, kafka: &Kafka, connection: &mut Connection) -> Result<Vec<f64>> {
        prefer_thread();
        let writer = Writer::new(kafka)?;
        let (started, mut found) = (Instant::now(), Vec::new());
        let mut probes: Vec<Probe> = self.keys.iter().map(|_| Probe::Due(started)).collect();
        while started.elapsed() < time {
            for (at, probe) in probes.iter_mut().enumerate() {
                if matches!(probe, Probe::Due(due) if *due <= Instant::now()) {
                    self.numbers[at] += 1;
                    let key = &self.keys[at][self.keys[at].len() - KEY_BYTES..];
                    *probe = Probe::Sent(Instant::now());
                    writer.send(TOPIC, at as i32 % PARTITIONS, key, &self.value(at))?;
                }
            }
            writer.producer.poll(Duration::ZERO);
            let values: Vec<Option<Vec<u8>>> = cmd("MGET").arg(&self.keys).query(connection)?;
            let now = Instant::now();
            for (at, value) in values.iter().enumerate() {
                if let Probe::Sent(sent) = probes[at]
                    && value.as_ref() == Some(&self.value(at))
                {
                    found.push((now - sent).as_secs_f64() * 1e3);
                    let pause = Duration::from_millis(self.random.below(PAUSE_MS_MAX));
                    probes[at] = Probe::Due(now + pause);
                }
            }
            thread::sleep(TICK);
        }
        let now = Instant::now();
        found.extend(probes.iter().filter_map(|probe| match probe {
            Probe::Sent(sent) => Some((now - *sent).as_secs_f64() * 1e3),
            Probe::Due(_) => None,
        }));
        writer.flush()?;
        Ok(found)
    }

    fn value(&self, at: usize) -> Vec<u8> {
        format!("{:012}", self.numbers[at]).into_bytes()
    }
}
