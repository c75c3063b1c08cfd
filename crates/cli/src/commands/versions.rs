//! `fondaco versions`, `rollback` and `swap`: list the versions of a store, and choose the current one.

use clap::Args;
use fondaco_api::{PushResource, RollbackRequest, StoreResource, SwapRequest, VersionList, VersionResource};
use fondaco_model::{PushState, StoreName, VersionNumber};

use super::canary;
use super::push_progress::{problems, state_text};
use crate::control_port::ControlPort;
use crate::output::{self, Output, table};

/// `fondaco versions`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco versions pymk")]
pub struct VersionsOptions {
    /// The store
    store: StoreName,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco rollback`.
#[derive(Debug, Args)]
#[command(after_help = "\
A version that was swapped in together with those of other stores, with --with, goes back with or without those: say which.

Example:
  fondaco rollback pymk
  fondaco rollback pymk --set")]
pub struct RollbackOptions {
    /// The store
    store: StoreName,

    /// The version to return to; the default is the one before the current one
    #[arg(long, value_name = "VERSION")]
    to: Option<VersionNumber>,

    /// Roll the stores that were swapped in together back too, each to the version before, by one write
    #[arg(long, conflicts_with_all = ["to", "alone"])]
    set: bool,

    /// Roll only this store back, though others were swapped in together with it
    #[arg(long)]
    alone: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco swap`.
#[derive(Debug, Args)]
#[command(after_help = "\
A version that the gates of its push hold goes live all the same; the record of changes names the user.

Example:
  fondaco swap pymk --to 7
  fondaco swap pymk --to 7 --with members=9")]
pub struct SwapOptions {
    /// The store
    store: StoreName,

    /// The version to make current; fondaco versions lists the kept versions
    #[arg(long, value_name = "VERSION")]
    to: VersionNumber,

    /// Also make this kept version of another store current, by the same write. May be repeated
    #[arg(long = "with", value_name = "STORE=VERSION", value_parser = store_and_version)]
    with: Vec<(StoreName, VersionNumber)>,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco versions`.
pub fn list(options: &VersionsOptions, output: &Output) -> anyhow::Result<()> {
    let path = format!("/v1/stores/{}/versions", options.store);
    let list: VersionList = options.node.client()?.get(&path)?;
    output.result(&list, |list| {
        let push = list.push.as_ref().map_or_else(String::new, push_text);
        push + &text(options.store.as_str(), &list.versions) + &on_demand_text(&list.versions)
    })
}

/// Runs `fondaco rollback`.
pub fn roll_back(options: &RollbackOptions, output: &Output) -> anyhow::Result<()> {
    let request = RollbackRequest {
        to: options.to.map(VersionNumber::get),
        set: (options.set || options.alone).then_some(options.set),
        if_current: None,
    };
    let path = format!("/v1/stores/{}/rollback", options.store);
    let store: StoreResource = options.node.client()?.post(&path, &request)?;
    output.result(&store, serves)
}

/// Runs `fondaco swap`.
pub fn swap(options: &SwapOptions, output: &Output) -> anyhow::Result<()> {
    let request = SwapRequest {
        version: options.to.get(),
        with: options.with.iter().cloned().collect(),
    };
    let path = format!("/v1/stores/{}/swap", options.store);
    let store: StoreResource = options.node.client()?.post(&path, &request)?;
    output.result(&store, serves)
}

fn store_and_version(text: &str) -> Result<(StoreName, VersionNumber), String> {
    let parsed = text
        .split_once('=')
        .and_then(|(store, version)| Some((store.parse().ok()?, version.parse().ok()?)));
    parsed.ok_or_else(|| "write STORE=VERSION, such as members=9".to_owned())
}

fn serves(store: &StoreResource) -> String {
    match store.current_version {
        Some(version) => format!("store {} serves version {version}\n", store.name),
        None => format!("store {} serves no version\n", store.name),
    }
}

/// The push under way or held, and the reason that it waits, in a line.
pub fn push_text(push: &PushResource) -> String {
    let state = push.state.to_string();
    if push.state == PushState::Held {
        let reason = push.error.as_deref().unwrap_or("its node gives no reason");
        return format!("version {} is fetched and held: {reason}\n", push.version);
    }
    let canary = push.canary.as_ref();
    let canary = canary.map_or_else(String::new, |canary| canary::line(push.version, canary));
    format!(
        "version {} is being pushed, {state}: {}\n{canary}",
        push.version,
        state_text(push)
    )
}

/// The nodes that answer from a version before they have copied it, a line each.
pub fn on_demand_text(versions: &[VersionResource]) -> String {
    let nodes = versions.iter().flat_map(|version| {
        let nodes = version.nodes.iter().filter(|node| node.on_demand);
        nodes.map(|node| {
            format!(
                "node {} answers from version {} while it copies it: {} of {}\n",
                node.node,
                version.version,
                output::bytes(node.bytes_done),
                output::bytes(node.bytes_total)
            )
        })
    });
    nodes.collect()
}

/// The versions of a store as a table.
pub fn text(store: &str, versions: &[VersionResource]) -> String {
    if versions.is_empty() {
        return format!("store {store} has no version yet: fondaco push {store} INPUT… --key COLUMN\n");
    }
    let rows: Vec<Vec<String>> = versions.iter().map(row).collect();
    let mut text = table(
        &[
            "VERSION",
            "STATE",
            "RECORDS",
            "SIZE",
            "INDEXES",
            "CHUNKS",
            "COMPRESSION",
            "BUILT",
        ],
        &rows,
        &[true, false, true, true, true, true, false, false],
    );
    for version in versions {
        if let Some(error) = &version.error {
            text.push_str(&format!("version {} failed: {error}\n", version.version));
        }
        for problem in problems(&version.nodes) {
            text.push_str(&format!("version {} on {problem}\n", version.version));
        }
    }
    text
}

fn row(version: &VersionResource) -> Vec<String> {
    let fact = |fact: Option<u64>, text: fn(u64) -> String| fact.map_or_else(|| "-".to_owned(), text);
    vec![
        version.version.to_string(),
        format!("{:?}", version.state).to_lowercase(),
        fact(version.records, output::count),
        fact(version.bytes, output::bytes),
        fact(version.index_bytes, output::bytes),
        fact(version.chunks, output::count),
        version.compression.clone().unwrap_or_else(|| "-".to_owned()),
        fact(version.built_unix_ms, output::timestamp),
    ]
}
