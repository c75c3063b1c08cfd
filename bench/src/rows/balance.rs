//! A cluster that evens out its load: nodes of different size, confined by control groups, under a load that is as high as
//! they can bear. What Haugen and Oksnevad's thesis shows of its Headmaster in chapter 5 ("Experiments").

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::Measured;
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::load::{self, Answered, Group, GroupReport, KeyChoice, Span, Writes};
use crate::machine::prefer_thread;
use crate::peers::fondaco::STORE;
use crate::report::{Chart, Figure, Line, Target};
use crate::servers::cluster::{Cluster, Shape};
use crate::servers::control::COMMAND_LIMIT;
use crate::servers::replicas::Replicas;

/// The processors of the nodes: as 3, 5 and 8, so that 16 partitions can be dealt in proportion.
const CORES: [f64; 3] = [0.12, 0.20, 0.32];
const PARTITIONS: u32 = 16;
/// The share of requests that write, where partitions move by hand or by the analyzer.
const WRITES: f64 = 0.1;
/// The shares of requests that write, and the numbers of partitions, where a third node joins.
const JOINS: [(f64, u32); 3] = [(WRITES, PARTITIONS), (0.001, PARTITIONS), (0.001, 2 * PARTITIONS)];
const CONNECTIONS: usize = 256;
/// The least part of what the nodes answer one by one.
const OF_SUM_MIN: f64 = 0.9;
/// A window of reports, in milliseconds.
const WINDOW_MS: u64 = 5_000;
/// No plan may begin in this time at the end.
const STILL: Duration = Duration::from_secs(20);

/// What is done while the load goes on, and when.
type Step<'a> = (Duration, &'a mut dyn FnMut(&mut Cluster) -> Result<()>);

/// What was seen once a second.
struct Sample {
    at: f64,
    /// Of each node, of what it may use.
    cpu: Vec<f64>,
    partitions: Vec<u64>,
}

/// A load with what was seen of it.
struct Course {
    began: Instant,
    answered: Vec<Answered>,
    samples: Vec<Sample>,
    error: Option<String>,
}

/// What one kind of load led to.
struct Grown {
    single: Vec<f64>,
    course: Course,
    together: f64,
    plans_while_still: usize,
}

/// Two nodes, whose partitions are moved by hand, or by the cluster.
pub(super) fn measure_two(bench: &Bench) -> Result<Measured> {
    let (dataset, phase, mut measured) = begin(bench);
    by_hand_and_by_itself(bench, dataset, phase, &mut measured)?;
    Ok(measured)
}

/// Two nodes, which a third one joins.
pub(super) fn measure_joins(bench: &Bench) -> Result<Measured> {
    let (dataset, phase, mut measured) = begin(bench);
    for (writes, partitions) in JOINS {
        third_joins(bench, dataset, phase, writes, partitions, &mut measured)?;
    }
    Ok(measured)
}

/// The data, the length of a phase, and what all of it has in common.
fn begin(bench: &Bench) -> (Dataset, Duration, Measured) {
    let dataset = Dataset {
        records: if bench.quick { 20_000 } else { 300_000 },
        value_bytes: 1024,
    };
    let phase = Duration::from_secs(if bench.quick { 8 } else { 20 });
    let measured = Measured {
        lines: Vec::new(),
        notes: vec![format!(
            "A versioned store with one replica, {} records of 1 KiB, {PARTITIONS} partitions unless said, through the router. Nodes have {CORES:?} cores (control groups), and never more data than memory. {CONNECTIONS} connections with one request each in flight: so the slowest node decides. All processes share two cores.",
            dataset.records
        )],
        charts: Vec::new(),
    };
    (dataset, phase, measured)
}

