//! How soon an event is read: from the call that sends it to Kafka until a read of its key has it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fondaco_testing::Kafka;
use redis::{Connection, cmd};

use super::{PARTITIONS, TOPIC, Writer};
use crate::dataset::{KEY_BYTES, Random, key};
use crate::load::beside_clients;
use crate::machine::prefer_thread;
use crate::report::median;
use crate::rows::runner::Running;
use crate::rows::spec::Step;
use crate::servers::fondaco::STORE;
use crate::servers::redis::connect;

/// So many keys are looked for: each is sent again some time after it was seen.
const PROBES: u64 = 16;
const PAUSE_MS_MAX: u64 = 200;
const TICK: Duration = Duration::from_millis(1);

/// Looks for events beside others, whose rate is that of the step: milliseconds, as `NAME p50` and `NAME p99`.
pub fn measure(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let (dataset, round, time) = (running.dataset, running.round, running.bench.round_time() * 2);
    let rate = step.rate.unwrap_or(0.0) as u64;
    let mut connection = connect(running.fondaco()?.front().resp())?;
    let mut probes = running
        .kept
        .probes
        .take()
        .unwrap_or_else(|| Probes::new(dataset.records));
    let kafka = running.kafka()?;
    let send = |_, end: &AtomicBool| send_at(rate, kafka, dataset.records / 2, dataset.value_bytes, round, end);
    let (mut latencies, _) = beside_clients(1, send, || probes.look_for(time, kafka, &mut connection))?;
    ensure!(!latencies.is_empty(), "no event was read");
    latencies.sort_by(f64::total_cmp);
    running.kept.probes = Some(probes);
    running.add(&format!("{} p50", step.name), "ms", median(&latencies));
    running.add(
        &format!("{} p99", step.name),
        "ms",
        latencies[(latencies.len() - 1) * 99 / 100],
    );
    Ok(())
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
pub struct Probes {
    keys: Vec<Vec<u8>>,
    /// The number in the last event of each; they grow, so that the last one is the greatest value.
    numbers: Vec<u64>,
    random: Random,
}

/// The state of a key.
enum Probe {
    Sent(Instant),
    Due(Instant),
}

impl Probes {
    /// Keys after these.
    fn new(records: u64) -> Self {
        Self {
            keys: (0..PROBES)
                .map(|number| [format!("{STORE}:").as_bytes(), &key(records + number)].concat())
                .collect(),
            numbers: vec![0; PROBES as usize],
            random: Random::new(1),
        }
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
