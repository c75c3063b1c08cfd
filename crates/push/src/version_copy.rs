//! Copies of versions on this machine: of a store's current version, or of the version at a location.
//!
//! A version is read where it was built, or from the node's data directory, if one is a directory of this machine that has all of
//! it. Otherwise it is fetched, as nodes fetch it: from where it was built, or from nodes.

use std::path::{Path, PathBuf};

use fondaco_admin::{Client, Endpoint};
use fondaco_api::{NodeList, StoreResource, VersionResource};
use fondaco_fetch::{
    FetchControl, FetchPlan, FetchReport, FetchSource, FetchTarget, FetchTuning, LocationSource, PageCache, PeerClient,
    Sources, SystemClock,
};
use fondaco_format::{Checksum, ChunkEntry, FileEntry, MANIFEST_FILE, Manifest};
use fondaco_model::{Histogram, HistogramSnapshot, PartitionSet, StoreName, VersionNumber};
use fondaco_storage::Location;

use crate::error::PushError;
use crate::observer::{INTERVAL, Job, Note, Progress};
use crate::scratch::Scratch;

/// The largest manifest that is read, in bytes: a million chunks.
const MANIFEST_BYTES_MAX: u64 = 512 << 20;

/// The files of a version, or of some of its partitions, in a directory of this machine. They may be deleted when it is dropped.
pub struct VersionCopy {
    dir: PathBuf,
    /// Where it was fetched to, if it was.
    _scratch: Option<Scratch>,
}

impl VersionCopy {
    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Finds the current version of a store, or fetches it, or these partitions of it, to a temporary directory in `work`.
    ///
    /// # Errors
    /// The store has no version, or it cannot be fetched.
    pub fn of_current(
        client: &Client,
        endpoint: &Endpoint,
        (name, store): (&StoreName, &StoreResource),
        wanted: Option<&PartitionSet>,
        work: &Path,
        job: Job<'_>,
    ) -> Result<Self, PushError> {
        let current = current(client, (name, store))?;
        // Where it was built, or in the data directory of a node with all partitions on this machine.
        let built = current.built.as_ref().and_then(Location::local_path);
        let of_node = current.version.directory.as_deref().map(Path::new);
        let has_it = |dir: &&Path| is_whole(dir, current.checksum, wanted);
        if let Some(dir) = built.into_iter().chain(of_node).find(has_it) {
            let dir = dir.to_owned();
            return Ok(Self { dir, _scratch: None });
        }
        let number = current.version.version;
        let sources = sources(client, endpoint, name, &current)?;
        job.note(Note::FetchingBase {
            store: name,
            version: number,
        });
        Self::fetched(sources, name, current.checksum, wanted, work, job)
            .map_err(|error| error.within(format!("cannot fetch version {number} of store {name:?}")))
    }

    /// The version at a location; it, or these partitions of it, are fetched to a temporary directory in `work` if the location is
    /// not a directory of this machine.
    ///
    /// # Errors
    /// There is no version, or it cannot be fetched.
    pub fn at(
        location: &Location,
        wanted: Option<&PartitionSet>,
        work: &Path,
        job: Job<'_>,
    ) -> Result<Self, PushError> {
        if let Some(dir) = location.local_path() {
            let dir = dir.to_owned();
            return Ok(Self { dir, _scratch: None });
        }
        let source: Box<dyn FetchSource> = Box::new(LocationSource::new(location.clone()));
        let (manifest, checksum) = read_manifest(&*source)?;
        Self::fetched(vec![source], &manifest.store, checksum, wanted, work, job)
            .map_err(|error| error.within(format!("cannot fetch the version at {location}")))
    }

