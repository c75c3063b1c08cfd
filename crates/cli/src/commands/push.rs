//! `fondaco push`: brings a new version to a store.

use clap::Args;
use fondaco_api::PushResource;
use fondaco_model::{PartitionCount, StoreName};
use fondaco_push::{Push, PushError, Pushed};
use fondaco_storage::Location;

use super::build::{self, InputOptions, prepare_build};
use super::push_outcome::{PushResult, finish};
use super::push_progress::with_job;
use super::target_options::{RolloutOptions, ThroughOptions};
use crate::control_port::ControlPort;
use crate::output::{self, Output};

/// `fondaco push`.
#[derive(Debug, Args)]
#[command(after_help = "\
The version is built in --work, which needs as much space as the values. If --work is on the
file system of the node's data, and the node runs as the same user, its files are linked, not copied. Nodes on other
machines need a location that they can read: use --output with an hdfs:// or s3:// URL,
or a directory that all of them mount. If there is no such location, --upload sends the version to the node
that --http names, and the others fetch it from there. If nodes reach a Kafka, --through sends it through a topic.

Example:
  fondaco push pymk 'connections/*.parquet' --key member --value candidates
  fondaco push features features.csv --key member --values age,score --create
  fondaco push pymk changed.parquet --delete gone.csv --key member --value candidates --incremental
  fondaco push social KNOWS=knows.csv --edges from,to --symmetric --vertices Person=people.csv --create
  fondaco push pymk 'connections/*.parquet' --key member --output s3://versions/pymk-2026-11-21
  fondaco push pymk 'connections/*.parquet' --key member --upload --http node-1:6580
  fondaco push pymk 'connections/*.parquet' --key member --through kafka://kafka-1:9092/versions
  fondaco push pymk 'connections/*.parquet' --key member --upload --to east-1:6580,west-1:6580 --pause 10m
  fondaco push pymk 'connections/*.parquet' --key member --with members=s3://versions/members-7
  fondaco push pymk 'connections/*.parquet' --key member --canary 5% --canary-time 10m")]
pub struct PushOptions {
    #[command(flatten)]
    pub(super) input: InputOptions,

    /// Keep the built version: in this directory, which is empty or missing, or at this URL
    #[arg(long, value_name = "URL")]
    output: Option<Location>,

    /// Send the version to the node over its control port, if no node can read the directory of the build
    #[arg(long)]
    upload: bool,

    #[command(flatten)]
    through: ThroughOptions,

    /// Create the store if it does not exist
    #[arg(long)]
    create: bool,

    /// The input is a difference to the store's current version: records to set, and with --delete keys to delete. Nodes
    /// fetch only what changes
    #[arg(long, conflicts_with_all = ["edges", "create", "compress", "chunk_size"])]
    incremental: bool,

    /// Refuse a full push if its columns, or their types, are not those of the store's current version
    #[arg(long, conflicts_with_all = ["edges", "incremental", "dry_run"])]
    same_schema: bool,

    #[command(flatten)]
    rollout: RolloutOptions,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco cancel`.
#[derive(Debug, Args)]
#[command(after_help = "\
The nodes delete the files that they fetched of the version; the store serves its current version as before.

Example:
  fondaco cancel pymk")]
pub struct CancelOptions {
    /// The store
    store: StoreName,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco push`.
pub fn push(options: PushOptions, output: &Output) -> anyhow::Result<()> {
    let clusters = options.rollout.clusters(&options.node)?;
    let input = &options.input;
    let push = Push {
        rows: input.graph.rows(),
        value_type: input.value_type,
        key_type: input.declared.key_type.clone(),
        deletes: input.delete.clone(),
        incremental: options.incremental,
        same_schema: options.same_schema,
        keep_at: options.output,
        upload: options.upload,
        topic: options.through.topic()?,
        create: options.create,
        with: options.rollout.with(&options.input.store)?,
        // The push takes the number of partitions of the cluster.
        ..Push::new(input.build_options(PartitionCount::ONE, None)?)
    };
    prepare_build(input.threads.unwrap_or_else(build::threads_default));
    match with_job(output, |job| fondaco_push::push(&clusters, push, job)) {
        Ok(pushed) => show(pushed, clusters.is_several, output),
        Err(error) => Err(match error.downcast_ref() {
            Some(&PushError::NoSpace {
                needed_bytes,
                free_bytes,
            }) => anyhow::anyhow!(
                "the version needs about {}, but the disk of the node has only {} free: free some space there",
                output::bytes(needed_bytes),
                output::bytes(free_bytes)
            ),
            _ => error,
        }),
    }
}

/// Prints the end of a push.
pub fn show(pushed: Pushed, is_several: bool, output: &Output) -> anyhow::Result<()> {
    match pushed {
        Pushed::Ended(outcome) => finish(outcome, is_several, false, output),
        Pushed::DryRun(built) => output.result(&PushResult::of_dry_run(&built), |_| {
            build::text(&built) + "nothing was changed\n"
        }),
    }
}

/// Runs `fondaco cancel`.
pub fn cancel(options: &CancelOptions, output: &Output) -> anyhow::Result<()> {
    let push: PushResource = fondaco_push::cancel(&options.node.endpoint(), &options.store)?;
    output.result(&push, |push| {
        format!(
            "cancelled the push of version {} of store {}\n",
            push.version, options.store
        )
    })
}