/// Two nodes; at the first of two times partitions move, by hand or by the analyzer.
fn by_hand_and_by_itself(bench: &Bench, dataset: Dataset, phase: Duration, measured: &mut Measured) -> Result<()> {
    let cores = [CORES[0], CORES[2]];
    for name in ["manual", "automatic"] {
        let mut cluster = filled(bench, PARTITIONS, &cores, dataset)?;
        let mut change = |cluster: &mut Cluster| match name {
            "manual" => {
                let known = |place| id_of(cluster, place)?.context("a node has a number");
                let (small, large) = (known(0)?, known(1)?);
                let moves = held_by(cluster, small)?.into_iter().take(2);
                let moves: Vec<String> = moves.map(|one| format!("{one}:{small}:{large}")).collect();
                let moves: Vec<&str> = moves.iter().flat_map(|one| ["--move", one]).collect();
                let command = [&["rebalance", "run", "--no-wait"], &moves[..]].concat();
                cluster.control().command(&command).run(COMMAND_LIMIT)?;
                Ok(())
            }
            _ => act(cluster),
        };
        let whole = if name == "manual" { phase * 2 } else { phase * 4 };
        let course = course(
            &mut cluster,
            &cores,
            dataset,
            WRITES,
            whole,
            &mut [(phase, &mut change)],
        )?;
        cluster.end()?;
        let seconds = phase.as_secs_f64();
        let before = course.rate(seconds / 3.0, seconds);
        let after = course.rate(whole.as_secs_f64() - seconds / 3.0, whole.as_secs_f64());
        measured.lines.push(Line {
            work: format!("two nodes, {name}: throughput after the moves"),
            ours: Figure::new("requests/s", vec![after]),
            peers: vec![("before".to_owned(), Figure::new("requests/s", vec![before]))],
            ratio: Some((after / before, "before".to_owned())),
            targets: vec![Target::at_least(after / before, 1.0)],
            memory: String::new(),
        });
        measured
            .notes
            .push(format!("{name}: partitions {}.", course.ends_with()));
        measured
            .charts
            .extend(course.charts(&format!("balance-{name}"), &format!("Two nodes, moves {name}")));
    }
    Ok(())
}

/// Two nodes, in the mode `act`; a third one joins.
fn third_joins(
    bench: &Bench,
    dataset: Dataset,
    phase: Duration,
    writes: f64,
    partitions: u32,
    measured: &mut Measured,
) -> Result<()> {
    let grown = grow(bench, dataset, phase, writes, partitions)?;
    let sum: f64 = grown.single.iter().sum();
    let of_sum = grown.together / sum;
    let reads = format!("{partitions} partitions, {} % reads", (1.0 - writes) * 100.0);
    measured.lines.push(Line {
        work: format!("a third node joins, {reads}: throughput in the end"),
        ours: Figure::new("requests/s", vec![grown.together]),
        peers: vec![(
            "the single nodes together".to_owned(),
            Figure::new("requests/s", vec![sum]),
        )],
        ratio: Some((of_sum, "the single nodes together".to_owned())),
        targets: vec![Target::at_least(of_sum, OF_SUM_MIN)],
        memory: String::new(),
    });
    measured.lines.push(Line {
        work: format!("{reads}: plans in the last {STILL:?}"),
        ours: Figure::new("plans", vec![grown.plans_while_still as f64]),
        peers: Vec::new(),
        ratio: None,
        targets: vec![Target {
            text: "0".to_owned(),
            reached: grown.plans_while_still == 0,
        }],
        memory: String::new(),
    });
    let error = grown
        .course
        .error
        .as_ref()
        .map_or_else(String::new, |error| format!(" The first error: {error:?}."));
    measured.notes.push(format!(
        "{reads}: partitions {}; the nodes one by one answer {:.0?} requests/s.{error}",
        grown.course.ends_with(),
        grown.single
    ));
    let name = format!(
        "balance-joins-{}-{partitions}",
        if writes > 0.01 { "90" } else { "99.9" }
    );
    measured
        .charts
        .extend(grown.course.charts(&name, &format!("A third node joins, {reads}")));
    Ok(())
}

