//! `fondaco status`: the cluster at a glance, and the process that answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use fondaco_api::{
    ClusterNode, ClusterResource, FailedStream, NodeStatus, Role, StoreList, StoreResource, StreamStatus,
    VersionResource, VersionStream, WithoutQuorum,
};
use fondaco_model::cluster::ReplicaState;
use fondaco_model::versioned::VersionedSettings;
use fondaco_model::{Placement, PushState};
use serde::Serialize;

use super::canary;
use super::nodes;
use super::push_progress::state_text;
use super::stream_options;
use crate::control_port::ControlPort;
use crate::output::{self, Output, table};

/// `fondaco status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Any process of a cluster can answer. A cluster of one shows no nodes.

Example:
  fondaco status --http 10.0.0.7:6580")]
pub struct StatusOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// The whole status, as JSON.
#[derive(Serialize)]
struct Status {
    /// The process that answers.
    process: NodeStatus,
    /// The cluster; null until it is initialised.
    cluster: Option<ClusterResource>,
    stores: Vec<StoreResource>,
    /// How far nodes have read the streams of hybrid stores.
    streams: BTreeMap<String, StreamStatus>,
}

/// Runs `fondaco status`.
pub fn status(options: &StatusOptions, output: &Output) -> anyhow::Result<()> {
    let client = options.node.client()?;
    let process = client.status()?;
    let cluster = match client.get("/v1/cluster") {
        Ok(cluster) => Some(cluster),
        Err(error) if error.code() == "no_cluster" => None,
        Err(error) => return Err(error.into()),
    };
    let stores = client.get::<StoreList>("/v1/stores")?.stores;
    let mut streams = BTreeMap::new();
    for store in stores.iter().filter(|store| store.stream.is_some()) {
        let stream = client.get(&format!("/v1/stores/{}/stream", store.name))?;
        streams.insert(store.name.clone(), stream);
    }
    let status = Status {
        process,
        cluster,
        stores,
        streams,
    };
    output.result(&status, text)
}

fn text(status: &Status) -> String {
    let mut text = summary(status) + "\n\n" + &process_text(&status.process);
    if let Some(cluster) = status.cluster.as_ref().filter(|_| status.process.role != Role::Single) {
        text.push_str(&cluster_text(cluster, &status.process.warnings));
    }
    if !status.stores.is_empty() {
        text.push('\n');
        let nodes = status.cluster.as_ref().map(|cluster| cluster.nodes.as_slice());
        text.push_str(&stores_text(&status.stores, nodes.unwrap_or_default()));
    }
    let streams: Vec<Vec<String>> = status.streams.iter().flat_map(stream_rows).collect();
    if !streams.is_empty() {
        let header = ["STREAM OF", "VERSION", "NODE", "BEHIND", "PROBLEM"];
        text.push('\n');
        text.push_str(&table(&header, &streams, &[false, true, true, false, false]));
    }
    text
}

/// The health of the cluster in a line.
fn summary(status: &Status) -> String {
    let Some(cluster) = &status.cluster else {
        return "no cluster yet: it is not initialised".to_owned();
    };
    let live = cluster.nodes.iter().filter(|node| node.live).count();
    let has_problem = |stream: &StreamStatus| {
        let mut versions = stream.versions.iter();
        !stream.failed.is_empty() || versions.any(|version| version.error.is_some() || !version.lost.is_empty())
    };
    // The only node that has a partition is not late, even if it cannot fetch it.
    let lacks =
        |version: &VersionResource| version.current && version.nodes.iter().any(|replica| !is_ready(replica.state));
    let is_behind = |store: &&StoreResource| {
        !store.late.is_empty()
            || store.versions.iter().any(lacks)
            || status.streams.get(&store.name).is_some_and(has_problem)
    };
    let behind: Vec<&str> = (status.stores.iter().filter(is_behind))
        .map(|store| store.name.as_str())
        .collect();
    let mut parts = vec![format!("{live} of {} nodes live", cluster.nodes.len())];
    if cluster.partitions_short > 0 {
        parts.push(format!(
            "{} of {} partitions have fewer ready replicas than wanted",
            cluster.partitions_short, cluster.partitions
        ));
    }
    if !behind.is_empty() {
        parts.push(format!("stores behind: {}", behind.join(", ")));
    }
    parts.join("; ")
}

