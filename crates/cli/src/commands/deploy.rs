//! `fondaco deploy`: brings a built version to a store.
//!
//! A deploy asks the cluster to fetch and swap, and watches: the nodes do the work, and continue if the watching command
//! ends.

use clap::Args;
use fondaco_api::{DryRunResource, NewPush};
use fondaco_model::StoreName;
use fondaco_storage::Location;

use super::bring::{Built, not_local, source_url};
use super::build::unix_ms;
use super::push::finish;
use super::rollout::{Rollout, RolloutOptions};
use super::through::ThroughOptions;
use super::upload;
use crate::control_port::ControlPort;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};

/// `fondaco deploy`.
#[derive(Debug, Args)]
#[command(after_help = "\
An interrupted upload resumes where it stopped, as long as the node keeps the received files.

Example:
  fondaco deploy pymk /data/pymk-1
  fondaco deploy pymk /data/pymk-1 --upload --http node-1:6580
  fondaco deploy pymk /data/pymk-1 --through kafka://kafka-1:9092/versions
  fondaco deploy pymk s3://versions/pymk-1 --to east-1:6580,west-1:6580")]
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
    if options.dry_run {
        let client = options.node.client()?;
        let source = source_url(&options.source)?;
        let request = NewPush {
            source,
            dry_run: true,
            as_of_unix_ms: options.as_of,
            started_unix_ms: options.started,
            any_base: options.any_base,
            if_current: None,
            run: None,
            again: options.rollout.again,
        };
        let run: DryRunResource = client.post(&format!("/v1/stores/{name}/pushes"), &request)?;
        return output.result(&run, |run| dry_run_text(name, run));
    }
    let through = options.through.find()?;
    let mut rollout = Rollout::new(&options.rollout, &options.node)?;
    let is_several = rollout.is_several();
    let hybrid = rollout.check(output, |cluster| {
        if options.upload {
            upload::check(&cluster.client, &cluster.client.status()?)?;
        }
        let store = match is_several {
            true => cluster.client.store(name)?,
            false => None,
        };
        if let Some(through) = &through {
            through.check(&cluster.client)?;
        }
        Ok(store.is_some_and(|store| store.stream.is_some()))
    })?;
    let interrupt = Interrupt::listen()?;
    let place = match &through {
        Some(through) if !rollout.know(name) => {
            let location: Location = options.source.parse()?;
            let dir = location.local_path().ok_or_else(|| not_local("--through"))?;
            through.send(dir, &interrupt, output)?
        }
        _ => options.source.clone(),
    };
    let version = Built {
        store: name,
        place: &place,
        upload: options.upload,
        is_hybrid: hybrid.contains(&true),
        as_of_unix_ms: options.as_of,
        started_unix_ms: options.started,
        any_base: options.any_base,
        if_current: None,
        run: rollout.run(),
        again: options.rollout.again,
    };
    let rolled = rollout.bring(&version, &interrupt, output, |_| Ok(()));
    finish(&rollout, rolled, &version, None, &place, output)
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
