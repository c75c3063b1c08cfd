//! The version that a difference changes: `--incremental` of `fondaco push`.
//!
//! It is read where it was built, or from the node's data directory, if one is a directory of this machine that has all of it. Otherwise it is fetched, as
//! nodes fetch it: from where it was built, or from nodes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use fondaco_api::{NodeList, StoreResource, VersionResource};
use fondaco_builder::IncrementReport;
use fondaco_fetch::{
    FetchControl, FetchPlan, FetchReport, FetchSource, FetchTarget, FetchTuning, LocationSource, PageCache, PeerClient,
    Sources, SystemClock,
};
use fondaco_format::{Checksum, MANIFEST_FILE, Manifest};
use fondaco_model::{Histogram, HistogramSnapshot, PartitionCount, StoreName, ValueType, VersionNumber};
use fondaco_storage::Location;
use serde::Serialize;

use crate::control_port::ControlPort;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Display, INTERVAL};
use crate::scratch::Scratch;
use fondaco_admin::Client;

/// The largest manifest that is read, in bytes: a million chunks.
const MANIFEST_BYTES_MAX: u64 = 512 << 20;

/// What changed, as JSON.
#[derive(Debug, Serialize)]
pub struct IncrementResult {
    deleted: u64,
    absent: u64,
    changed_chunks: u64,
    patch_bytes: u64,
}

impl From<&IncrementReport> for IncrementResult {
    fn from(report: &IncrementReport) -> Self {
        Self {
            deleted: report.deleted,
            absent: report.absent,
            changed_chunks: report.changed_chunks,
            patch_bytes: report.patch_bytes,
        }
    }
}

impl IncrementResult {
    /// The result as text, of a version with so many chunks.
    pub fn text(&self, chunks: u64) -> String {
        let absent = match self.absent {
            0 => String::new(),
            absent => format!(" ({} not found)", output::count(absent)),
        };
        format!(
            "changed: {} of {} chunks, with patches of {}; deleted: {} keys{absent}\n",
            output::count(self.changed_chunks),
            output::count(chunks),
            output::bytes(self.patch_bytes),
            output::count(self.deleted)
        )
    }
}

/// The current version of a store, in a directory.
pub struct CurrentVersion {
    dir: PathBuf,
    /// Where it was fetched to, if it was.
    _scratch: Option<Scratch>,
}

impl CurrentVersion {
    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Finds the current version of a store, or fetches it to a temporary directory in `work`.
    pub fn find(
        client: &Client,
        port: &ControlPort,
        store: &StoreResource,
        work: &Path,
        interrupt: &Interrupt,
        output: &Output,
    ) -> anyhow::Result<Self> {
        let name: StoreName = store.name.parse()?;
        if store.value_type == ValueType::Graph {
            bail!(
                "store {name:?} is a graph, whose records depend on each other: push all its edges, without --incremental"
            );
        }
        let Some(current) = store.versions.iter().find(|version| version.current) else {
            bail!("store {name:?} has no version to change: push all records first, without --incremental");
        };
        let Some(checksum) = current.checksum.as_ref().and_then(|checksum| checksum.parse().ok()) else {
            bail!(
                "{} does not tell the checksum of versions: upgrade it",
                client.address()
            );
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
        let sources = sources(client, port, &name, current, source)?;
        output.note(&format!(
            "fetching version {} of store {name}, which is changed",
            current.version
        ));
        fetch(sources, &name, checksum, &dir, interrupt, output).with_context(|| {
            format!(
                "cannot fetch version {} of store {name:?}, which is to be changed",
                current.version
            )
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
    port: &ControlPort,
    name: &StoreName,
    version: &VersionResource,
    built: Option<Location>,
) -> anyhow::Result<Vec<Box<dyn FetchSource>>> {
    let certificates = match &port.tls.ca {
        Some(path) => Some(std::fs::read(path).with_context(|| format!("cannot read the certificates in {path:?}"))?),
        None => None,
    };
    let peers = PeerClient::new(port.token.as_deref(), certificates.as_deref())?;
    let number = version.version.to_string().parse::<VersionNumber>()?;
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
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<FetchReport> {
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
        let mut display = Display::new(output.is_quiet());
        while !fetching.is_finished() {
            if interrupt.is_asked() {
                control.cancel();
            }
            let now = control.progress();
            let fraction = now.bytes_done as f64 / now.bytes_total.max(1) as f64;
            let (done, total) = (output::bytes(now.bytes_done), output::bytes(now.bytes_total));
            display.show("fetching", fraction.min(1.0), &format!("{done} of {total}"));
            std::thread::park_timeout(INTERVAL.min(Duration::from_millis(100)));
        }
        drop(display);
        match fetching.join() {
            Ok(report) => Ok(report?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// How many partitions the version has.
fn partitions(sources: &[Box<dyn FetchSource>], checksum: Checksum) -> anyhow::Result<PartitionCount> {
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
    bail!("no place has its manifest: {}", reasons.join("; "))
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
