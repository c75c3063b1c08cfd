//! Restoring a backup: merges its records into those of the nodes.
//!
//! All files are read and verified before the first record is sent. A record is sent to every live node that owns its
//! partition, or takes its writes while a plan moves it. At least as many as have to acknowledge a write must take it;
//! the others get it by hinted handoff or anti-entropy. The store may have another name than the one that was backed
//! up, and the cluster other partitions.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, anyhow, bail};
use fondaco_admin::Client;
use fondaco_api::{Frame, NewSchema, NewStore, SchemaResource, StoreResource};
use fondaco_model::{StoreKind, StoreName, slot_of_key};
use fondaco_storage::Location;
use serde::Serialize;

use crate::chain::{Piece, chain, pieces};
use crate::cluster::{Cluster, Passing, Patience, StoreId, StoreSettings, Topology, ask};
use crate::manifest::Manifest;
use crate::pace::Pace;
use crate::{Job, Progress};

/// About how many bytes of records are sent at a time; one record at least.
const BATCH_BYTES: usize = 1 << 20;

/// The error codes of a node that has too much to do, or does not know the store yet: it is asked again.
const NOT_YET: [&str; 3] = ["overloaded", "unavailable", "store_not_found"];

/// The result of a restore or of a verification.
#[derive(Debug, Serialize)]
pub struct Restored {
    /// The store that was restored into.
    pub store: String,
    /// The location of the backup.
    pub url: String,
    /// When the backup began, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// The number of records in the backup and in those that it builds on.
    pub records: u64,
    /// Whether the store was created by the restore.
    pub created: bool,
    /// Whether the backup was only verified.
    pub dry_run: bool,
    /// Nodes that did not receive some records: they get them from other replicas.
    pub left_out: BTreeSet<u32>,
    /// The store that was backed up.
    #[serde(skip)]
    pub source: String,
}

