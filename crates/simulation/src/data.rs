//! Simulated files: where versions were built, and what nodes have of them on their disks.
//!
//! A version is not made of bytes here. All keys of a build have its number as their value, and the
//! checksum of its manifest names it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fondaco_model::cluster::{ClusterView, ReplicaKey, VersionDetail};
use fondaco_model::{Identity, NodeId, PartitionSet};

/// The checksum of the manifest of a build.
pub(crate) fn checksum(build: u64) -> String {
    format!("build-{build}")
}

/// The build that a manifest is of.
pub(crate) fn build_of(checksum: &str) -> u64 {
    // Only `checksum` writes them.
    let number = checksum.strip_prefix("build-").and_then(|number| number.parse().ok());
    number.unwrap_or(0)
}

/// What was built, by where it lies.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    last_build: u64,
    places: BTreeMap<String, Source>,
}

#[derive(Debug, Clone)]
struct Source {
    build: u64,
    /// What lies there now: another build, if the directory was changed.
    found: u64,
    gone_until_ms: u64,
}

impl Sources {
    /// Builds a version.
    pub(crate) fn build(&mut self) -> VersionDetail {
        self.last_build += 1;
        let build = self.last_build;
        let place = format!("file:///versions/{build}");
        let source = Source {
            build,
            found: build,
            gone_until_ms: 0,
        };
        self.places.insert(place.clone(), source);
        VersionDetail {
            source: place,
            manifest_checksum: checksum(build),
            bytes: 1_000,
            index_bytes: 10,
            records: 64,
            chunks: 1,
            built_unix_ms: build,
            compression: "none".to_owned(),
        }
    }

    /// Changes what lies at a place, as building into a directory twice does.
    pub(crate) fn change(&mut self, pick: usize) {
        self.last_build += 1;
        let build = self.last_build;
        let count = self.places.len().max(1);
        if let Some(source) = self.places.values_mut().nth(pick % count) {
            source.found = build;
        }
    }

    /// Takes a place away for a while.
    pub(crate) fn lose(&mut self, pick: usize, until_ms: u64) {
        let count = self.places.len().max(1);
        if let Some(source) = self.places.values_mut().nth(pick % count) {
            source.gone_until_ms = until_ms;
        }
    }

    /// Puts everything back to where it was.
    pub(crate) fn restore(&mut self) {
        for source in self.places.values_mut() {
            source.found = source.build;
            source.gone_until_ms = 0;
        }
    }

    /// Which build lies at a place.
    pub(crate) fn read(&self, place: &str, now_ms: u64) -> Result<u64, String> {
        let source = self.places.get(place).filter(|source| source.gone_until_ms <= now_ms);
        source
            .map(|source| source.found)
            .ok_or_else(|| format!("{place:?} cannot be read"))
    }
}

/// What a node remembers when it stops.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// Each version of which there is something.
    pub(crate) versions: BTreeMap<ReplicaKey, DiskVersion>,
    /// Its identity, and its cluster.
    pub(crate) cluster: Option<Identity>,
    pub(crate) id: Option<NodeId>,
    /// What it saw last of the cluster.
    pub(crate) view: Option<Arc<ClusterView>>,
    /// Until when nothing more fits.
    pub(crate) full_until_ms: u64,
}

/// A version on a disk.
#[derive(Debug, Clone)]
pub(crate) struct DiskVersion {
    pub(crate) build: u64,
    /// The partitions that are complete and verified.
    pub(crate) held: PartitionSet,
}
