//! `fondaco backup`: all records of a versioned store are read from its nodes, and written.
//!
//! A partition is read from nodes that stay its owners meanwhile, or it is read anew. So is one of which a node
//! failed: from others, or from the same when it is back. Several are read side by side, each by a thread with
//! connections, and a sense of who is there, of its own; the first failure ends all.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use clap::Args;
use fondaco_model::StoreName;
use fondaco_storage::Location;
use serde::Serialize;

use super::cluster::{Cluster, Passing, Patience, StoreId, Topology};
use super::manifest::{self, Manifest, Names};
use super::pace::{BYTES_PER_SECOND_DEFAULT, Pace};
use super::pages::Pages;
use super::records::{RecordsFile, RecordsWriter};
use super::replicas::Replicas;
use super::sources::Sources;
use crate::arguments::ControlPort;
use crate::commands::build::parse_bytes;
use crate::output::{self, Output};
use crate::progress::Display;

/// `fondaco backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every write that was acknowledged before the backup began is in it; of those that come meanwhile, some are.
Reads and writes go on. A backup that fails leaves no files, one that is killed leaves files that the same command deletes when it begins anew.

Example:
  fondaco backup carts --output s3://backups/carts-2026-11-21")]
pub struct BackupOptions {
    /// The store, a versioned one
    store: StoreName,

    /// Where to: a directory that is empty or missing, or a URL
    #[arg(long, value_name = "URL")]
    output: Location,

    /// Read no more than this a second from all nodes together; 0 is no limit
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = BYTES_PER_SECOND_DEFAULT)]
    bytes_per_second: u64,

    /// Read so many partitions side by side
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=64), default_value_t = 4)]
    partitions_at_once: u64,

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
    let (name, location) = (&options.store, &options.output);
    let mut cluster = Cluster::new(&options.node)?;
    let Some(settings) = cluster.settings(name)? else {
        bail!(
            "no store {name:?} on {}: fondaco store list shows those there are",
            cluster.entry().address()
        );
    };
    let topology = cluster.look_up(settings.replicas)?;
    let count = topology.partitions.get() as usize;
    let mut sources = Sources::new(&settings);
    let keepers = sources.keepers(&topology)?;
    for partition in 0..count {
        sources.of(&topology, partition)?;
    }
    let pace = Pace::new(options.bytes_per_second)?;
    manifest::clear(location)?;
    let began_unix_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let names = Names::new()?;
    let mut reading = Reading {
        store: StoreId {
            name,
            created_unix_ms: settings.created_unix_ms,
        },
        location,
        names: &names,
        replicas: settings.replicas,
        cluster,
        topology,
        sources,
        pace: &pace,
    };
    let made = reading.all(keepers, options, output).and_then(|files| {
        let manifest = Manifest {
            store: name.to_string(),
            began_unix_ms,
            settings,
            files,
        };
        location.sync_all()?;
        manifest.write(location)?;
        Ok(manifest)
    });
    let manifest = made.map_err(|error| {
        let left = match names.delete(location) {
            Ok(()) => "and no file of this attempt is left".to_owned(),
            Err(error) => format!("files of this attempt are left ({error}), which the next deletes"),
        };
        error.context(format!(
            "there is no backup in {location}, {left}: run it again to begin anew"
        ))
    })?;
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

/// Writes all partitions, each of these the next one that none has begun. Returns their files, in order.
fn side_by_side(
    readings: Vec<Reading<'_>>,
    count: usize,
    pace: &Pace,
    display: &mut Display,
) -> anyhow::Result<Vec<RecordsFile>> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for mut reading in readings {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || {
                loop {
                    let partition = next.fetch_add(1, Relaxed);
                    if partition >= count {
                        return;
                    }
                    let file = reading.partition(partition);
                    let is_over = file.is_err();
                    if sender.send((partition, file)).is_err() || is_over {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let (mut files, mut records, mut failed) = (Vec::with_capacity(count), 0, None);
        for (partition, file) in receiver {
            match file {
                Ok(file) => {
                    records += file.records;
                    files.push((partition, file));
                    let fraction = files.len() as f64 / count as f64;
                    display.show("backing up", fraction, &format!("{} records", output::count(records)));
                }
                // Those that follow have given up for its sake.
                Err(error) => {
                    pace.give_up();
                    failed.get_or_insert(error);
                }
            }
        }
        files.sort_unstable_by_key(|(partition, _)| *partition);
        match failed {
            Some(error) => Err(error),
            None => Ok(files.into_iter().map(|(_, file)| file).collect()),
        }
    })
}

/// A store that is being read.
struct Reading<'a> {
    store: StoreId<'a>,
    location: &'a Location,
    names: &'a Names,
    replicas: u32,
    cluster: Cluster,
    topology: Topology,
    sources: Sources,
    pace: &'a Pace,
}

