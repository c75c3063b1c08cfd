//! `fondaco versions`, `rollback` and `swap`: list the versions of a store, and choose the current one.

use clap::Args;
use fondaco_api::{PushResource, RollbackRequest, StoreResource, SwapRequest, VersionList, VersionResource};
use fondaco_model::{StoreName, VersionNumber};

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
#[command(after_help = "Example:\n  fondaco rollback pymk")]
pub struct RollbackOptions {
    /// The store
    store: StoreName,

    /// The version to return to; the default is the one before the current one
    #[arg(long, value_name = "VERSION")]
    to: Option<VersionNumber>,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco swap`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco swap pymk --to 7")]
pub struct SwapOptions {
    /// The store
    store: StoreName,

    /// The version to make current; fondaco versions lists the kept versions
    #[arg(long, value_name = "VERSION")]
    to: VersionNumber,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco versions`.
pub fn list(options: &VersionsOptions, output: &Output) -> anyhow::Result<()> {
    let path = format!("/v1/stores/{}/versions", options.store);
    let list: VersionList = options.node.client()?.get(&path)?;
    output.result(&list, |list| {
        let push = list.push.as_ref().map_or_else(String::new, push_text);
        push + &text(options.store.as_str(), &list.versions)
    })
}

/// Runs `fondaco rollback`.
pub fn roll_back(options: &RollbackOptions, output: &Output) -> anyhow::Result<()> {
    let request = RollbackRequest {
        to: options.to.map(VersionNumber::get),
    };
    let path = format!("/v1/stores/{}/rollback", options.store);
    let store: StoreResource = options.node.client()?.post(&path, &request)?;
    output.result(&store, serves)
}

/// Runs `fondaco swap`.
pub fn swap(options: &SwapOptions, output: &Output) -> anyhow::Result<()> {
    let request = SwapRequest {
        version: options.to.get(),
    };
    let path = format!("/v1/stores/{}/swap", options.store);
    let store: StoreResource = options.node.client()?.post(&path, &request)?;
    output.result(&store, serves)
}

fn serves(store: &StoreResource) -> String {
    match store.current_version {
        Some(version) => format!("store {} serves version {version}\n", store.name),
        None => format!("store {} serves no version\n", store.name),
    }
}

/// The push under way, and the reason that it waits, in a line.
pub fn push_text(push: &PushResource) -> String {
    let state = format!("{:?}", push.state).to_lowercase();
    format!(
        "version {} is being pushed, {state}: {}\n",
        push.version,
        state_text(push)
    )
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
