//! Look-ups over the network of data in memory, against `redis-server`: the same client, the same keys, each server on
//! the same core, the client on the other.

use anyhow::Result;

use super::Measured;
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::peers::EngineKind;
use crate::peers::fondaco::STORE;
use crate::report::markdown::number;
use crate::report::{Chart, Figure, Line, Target};
use crate::servers::fondaco::{Fondaco, Settings};
use crate::servers::redis::Redis;
use crate::servers::redis_benchmark::{Run, measure as measure_run};

/// A pipeline depth, the requests per round at it, and the targets for throughput and CPU time.
struct Depth {
    pipeline: usize,
    requests: u64,
    throughput_min: f64,
    per_cpu_second_min: f64,
}

const DEPTHS: [Depth; 3] = [
    Depth {
        pipeline: 1,
        requests: 120_000,
        throughput_min: 1.0,
        per_cpu_second_min: 1.1,
    },
    Depth {
        pipeline: 16,
        requests: 1_500_000,
        throughput_min: 1.0,
        per_cpu_second_min: 1.5,
    },
    Depth {
        pipeline: 64,
        requests: 2_500_000,
        throughput_min: 1.8,
        per_cpu_second_min: 2.5,
    },
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

/// The figures of one comparison.
struct Comparison {
    throughput: [Figure; 2],
    per_cpu_second: [Figure; 2],
}

impl Pair {
    fn start(bench: &Bench, value_bytes: usize) -> Result<Self> {
        let dataset = Dataset {
            records: if bench.quick { 50_000 } else { 1_000_000 },
            value_bytes,
        };
        let cpu = bench.server_cpu().to_string();
        let settings = Settings {
            cpus: Some(&cpu),
            loops: 1,
            ..Settings::default()
        };
        let version = bench.engine_dir(EngineKind::Fondaco, dataset)?;
        let fondaco = Fondaco::start(bench, &format!("served-{dataset}"), settings)?;
        fondaco.control().create(STORE)?;
        fondaco.control().deploy(STORE, &version)?;
        let redis = Redis::start(bench, Some(&cpu))?;
        redis.fill(bench, &bench.parquet(dataset)?)?;
        Ok(Self {
            dataset,
            fondaco,
            redis,
        })
    }

    fn compare(&self, bench: &Bench, pipeline: usize, requests: u64, command: &[&str]) -> Result<Comparison> {
        let mut throughput = [
            Figure::new("requests/s", Vec::new()),
            Figure::new("requests/s", Vec::new()),
        ];
        let mut per_cpu_second = [
            Figure::new("requests/CPU s", Vec::new()),
            Figure::new("requests/CPU s", Vec::new()),
        ];
        let run = Run {
            cpu: bench.client_cpu(),
            pipeline,
            requests: if bench.quick { requests / 5 } else { requests },
            keys: self.dataset.records,
            command,
        };
        for _ in 0..bench.rounds() {
            let servers = [
                (self.fondaco.resp(), self.fondaco.process()),
                (self.redis.address(), self.redis.process()),
            ];
            for (at, (address, process)) in servers.into_iter().enumerate() {
                let outcome = measure_run(run, address, process)?;
                throughput[at].rounds.push(outcome.requests_per_second);
                per_cpu_second[at].rounds.push(outcome.requests_per_cpu_second);
            }
        }
        Ok(Comparison {
            throughput,
            per_cpu_second,
        })
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

/// A line with a figure of ours and one of Redis.
fn line(work: String, [ours, redis]: [Figure; 2], min: f64, memory: String) -> Line {
    let ratio = ours.over(&redis);
    Line {
        work,
        ours,
        peers: vec![("Redis".into(), redis)],
        ratio: Some((ratio, "Redis".into())),
        targets: vec![Target::at_least(ratio, min)],
        memory,
    }
}

pub(super) fn measure_get(bench: &Bench) -> Result<Measured> {
    let mut lines = Vec::new();
    let mut charts = Vec::new();
    for value_bytes in VALUE_BYTES {
        let pair = Pair::start(bench, value_bytes)?;
        let mut bars = Vec::new();
        let mut bars_of_cpu = Vec::new();
        for depth in &DEPTHS {
            let compared = pair.compare(bench, depth.pipeline, depth.requests, &["GET", RANDOM_KEY])?;
            let work = format!("{value_bytes} B, pipeline {}", depth.pipeline);
            for (at, name) in ["fondaco", "Redis"].into_iter().enumerate() {
                let label = format!("{name}, pipeline {}", depth.pipeline);
                bars.push((label.clone(), compared.throughput[at].median()));
                bars_of_cpu.push((label, compared.per_cpu_second[at].median()));
            }
            lines.push(line(
                format!("{work}, throughput"),
                compared.throughput,
                depth.throughput_min,
                pair.memory()?,
            ));
            lines.push(line(
                format!("{work}, a second of server CPU time"),
                compared.per_cpu_second,
                depth.per_cpu_second_min,
                String::new(),
            ));
        }
        charts.push(Chart::Bars {
            file: format!("get-served-{value_bytes}"),
            title: format!("GET over RESP, 1 M keys of {value_bytes} B, one core each"),
            unit: "requests a second, more is better".into(),
            bars,
        });
        charts.push(Chart::Bars {
            file: format!("get-served-{value_bytes}-cpu"),
            title: format!("the same, {value_bytes} B, by processor time of the server"),
            unit: "requests a second of server CPU time, more is better".into(),
            bars: bars_of_cpu,
        });
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
    let compared = pair.compare(bench, 1, MGET_REQUESTS, &command)?;
    let memory = pair.memory()?;
    pair.fondaco.end()?;
    let throughput_ratio = compared.throughput[0].over(&compared.throughput[1]);
    Ok(Measured {
        lines: vec![line(
            format!("MGET of {MGET_KEYS} keys of 100 B, a second of server CPU time"),
            compared.per_cpu_second,
            MGET_PER_CPU_SECOND_MIN,
            memory,
        )],
        notes: vec![format!(
            "Throughput, limited by the client: {} requests/s against {} of Redis, {throughput_ratio:.2}×.",
            number(compared.throughput[0].median()),
            number(compared.throughput[1].median())
        )],
        charts: Vec::new(),
    })
}
