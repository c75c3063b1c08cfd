//! Simulated files: the sources of versions, and the disks of nodes.
//!
//! Versions have no bytes here. All keys of a build have its number as their value, and the checksum of its manifest
//! identifies it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fondaco_decisions::ReplicaKey;
use fondaco_model::cluster::{ClusterView, VersionDetail};
use fondaco_model::{Identity, NodeId, PartitionCount, PartitionSet};

/// The checksum of the manifest of a build.
pub(crate) fn checksum(build: u64) -> String {
    format!("build-{build}")
}

/// The build of a manifest.
pub(crate) fn build_of(checksum: &str) -> u64 {
    // Only `checksum` creates these strings.
    let number = checksum.strip_prefix("build-").and_then(|number| number.parse().ok());
    number.unwrap_or(0)
}

/// All builds, by their location.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    last_build: u64,
    places: BTreeMap<String, Source>,
}

#[derive(Debug, Clone)]
struct Source {
    build: u64,
    /// The build that is there now: another one if the directory was changed.
    found: u64,
    gone_until_ms: u64,
}

impl Sources {
    /// Builds a version for this number of partitions.
    pub(crate) fn build(&mut self, partitions: PartitionCount) -> VersionDetail {
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
            partitions,
            bytes: 1_000,
            index_bytes: 10,
            records: 64,
            chunks: 1,
            built_unix_ms: build,
            compression: "none".to_owned(),
            events: None,
        }
    }

    /// Changes the content of a location, as a second build into the same directory does.
    pub(crate) fn change(&mut self, pick: usize) {
        self.last_build += 1;
        let build = self.last_build;
        let count = self.places.len().max(1);
        if let Some(source) = self.places.values_mut().nth(pick % count) {
            source.found = build;
        }
    }

    /// Makes a location unavailable for a while.
    pub(crate) fn lose(&mut self, pick: usize, until_ms: u64) {
        let count = self.places.len().max(1);
        if let Some(source) = self.places.values_mut().nth(pick % count) {
            source.gone_until_ms = until_ms;
        }
    }

    /// Makes all locations available, with their original content.
    pub(crate) fn restore(&mut self) {
        for source in self.places.values_mut() {
            source.found = source.build;
            source.gone_until_ms = 0;
        }
    }

    /// The build at a location.
    pub(crate) fn read(&self, place: &str, now_ms: u64) -> Result<u64, String> {
        let source = self.places.get(place).filter(|source| source.gone_until_ms <= now_ms);
        source
            .map(|source| source.found)
            .ok_or_else(|| format!("{place:?} cannot be read"))
    }
}

/// The state of a node that survives its end.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// The versions that the disk has, wholly or partly.
    pub(crate) versions: BTreeMap<ReplicaKey, DiskVersion>,
    /// Its identity, and that of its cluster.
    pub(crate) cluster: Option<Identity>,
    pub(crate) id: Option<NodeId>,
    /// The last state of the cluster that it saw.
    pub(crate) view: Option<Arc<ClusterView>>,
    /// The disk is full until this time.
    pub(crate) full_until_ms: u64,
}

/// A version on a disk.
#[derive(Debug, Clone)]
pub(crate) struct DiskVersion {
    pub(crate) build: u64,
    /// The partitions that are complete and verified.
    pub(crate) held: PartitionSet,
}