fn grow(bench: &Bench, dataset: Dataset, phase: Duration, writes: f64, partitions: u32) -> Result<Grown> {
    let mut single = Vec::new();
    for cores in CORES {
        let mut cluster = filled(bench, partitions, &[cores], dataset)?;
        let alone = course(&mut cluster, &[cores], dataset, writes, phase / 2, &mut [])?;
        single.push(alone.rate(phase.as_secs_f64() / 6.0, phase.as_secs_f64() / 2.0));
        cluster.end()?;
    }
    let mut cluster = filled(bench, partitions, &CORES[..2], dataset)?;
    let mut join = |cluster: &mut Cluster| {
        let place = cluster.add_node(bench)?;
        cluster.nodes()[place].limit_cores(CORES[2])
    };
    let whole = phase * 8;
    let course = course(
        &mut cluster,
        &CORES,
        dataset,
        writes,
        whole,
        &mut [(phase / 2, &mut act), (phase * 2, &mut join)],
    )?;
    let end = whole.as_secs_f64();
    let plans = cluster.control().show("/v1/plans")?;
    let plans = plans["plans"].as_array().cloned().unwrap_or_default();
    let now_ms = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)?
        .as_millis() as u64;
    let late = plans.iter().filter(|plan| {
        plan["made_unix_ms"]
            .as_u64()
            .is_some_and(|at| at + STILL.as_millis() as u64 > now_ms)
    });
    let plans_while_still = late.count();
    cluster.end()?;
    Ok(Grown {
        single,
        together: course.rate(end - STILL.as_secs_f64(), end),
        course,
        plans_while_still,
    })
}

/// A cluster with the records, whose nodes are confined then.
fn filled(bench: &Bench, partitions: u32, cores: &[f64], dataset: Dataset) -> Result<Cluster> {
    let shape = Shape {
        replicas: 1,
        nodes: cores.len(),
        partitions,
        confined: true,
        ..Shape::default()
    };
    let cluster = Cluster::start_shaped(bench, "balance", shape)?;
    cluster
        .control()
        .create_versioned(STORE, &["--replicas", "1", "--reads", "1", "--writes", "1"])?;
    Replicas::of(cluster.router().resp(), STORE)?.fill(0..dataset.records, dataset.value_bytes)?;
    for (node, &cores) in cluster.nodes().iter().zip(cores) {
        node.limit_cores(cores)?;
    }
    Ok(cluster)
}

/// Lets the cluster even out its load by itself, sooner than it would otherwise.
fn act(cluster: &mut Cluster) -> Result<()> {
    let control = cluster.control();
    control.set("balance-window-ms", WINDOW_MS)?;
    control.set("balance-cool-down-ms", 2 * WINDOW_MS)?;
    control.command(&["balance", "--mode", "act"]).run(COMMAND_LIMIT)?;
    Ok(())
}

/// The number that a node was given: none before it is a member.
fn id_of(cluster: &Cluster, place: usize) -> Result<Option<u64>> {
    let resp = cluster.nodes()[place].resp().to_string();
    let shown = cluster.control().show("/v1/cluster")?;
    let nodes = shown["nodes"].as_array().context("a cluster has nodes")?;
    let found = nodes.iter().find(|node| node["resp"] == resp.as_str());
    Ok(found.and_then(|node| node["node"].as_u64()))
}

/// The partitions of a node.
fn held_by(cluster: &Cluster, node: u64) -> Result<Vec<usize>> {
    let routing = cluster.control().show("/v1/routing")?;
    let owners = routing["owners"].as_array().context("a routing table has owners")?;
    let holds = |list: &serde_json::Value| {
        list.as_array()
            .is_some_and(|list| list.iter().any(|one| one.as_u64() == Some(node)))
    };
    Ok((0..owners.len())
        .filter(|&partition| holds(&owners[partition]))
        .collect())
}

/// Loads a cluster for a time, does each step when it is due, and looks once a second.
fn course(
    cluster: &mut Cluster,
    cores: &[f64],
    dataset: Dataset,
    writes: f64,
    whole: Duration,
    steps: &mut [Step<'_>],
) -> Result<Course> {
    let group = Group {
        connections: CONNECTIONS,
        pipeline: 1,
        keep_each: true,
        writes: Writes {
            share: writes,
            value_bytes: dataset.value_bytes,
        },
        ..Group::gets(
            cluster.router().resp(),
            STORE,
            KeyChoice::Uniform {
                records: dataset.records,
            },
        )
    };
    let stop = AtomicBool::new(false);
    let span = Span {
        warm_up: Duration::ZERO,
        measured: whole + Duration::from_secs(120),
        stop: Some(&stop),
    };
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            load::run(std::slice::from_ref(&group), span, 1)
        });
        let began = Instant::now();
        let watched = watch(cluster, cores, began, whole, steps);
        stop.store(true, Ordering::Relaxed);
        let reports = client.join().map_err(|_| anyhow!("the load generator panicked"))??;
        let samples = watched?;
        let report = GroupReport::of_all(reports)?;
        Ok(Course {
            began,
            answered: report.each,
            samples,
            error: report.error,
        })
    })
}

