//! Figures 5 to 9 as charts.

use anyhow::Result;
use fastrand::Rng;

use super::cluster::{Cluster, GROUPS, NODES_PER_GROUP};
use super::contender::Contender;
use super::model::{self, CLIENT_RATE, Kind};
use super::outcome::{Outcome, Sample, quantile_ms};
use super::planning::{self, Points};
use super::simulation::{Load, Traffic, simulate};
use super::{CONTENDERS, Outcomes, RATES, Size};
use crate::report::{Chart, Series};

/// All charts, and by how much the rate of requests differs from the desired one at most, in percent.
pub(super) fn charts(cluster: &Cluster, size: Size, outcomes: &Outcomes) -> Result<(Vec<Chart>, f64)> {
    let mut charts = vec![latency_chart(size), groups_chart(cluster, size)?];
    charts.extend(fan_out_charts(cluster, size)?);
    charts.extend(traffic_charts(outcomes));
    charts.extend(penalty_charts(cluster, size)?);
    let (rates, difference) = rate_charts(cluster, size)?;
    charts.extend(rates);
    Ok((charts, difference))
}

pub(super) fn lines_chart(file: &str, title: String, axes: [&str; 2], series: Vec<Series>) -> Chart {
    Chart::lines(format!("fan-out-{file}"), title, axes, series)
}

/// Figure 5.
fn latency_chart(size: Size) -> Chart {
    const QUANTILES: [f64; 13] = [
        0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999,
    ];
    let mut random = Rng::with_seed(1);
    let mut latencies: Vec<u64> = (0..size.queries * 50).map(|_| model::latency_us(&mut random)).collect();
    latencies.sort_unstable();
    let point = |share| (quantile_ms(&latencies, share) * 1e3, share * 100.0);
    Chart::Latencies {
        file: "fan-out-5".into(),
        title: "figure 5: latency of a request for one key, as simulated".into(),
        series: vec![("requests".into(), QUANTILES.map(point).to_vec())],
    }
}

/// Figure 6: the two parts of equation 4.
fn groups_chart(cluster: &Cluster, size: Size) -> Result<Chart> {
    let parts = ["whole", "slowest node", "client"];
    let mut series = parts.map(|part| (part.to_owned(), Points::new()));
    for groups in 1..=GROUPS as usize {
        let mut load = size.load(Traffic::Badges, [0, 1], 10.0);
        load.costs.badges = Some(model::PAGE);
        let samples = simulate(cluster, Contender::Groups(groups), load, 1)?.samples;
        let mean = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>() as f64 / samples.len() as f64 / 1e3;
        let (whole, slowest) = (mean(|sample| sample.latency_us), mean(|sample| sample.slowest_us));
        for ((_, points), ms) in series.iter_mut().zip([whole, slowest, whole - slowest]) {
            points.push((groups as f64, ms));
        }
    }
    let title = format!("figure 6: mean latency of look-ups of {} keys", model::PAGE);
    Ok(lines_chart("6", title, ["groups asked", "ms"], series.to_vec()))
}

/// Figure 7.
fn fan_out_charts(cluster: &Cluster, size: Size) -> Result<[Chart; 2]> {
    let by_groups = format!("figure 7b: requests for a query of {} keys", planning::KEYS_BY_GROUPS);
    Ok([
        lines_chart(
            "7a",
            "figure 7a: requests for a query, 10 groups of 20 nodes".into(),
            ["keys of the query", "requests"],
            planning::requests_by_keys(cluster, size.plans)?,
        ),
        lines_chart(
            "7b",
            by_groups,
            ["groups of the cluster", "requests"],
            planning::requests_by_groups(size.plans)?,
        ),
    ])
}

/// Figure 8.
fn traffic_charts(outcomes: &Outcomes) -> [Chart; 2] {
    let chart = |file: &str, name: &str, share: f64| {
        let line = |at: usize| {
            let point = |(rounds, rate): (&Vec<[Outcome; CONTENDERS.len()]>, f64)| {
                let latencies = rounds[0][at].latencies_us(Some(Kind::Multi));
                (rate, quantile_ms(&latencies, share))
            };
            (CONTENDERS[at].name(), outcomes.iter().zip(RATES).map(point).collect())
        };
        let title = format!("figure {file}: {name} of queries of several keys");
        let series = (0..CONTENDERS.len()).map(line).collect();
        lines_chart(file, title, ["queries a second", "ms"], series)
    };
    [chart("8a", "median latency", 0.5), chart("8b", "99th percentile", 0.99)]
}

/// Figure 9a.
fn penalty_charts(cluster: &Cluster, size: Size) -> Result<[Chart; 2]> {
    let [penalties, requests] = planning::penalties_by_keys(cluster, size.plans)?;
    let title = |what: &str| format!("figure 9a: {what} of unions in the background");
    Ok([
        lines_chart(
            "9a-penalty",
            title("penalty P (equation 5)"),
            ["keys of the query", "P"],
            penalties,
        ),
        lines_chart(
            "9a-requests",
            title("requests"),
            ["keys of the query", "requests"],
            requests,
        ),
    ])
}

/// Figures 9b to 9d, and by how much the rate of requests differs from the desired one at most, in percent.
fn rate_charts(cluster: &Cluster, size: Size) -> Result<([Chart; 3], f64)> {
    const RATES: [f64; 9] = [10.0, 25.0, 40.0, 60.0, 80.0, 100.0, 125.0, 150.0, 200.0];
    let contenders = [Contender::RoundRobin, Contender::SetCover, Contender::Controlled];
    let mut by_query = contenders.map(|contender| (contender.name(), Points::new()));
    let (mut by_second, mut farthest) = (by_query.clone(), 0.0_f64);
    for queries_per_second in RATES {
        let load = Load {
            queries: queries_per_second as usize * size.seconds,
            ..size.load(Traffic::Searches, [1, 0], queries_per_second)
        };
        for (at, contender) in contenders.into_iter().enumerate() {
            let outcome = simulate(cluster, contender, load, 1)?;
            let made = outcome.requests_per_second();
            by_query[at]
                .1
                .push((queries_per_second, outcome.requests_per_query(None)));
            by_second[at].1.push((queries_per_second, made));
            let nodes = f64::from(NODES_PER_GROUP);
            let can_be_reached = (nodes..=nodes * f64::from(GROUPS)).contains(&(CLIENT_RATE / queries_per_second));
            if contender == Contender::Controlled && can_be_reached {
                farthest = farthest.max((made / CLIENT_RATE - 1.0).abs() * 100.0);
            }
        }
    }
    let by_node_rate = planning::requests_by_node_rate(size.seconds);
    let title = format!(
        "figure 9d: requests for a search, {} clients at {} queries/s",
        planning::CLIENTS,
        planning::QUERIES_PER_SECOND
    );
    let queries = "queries a second";
    let charts = [
        lines_chart(
            "9b",
            "figure 9b: requests for a search".into(),
            [queries, "requests"],
            by_query.to_vec(),
        ),
        lines_chart(
            "9c",
            "figure 9c: requests a second of a client".into(),
            [queries, "requests a second"],
            by_second.to_vec(),
        ),
        lines_chart(
            "9d",
            title,
            ["desired requests a second of a node", "requests"],
            vec![(Contender::Controlled.name(), by_node_rate)],
        ),
    ];
    Ok((charts, farthest))
}
