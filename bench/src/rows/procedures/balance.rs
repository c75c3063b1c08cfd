//! A cluster that evens out its load: nodes of different size, confined by control groups, under a load that is as high as
//! they can bear. What Haugen and Oksnevad's thesis shows of its Headmaster in chapter 5 ("Experiments").

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::super::runner::Running;
use super::super::spec::Step;
use crate::bench::Bench;
use crate::dataset::Dataset;
use crate::load::{Answered, Group, Writes};
use crate::report::{Chart, Series};
use crate::servers::fondaco::{Fondaco, Limits, STORE, Shape};

/// The processors of the nodes: as 3, 5 and 8, so that 16 partitions can be dealt in proportion.
const CORES: [f64; 3] = [0.12, 0.20, 0.32];
const PARTITIONS: u32 = 16;
/// The share of requests that write, where partitions move by hand or by the analyzer.
const WRITES: f64 = 0.1;
const CONNECTIONS: usize = 256;
/// A window of reports, in milliseconds.
const WINDOW_MS: u64 = 5_000;
/// No plan may begin in this time at the end.
const STILL: Duration = Duration::from_secs(20);

/// The changes that are made under load, with their times.
type ChangeAt<'a> = (Duration, &'a mut dyn FnMut(&mut Fondaco) -> Result<()>);

/// A change of a cluster under load.
type Change = fn(&mut Fondaco) -> Result<()>;

/// The load of the nodes in one second.
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

