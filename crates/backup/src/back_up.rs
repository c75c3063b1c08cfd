//! Making a backup: all records of a versioned store are read from its nodes, and written.
//!
//! A partition is read only from nodes that own it throughout the read; otherwise it is read again. If a node fails,
//! its partition is read again from other nodes, or from the same node when it is back. Several partitions are read in
//! parallel, each by a thread with its own connections and its own view of live nodes. The first failure ends all of
//! them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use fondaco_admin::Endpoint;
use fondaco_model::{StoreName, ValueType};
use fondaco_storage::Location;
use serde::Serialize;

use crate::chain::Backup;
use crate::cluster::{Cluster, Passing, Patience, StoreId, Topology};
use crate::manifest::{self, Manifest, Names};
use crate::pace::Pace;
use crate::pages::Pages;
use crate::partition::PartitionWriter;
use crate::records::{RecordsFile, RecordsWriter};
use crate::replicas::Replicas;
use crate::sources::Sources;
use crate::{Job, Progress};

/// A finished backup.
#[derive(Debug, Serialize)]
pub struct BackedUp {
    /// The store.
    pub store: String,
    /// The location of the backup.
    pub url: String,
    /// When the backup began, in milliseconds since 1970. It contains all writes that were acknowledged before.
    pub began_unix_ms: u64,
    /// How many partitions there are.
    pub partitions: usize,
    /// How many records the backup contains.
    pub records: u64,
    /// How many records it leaves to earlier backups, which have them.
    pub unchanged: u64,
    /// The total length of its files.
    pub bytes: u64,
}

