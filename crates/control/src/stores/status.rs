//! What can be said of a store, its versions and its push, at one moment.

use std::path::PathBuf;

use fondaco_format::Version;
use fondaco_model::{StoreDefinition, VersionNumber};

use super::{Inner, Opened, PushStatus, Store};

/// A store as it is now.
#[derive(Debug, Clone)]
pub struct StoreStatus {
    /// What its operator said.
    pub definition: StoreDefinition,
    /// When it was created, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// Its versions, the current one first, then those most recently current.
    pub versions: Vec<VersionStatus>,
    /// The push under way or the last one.
    pub push: Option<PushStatus>,
}

/// A version as it is now.
#[derive(Debug, Clone)]
pub struct VersionStatus {
    /// Its number.
    pub version: VersionNumber,
    /// Whether it is the current one.
    pub current: bool,
    /// Where its files are.
    pub dir: PathBuf,
    /// What is known of it, or why it cannot be opened.
    pub facts: Result<VersionFacts, String>,
}

/// What the manifest says of a version.
#[derive(Debug, Clone)]
pub struct VersionFacts {
    /// How many records.
    pub records: u64,
    /// How many bytes of files.
    pub bytes: u64,
    /// How many of them are indexes, which should be in memory.
    pub index_bytes: u64,
    /// How many chunks.
    pub chunks: u64,
    /// When it was built, in milliseconds since 1970.
    pub built_unix_ms: u64,
    /// The name of its compression.
    pub compression: String,
}

impl Inner {
    pub(super) fn status(&self, store: &Store) -> StoreStatus {
        let record = &store.record;
        let versions = record.versions.kept().map(|version| VersionStatus {
            version,
            current: record.versions.current() == Some(version),
            dir: self.parts.data_dir.version(&record.definition.name, version),
            facts: match store.open.get(&version) {
                Some(Opened::Open(open)) => Ok(VersionFacts::of(open)),
                Some(Opened::Failed(reason)) => Err(reason.clone()),
                None => Err("it is not open".to_owned()),
            },
        });
        StoreStatus {
            definition: record.definition.clone(),
            created_unix_ms: record.created_unix_ms,
            versions: versions.collect(),
            push: store.push_status(),
        }
    }
}

impl VersionFacts {
    fn of(version: &Version) -> Self {
        let manifest = version.manifest();
        Self {
            records: manifest.records,
            bytes: manifest.files_bytes(),
            index_bytes: version.index_bytes(),
            chunks: manifest.chunks.len() as u64,
            built_unix_ms: manifest.created_unix_ms,
            compression: manifest.compression.to_string(),
        }
    }
}