fn process_text(process: &NodeStatus) -> String {
    let known = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), output::bytes);
    let role = match (process.role, process.node) {
        (Role::Single, _) => "a cluster of one".to_owned(),
        (Role::Node, Some(number)) => format!("node {number}"),
        (Role::Node, None) => "a node without a number yet".to_owned(),
        (Role::Router, _) => "router".to_owned(),
        (Role::Controller, _) => "controller".to_owned(),
    };
    let ready = match process.not_ready.as_slice() {
        [] => "yes".to_owned(),
        reasons => format!("no: {}", reasons.join("; ")),
    };
    let mut lines = vec![("process", role), ("ready", ready)];
    lines.extend(process.warnings.iter().map(|warning| ("problem", warning.clone())));
    lines.extend([
        (
            "program",
            format!("fondaco {}, pid {}", process.program_version, process.pid),
        ),
        ("up for", output::duration(Duration::from_millis(process.uptime_ms))),
        ("HTTP", process.http_addr.clone()),
        (
            "memory",
            format!("{} resident, mapped files included", known(process.resident_bytes)),
        ),
        ("partitions", process.partitions.to_string()),
    ]);
    if let Some(memory) = process.keys_in_memory.filter(|memory| memory.keys > 0) {
        let (taken, allowed) = (output::bytes(memory.bytes), output::bytes(memory.bytes_max));
        lines.push((
            "keys",
            format!("{} of engine log in memory: {taken} of {allowed}", memory.keys),
        ));
    }
    if let Some(resp) = &process.resp_addr {
        lines.push(("RESP", format!("{resp}, {} clients", process.clients)));
    }
    if let Some(data) = &process.data_directory {
        let left = known(process.disk_available_bytes);
        lines.push(("data", format!("{data}, disk with {left} left")));
    }
    lines
        .iter()
        .map(|(name, value)| format!("{name:<11}{value}\n"))
        .collect()
}

fn cluster_text(cluster: &ClusterResource, warnings: &[String]) -> String {
    let placement = match cluster.placement {
        Placement::Ring => "ring",
        Placement::Zoned => "zoned",
        Placement::Grouped => "grouped",
        Placement::All => "all",
    };
    let routing = match (cluster.routing_epoch, cluster.plan_under_way) {
        (None, _) => format!("none yet: it is created when {} nodes are live", cluster.nodes_initial),
        (Some(epoch), false) => format!("epoch {epoch}"),
        (Some(epoch), true) => format!("epoch {epoch}, a plan is running: see fondaco rebalance status"),
    };
    let leader = cluster
        .leader
        .as_deref()
        .unwrap_or("none: no decisions are made until a controller leads");
    let routers: Vec<&str> = cluster.routers.iter().map(|router| router.resp.as_str()).collect();
    let mut text = format!(
        "\ncluster    {}, {} replicas, placement {placement}\nleader     {leader}\nrouting    {routing}\n",
        cluster.identity, cluster.replicas
    );
    let highest = cluster.nodes.iter().map(|node| node.protocol);
    let highest = highest
        .chain(cluster.routers.iter().map(|router| router.protocol))
        .max();
    if let Some(highest) = highest.filter(|&highest| highest > cluster.protocol) {
        text.push_str(&format!(
            "protocol   {}, and {highest} when all nodes and routers speak it\n",
            cluster.protocol
        ));
    }
    if !routers.is_empty() {
        text.push_str(&format!("routers    {}\n", routers.join(", ")));
    }
    // Some problems are among the warnings of the process already.
    for problem in cluster.problems.iter().filter(|problem| !warnings.contains(problem)) {
        text.push_str(&format!("problem    {problem}\n"));
    }
    text.push('\n');
    text.push_str(&nodes::text(&cluster.nodes));
    text
}

/// A table of batch stores, and one of versioned stores: the two kinds share few columns.
fn stores_text(stores: &[StoreResource], nodes: &[ClusterNode]) -> String {
    let (versioned, batch): (Vec<_>, Vec<_>) = stores.iter().partition(|store| store.versioned.is_some());
    let mut tables = Vec::new();
    if !batch.is_empty() {
        let rows: Vec<Vec<String>> = batch.iter().map(|store| store_row(store, nodes)).collect();
        let header = ["BATCH STORE", "VERSION", "NODES", "LATE", "LAST PUSH"];
        tables.push(table(&header, &rows, &[false, true, false, false, false]));
    }
    if !versioned.is_empty() {
        let rows: Vec<Vec<String>> = versioned.iter().map(|store| versioned_row(store)).collect();
        let header = ["VERSIONED STORE", "N", "R", "W", "KEYS", "WITHOUT QUORUM"];
        tables.push(table(&header, &rows, &[false, true, true, true, true, false]));
    }
    tables.join("\n")
}