    /// Fetches a version of a store from nodes that have it, whether or not it is current, to a temporary directory in `work`.
    ///
    /// # Errors
    /// No live node has it, or it cannot be fetched.
    pub fn of_version(
        client: &Client,
        endpoint: &Endpoint,
        name: &StoreName,
        version: VersionNumber,
        work: &Path,
        job: Job<'_>,
    ) -> Result<Self, PushError> {
        let sources = of_nodes(client, endpoint, name, version)?;
        let mut checksums = sources
            .iter()
            .map(|source| Ok::<_, PushError>(read_manifest(&**source)?.1));
        let none = PushError::Unfit(format!(
            "no live node has version {version} of store {name:?}: fondaco versions {name}"
        ));
        let checksum = checksums.find(Result::is_ok).unwrap_or(Err(none))?;
        job.note(Note::FetchingBase {
            store: name,
            version: version.get(),
        });
        Self::fetched(sources, name, checksum, None, work, job)
            .map_err(|error| error.within(format!("cannot fetch version {version} of store {name:?}")))
    }

    fn fetched(
        sources: Vec<Box<dyn FetchSource>>,
        store: &StoreName,
        checksum: Checksum,
        wanted: Option<&PartitionSet>,
        work: &Path,
        job: Job<'_>,
    ) -> Result<Self, PushError> {
        let scratch = Scratch::make(work)?;
        let dir = scratch.path()?.join("current");
        fetch(sources, store, checksum, wanted, &dir, job)?;
        Ok(Self {
            dir,
            _scratch: Some(scratch),
        })
    }
}

/// The manifest of the version at a location.
///
/// # Errors
/// The location has no manifest, or a damaged one.
pub fn manifest_at(location: &Location) -> Result<Manifest, PushError> {
    match location.local_path() {
        Some(dir) => Ok(Manifest::read(dir)?),
        None => Ok(read_manifest(&LocationSource::new(location.clone()))?.0),
    }
}

/// The manifest of the current version of a store.
///
/// # Errors
/// The store has no version, or no place has its manifest.
pub fn manifest_of_current(
    client: &Client,
    endpoint: &Endpoint,
    (name, store): (&StoreName, &StoreResource),
) -> Result<Manifest, PushError> {
    let current = current(client, (name, store))?;
    let mut sources = sources(client, endpoint, name, &current)?;
    // Nodes are near, and the location of the build may be gone.
    sources.reverse();
    manifest(&sources, current.checksum)
}

fn read_manifest(source: &dyn FetchSource) -> Result<(Manifest, Checksum), PushError> {
    let bytes = source.read_whole(MANIFEST_FILE, MANIFEST_BYTES_MAX).map_err(|error| {
        PushError::Unfit(format!(
            "cannot read {MANIFEST_FILE} at {}: {error}; a version has one",
            source.name()
        ))
    })?;
    Ok(Manifest::identified(&bytes)?)
}

/// The current version of a store, as the cluster knows it.
struct Current<'a> {
    version: &'a VersionResource,
    checksum: Checksum,
    /// The location at which it was built.
    built: Option<Location>,
}

fn current<'a>(client: &Client, (name, store): (&StoreName, &'a StoreResource)) -> Result<Current<'a>, PushError> {
    let Some(version) = store.versions.iter().find(|version| version.current) else {
        return Err(PushError::Unfit(format!(
            "store {name:?} has no version: push one first"
        )));
    };
    let Some(checksum) = version.checksum.as_ref().and_then(|checksum| checksum.parse().ok()) else {
        return Err(PushError::Unfit(format!(
            "{} does not tell the checksum of versions: upgrade it",
            client.address()
        )));
    };
    let built = version.source.as_ref().and_then(|source| source.parse().ok());
    Ok(Current {
        version,
        checksum,
        built,
    })
}

/// Whether a directory has all files of this version, or of these partitions, with the right lengths.
fn is_whole(dir: &Path, checksum: Checksum, wanted: Option<&PartitionSet>) -> bool {
    let Ok((manifest, found)) = Manifest::read_identified(dir) else {
        return false;
    };
    let has = |file: &FileEntry| std::fs::metadata(dir.join(&file.name)).is_ok_and(|found| found.len() == file.bytes);
    let is_wanted = |chunk: &&ChunkEntry| wanted.is_none_or(|wanted| wanted.contains(chunk.partition));
    let mut files = manifest.chunks.iter().filter(is_wanted).flat_map(ChunkEntry::files);
    found == checksum && files.all(has) && manifest.dictionary.iter().all(has)
}

