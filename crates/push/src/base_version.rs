//! The version that an incremental push changes.
//!
//! It is read where it was built, or from the node's data directory, if one is a directory of this machine that has all of it. Otherwise it is fetched, as
//! nodes fetch it: from where it was built, or from nodes.

use std::path::{Path, PathBuf};

use fondaco_admin::{Client, Endpoint};
use fondaco_api::{NodeList, StoreResource, VersionResource};
use fondaco_fetch::{
    FetchControl, FetchPlan, FetchReport, FetchSource, FetchTarget, FetchTuning, LocationSource, PageCache, PeerClient,
    Sources, SystemClock,
};
use fondaco_format::{Checksum, MANIFEST_FILE, Manifest};
use fondaco_model::{Histogram, HistogramSnapshot, PartitionCount, StoreName, ValueType, VersionNumber};
use fondaco_storage::Location;

use crate::error::PushError;
use crate::observer::{INTERVAL, Job, Note, Progress};
use crate::scratch::Scratch;

/// The largest manifest that is read, in bytes: a million chunks.
const MANIFEST_BYTES_MAX: u64 = 512 << 20;

/// The current version of a store, in a directory.
pub(crate) struct CurrentVersion {
    dir: PathBuf,
    /// Where it was fetched to, if it was.
    _scratch: Option<Scratch>,
}

impl CurrentVersion {
    /// Its directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Finds the current version of a store, or fetches it to a temporary directory in `work`.
    pub(crate) fn find(
        client: &Client,
        endpoint: &Endpoint,
        (name, store): (&StoreName, &StoreResource),
        work: &Path,
        job: Job<'_>,
    ) -> Result<Self, PushError> {
        if store.value_type() == ValueType::Graph {
            return Err(PushError::Unfit(format!(
                "store {name:?} is a graph, whose records depend on each other: push all its edges, without --incremental"
            )));
        }
        let Some(current) = store.versions.iter().find(|version| version.current) else {
            return Err(PushError::Unfit(format!(
                "store {name:?} has no version to change: push all records first, without --incremental"
            )));
        };
        let Some(checksum) = current.checksum.as_ref().and_then(|checksum| checksum.parse().ok()) else {
            return Err(PushError::Unfit(format!(
                "{} does not tell the checksum of versions: upgrade it",
                client.address()
            )));
        };
        let source = current
            .source
            .as_ref()
            .and_then(|source| source.parse::<Location>().ok());
        // Where it was built, or in the data directory of a node with all partitions on this machine.
        let built = source.as_ref().and_then(Location::local_path);
        let of_node = current.directory.as_deref().map(Path::new);
        if let Some(dir) = built.into_iter().chain(of_node).find(|dir| is_whole(dir, checksum)) {
            let dir = dir.to_owned();
            return Ok(Self { dir, _scratch: None });
        }
        let scratch = Scratch::make(work)?;
        let dir = scratch.path()?.join("current");
        let sources = sources(client, endpoint, name, current, source)?;
        job.note(Note::FetchingBase {
            store: name,
            version: current.version,
        });
        fetch(sources, name, checksum, &dir, job).map_err(|error| {
            error.within(format!(
                "cannot fetch version {} of store {name:?}, which is to be changed",
                current.version
            ))
        })?;
        Ok(Self {
            dir,
            _scratch: Some(scratch),
        })
    }
}

/// Whether a directory has all files of this version, with the right lengths.
fn is_whole(dir: &Path, checksum: Checksum) -> bool {
    let Ok((manifest, found)) = Manifest::read_identified(dir) else {
        return false;
    };
    let has = |name: &str, bytes| std::fs::metadata(dir.join(name)).is_ok_and(|found| found.len() == bytes);
    found == checksum && manifest.files().all(|file| has(&file.name, file.bytes))
}

/// Where the files of the version may be, in the order in which these are asked.
fn sources(
    client: &Client,
    endpoint: &Endpoint,
    name: &StoreName,
    version: &VersionResource,
    built: Option<Location>,
) -> Result<Vec<Box<dyn FetchSource>>, PushError> {
    let certificates = match &endpoint.ca {
        Some(path) => Some(std::fs::read(path).map_err(PushError::file("read the certificates in", path))?),
        None => None,
    };
    let peers = PeerClient::new(endpoint.token.as_deref(), certificates.as_deref())?;
    let number = VersionNumber::new(version.version)
        .ok_or_else(|| PushError::Damaged(format!("{} names a version 0: check its version", client.address())))?;
    let nodes: NodeList = client.get("/v1/nodes")?;
    let live = nodes.nodes.iter().filter(|node| node.live);
    let built = built.map(|location| Box::new(LocationSource::new(location)) as Box<dyn FetchSource>);
    let peer = live.map(|node| Box::new(peers.source(&node.http, name, number)) as Box<dyn FetchSource>);
    Ok(built.into_iter().chain(peer).collect())
}

fn fetch(
    sources: Vec<Box<dyn FetchSource>>,
    store: &StoreName,
    checksum: Checksum,
    dir: &Path,
    job: Job<'_>,
) -> Result<FetchReport, PushError> {
    let partitions = partitions(&sources, checksum)?;
    let sources = Sources::new(sources);
    let target = FetchTarget {
        store,
        partitions,
        wanted: None,
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

/// How many partitions the version has.
fn partitions(sources: &[Box<dyn FetchSource>], checksum: Checksum) -> Result<PartitionCount, PushError> {
    let mut reasons = Vec::new();
    for source in sources {
        let read = source.read_whole(MANIFEST_FILE, MANIFEST_BYTES_MAX);
        let read = read.map_err(|error| error.to_string());
        match read.and_then(|bytes| Manifest::identified(&bytes).map_err(|error| error.to_string())) {
            Ok((manifest, found)) if found == checksum => return Ok(manifest.partitions),
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