fn watch(
    cluster: &mut Cluster,
    cores: &[f64],
    began: Instant,
    whole: Duration,
    steps: &mut [Step<'_>],
) -> Result<Vec<Sample>> {
    let (mut samples, mut steps) = (Vec::new(), steps.iter_mut().peekable());
    let mut last = (Instant::now(), Vec::new());
    while began.elapsed() < whole {
        if let Some((_, step)) = steps.next_if(|(at, _)| began.elapsed() >= *at) {
            step(cluster)?;
        }
        thread::sleep(Duration::from_secs(1));
        let now = Instant::now();
        let times = cluster.nodes().iter().map(|node| node.process().cpu_time());
        let times = times.collect::<Result<Vec<Duration>>>()?;
        let seconds = (now - last.0).as_secs_f64();
        let used = times.iter().enumerate().map(|(at, time)| {
            let before = last.1.get(at).copied().unwrap_or(*time);
            time.saturating_sub(before).as_secs_f64() / seconds / cores[at]
        });
        let cpu = used.collect();
        last = (now, times);
        samples.push(Sample {
            at: began.elapsed().as_secs_f64(),
            cpu,
            partitions: (0..cluster.nodes().len())
                .map(|at| match id_of(cluster, at)? {
                    Some(node) => Ok(held_by(cluster, node)?.len() as u64),
                    None => Ok(0),
                })
                .collect::<Result<_>>()?,
        });
    }
    Ok(samples)
}

impl Course {
    /// The answers a second in a part of the time, in seconds from its begin.
    fn rate(&self, from: f64, to: f64) -> f64 {
        let at = |one: &Answered| {
            (one.due + one.latency)
                .saturating_duration_since(self.began)
                .as_secs_f64()
        };
        let answers = self
            .answered
            .iter()
            .filter(|one| !one.failed && (from..to).contains(&at(one)));
        answers.count() as f64 / (to - from)
    }

    /// The partitions of the nodes at first and in the end, as text.
    fn ends_with(&self) -> String {
        let of = |sample: Option<&Sample>| sample.map_or_else(String::new, |sample| format!("{:?}", sample.partitions));
        format!(
            "at first {}, in the end {}",
            of(self.samples.first()),
            of(self.samples.last())
        )
    }

    fn charts(&self, file: &str, title: &str) -> [Chart; 3] {
        let seconds = self.samples.last().map_or(0, |sample| sample.at as u64);
        let mut counts = vec![0.0; seconds as usize + 1];
        for one in self.answered.iter().filter(|one| !one.failed) {
            let at = (one.due + one.latency).saturating_duration_since(self.began).as_secs() as usize;
            if let Some(count) = counts.get_mut(at) {
                *count += 1.0;
            }
        }
        // The last second is not a whole one.
        counts.pop();
        let rates = counts
            .iter()
            .enumerate()
            .map(|(at, count)| (at as f64, *count))
            .collect();
        let nodes = self.samples.last().map_or(0, |sample| sample.cpu.len());
        let of_nodes = |value: &dyn Fn(&Sample, usize) -> Option<f64>| {
            let series = (0..nodes).map(|node| {
                let points = self
                    .samples
                    .iter()
                    .filter_map(|sample| Some((sample.at, value(sample, node)?)));
                (format!("node {}", node + 1), points.collect())
            });
            series.collect::<Vec<(String, Vec<(f64, f64)>)>>()
        };
        let lines = |what: &str, unit: &str, series| Chart::Lines {
            file: format!("{file}-{what}"),
            title: format!("{title}: {what}"),
            axes: ("seconds".to_owned(), unit.to_owned()),
            series,
        };
        [
            lines("throughput", "requests/s", vec![("all nodes".to_owned(), rates)]),
            lines(
                "processors",
                "% of what the node may use",
                of_nodes(&|sample, node| sample.cpu.get(node).map(|cpu| cpu * 100.0)),
            ),
            lines(
                "partitions",
                "partitions",
                of_nodes(&|sample, node| sample.partitions.get(node).map(|&count| count as f64)),
            ),
        ]
    }
}