impl<'a> Reading<'a> {
    /// Another one of the same store, with connections of its own.
    fn beside(&self, port: &ControlPort) -> anyhow::Result<Reading<'a>> {
        let mut cluster = Cluster::new(port)?;
        let topology = cluster.look_up(self.replicas)?;
        Ok(Reading {
            cluster,
            topology,
            sources: self.sources.clone(),
            ..*self
        })
    }

    /// Writes everything. Returns its files.
    fn all(&mut self, keepers: Vec<u32>, options: &BackupOptions, output: &Output) -> anyhow::Result<Vec<RecordsFile>> {
        let count = self.topology.partitions.get() as usize;
        let mut display = Display::new(output.is_quiet());
        let mut files = Vec::with_capacity(count + 1);
        if !keepers.is_empty() {
            files.push(self.hints(keepers)?);
        }
        let mut readings = Vec::new();
        for _ in 0..count.min(options.partitions_at_once as usize) {
            readings.push(self.beside(&options.node)?);
        }
        files.extend(side_by_side(readings, count, self.pace, &mut display)?);
        self.cluster.check_store(self.store, self.pace, "read")?;
        Ok(files)
    }

    /// Writes what these nodes keep for others.
    fn hints(&mut self, keepers: Vec<u32>) -> anyhow::Result<RecordsFile> {
        let mut writer = RecordsWriter::create(self.location, self.names.of_hints())?;
        for node in keepers {
            let mut patience = Patience::new();
            // What of a node was written before it failed does no harm.
            while let Err(error) = self.hints_of(node, &mut writer) {
                if !error.is::<Passing>() {
                    return Err(error);
                }
                if self.sources.leave_out(node, &self.topology, None) {
                    break;
                }
                patience.wait(self.pace, error)?;
            }
        }
        writer.finish()
    }

    fn hints_of(&mut self, node: u32, writer: &mut RecordsWriter) -> anyhow::Result<()> {
        let mut pages = Pages::of_hints(&self.store, node, self.cluster.node(node)?);
        while let Some((frames, bytes)) = pages.next()? {
            for frame in frames {
                pages.decode(&frame.key, frame.record.clone())?;
                writer.add(&frame)?;
            }
            self.pace.moved(bytes)?;
        }
        Ok(())
    }

    /// Writes a partition.
    fn partition(&mut self, partition: usize) -> anyhow::Result<RecordsFile> {
        let mut patience = Patience::new();
        loop {
            let error = match self.try_partition(partition) {
                Ok(file) => {
                    self.sources.go_on();
                    return Ok(file);
                }
                Err(error) => error,
            };
            let Some(passing) = error.downcast_ref::<Passing>() else {
                return Err(error);
            };
            let others_will_do = match passing {
                Passing::Node { node, .. } => self.sources.leave_out(*node, &self.topology, Some(partition)),
                Passing::Cluster(_) => false,
            };
            if !others_will_do {
                patience.wait(self.pace, error)?;
            }
            self.location.delete_file(&self.names.of_partition(partition))?;
            // If nobody says how it is now, it is as it was.
            self.topology = match self.cluster.look_up(self.replicas) {
                Ok(topology) => topology,
                Err(_) => continue,
            };
        }
    }

    fn try_partition(&mut self, partition: usize) -> anyhow::Result<RecordsFile> {
        let nodes = self.sources.of(&self.topology, partition)?;
        let epoch = self.topology.epoch;
        let mut replicas = Vec::with_capacity(nodes.len());
        for node in nodes {
            let client = self.cluster.node(node)?;
            replicas.push(Pages::of_partition(&self.store, partition, epoch, node, client));
        }
        let mut replicas = Replicas::new(replicas.into_iter());
        let mut writer = RecordsWriter::create(self.location, self.names.of_partition(partition))?;
        while let Some(frame) = replicas.next(|bytes| self.pace.moved(bytes))? {
            writer.add(&frame)?;
        }
        let file = writer.finish()?;
        let now = self.cluster.look_up(self.replicas)?;
        let before = std::mem::replace(&mut self.topology, now);
        if before.owners_of(partition) != self.topology.owners_of(partition) {
            let reason = anyhow!("partition {partition} was moved while it was read: let the moves end");
            return Err(Passing::Cluster(reason).into());
        }
        Ok(file)
    }
}
