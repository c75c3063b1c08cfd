//! `fondaco backup`: all records of a versioned store are read from its nodes, and written.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;
use fondaco_model::StoreName;
use fondaco_storage::Location;
use serde::Serialize;

use super::files::{self, Manifest, PartitionFile, PartitionWriter};
use super::owners::{Owners, settings_of};
use super::pace::Pace;
use super::replicas::Replicas;
use crate::arguments::ControlPort;
use crate::client::Client;
use crate::commands::build::parse_bytes;
use crate::output::{self, Output};
use crate::progress::Display;

/// `fondaco backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every write that was acknowledged before the backup began is in it; of those that come meanwhile, some are.
Reads and writes go on. What was interrupted is no backup, and is begun anew by the same command.

Example:
  fondaco backup carts --output s3://backups/carts-2026-11-21")]
pub struct BackupOptions {
    /// The store, a versioned one
    store: StoreName,

    /// Where to: a directory that is empty or missing, or a URL
    #[arg(long, value_name = "URL")]
    output: Location,

    /// Read no more than this a second from all nodes together, such as 50MiB; no limit unless said
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    bytes_per_second: Option<u64>,

    #[command(flatten)]
    node: ControlPort,
}

#[derive(Serialize)]
struct BackupResult {
    store: String,
    url: String,
    began_unix_ms: u64,
    partitions: usize,
    records: u64,
    bytes: u64,
}

/// Makes a backup.
pub fn back_up(options: &BackupOptions, output: &Output) -> anyhow::Result<()> {
    let client = Client::new(&options.node)?;
    let (name, location) = (&options.store, &options.output);
    let Some((replicas, settings)) = settings_of(&client, name)? else {
        bail!(
            "no store {name:?} on {}: fondaco store list shows those there are",
            client.address()
        );
    };
    let owners = Owners::look_up(&options.node, &client, replicas)?;
    let needed = |partition| owners.reads_for(partition, settings.writes);
    owners.check_live(needed)?;
    let mut pace = Pace::new(options.bytes_per_second)?;
    files::clear(location)?;
    let began_unix_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let unfinished = || format!("there is no backup in {location} yet: run it again to begin anew");
    let count = owners.count.get() as usize;
    let mut display = Display::new(output.is_quiet());
    let (mut written, mut records) = (Vec::with_capacity(count), 0);
    for partition in 0..count {
        let nodes = owners.live_of(partition).take(needed(partition));
        let held = Replicas::new(name, partition, nodes);
        let file = write_partition(location, partition, held, &mut pace).with_context(unfinished)?;
        records += file.records;
        written.push(file);
        let fraction = (partition + 1) as f64 / count as f64;
        display.show("backing up", fraction, &format!("{} records", output::count(records)));
    }
    owners.check_unchanged(&client).with_context(unfinished)?;
    location.sync_all().with_context(unfinished)?;
    let manifest = Manifest::new(name.to_string(), began_unix_ms, replicas, settings, written);
    manifest.write(location).with_context(unfinished)?;
    drop(display);
    let result = BackupResult {
        store: manifest.store.clone(),
        url: location.to_string(),
        began_unix_ms,
        partitions: count,
        records: manifest.records(),
        bytes: manifest.bytes(),
    };
    output.result(&result, |result| {
        format!(
            "backed up store {}: {} records, {}\nnext: fondaco restore {} {}\n",
            result.store,
            output::count(result.records),
            output::bytes(result.bytes),
            result.store,
            result.url
        )
    })
}

fn write_partition(
    location: &Location,
    partition: usize,
    mut held: Replicas<'_>,
    pace: &mut Pace,
) -> anyhow::Result<PartitionFile> {
    let mut writer = PartitionWriter::create(location, partition)?;
    while let Some(frame) = held.next(|bytes| pace.moved(bytes))? {
        writer.add(&frame)?;
    }
    writer.finish()
}