impl Restored {
    fn of(manifest: &Manifest, pieces: &[Piece<'_>], name: &StoreName, location: &Location) -> Self {
        Self {
            store: name.to_string(),
            url: location.to_string(),
            began_unix_ms: manifest.began_unix_ms,
            records: pieces.iter().map(Piece::records).sum(),
            created: false,
            dry_run: false,
            left_out: BTreeSet::new(),
            source: manifest.store.clone(),
        }
    }
}

/// Verifies a backup and restores nothing; sends no request to a node.
///
/// # Errors
/// There is no backup, or a file of it is missing or damaged.
pub fn verify(name: &StoreName, location: &Location, job: Job<'_>) -> anyhow::Result<Restored> {
    let chain = chain(location)?;
    let (pieces, manifest) = (pieces(&chain)?, &chain[chain.len() - 1].manifest);
    let pace = Pace::new(job.bytes_per_second, job.is_stopped);
    verify_files(&pieces, &pace, job.progress)?;
    pieces.iter().try_for_each(Piece::verify_digests)?;
    Ok(Restored {
        dry_run: true,
        ..Restored::of(manifest, &pieces, name, location)
    })
}

/// Restores a backup into a store; creates the store if it is missing and `may_create`.
///
/// # Errors
/// As for [`verify`]: then nothing is restored. No such store, or too few nodes for too long: the restore has to be run
/// again then.
pub fn restore(name: &StoreName, location: &Location, may_create: bool, job: Job<'_>) -> anyhow::Result<Restored> {
    let chain = chain(location)?;
    let (pieces, manifest) = (pieces(&chain)?, &chain[chain.len() - 1].manifest);
    let mut result = Restored::of(manifest, &pieces, name, location);
    let pace = Pace::new(job.bytes_per_second, job.is_stopped);
    let mut cluster = Cluster::new(job.endpoint)?;
    let found = cluster.settings(name)?;
    if found.is_none() && !may_create {
        bail!(
            "no store {name:?} on {}: use --create, or create it: fondaco store create {name} --kind versioned",
            cluster.entry().address()
        );
    }
    verify_files(&pieces, &pace, job.progress).context("nothing was restored")?;
    result.created = found.is_none();
    let settings = match found {
        Some(found) => {
            register_schemas(cluster.entry(), name, &manifest.settings.schemas)?;
            found
        }
        None => create(cluster.entry(), name, &manifest.settings)?,
    };
    let topology = cluster.look_up(settings.replicas)?;
    let store = StoreId {
        name,
        created_unix_ms: settings.created_unix_ms,
    };
    let mut sending = Sending {
        store,
        writes: settings.versioned.writes as usize,
        replicas: settings.replicas,
        cluster,
        topology,
        failed: BTreeSet::new(),
        left_out: BTreeSet::new(),
        pace,
        batch: Vec::new(),
        batch_bytes: 0,
    };
    let count = pieces.len() as f64;
    let mut records = 0;
    let unfinished = || "not everything was restored: run it again, which does no harm";
    for (at, piece) in pieces.iter().enumerate() {
        piece.for_each(|frame| sending.add(frame)).with_context(unfinished)?;
        sending.look_up();
        records += piece.records();
        (job.progress)(Progress {
            phase: "restoring",
            fraction: (at + 1) as f64 / count,
            records,
        });
    }
    sending.flush().with_context(unfinished)?;
    // If the store was dropped meanwhile, the new store of its name lacks records that were sent to the old one.
    let restored = sending.cluster.check_store(store, &sending.pace, "restored");
    restored.with_context(unfinished)?;
    result.left_out = sending.left_out;
    Ok(result)
}

/// Reads all files, and compares them with the manifests.
fn verify_files(pieces: &[Piece<'_>], pace: &Pace<'_>, progress: &mut dyn FnMut(Progress)) -> anyhow::Result<()> {
    let count = pieces.len() as f64;
    for (at, piece) in pieces.iter().enumerate() {
        piece.for_each(|_| pace.moved(0))?;
        progress(Progress {
            phase: "verifying",
            fraction: (at + 1) as f64 / count,
            records: 0,
        });
    }
    Ok(())
}

/// Creates the store with the settings in the backup.
fn create(port: &Client, name: &StoreName, had: &StoreSettings) -> anyhow::Result<StoreSettings> {
    let mut options = had.others.clone();
    options.insert("replicas".to_owned(), had.replicas.into());
    options.insert("value_type".to_owned(), had.value_type.name().into());
    options.insert("versioned".to_owned(), serde_json::to_value(had.versioned)?);
    let mut new = NewStore {
        name: name.to_string(),
        kind: StoreKind::Versioned,
        options,
    };
    let refused =
        || format!("nothing was restored: create store {name} yourself, with settings that this cluster can have");
    // Some schemas may be older than the store's compatibility: it is set when all are there.
    let compatibility = match had.schemas.is_empty() {
        true => None,
        false => new.options.insert("compatibility".to_owned(), "none".into()),
    };
    port.post::<StoreResource>("/v1/stores", &new).with_context(refused)?;
    register_schemas(port, name, &had.schemas)?;
    if let Some(compatibility) = compatibility {
        let change = serde_json::json!({"compatibility": compatibility});
        port.patch::<StoreResource>(&format!("/v1/stores/{name}"), &change)?;
    }
    StoreSettings::of(port, name)?.with_context(|| format!("store {name:?} was dropped at once"))
}

/// Registers the schemas of a backup in a store, which gives them the same numbers: values begin with these.
fn register_schemas(port: &Client, name: &StoreName, schemas: &[SchemaResource]) -> anyhow::Result<()> {
    for schema in schemas {
        let new = NewSchema {
            schema: schema.schema.clone().into(),
            message: schema.message.clone(),
            dry_run: false,
        };
        let found: SchemaResource = port.post(&format!("/v1/stores/{name}/schemas"), &new)?;
        if found.id != schema.id {
            bail!(
                "schema {} of the backup is schema {} of store {name}: nothing was restored, since values name schemas by their \
                 numbers; restore into a new store",
                schema.id,
                found.id
            );
        }
    }
    Ok(())
}

/// The request body for each node.
type Bodies = BTreeMap<u32, Vec<u8>>;

/// Sends records to nodes.
struct Sending<'a> {
    store: StoreId<'a>,
    /// How many nodes must take each record.
    writes: usize,
    replicas: u32,
    cluster: Cluster<'a>,
    topology: Topology,
    /// Nodes that failed since the cluster was last looked up.
    failed: BTreeSet<u32>,
    /// Nodes that did not receive some records.
    left_out: BTreeSet<u32>,
    pace: Pace<'a>,
    /// Records waiting to be sent.
    batch: Vec<Frame>,
    batch_bytes: usize,
}

impl Sending<'_> {
    fn add(&mut self, frame: Frame) -> anyhow::Result<()> {
        let bytes = Frame::bytes_of(&frame.key, &frame.record);
        if self.batch_bytes + bytes > BATCH_BYTES {
            self.flush()?;
        }
        self.batch.push(frame);
        self.batch_bytes += bytes;
        self.pace.moved(bytes as u64)
    }