/// How far each version of a hybrid store has read its stream.
fn stream_rows((store, stream): (&String, &StreamStatus)) -> Vec<Vec<String>> {
    let row = |version: &VersionStream| {
        let problem = match version.lost.is_empty() {
            true => version.error.clone().unwrap_or_default(),
            false => "records were gone before they were read: push a new version".to_owned(),
        };
        let (number, lag) = (version.version.to_string(), stream_options::lag_text(version));
        let node = version.node.map_or_else(|| "-".to_owned(), |node| node.to_string());
        vec![store.clone(), number, node, lag, problem]
    };
    let failed = |failed: &FailedStream| {
        let node = failed.node.map_or_else(|| "-".to_owned(), |node| node.to_string());
        let (number, error) = (failed.version.to_string(), failed.error.clone());
        vec![store.clone(), number, node, "unknown".to_owned(), error]
    };
    let silent = |node: &u32| {
        let missing = "the node does not answer".to_owned();
        vec![store.clone(), "-".to_owned(), node.to_string(), "-".to_owned(), missing]
    };
    let rows = stream.versions.iter().map(row).chain(stream.failed.iter().map(failed));
    rows.chain(stream.silent.iter().map(silent)).collect()
}

fn versioned_row(store: &StoreResource) -> Vec<String> {
    let settings = |number: fn(&VersionedSettings) -> u32| {
        let settings = store.versioned.as_ref();
        settings.map_or_else(String::new, |settings| number(settings).to_string())
    };
    let without_quorum = match store.without_quorum {
        None => "unknown".to_owned(),
        Some(WithoutQuorum { reads: 0, writes: 0 }) => "-".to_owned(),
        Some(WithoutQuorum { reads, writes }) => format!("{reads} partitions for reads, {writes} for writes"),
    };
    vec![
        store.name.clone(),
        store.replicas.to_string(),
        settings(|settings| settings.reads),
        settings(|settings| settings.writes),
        store.keys.map_or_else(|| "-".to_owned(), output::count),
        without_quorum,
    ]
}

fn store_row(store: &StoreResource, nodes: &[ClusterNode]) -> Vec<String> {
    let current = store.versions.iter().find(|version| version.current);
    let ready = current.map_or_else(|| "-".to_owned(), |version| ready_text(store, version, nodes));
    let late: Vec<String> = store.late.iter().map(u32::to_string).collect();
    let push = store.push.as_ref().map_or_else(String::new, |push| {
        if let (PushState::Ready, Some(canary)) = (push.state, &push.canary) {
            return canary::line(push.version, canary).trim_end().to_owned();
        }
        let state = format!("version {} {:?}", push.version, push.state).to_lowercase();
        match (push.state, &push.error) {
            (PushState::Fetching, _) => format!("{state}: {}", state_text(push)),
            (_, Some(error)) => format!("{state}: {error}"),
            _ => state,
        }
    });
    let version = store
        .current_version
        .map_or_else(|| "-".to_owned(), |version| version.to_string());
    vec![store.name.clone(), version, ready, late.join(", "), push]
}

fn is_ready(state: ReplicaState) -> bool {
    matches!(state, ReplicaState::Ready | ReplicaState::Serving)
}

/// On how many of its nodes a version is ready. An absent node reports nothing.
fn ready_text(store: &StoreResource, version: &VersionResource, nodes: &[ClusterNode]) -> String {
    let ready = version.nodes.iter().filter(|node| is_ready(node.state)).count();
    let absent = nodes.iter().filter(|node| !node.live && node.partitions > 0);
    let reporting = version.nodes.iter().map(|node| node.node);
    let others = store.late.iter().copied().chain(absent.map(|node| node.node));
    let all: BTreeSet<u32> = reporting.chain(others).collect();
    format!("{ready} of {} ready", all.len())
}
