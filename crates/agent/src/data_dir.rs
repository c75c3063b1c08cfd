//! The data directory of a node: its layout, and the lock that keeps other processes out.
//!
//! ```text
//! DATA/lock                          held by the process, names its pid
//! DATA/node.json                     the node's identity, and its cluster
//! DATA/view.json                     the last cluster view, for a start without coordination
//! DATA/metadata/                     the embedded coordination of a cluster of one
//! DATA/stores/NAME/version-N/        a complete version
//! DATA/stores/NAME/fetching-N/       a version being fetched
//! DATA/uploads/ID/                   files uploaded to be pushed, until they are pushed
//! DATA/versioned/tables/             records of versioned stores, events on top of versions, and hints for other nodes
//! DATA/versioned/log/                 records and events of stores whose engine is the log
//! DATA/versioned/mysql/               data remembered about the MySQL database
//! DATA/versioned/incarnation.json     the incarnations under which writes are counted, and the count of the directory
//! DATA/events/                       the log of events of `fondaco dev`
//! DATA/work/                         where a compaction works
//! DATA/trash/                        data that was given up, until it expires; data being deleted
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fondaco_durable::{DirectoryLock, LockError};
use fondaco_model::{StoreName, VersionNumber};

use crate::error::AgentError;

/// The data directory, locked for as long as this lives.
pub struct DataDir {
    root: PathBuf,
    _lock: DirectoryLock,
}

/// The meaning of a directory's name within a store's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionDir {
    Complete(VersionNumber),
    Fetching(VersionNumber),
}

impl DataDir {
    /// Makes the directory if it is missing, and locks it.
    ///
    /// # Errors
    /// [`AgentError::DataDirLocked`] if another process has it.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, AgentError> {
        let root = root.into();
        for dir in [root.clone(), root.join("stores"), root.join("trash")] {
            fondaco_durable::create_directory(&dir).map_err(AgentError::io("create", &dir))?;
        }
        let lock = lock(&root)?;
        let root = fs::canonicalize(&root).map_err(AgentError::io("resolve", &root))?;
        Ok(Self { root, _lock: lock })
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of the embedded coordination.
    pub fn metadata(&self) -> PathBuf {
        self.root.join("metadata")
    }

    /// The directory of the log of events.
    pub fn events(&self) -> PathBuf {
        self.root.join("events")
    }

    pub(crate) fn node_file(&self) -> PathBuf {
        self.root.join("node.json")
    }

    /// The file with the last view of the cluster.
    pub fn view_file(&self) -> PathBuf {
        self.root.join("view.json")
    }

    /// Names some data that a node has written here; `None` if the directory has no such data.
    pub(crate) fn found_data(&self) -> Option<&'static str> {
        let has_stores = fs::read_dir(self.stores()).is_ok_and(|mut stores| stores.next().is_some());
        let found = [
            ("versions of stores", has_stores),
            ("data of versioned stores", self.versioned().exists()),
            ("a remembered view of the cluster", self.view_file().exists()),
        ];
        found.into_iter().find_map(|(what, is_there)| is_there.then_some(what))
    }

    /// The directory of stores.
    pub fn stores(&self) -> PathBuf {
        self.root.join("stores")
    }

    /// The directory of versioned stores.
    pub(crate) fn versioned(&self) -> PathBuf {
        self.root.join("versioned")
    }

    pub(crate) fn store(&self, store: &StoreName) -> PathBuf {
        self.stores().join(store.as_str())
    }

    /// The directory of a complete version.
    pub fn version(&self, store: &StoreName, version: VersionNumber) -> PathBuf {
        self.store(store).join(format!("version-{version}"))
    }

    pub(crate) fn fetching(&self, store: &StoreName, version: VersionNumber) -> PathBuf {
        self.store(store).join(format!("fetching-{version}"))
    }

    /// The directory of uploads to this node.
    pub(crate) fn uploads(&self) -> PathBuf {
        self.root.join("uploads")
    }

    /// The directory of compactions.
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    /// How many bytes of the file system are used, and how many there are, without those that only root may use.
    pub fn space(&self) -> Option<(u64, u64)> {
        let found = rustix::fs::statvfs(&self.root).ok()?;
        let used = found.f_blocks.saturating_sub(found.f_bfree);
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some((bytes(used), bytes(used + found.f_bavail)))
    }

    /// How many bytes are free on the file system.
    pub fn available_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.root).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

impl VersionDir {
    /// The meaning of a directory name; `None` for a name that this program does not give.
    pub fn parse(name: &str) -> Option<Self> {
        let (kind, number) = name.split_once('-')?;
        let number: VersionNumber = number.parse().ok()?;
        match kind {
            "version" => Some(Self::Complete(number)),
            "fetching" => Some(Self::Fetching(number)),
            _ => None,
        }
    }
}

/// The directories of the complete versions of a store. Empty if the store's directory cannot be read.
pub(crate) fn version_dirs(store_dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(store_dir).into_iter().flatten().flatten();
    let is_version = |entry: &fs::DirEntry| {
        let kind = entry.file_name().to_str().and_then(VersionDir::parse);
        matches!(kind, Some(VersionDir::Complete(_)))
    };
    entries.filter(is_version).map(|entry| entry.path()).collect()
}

fn lock(root: &Path) -> Result<DirectoryLock, AgentError> {
    DirectoryLock::take(root).map_err(|error| match error {
        LockError::Held { pid } => AgentError::DataDirLocked {
            path: root.to_owned(),
            pid,
        },
        LockError::Io { action, source } => AgentError::io(action, root.join("lock"))(source),
    })
}

/// Replaces a whole file, durably: after a crash either the old one or the new one is there.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), AgentError> {
    let new = path.with_extension("new");
    fondaco_durable::replace_file(path, &new, bytes).map_err(AgentError::io("write", path))
}

/// Logs that a file or directory with an unknown name is left alone.
pub(crate) fn leave_alone(entry: &fs::DirEntry) {
    let path = entry.path();
    tracing::warn!(
        ?path,
        "this file or directory has an unknown name: it is left alone, move it elsewhere"
    );
}

/// The entries of a directory.
pub(crate) fn list(dir: &Path) -> Result<Vec<fs::DirEntry>, AgentError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        // A file where a directory should be: the caller meets it when it lists the parent.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Vec::new()),
        Err(error) => return Err(AgentError::io("list", dir)(error)),
    };
    entries
        .map(|entry| entry.map_err(AgentError::io("list", dir)))
        .collect()
}

/// Deletes a directory with everything in it, if it exists.
pub(crate) fn delete_tree(dir: &Path) -> Result<(), AgentError> {
    fondaco_durable::delete_tree(dir).map_err(AgentError::io("delete", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_is_refused_with_the_first_pid() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path()).unwrap();
        let error = DataDir::open(dir.path()).err().unwrap();
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(first);
        DataDir::open(dir.path()).unwrap();
    }

    #[test]
    fn only_names_that_it_gives_itself_are_versions() {
        let three = VersionNumber::new(3).unwrap();
        assert_eq!(VersionDir::parse("version-3"), Some(VersionDir::Complete(three)));
        assert_eq!(VersionDir::parse("fetching-3"), Some(VersionDir::Fetching(three)));
        for name in ["version-0", "version-x", "versions-3", "version", "version--3"] {
            assert_eq!(VersionDir::parse(name), None, "{name}");
        }
    }
}