/// Where the files of the version may be, in the order in which these are asked.
fn sources(
    client: &Client,
    endpoint: &Endpoint,
    name: &StoreName,
    current: &Current<'_>,
) -> Result<Vec<Box<dyn FetchSource>>, PushError> {
    let number = VersionNumber::new(current.version.version)
        .ok_or_else(|| PushError::Damaged(format!("{} names a version 0: check its version", client.address())))?;
    let built = current.built.clone();
    let built = built.map(|location| Box::new(LocationSource::new(location)) as Box<dyn FetchSource>);
    let nodes = of_nodes(client, endpoint, name, number)?;
    Ok(built.into_iter().chain(nodes).collect())
}

/// The live nodes, as places of a version.
fn of_nodes(
    client: &Client,
    endpoint: &Endpoint,
    name: &StoreName,
    number: VersionNumber,
) -> Result<Vec<Box<dyn FetchSource>>, PushError> {
    let certificates = match &endpoint.ca {
        Some(path) => Some(std::fs::read(path).map_err(PushError::file("read the certificates in", path))?),
        None => None,
    };
    let peers = PeerClient::new(endpoint.token.as_deref(), certificates.as_deref())?;
    let nodes: NodeList = client.get("/v1/nodes")?;
    let live = nodes.nodes.iter().filter(|node| node.live);
    let places = live.map(|node| Box::new(peers.source(&node.http, name, number)) as Box<dyn FetchSource>);
    Ok(places.collect())
}

fn fetch(
    sources: Vec<Box<dyn FetchSource>>,
    store: &StoreName,
    checksum: Checksum,
    wanted: Option<&PartitionSet>,
    dir: &Path,
    job: Job<'_>,
) -> Result<FetchReport, PushError> {
    let partitions = manifest(&sources, checksum)?.partitions;
    let sources = Sources::new(sources);
    let target = FetchTarget {
        store,
        partitions,
        wanted,
        manifest_checksum: Some(checksum),
        fetching_dir: &dir.with_extension("part"),
        version_dir: dir,
        siblings: &[],
        reserve_bytes: 0,
    };
    let plan = FetchPlan::new(&sources, &target)?;
    let control = FetchControl::new(SystemClock);
    std::thread::scope(|scope| {
        let fetching = scope.spawn(|| plan.run(&sources, &target, PageCache::Keep, &control, &Unpaced));
        let step = job.step();
        while !fetching.is_finished() {
            if job.is_cancelled() {
                control.cancel();
            }
            let now = control.progress();
            step.show(Progress::FetchingBase {
                bytes_done: now.bytes_done,
                bytes_total: now.bytes_total,
            });
            std::thread::park_timeout(INTERVAL);
        }
        drop(step);
        match fetching.join() {
            Ok(report) => Ok(report?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The manifest of the version with this checksum.
fn manifest(sources: &[Box<dyn FetchSource>], checksum: Checksum) -> Result<Manifest, PushError> {
    let mut reasons = Vec::new();
    for source in sources {
        let read = source.read_whole(MANIFEST_FILE, MANIFEST_BYTES_MAX);
        let read = read.map_err(|error| error.to_string());
        match read.and_then(|bytes| Manifest::identified(&bytes).map_err(|error| error.to_string())) {
            Ok((manifest, found)) if found == checksum => return Ok(manifest),
            Ok(_) => reasons.push(format!("{} has another version", source.name())),
            Err(error) => reasons.push(format!("{}: {error}", source.name())),
        }
    }
    Err(PushError::Unfit(format!(
        "no place has its manifest: {}",
        reasons.join("; ")
    )))
}

/// As fast as possible: nothing is served here.
struct Unpaced;

impl FetchTuning for Unpaced {
    fn rate_limit_bytes_per_second(&self) -> Option<u64> {
        None
    }

    fn rate_floor_bytes_per_second(&self) -> u64 {
        u64::MAX
    }

    fn reads(&self) -> HistogramSnapshot {
        Histogram::default().snapshot()
    }
}