    /// Sends the waiting records, and ensures that enough nodes have them.
    fn flush(&mut self) -> anyhow::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let mut patience = Patience::new();
        while let Err(error) = self.send(&batch) {
            match error.downcast_ref::<Passing>() {
                None => return Err(error),
                Some(Passing::Node { node, .. }) => {
                    self.failed.insert(*node);
                    if self.bodies(&batch).is_ok() {
                        continue;
                    }
                }
                Some(Passing::Cluster(_)) => {}
            }
            patience.wait(&self.pace, error)?;
            self.look_up();
        }
        Ok(())
    }

    /// Retries nodes that failed or joined.
    fn look_up(&mut self) {
        self.failed.clear();
        // If no node answers, the previous topology stays.
        if let Ok(topology) = self.cluster.look_up(self.replicas) {
            self.topology = topology;
        }
    }

    /// The request body for each node; and the nodes that should get some of the records, but are not live.
    fn bodies(&self, batch: &[Frame]) -> anyhow::Result<(Bodies, BTreeSet<u32>)> {
        let (mut bodies, mut left_out) = (Bodies::new(), BTreeSet::new());
        for frame in batch {
            let slot = slot_of_key(self.store.name, &frame.key);
            let partition = self.topology.partitions.partition_of(slot).get() as usize;
            let mut taking = BTreeSet::new();
            for group in self.topology.writers_of(partition) {
                let is_there = |node: &&u32| self.topology.is_live(**node) && !self.failed.contains(node);
                let (there, absent): (Vec<u32>, Vec<u32>) = group.iter().partition(|node| is_there(node));
                left_out.extend(absent);
                if there.len() < self.writes {
                    let (count, needed) = (there.len(), self.writes);
                    let reason =
                        anyhow!("partition {partition} has {count} of {needed} owners: start nodes of {group:?}");
                    return Err(Passing::Cluster(reason).into());
                }
                taking.extend(there);
            }
            for node in taking {
                Frame::write(&frame.key, &frame.record, bodies.entry(node).or_default())?;
            }
        }
        Ok((bodies, left_out))
    }

    /// Sends a batch to all nodes in parallel.
    fn send(&mut self, batch: &[Frame]) -> anyhow::Result<()> {
        let (bodies, left_out) = self.bodies(batch)?;
        let StoreId { name, created_unix_ms } = self.store;
        let epoch = self.topology.epoch;
        let path = format!("/v1/stores/{name}/records?epoch={epoch}&created_unix_ms={created_unix_ms}");
        let mut ways = Vec::with_capacity(bodies.len());
        for (node, body) in bodies {
            ways.push((node, self.cluster.node(node)?, body));
        }
        let path = &path;
        std::thread::scope(|scope| {
            let send =
                |(node, port, body): (u32, &Client, Vec<u8>)| ask(node, &NOT_YET, || port.post_bytes(path, &body));
            let threads: Vec<_> = ways.into_iter().map(|way| scope.spawn(move || send(way))).collect();
            // Of several failures, one is reported: the others fail again.
            let panicked = |_| anyhow!("a thread that sends records has panicked");
            let sent = threads.into_iter().map(|thread| thread.join().map_err(panicked)?);
            sent.collect::<anyhow::Result<()>>()
        })?;
        self.left_out.extend(left_out);
        Ok(())
    }
}
