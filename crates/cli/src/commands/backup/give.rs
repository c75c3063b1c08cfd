//! `fondaco restore`: the records of a backup are joined with what nodes hold.
//!
//! All files are read and verified before the first record is sent. A record is sent to every node that is there
//! and owns its partition, as many as have to acknowledge a write or more; the others get it as they get all that
//! they missed. The store may have another name than the one that was backed up, and the cluster other partitions.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use clap::Args;
use fondaco_control::http::{Frame, NewStore, StoreResource, VersionedOptions};
use fondaco_model::{StoreDefinition, StoreKind, StoreName, slot_of_key};
use fondaco_storage::Location;
use serde::Serialize;

use super::files::{Manifest, for_each_record};
use super::owners::{Owners, patiently, settings_of};
use super::pace::Pace;
use crate::arguments::ControlPort;
use crate::client::Client;
use crate::commands::build::parse_bytes;
use crate::output::{self, Output};
use crate::progress::Display;

/// About how many bytes are sent to a node at a time; one record at least.
const BATCH_BYTES: usize = 1 << 20;

/// `fondaco restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
All of the backup is verified before anything is restored. What was written since stays, and reads and writes go
on; a key that was deleted longer ago than the store remembers comes back. It may be run again at any time.

Example:
  fondaco restore carts s3://backups/carts-2026-11-21 --create")]
pub struct RestoreOptions {
    /// The store, a versioned one; not necessarily of the name that was backed up
    store: StoreName,

    /// Where the backup is: a directory, or a URL
    #[arg(value_name = "URL")]
    source: Location,

    /// Create the store if there is none, with the settings that it had
    #[arg(long)]
    create: bool,

    /// Restore no more than this a second, such as 50MiB; no limit unless said
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    bytes_per_second: Option<u64>,

    #[command(flatten)]
    node: ControlPort,
}

#[derive(Serialize)]
struct RestoreResult {
    store: String,
    url: String,
    records: u64,
    created: bool,
}

/// Restores a backup.
pub fn restore(options: &RestoreOptions, output: &Output) -> anyhow::Result<()> {
    let (name, location) = (&options.store, &options.source);
    let manifest = Manifest::read(location)?;
    let client = Client::new(&options.node)?;
    let found = settings_of(&client, name)?;
    if found.is_none() && !options.create {
        bail!(
            "no store {name:?} on {}: say --create, or create it with fondaco store create {name} --kind versioned",
            client.address()
        );
    }
    let mut pace = Pace::new(options.bytes_per_second)?;
    let mut display = Display::new(output.is_quiet());
    let count = manifest.partitions.len() as f64;
    for (partition, file) in manifest.partitions.iter().enumerate() {
        for_each_record(location, partition, file, |_| pace.moved(0)).context("nothing was restored")?;
        display.show("verifying", (partition + 1) as f64 / count, "");
    }
    let created = found.is_none();
    let (replicas, settings) = match found {
        Some(found) => found,
        None => create(&client, name, &manifest)?,
    };
    let owners = Owners::look_up(&options.node, &client, replicas)?;
    owners.check_live(|_| settings.writes as usize)?;
    let mut sending = Sending {
        store: name,
        owners: &owners,
        pace: &mut pace,
        batches: BTreeMap::new(),
    };
    let unfinished = || "not all was restored: run it again, which does no harm";
    let mut records = 0;
    for (partition, file) in manifest.partitions.iter().enumerate() {
        for_each_record(location, partition, file, |frame| sending.add(&frame)).with_context(unfinished)?;
        records += file.records;
        let fraction = (partition + 1) as f64 / count;
        display.show("restoring", fraction, &format!("{} records", output::count(records)));
    }
    sending.end().with_context(unfinished)?;
    drop(display);
    let result = RestoreResult {
        store: name.to_string(),
        url: location.to_string(),
        records,
        created,
    };
    output.result(&result, |result| {
        let count = output::count(result.records);
        format!("restored {count} records into store {}\n", result.store)
    })
}

/// Creates the store with the settings that it had.
fn create(
    client: &Client,
    name: &StoreName,
    manifest: &Manifest,
) -> anyhow::Result<(u32, fondaco_control::http::VersionedResource)> {
    let had = &manifest.settings;
    let new = NewStore {
        name: name.to_string(),
        kind: StoreKind::Versioned,
        backups: StoreDefinition::BACKUPS_DEFAULT,
        replicas: Some(manifest.replicas),
        tolerate_failures: 0,
        read_keys_per_second: None,
        versioned: Some(VersionedOptions {
            reads: Some(had.reads),
            writes: Some(had.writes),
            preferred_reads: Some(had.preferred_reads),
            preferred_writes: Some(had.preferred_writes),
            handoff: Some(had.handoff),
            sloppy: Some(had.sloppy),
            zone_reads: Some(had.zone_reads),
            zone_writes: Some(had.zone_writes),
            engine: Some(had.engine),
            durability: Some(had.durability),
            resolution: Some(had.resolution),
            ttl_ms: Some(had.ttl_ms.unwrap_or(0)),
            tombstone_grace_ms: Some(had.tombstone_grace_ms),
            write_keys_per_second: Some(had.write_keys_per_second.unwrap_or(0)),
        }),
    };
    let store: StoreResource = client.post("/v1/stores", &new).context("nothing was restored")?;
    let settings = store
        .versioned
        .with_context(|| format!("store {name:?} was not created as a versioned one"))?;
    Ok((store.replicas, settings))
}

/// Records on their way to nodes.
struct Sending<'a> {
    store: &'a StoreName,
    owners: &'a Owners,
    pace: &'a mut Pace,
    /// What waits for each node.
    batches: BTreeMap<u32, Vec<u8>>,
}

impl Sending<'_> {
    fn add(&mut self, frame: &Frame) -> anyhow::Result<()> {
        let partition = self.owners.count.partition_of(slot_of_key(self.store, &frame.key));
        for (node, client) in self.owners.live_of(partition.get() as usize) {
            let batch = self.batches.entry(node).or_default();
            if !batch.is_empty() && batch.len() + Frame::bytes_of(&frame.key, &frame.record) > BATCH_BYTES {
                send(client, node, self.store, std::mem::take(batch))?;
            }
            Frame::write(&frame.key, &frame.record, batch)?;
        }
        self.pace.moved(Frame::bytes_of(&frame.key, &frame.record) as u64)
    }

    /// Sends what waits.
    fn end(self) -> anyhow::Result<()> {
        for (node, batch) in self.batches {
            if let Some(client) = self.owners.client_of(node) {
                send(client, node, self.store, batch)?;
            }
        }
        Ok(())
    }
}

fn send(client: &Client, node: u32, store: &StoreName, batch: Vec<u8>) -> anyhow::Result<()> {
    if batch.is_empty() {
        return Ok(());
    }
    let path = format!("/v1/stores/{store}/records");
    let sent = patiently(|| client.post_bytes(&path, batch.clone()));
    sent.with_context(|| format!("node {node} was sent records"))
}
