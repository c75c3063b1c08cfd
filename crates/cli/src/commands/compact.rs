//! `fondaco store compact`: a new version of a hybrid store from the current one and the events on top of it.

use std::path::PathBuf;

use clap::Args;
use fondaco_model::StoreName;
use fondaco_push::{Compact, Compacted};
use serde::Serialize;

use super::build::{parse_bytes, prepare_process, threads_default};
use super::push::show;
use super::push_progress::with_job;
use crate::control_port::ControlPort;
use crate::output::{self, Output};

/// `fondaco store compact`.
#[derive(Debug, Args)]
#[command(after_help = "\
Events count up to the store's --grace late, and later events than these stay on top of the new version.
The current version is fetched from nodes to --work, unless this machine has all of it.

Example:
  fondaco store compact counts
  fondaco store compact counts --upload --http node-1:6580")]
pub struct CompactOptions {
    /// The store
    name: StoreName,

    /// Send the version to the node over its control port, if no node can read --work
    #[arg(long)]
    upload: bool,

    /// How much memory the build uses, for instance 512MiB; the process takes up to 256MiB more
    #[arg(long, default_value = "256MiB", value_name = "BYTES", value_parser = parse_bytes)]
    memory: u64,

    /// The directory for temporary files: the current version and the new one
    #[arg(long, value_name = "DIRECTORY", env = "TMPDIR")]
    work: Option<PathBuf>,

    #[command(flatten)]
    node: ControlPort,
}

/// The result if there was nothing to do.
#[derive(Serialize)]
struct Nothing {
    changes: u64,
}

/// Runs `fondaco store compact`.
pub fn compact(options: CompactOptions, output: &Output) -> anyhow::Result<()> {
    let compact = Compact {
        store: options.name,
        upload: options.upload,
        memory_bytes: options.memory,
        threads: threads_default(),
        work: options.work.unwrap_or_else(std::env::temp_dir),
    };
    prepare_process();
    let endpoint = options.node.endpoint();
    match with_job(output, |job| fondaco_push::compact(&endpoint, &compact, job))? {
        Compacted::Pushed(pushed) => show(pushed, false, output),
        Compacted::Nothing { version, until_unix_ms } => output.result(&Nothing { changes: 0 }, |_| {
            let (until, store) = (output::timestamp(until_unix_ms), &compact.store);
            format!("no event up to {until} is on top of version {version} of store {store}\n")
        }),
    }
}