/// Backs up a store to an empty or missing directory, reading `partitions_at_once` partitions in parallel. With an earlier
/// backup, only records are written that this does not have.
///
/// # Errors
/// No such store, too few nodes for too long, or a directory that cannot be written. No backup exists then.
pub fn back_up(
    name: &StoreName,
    location: &Location,
    since: Option<&Location>,
    partitions_at_once: usize,
    job: Job<'_>,
) -> anyhow::Result<BackedUp> {
    let mut cluster = Cluster::new(job.endpoint)?;
    let Some(settings) = cluster.settings(name)? else {
        bail!(
            "no store {name:?} on {}: list the stores: fondaco store list",
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
    let pace = Pace::new(job.bytes_per_second, job.is_stopped);
    let earlier = since
        .map(|since| Backup::earlier(since, name, &settings, count))
        .transpose()?;
    manifest::clear(location)?;
    let began_unix_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let names = Names::new()?;
    let mut reading = Reading {
        endpoint: job.endpoint,
        store: StoreId {
            name,
            created_unix_ms: settings.created_unix_ms,
        },
        location,
        earlier: earlier.as_ref(),
        names: &names,
        replicas: settings.replicas,
        value_type: settings.value_type,
        cluster,
        topology,
        sources,
        pace: &pace,
    };
    let made = reading
        .all(keepers, partitions_at_once, job.progress)
        .and_then(|files| {
            let manifest = Manifest {
                store: name.to_string(),
                began_unix_ms,
                settings,
                since: earlier.as_ref().map(Backup::since),
                files,
            };
            location.sync_all()?;
            manifest.write(location)?;
            Ok(manifest)
        });
    let manifest = made.map_err(|error| {
        let left = match names.delete(location) {
            Ok(()) => "and no file of this attempt is left".to_owned(),
            Err(error) => format!("files of this attempt are left ({error}), which the next attempt deletes"),
        };
        error.context(format!("there is no backup in {location}, {left}: run it again"))
    })?;
    Ok(BackedUp {
        store: manifest.store.clone(),
        url: location.to_string(),
        began_unix_ms,
        partitions: count,
        records: manifest.records(),
        unchanged: manifest.unchanged(),
        bytes: manifest.bytes(),
    })
}

/// Writes all partitions. Each thread takes the next partition that no thread has begun. Returns the files, in order.
fn side_by_side(
    readings: Vec<Reading<'_>>,
    count: usize,
    pace: &Pace<'_>,
    progress: &mut dyn FnMut(Progress),
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
                    progress(Progress {
                        phase: "backing up",
                        fraction: files.len() as f64 / count as f64,
                        records,
                    });
                }
                // The errors after the first are threads that gave up because of it.
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
    endpoint: &'a Endpoint,
    store: StoreId<'a>,
    location: &'a Location,
    /// The earlier backup that this one builds on.
    earlier: Option<&'a Backup>,
    names: &'a Names,
    replicas: u32,
    value_type: ValueType,
    cluster: Cluster<'a>,
    topology: Topology,
    sources: Sources,
    pace: &'a Pace<'a>,
}

impl<'a> Reading<'a> {
    /// Another reader of the same store, with its own connections.
    fn beside(&self) -> anyhow::Result<Reading<'a>> {
        let mut cluster = Cluster::new(self.endpoint)?;
        let topology = cluster.look_up(self.replicas)?;
        self.check_count(&topology)?;
        Ok(Reading {
            cluster,
            topology,
            sources: self.sources.clone(),
            ..*self
        })
    }

    /// Files are of partitions by their numbers, which mean other partitions after a split.
    fn check_count(&self, now: &Topology) -> anyhow::Result<()> {
        let (before, now) = (self.topology.partitions, now.partitions);
        anyhow::ensure!(
            before == now,
            "the {before} partitions were split while the store was read, and are {now} now: back it up again"
        );
        Ok(())
    }

    /// Writes everything. Returns its files.
    fn all(
        &mut self,
        keepers: Vec<u32>,
        partitions_at_once: usize,
        progress: &mut dyn FnMut(Progress),
    ) -> anyhow::Result<Vec<RecordsFile>> {
        let count = self.topology.partitions.get() as usize;
        let mut files = Vec::with_capacity(count + 1);
        if !keepers.is_empty() {
            files.push(self.hints(keepers)?);
        }
        let mut readings = Vec::new();
        for _ in 0..count.min(partitions_at_once) {
            readings.push(self.beside()?);
        }
        files.extend(side_by_side(readings, count, self.pace, progress)?);
        self.cluster.check_store(self.store, self.pace, "read")?;
        Ok(files)
    }

    /// Writes the hints that these nodes keep.
    fn hints(&mut self, keepers: Vec<u32>) -> anyhow::Result<RecordsFile> {
        let mut writer = RecordsWriter::create(self.location, self.names.of_hints())?;
        for node in keepers {
            let mut patience = Patience::new();
            // Records that were written before the node failed do no harm.
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
            for name in [Names::of_partition, Names::of_digests, Names::of_gone].map(|of| of(self.names, partition)) {
                self.location.delete_file(&name)?;
            }
            // If no node answers, the previous topology stays.
            let Ok(topology) = self.cluster.look_up(self.replicas) else {
                continue;
            };
            self.check_count(&topology)?;
            self.topology = topology;
        }
    }

    fn try_partition(&mut self, partition: usize) -> anyhow::Result<RecordsFile> {
        let nodes = self.sources.of(&self.topology, partition)?;
        let (epoch, partitions) = (self.topology.epoch, self.topology.partitions);
        let mut replicas = Vec::with_capacity(nodes.len());
        for node in nodes {
            let port = self.cluster.node(node)?;
            replicas.push(Pages::of_partition(
                &self.store,
                (partitions, partition),
                epoch,
                node,
                port,
            ));
        }
        let mut replicas = Replicas::new(self.store.name.clone(), self.value_type, replicas.into_iter());
        let kind = (self.store.name, self.value_type);
        let mut writer = PartitionWriter::create(self.location, (self.names, partition), self.earlier, kind)?;
        while let Some(frame) = replicas.next(|bytes| self.pace.moved(bytes))? {
            writer.add(&frame)?;
        }
        let file = writer.finish()?;
        let now = self.cluster.look_up(self.replicas)?;
        self.check_count(&now)?;
        let before = std::mem::replace(&mut self.topology, now);
        if before.owners_of(partition) != self.topology.owners_of(partition) {
            let reason = anyhow!("partition {partition} was moved while it was read: let the moves end");
            return Err(Passing::Cluster(reason).into());
        }
        Ok(file)
    }
}
