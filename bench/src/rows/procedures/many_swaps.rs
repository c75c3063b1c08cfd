//! Many stores of very different size, whose versions are swapped through a day that is accelerated, under rising load.
//!
//! The scale in number is that of the evaluation in Sumbaly et al., "Serving Large-scale Batch Computed Data with Project
//! Voldemort" (FAST 2012): 123 stores, and at most 76 swaps a day.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::super::runner::Running;
use super::super::spec::Step;
use super::streams::many::deploy_all;
use crate::dataset::Dataset;
use crate::dataset::elsewhere::Elsewhere;
use crate::load::{self, Group, GroupReport, Span};
use crate::report::{Chart, Series};
use crate::servers::control::PUSH_LIMIT;

const STORES: usize = 123;
const SWAPS: usize = 76;
const VALUE_BYTES: usize = 512;
/// The sizes of the stores, from the least to the largest. Those of the paper lie between 700 KB and 4.15 TB, on 25 nodes.
const BYTES: [f64; 2] = [700e3, 64e6];
/// So many sizes, at equal ratios.
const SIZES: usize = 12;
/// The shares of the rate that the cluster reaches.
const LOADS: [f64; 4] = [0.1, 0.25, 0.5, 0.75];
/// How long the day takes: an hour in a full run.
const DAY: [Duration; 3] = [
    Duration::from_secs(20),
    Duration::from_secs(600),
    Duration::from_secs(3600),
];

/// The curves of the paper, of 100 GB: queries a second, and milliseconds.
const PUBLISHED: [(&str, [(f64, f64); 2]); 2] = [
    ("Voldemort, as published", [(100.0, 1.2), (700.0, 3.5)]),
    ("MySQL, as published", [(100.0, 1.7), (420.0, 3.3)]),
];

/// Requests a second, and the median and the 99th percentile in milliseconds.
type Curve = Vec<(f64, f64, f64)>;

/// The same records in number for stores of one size.
fn dataset_of(store: usize, quick: bool) -> Dataset {
    let step = (BYTES[1] / BYTES[0]).powf(1.0 / (SIZES - 1) as f64);
    let bytes = BYTES[0] * step.powi((store % SIZES) as i32) / if quick { 20.0 } else { 1.0 };
    let one = Dataset {
        records: 1,
        value_bytes: VALUE_BYTES,
    };
    Dataset {
        records: (bytes / one.bytes() as f64) as u64,
        ..one
    }
}

/// Creates the stores and their first versions; finds the rate that the cluster reaches; then measures each share of it, first
/// without and then with its part of the day's swaps.
pub fn measure(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let (bench, fondaco) = (running.bench, running.fondaco()?);
    let (control, resp) = (fondaco.control(), fondaco.front().resp());
    let count = if bench.quick { STORES / 10 } else { STORES };
    let stores: Vec<(String, Dataset)> = (0..count)
        .map(|store| (format!("store-{store}"), dataset_of(store, bench.quick)))
        .collect();
    for (store, _) in &stores {
        control.create("batch", store, &[])?;
    }
    deploy_all(bench, control, &stores)?;
    control.set("router-cache-bytes", 0)?;
    let groups = |rate: Option<f64>| -> Vec<Group> {
        let of_store = |(store, dataset): &(String, Dataset)| Group {
            connections: 1,
            pipeline: 1,
            rate: rate.map(|rate| rate / count as f64),
            ..Group::uniform(resp, store, dataset.records)
        };
        stores.iter().map(of_store).collect()
    };
    let fastest = checked(load::run_on(None, &groups(None), Span::of(bench.round_time()), 0)?)?;
    let day = DAY[if bench.quick { 0 } else { 1 + usize::from(bench.full) }];
    let part = day / LOADS.len() as u32;
    let swaps = if bench.quick { 8 } else { SWAPS } / LOADS.len();
    let mut curves: [(&str, Curve); 2] = [("no swaps", Vec::new()), ("swaps", Vec::new())];
    let (mut figures, mut slowest, mut pushed) = (Vec::new(), Duration::ZERO, 0);
    for (at, share) in LOADS.into_iter().enumerate() {
        let rate = fastest.requests_per_second() * share;
        let groups = groups(Some(rate));
        let calm = checked(load::run_on(None, &groups, Span::of(part / 4), 1)?)?;
        // Built before, as if elsewhere: each has records of its own, so that all files are copied.
        let mut versions = Vec::new();
        for number in at * swaps..(at + 1) * swaps {
            let (store, dataset) = &stores[number * 7 % count];
            versions.push((store, bench.version_elsewhere(store, *dataset, number as u64)?));
        }
        pushed += versions
            .iter()
            .map(|(_, version)| version.bytes())
            .sum::<Result<u64>>()?;
        let (busy, took) = load::during(&groups, part + PUSH_LIMIT, 2, || {
            let began = Instant::now();
            let mut slowest = Duration::ZERO;
            for (number, (store, version)) in (1u32..).zip(&versions) {
                slowest = slowest.max(control.deploy(store, Elsewhere::path(version), &[])?);
                thread::sleep((part * number / swaps as u32).saturating_sub(began.elapsed()));
            }
            Ok(slowest)
        })?;
        slowest = slowest.max(took);
        for ((name, curve), report) in curves.iter_mut().zip([calm, checked(vec![busy])?]) {
            let [p50, p99] = [0.5, 0.99].map(|quantile| report.latency_us(quantile));
            figures.push((format!("{:.0} % {name}", share * 100.0), p50, p99));
            curve.push((report.requests_per_second(), p50 / 1e3, p99 / 1e3));
        }
    }
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let all = megabytes(stores.iter().map(|(_, dataset)| dataset.bytes()).sum());
    for (name, p50, p99) in figures {
        running.record(&name, [("p50", "µs", p50), ("p99", "µs", p99)]);
    }
    running.record(
        "day",
        [
            ("stores", "stores", count as f64),
            ("data", "MB", all),
            ("pushed", "MB", megabytes(pushed)),
            ("swaps", "swaps", (swaps * LOADS.len()) as f64),
            ("length", "s", day.as_secs_f64()),
            ("slowest push", "s", slowest.as_secs_f64()),
            ("rate", "requests/s", fastest.requests_per_second()),
        ],
    );
    running.charts.push(chart(&curves)?);
    Ok(())
}

/// All groups together, if every request had its right answer.
fn checked(reports: Vec<GroupReport>) -> Result<GroupReport> {
    let all = GroupReport::of_all(reports)?;
    match &all.error {
        Some(error) => bail!("{error}"),
        None => Ok(all),
    }
}

/// Offered rate against latency, beside the curves of the paper.
fn chart(curves: &[(&str, Curve)]) -> Result<Chart> {
    let mut series: Vec<Series> = Vec::new();
    for (name, points) in curves {
        let median = points.iter().map(|&(rate, p50, _)| (rate, p50)).collect();
        let tail = points.iter().map(|&(rate, _, p99)| (rate, p99)).collect();
        series.extend([(format!("median, {name}"), median), (format!("p99, {name}"), tail)]);
    }
    let published = PUBLISHED.map(|(name, points)| (name.to_owned(), points.to_vec()));
    series.extend(published);
    let axes = ["requests a second", "ms"];
    Ok(Chart::lines(
        "many-swaps",
        "offered rate against latency, through many swaps",
        axes,
        series,
    ))
}
