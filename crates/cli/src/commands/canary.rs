//! `fondaco canary`: shows and steers the canary of a push; and the options that begin one.

use std::fmt::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fondaco_api::{CanaryRequest, CanaryResource, PushResource};
use fondaco_model::{
    CanaryAction, CanaryBounds, CanaryCounts, CanaryReads, CanaryState, CanaryTerms, Share, StoreName,
};

use crate::control_port::ControlPort;
use crate::output::{self, Output, table};

/// The options of a canary.
#[derive(Debug, Clone, Args)]
pub struct CanaryOptions {
    /// Have the new version answer these reads before it becomes current, and compare it with the current one: a share of the keys (5%),
    /// the reads sent to nodes (node:1,2), or those sent to nodes and routers in zones (zone:east)
    #[arg(long, value_name = "READS")]
    canary: Option<CanaryReads>,

    /// How long the canary runs; the default is ten minutes
    #[arg(long, value_name = "TIME", requires = "canary", value_parser = output::parse_span_ms)]
    canary_time: Option<u64>,

    /// Roll back if the new version lacks more than this share of the compared keys; the default is 1%
    #[arg(long, value_name = "SHARE", requires = "canary")]
    canary_missing: Option<Share>,

    /// Roll back if more than this share of the compared keys have another value; the default is 100%, which is no bound
    #[arg(long, value_name = "SHARE", requires = "canary")]
    canary_changed: Option<Share>,

    /// Roll back if more than this share of the compared keys cannot be read in the new version only; the default is 0.1%
    #[arg(long, value_name = "SHARE", requires = "canary")]
    canary_errors: Option<Share>,

    /// Roll back if the mean latency of the new version is more than this many percent of the current one's; the default is 300
    #[arg(long, value_name = "PERCENT", requires = "canary", value_parser = clap::value_parser!(u32).range(1..))]
    canary_latency: Option<u32>,

    /// How many keys must be compared, or requests to each version measured, before a bound applies; the default is 100
    #[arg(long, value_name = "NUMBER", requires = "canary")]
    canary_min_reads: Option<u64>,
}

impl CanaryOptions {
    /// The terms of the canary, if there is to be one.
    pub fn terms(&self) -> Option<CanaryTerms> {
        let default = CanaryBounds::default();
        Some(CanaryTerms {
            reads: self.canary.clone()?,
            time_ms: self.canary_time.unwrap_or(CanaryTerms::default_time_ms()),
            bounds: CanaryBounds {
                missing: self.canary_missing.unwrap_or(default.missing),
                changed: self.canary_changed.unwrap_or(default.changed),
                errors: self.canary_errors.unwrap_or(default.errors),
                latency_percent: self.canary_latency.unwrap_or(default.latency_percent),
                reads_min: self.canary_min_reads.unwrap_or(default.reads_min),
            },
        })
    }
}

/// `fondaco canary`.
#[derive(Debug, Args)]
#[command(after_help = "\
A paused canary keeps its share of the reads and its time; it is rolled back all the same when its bounds are exceeded.

Example:
  fondaco canary pymk
  fondaco canary pymk promote")]
pub struct SteerOptions {
    /// The store
    store: StoreName,

    /// The action; without one, the canary is shown
    #[arg(value_enum)]
    action: Option<Action>,

    #[command(flatten)]
    node: ControlPort,
}

/// An action on a canary.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Action {
    /// Stop its clock
    Pause,
    /// Continue its clock
    Resume,
    /// End it: the new version is deleted
    Abort,
    /// End it: the new version becomes current
    Promote,
}

/// Runs `fondaco canary`.
pub fn steer(options: &SteerOptions, output: &Output) -> anyhow::Result<()> {
    let (client, name) = (options.node.client()?, &options.store);
    let push: PushResource = match options.action {
        None => client.get(&format!("/v1/stores/{name}/push"))?,
        Some(action) => {
            let action = match action {
                Action::Pause => CanaryAction::Pause,
                Action::Resume => CanaryAction::Resume,
                Action::Abort => CanaryAction::Abort,
                Action::Promote => CanaryAction::Promote,
            };
            client.post(&format!("/v1/stores/{name}/canary"), &CanaryRequest { action })?
        }
    };
    output.result(&push, |push| match &push.canary {
        Some(canary) => explain(push.version, canary),
        None => format!("the last push of store {name} has no canary\n"),
    })
}

/// The canary of the last push of a store, with its counts by node.
pub fn explain(version: u64, canary: &CanaryResource) -> String {
    let mut text = line(version, canary);
    if !canary.nodes.is_empty() {
        let row = |node: String, counts: &CanaryCounts| {
            let (new_us, current_us) = counts.mean_latencies_us();
            let numbers = [
                counts.reads,
                counts.current_reads,
                counts.compared,
                counts.missing,
                counts.added,
                counts.changed,
                counts.errors,
            ];
            let mut row = vec![node];
            row.extend(numbers.map(output::count));
            row.extend([new_us, current_us].map(|us| format!("{us} µs")));
            row
        };
        let nodes = canary.nodes.iter().map(|node| row(node.node.to_string(), &node.counts));
        let rows: Vec<_> = nodes.chain([row("all".to_owned(), &canary.counts)]).collect();
        let head = [
            "NODE", "READS", "CURRENT", "COMPARED", "MISSING", "ADDED", "CHANGED", "ERRORS", "LATENCY", "CURRENT",
        ];
        text += &table(&head, &rows, &[true; 10]);
    }
    text
}

/// A canary in a line.
pub fn line(version: u64, canary: &CanaryResource) -> String {
    let time = |ms| output::duration(Duration::from_millis(ms));
    let state = match canary.state {
        CanaryState::Waiting => "waits until nodes have it",
        CanaryState::Running => "runs",
        CanaryState::Paused => "is paused",
        CanaryState::Promoting => "is being promoted",
        CanaryState::Promoted => "was promoted",
        CanaryState::RolledBack => "was rolled back",
        CanaryState::Aborted => "was aborted",
    };
    let mut text = format!("canary of version {version} ({}) {state}", canary.terms.reads);
    // Writing to a string does not fail.
    let _ = match &canary.reason {
        Some(reason) => write!(text, ": {reason}"),
        None if canary.against.is_some() => write!(
            text,
            ", {} of {}: {}",
            time(canary.elapsed_ms),
            time(canary.terms.time_ms),
            canary.counts
        ),
        None => Ok(()),
    };
    text + "\n"
}