/// Two nodes, whose partitions are moved by hand, or, with the argument `automatic`, by the cluster. Throughput before and after,
/// as figures with the name of the argument, and charts.
pub fn measure_two(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let name = step.arguments.first().context("no way to move")?;
    let (change, phases): (Change, u32) = match name.as_str() {
        "automatic" => (act, 4),
        _ => (move_by_hand, 2),
    };
    let (dataset, phase, cores) = (running.dataset, phase(running.bench), [CORES[0], CORES[2]]);
    let mut cluster = filled(running.bench, PARTITIONS, &cores, dataset)?;
    let whole = phase * phases;
    let mut change = |cluster: &mut Fondaco| change(cluster);
    let mut steps: [ChangeAt<'_>; 1] = [(phase, &mut change)];
    let course = course(&mut cluster, &cores, dataset, WRITES, whole, &mut steps)?;
    cluster.end()?;
    let (seconds, end) = (phase.as_secs_f64(), whole.as_secs_f64());
    let before = course.rate(seconds / 3.0, seconds);
    let after = course.rate(end - seconds / 3.0, end);
    running.record(name, [("before", "requests/s", before), ("after", "requests/s", after)]);
    running.figures.set(&format!("{name} partitions"), course.ends_with());
    let charts = course.charts(&format!("balance-{name}"), &format!("Two nodes, moves {name}"));
    running.charts.extend(charts);
    Ok(())
}

/// Two nodes in the mode `act`, which a third one joins; the arguments are the share of writes and the number of partitions.
pub fn measure_join(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let partitions = step.arguments.first().context("no number of partitions")?.parse()?;
    let (bench, dataset, phase, writes) = (running.bench, running.dataset, phase(running.bench), step.writes);
    let mut single = Vec::new();
    for cores in CORES {
        let mut cluster = filled(bench, partitions, &[cores], dataset)?;
        let alone = course(&mut cluster, &[cores], dataset, writes, phase / 2, &mut [])?;
        single.push(alone.rate(phase.as_secs_f64() / 6.0, phase.as_secs_f64() / 2.0));
        cluster.end()?;
    }
    let mut cluster = filled(bench, partitions, &CORES[..2], dataset)?;
    let mut join = |cluster: &mut Fondaco| cluster.add_node(bench)?.limit_cores(CORES[2]);
    let whole = phase * 8;
    let mut steps: [ChangeAt<'_>; 2] = [(phase / 2, &mut act), (phase * 2, &mut join)];
    let course = course(&mut cluster, &CORES, dataset, writes, whole, &mut steps)?;
    let plans = plans_since(&cluster, STILL)?;
    cluster.end()?;
    let (name, end) = (&step.name, whole.as_secs_f64());
    let together = course.rate(end - STILL.as_secs_f64(), end);
    let values = [
        ("together", "requests/s", together),
        ("single", "requests/s", single.iter().sum()),
        ("plans", "plans", plans as f64),
    ];
    running.record(name, values);
    let error = course.error.as_ref();
    let error = error.map_or_else(String::new, |error| format!(" The first error: {error:?}."));
    running.notes.push(format!(
        "{name}: partitions {}; the nodes one by one answer {single:.0?} requests/s.{error}",
        course.ends_with()
    ));
    let percent = if writes > 0.01 { "90" } else { "99.9" };
    let charts = course.charts(
        &format!("balance-joins-{percent}-{partitions}"),
        &format!("A third node joins, {name}"),
    );
    running.charts.extend(charts);
    Ok(())
}

/// The length of a phase.
fn phase(bench: &Bench) -> Duration {
    Duration::from_secs(if bench.quick { 8 } else { 20 })
}

/// Moves two partitions from the small node to the large one.
fn move_by_hand(cluster: &mut Fondaco) -> Result<()> {
    let known = |place| id_of(cluster, place)?.context("a node has a number");
    let (small, large) = (known(0)?, known(1)?);
    let moves = held_by(cluster, small)?.into_iter().take(2);
    let moves: Vec<String> = moves.map(|one| format!("{one}:{small}:{large}")).collect();
    let moves: Vec<&str> = moves.iter().flat_map(|one| ["--move", one]).collect();
    let command = [&["rebalance", "run", "--no-wait"], &moves[..]].concat();
    cluster.control().run(&command)
}

/// How many plans were made in the last part of the time.
fn plans_since(cluster: &Fondaco, span: Duration) -> Result<usize> {
    let shown = cluster.control().show("/v1/plans")?;
    let plans = shown["plans"].as_array().cloned().unwrap_or_default();
    let since_ms = (SystemTime::now() - span).duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let made = |plan: &&serde_json::Value| plan["made_unix_ms"].as_u64().is_some_and(|at| at > since_ms);
    Ok(plans.iter().filter(made).count())
}

/// A cluster with the records, whose nodes are confined then.
fn filled(bench: &Bench, partitions: u32, cores: &[f64], dataset: Dataset) -> Result<Fondaco> {
    let shape = Shape {
        replicas: 1,
        nodes: cores.len(),
        partitions,
        confined: true,
        ..Shape::default()
    };
    let cluster = Fondaco::start(bench, "balance", shape, Limits::default())?;
    let options = ["--replicas", "1", "--reads", "1", "--writes", "1"];
    cluster.control().create("versioned", STORE, &options)?;
    cluster.fill_replicas(STORE, dataset)?;
    for (node, &cores) in cluster.nodes().iter().zip(cores) {
        node.limit_cores(cores)?;
    }
    Ok(cluster)
}

/// Lets the cluster even out its load by itself, sooner than it would otherwise.
fn act(cluster: &mut Fondaco) -> Result<()> {
    let control = cluster.control();
    control.set("balance-window-ms", WINDOW_MS)?;
    control.set("balance-cool-down-ms", 2 * WINDOW_MS)?;
    control.run(&["balance", "--mode", "act"])
}

/// The number that a node was given: none before it is a member.
fn id_of(cluster: &Fondaco, place: usize) -> Result<Option<u64>> {
    let resp = cluster.nodes()[place].resp().to_string();
    let shown = cluster.control().show("/v1/cluster")?;
    let nodes = shown["nodes"].as_array().context("a cluster has nodes")?;
    let found = nodes.iter().find(|node| node["resp"] == resp.as_str());
    Ok(found.and_then(|node| node["node"].as_u64()))
}

/// The partitions of a node.
fn held_by(cluster: &Fondaco, node: u64) -> Result<Vec<usize>> {
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
    cluster: &mut Fondaco,
    cores: &[f64],
    dataset: Dataset,
    writes: f64,
    whole: Duration,
    steps: &mut [ChangeAt<'_>],
) -> Result<Course> {
    let group = Group {
        connections: CONNECTIONS,
        pipeline: 1,
        keep_each: true,
        writes: Writes {
            share: writes,
            value_bytes: dataset.value_bytes,
            ..Writes::default()
        },
        ..Group::uniform(cluster.front().resp(), STORE, dataset.records)
    };
    let began = Instant::now();
    let limit = whole + Duration::from_secs(120);
    let (report, samples) = group.during(limit, 1, || watch(cluster, cores, began, whole, steps))?;
    Ok(Course {
        began,
        answered: report.each,
        samples,
        error: report.error,
    })
}

fn watch(
    cluster: &mut Fondaco,
    cores: &[f64],
    began: Instant,
    whole: Duration,
    steps: &mut [ChangeAt<'_>],
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
        // The last second is not a whole one.
        let rates = (0..seconds).map(|at| (at as f64, self.rate(at as f64, at as f64 + 1.0)));
        let nodes = self.samples.last().map_or(0, |sample| sample.cpu.len());
        let of_nodes = |value: &dyn Fn(&Sample, usize) -> Option<f64>| {
            let points = |node: usize| {
                let samples = self.samples.iter();
                samples
                    .filter_map(|sample| Some((sample.at, value(sample, node)?)))
                    .collect()
            };
            let series = (0..nodes).map(|node| (format!("node {}", node + 1), points(node)));
            series.collect::<Vec<Series>>()
        };
        let lines = |what: &str, unit: &str, series| {
            Chart::lines(
                format!("{file}-{what}"),
                format!("{title}: {what}"),
                ["seconds", unit],
                series,
            )
        };
        let percent = |sample: &Sample, node: usize| Some(sample.cpu.get(node)? * 100.0);
        let partitions = |sample: &Sample, node: usize| Some(*sample.partitions.get(node)? as f64);
        [
            lines(
                "throughput",
                "requests/s",
                vec![("all nodes".to_owned(), rates.collect())],
            ),
            lines("processors", "% of what the node may use", of_nodes(&percent)),
            lines("partitions", "partitions", of_nodes(&partitions)),
        ]
    }
}
