//! `fondaco backup` and `restore`.

use std::collections::BTreeSet;

use clap::Args;
use fondaco_backup::{Job, Progress};
use fondaco_model::StoreName;
use fondaco_storage::Location;

use crate::commands::build::parse_bytes;
use crate::control_port::ControlPort;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::Display;

/// The default limit, the same as for other background work of replicas.
const BYTES_PER_SECOND_DEFAULT: &str = "32MiB";

/// `fondaco backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every write that was acknowledged before the backup began is in it, and some of the writes made meanwhile.
Reads and writes continue. A backup that fails leaves no files; a killed one leaves files,
which the same command deletes when it is run again.

Example:
  fondaco backup carts --output s3://backups/carts-2026-11-21
  fondaco backup carts --output s3://backups/carts-2026-11-22 --since s3://backups/carts-2026-11-21")]
pub struct BackupOptions {
    /// The store, of kind versioned
    store: StoreName,

    /// The destination: a directory that is empty or missing, or a URL
    #[arg(long, value_name = "URL")]
    output: Location,

    /// An earlier backup of the store: only records are written that it does not have. A restore needs both
    #[arg(long, value_name = "URL")]
    since: Option<Location>,

    /// The most bytes to read per second, from all nodes together; 0 is no limit
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = BYTES_PER_SECOND_DEFAULT)]
    bytes_per_second: u64,

    /// The number of partitions to read in parallel
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=64), default_value_t = 4)]
    partitions_at_once: u64,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
The whole backup is verified before anything is restored. Writes made since the backup stay, and reads and writes
continue. A key deleted longer ago than the store keeps tombstones comes back. A restore can be repeated at any time.

Example:
  fondaco restore carts s3://backups/carts-2026-11-21 --create
  fondaco restore carts s3://backups/carts-2026-11-21 --dry-run")]
pub struct RestoreOptions {
    /// The store, of kind versioned; its name may differ from that of the backup
    store: StoreName,

    /// The location of the backup: a directory, or a URL
    #[arg(value_name = "URL")]
    source: Location,

    /// Create the store if it is missing, with the settings of the backup
    #[arg(long)]
    create: bool,

    /// Verify the backup and restore nothing; no node is contacted
    #[arg(long)]
    dry_run: bool,

    /// The most bytes to restore per second; 0 is no limit
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = BYTES_PER_SECOND_DEFAULT)]
    bytes_per_second: u64,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco backup`.
pub fn back_up(options: &BackupOptions, output: &Output) -> anyhow::Result<()> {
    let made = carry_out(&options.node, options.bytes_per_second, output, |job| {
        let partitions = options.partitions_at_once as usize;
        fondaco_backup::back_up(&options.store, &options.output, options.since.as_ref(), partitions, job)
    })?;
    output.result(&made, |made| {
        format!(
            "backed up store {}: {} records{}, {}\nnext: fondaco restore {} {}\n",
            made.store,
            output::count(made.records),
            match options.since {
                Some(_) => format!(" beside {} that did not change", output::count(made.unchanged)),
                None => String::new(),
            },
            output::bytes(made.bytes),
            made.store,
            made.url
        )
    })
}

/// Runs `fondaco restore`.
pub fn restore(options: &RestoreOptions, output: &Output) -> anyhow::Result<()> {
    let (name, source) = (&options.store, &options.source);
    let restored = carry_out(&options.node, options.bytes_per_second, output, |job| {
        match options.dry_run {
            true => fondaco_backup::verify(name, source, job),
            false => fondaco_backup::restore(name, source, options.create, job),
        }
    })?;
    if !restored.left_out.is_empty() {
        let nodes = list(&restored.left_out);
        output.note(&format!(
            "not all records reached node {nodes}: it gets the rest from other replicas when it works again"
        ));
    }
    output.result(&restored, |restored| {
        let count = output::count(restored.records);
        match restored.dry_run {
            true => format!(
                "the backup is complete and intact: {count} records of store {}\n",
                restored.source
            ),
            false => format!("restored {count} records into store {}\n", restored.store),
        }
    })
}

/// Runs a job, and shows its progress.
fn carry_out<T>(
    port: &ControlPort,
    bytes_per_second: u64,
    output: &Output,
    work: impl FnOnce(Job<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    // Nodes may run on this machine, too. Threads that are started later inherit it.
    fondaco_os::priority::let_loops_go_first();
    let interrupt = Interrupt::listen()?;
    let mut display = Display::new(output.is_quiet());
    let mut show = |progress: Progress| {
        let details = match progress.records {
            0 => String::new(),
            records => format!("{} records", output::count(records)),
        };
        display.show(progress.phase, progress.fraction, &details);
    };
    work(Job {
        endpoint: &port.endpoint(),
        bytes_per_second,
        is_stopped: &|| interrupt.is_asked(),
        progress: &mut show,
    })
}

fn list(nodes: &BTreeSet<u32>) -> String {
    let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
    nodes.join(", ")
}
