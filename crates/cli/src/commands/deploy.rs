//! `fondaco deploy`: brings a built version to a store.
//!
//! A deploy asks the cluster to fetch and swap, and watches: the nodes do the work, and continue if the watching command
//! ends.

use clap::Args;
use fondaco_api::DryRunResource;
use fondaco_model::StoreName;
use fondaco_push::{Deploy, check_only};

use super::build::unix_ms;
use super::push_outcome::finish;
use super::push_progress::with_job;
use super::target_options::{RolloutOptions, ThroughOptions};
use crate::control_port::ControlPort;
use crate::output::{self, Output};

/// `fondaco deploy`.
#[derive(Debug, Args)]
#[command(after_help = "\
An interrupted upload resumes where it stopped, as long as the node keeps the received files.

Example:
  fondaco deploy pymk /data/pymk-1
  fondaco deploy pymk /data/pymk-1 --upload --http node-1:6580
  fondaco deploy pymk /data/pymk-1 --through kafka://kafka-1:9092/versions
  fondaco deploy pymk s3://versions/pymk-1 --to east-1:6580,west-1:6580
  fondaco deploy pymk s3://versions/pymk-7 --with members=s3://versions/members-7")]
pub struct DeployOptions {
    /// The store
    store: StoreName,

    /// The location of the built version: a path, or a URL that the node can read; kafka://HOST:PORT,…/TOPIC/PARTITION/OFFSET
    /// is a version that was sent through a topic
    #[arg(value_name = "URL")]
    source: String,

    /// Send the version to the node over its control port, if no node can read the directory
    #[arg(long, conflicts_with = "dry_run")]
    upload: bool,

    #[command(flatten)]
    through: ThroughOptions,

    /// Of a hybrid store: the version contains all events up to this time, and later ones count on top of it. The
    /// default is what its build was told. A time such as 2026-11-26T08:00:00Z, or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = unix_ms)]
    as_of: Option<u64>,

    /// Of a hybrid store: when this version was first pushed to another cluster; the events since then, less the
    /// store's --rewind, are read on top of it here, too
    #[arg(long, value_name = "TIME", value_parser = unix_ms)]
    started: Option<u64>,

    #[command(flatten)]
    rollout: RolloutOptions,

    /// Push a version that was built from a difference even if the store has another version now than it was built from
    #[arg(long)]
    any_base: bool,

    /// Check everything, and change nothing
    #[arg(long, conflicts_with_all = ["to", "through"])]
    dry_run: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco deploy`.
pub fn deploy(options: DeployOptions, output: &Output) -> anyhow::Result<()> {
    let name = &options.store;
    let deploy = Deploy {
        upload: options.upload,
        topic: options.through.topic()?,
        as_of_unix_ms: options.as_of,
        started_unix_ms: options.started,
        any_base: options.any_base,
        with: options.rollout.with(name)?,
        ..Deploy::new(name.clone(), options.source)
    };
    if options.dry_run {
        let run = check_only(&options.node.endpoint(), &deploy, options.rollout.again)?;
        return output.result(&run, |run| dry_run_text(name, run));
    }
    let clusters = options.rollout.clusters(&options.node)?;
    let outcome = with_job(output, |job| fondaco_push::deploy(&clusters, &deploy, job))?;
    finish(outcome, clusters.is_several, true, output)
}

fn dry_run_text(name: &StoreName, run: &DryRunResource) -> String {
    format!(
        "store {name} would serve it as version {}: {} records, {}, {}; nothing was changed\n",
        run.version,
        output::count(run.records),
        output::bytes(run.bytes_total),
        match run.links {
            true => "its files linked, not copied".to_owned(),
            false => format!("its files copied, {} on the disk", output::bytes(run.needed_bytes)),
        }
    )
}
