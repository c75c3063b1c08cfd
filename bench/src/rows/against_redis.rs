//! Look-ups over the network of data in memory, against `redis-server`: the same client, the same keys, each server on
//! the same core, the client on the other.

use anyhow::Result;

use super::Measured;
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::report::markdown::number;
use crate::report::{Chart, Rounds};
use crate::servers::fondaco::{Fondaco, Settings};
use crate::servers::redis::Redis;
use crate::servers::redis_benchmark::{Run, measure as measure_run};

/// Pipeline depths with the requests per round, and the targets for throughput and for requests per second of CPU time.
const DEPTHS: [(usize, u64, f64, f64); 3] = [
    (1, 120_000, 1.0, 1.1),
    (16, 1_500_000, 1.0, 1.5),
    (64, 2_500_000, 1.8, 2.5),
];
const VALUE_BYTES: [usize; 2] = [100, 1024];
const MGET_KEYS: usize = 100;
const MGET_REQUESTS: u64 = 20_000;
const MGET_PER_CPU_SECOND_MIN: f64 = 2.0;
const RANDOM_KEY: &str = "key:__rand_int__";

/// Both servers with the same records, on the same core.
struct Pair {
    dataset: Dataset,
    fondaco: Fondaco,
    redis: Redis,
}

impl Pair {
    fn start(bench: &Bench, value_bytes: usize) -> Result<Self> {
        let dataset = Dataset {
            value_bytes,
            ..bench.served_values()
        };
        let cpu = bench.server_cpu().to_string();
        let settings = Settings {
            cpus: Some(&cpu),
            ..Settings::one_loop()
        };
        let fondaco = Fondaco::serving(bench, &format!("served-{dataset}"), settings, dataset)?;
        let redis = Redis::start(bench, Some(&cpu))?;
        redis.fill(bench, &bench.parquet(dataset)?)?;
        Ok(Self {
            dataset,
            fondaco,
            redis,
        })
    }

    /// Requests per second, and per second of the server's CPU time, of both.
    fn compare(&self, bench: &Bench, pipeline: usize, requests: u64, command: &[&str]) -> Result<[Rounds; 2]> {
        let run = Run {
            cpu: bench.client_cpu(),
            pipeline,
            requests: if bench.quick { requests / 5 } else { requests },
            keys: self.dataset.records,
            command,
        };
        let servers = [
            ("fondaco", self.fondaco.resp(), self.fondaco.process()),
            ("Redis", self.redis.address(), self.redis.process()),
        ];
        let [mut throughput, mut per_cpu_second] = [Rounds::default(), Rounds::default()];
        for _ in 0..bench.rounds() {
            for (name, address, process) in servers {
                let outcome = measure_run(run, address, process)?;
                throughput.add(name, "requests/s", outcome.requests_per_second);
                per_cpu_second.add(name, "requests/CPU s", outcome.requests_per_cpu_second);
            }
        }
        Ok([throughput, per_cpu_second])
    }

    fn memory(&self) -> Result<String> {
        let mib = |bytes: u64| number(bytes as f64 / f64::from(1 << 20));
        Ok(format!(
            "own memory: fondaco {} MiB, Redis {} MiB (fondaco's values are in the page cache)",
            mib(self.fondaco.process().status_bytes("RssAnon")?),
            mib(self.redis.process().status_bytes("RssAnon")?),
        ))
    }
}

pub(super) fn measure_get(bench: &Bench) -> Result<Measured> {
    let (mut lines, mut charts) = (Vec::new(), Vec::new());
    for value_bytes in VALUE_BYTES {
        let pair = Pair::start(bench, value_bytes)?;
        let mut bars = [Vec::new(), Vec::new()];
        for (pipeline, requests, throughput_min, per_cpu_second_min) in DEPTHS {
            let both = pair.compare(bench, pipeline, requests, &["GET", RANDOM_KEY])?;
            for (bars, rounds) in bars.iter_mut().zip(&both) {
                let bar = |name: &str| (format!("{name}, pipeline {pipeline}"), rounds.median(name));
                bars.extend(["fondaco", "Redis"].map(bar));
            }
            let line = |rounds: &Rounds, what: &str, min: f64| {
                let work = format!("{value_bytes} B, pipeline {pipeline}, {what}");
                rounds.compare(work, "fondaco", "Redis", "Redis").at_least(min)
            };
            let [throughput, per_cpu_second] = &both;
            lines.extend([
                line(throughput, "throughput", throughput_min).memory(pair.memory()?),
                line(per_cpu_second, "a second of server CPU time", per_cpu_second_min),
            ]);
        }
        let [throughput, per_cpu_second] = bars;
        charts.extend([
            Chart::bars(
                format!("get-served-{value_bytes}"),
                format!("GET over RESP, 1 M keys of {value_bytes} B, one core each"),
                "requests a second, more is better",
                throughput,
            ),
            Chart::bars(
                format!("get-served-{value_bytes}-cpu"),
                format!("the same, {value_bytes} B, by processor time of the server"),
                "requests a second of server CPU time, more is better",
                per_cpu_second,
            ),
        ]);
        pair.fondaco.end()?;
    }
    Ok(Measured {
        lines,
        notes: vec![
            "redis-benchmark, 50 connections, on one core; one server at a time is measured, on the other. CPU time is that of the whole server process, from /proc/PID/stat.".into(),
            "At pipeline 16 and above the client is busier than fondaco, so the throughput understates it; the CPU time does not.".into(),
        ],
        charts,
    })
}

pub(super) fn measure_mget(bench: &Bench) -> Result<Measured> {
    let pair = Pair::start(bench, 100)?;
    let mut command = vec!["MGET"];
    command.extend([RANDOM_KEY; MGET_KEYS]);
    let [throughput, per_cpu_second] = pair.compare(bench, 1, MGET_REQUESTS, &command)?;
    let memory = pair.memory()?;
    pair.fondaco.end()?;
    let work = format!("MGET of {MGET_KEYS} keys of 100 B, a second of server CPU time");
    Ok(Measured {
        lines: vec![
            per_cpu_second
                .compare(work, "fondaco", "Redis", "Redis")
                .at_least(MGET_PER_CPU_SECOND_MIN)
                .memory(memory),
        ],
        notes: vec![format!(
            "Throughput, limited by the client: {} requests/s against {} of Redis, {:.2}×.",
            throughput.shown("fondaco"),
            throughput.shown("Redis"),
            throughput.figure("fondaco").over(&throughput.figure("Redis"))
        )],
        ..Measured::default()
    })
}
