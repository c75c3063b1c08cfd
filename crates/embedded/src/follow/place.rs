//! The directory of a reader that follows a store: its layout, its lock, and what is remembered there.
//!
//! ```text
//! DIR/lock                            held by the process, names its pid
//! DIR/follow.json                     the store, and its versions here: the current one first
//! DIR/version-7-36a1d24c0e8b6a4f/     a complete version, by number and checksum
//! DIR/fetching-8-99e2e4a3b1a0c7d5/    a version being fetched
//! DIR/events-log/                     the events on top of versions of a hybrid store, and how far the topic was read
//! DIR/events-log.lost                 the engine has lost some of them: they are read again
//! ```
//!
//! Invariant: `follow.json` names only complete versions, and is written before a version that it named is deleted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fondaco_durable::{DirectoryLock, LockError};
use fondaco_format::{Checksum, ValueSchema};
use fondaco_model::{StoreName, VersionNumber};
use serde::{Deserialize, Serialize};

use super::cluster::VersionId;
use crate::error::EmbeddedError;
use crate::events::{StreamOf, has_events};

/// The file with the versions.
const MEMORY_FILE: &str = "follow.json";

/// The directory, locked for as long as this lives.
pub(super) struct Place {
    root: PathBuf,
    store: StoreName,
    _lock: DirectoryLock,
}

/// The content of `follow.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Memory {
    store: StoreName,
    versions: Vec<Remembered>,
    /// The schemas of values that events may have, and when their store was created.
    #[serde(default)]
    schemas: (u64, Vec<ValueSchema>),
}

/// A version that was current here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) version: VersionNumber,
    pub(super) checksum: Checksum,
    /// When its store was created.
    pub(super) store_created_unix_ms: u64,
    /// The stream on top of it, if its store is hybrid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<StreamOf>,
}

/// The versions that were current, the last one first, and the schemas that were known.
type Recollection = (Vec<Remembered>, (u64, Vec<ValueSchema>));

impl Remembered {
    pub(super) fn id(&self) -> VersionId {
        VersionId {
            number: self.version,
            checksum: self.checksum,
        }
    }
}

impl Place {
    /// Makes the directory if needed, and locks it.
    pub(super) fn open(root: &Path, store: &StoreName) -> Result<Self, EmbeddedError> {
        fondaco_durable::create_directory(root).map_err(EmbeddedError::io("create", root))?;
        let root = fs::canonicalize(root).map_err(EmbeddedError::io("resolve", root))?;
        let lock = DirectoryLock::take(&root).map_err(|error| match error {
            LockError::Held { pid } => EmbeddedError::Locked {
                path: root.clone(),
                pid,
            },
            LockError::Io { action, source } => EmbeddedError::io(action, root.join("lock"))(source),
        })?;
        Ok(Self {
            root,
            store: store.clone(),
            _lock: lock,
        })
    }

    /// The directory of a complete version.
    pub(super) fn version_dir(&self, id: VersionId) -> PathBuf {
        self.root.join(format!("version-{}-{}", id.number, id.checksum))
    }

    /// The directory of a version while it is fetched.
    pub(super) fn fetching_dir(&self, id: VersionId) -> PathBuf {
        self.root.join(format!("fetching-{}-{}", id.number, id.checksum))
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The versions that were current here, the last one first. If the file is missing or damaged, all complete versions,
    /// the newest first; none if there are events, which belong to one of them.
    pub(super) fn remembered(&self) -> Result<Recollection, EmbeddedError> {
        let path = self.root.join(MEMORY_FILE);
        let memory = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Memory>(&bytes).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(EmbeddedError::io("read", &path)(error)),
        };
        match memory {
            Some(memory) if memory.store == self.store => Ok((memory.versions, memory.schemas)),
            Some(memory) => Err(EmbeddedError::OtherStore {
                path: self.root.clone(),
                found: memory.store,
                expected: self.store.clone(),
            }),
            None if has_events(&self.root) => Ok(Recollection::default()),
            None => {
                let mut found: Vec<Remembered> = self.dirs()?.iter().filter_map(|dir| complete(dir)).collect();
                found.sort_by_key(|found| std::cmp::Reverse(found.version));
                Ok((found, Default::default()))
            }
        }
    }

    /// Remembers the versions and schemas, durably.
    pub(super) fn remember(
        &self,
        versions: Vec<Remembered>,
        schemas: (u64, Vec<ValueSchema>),
    ) -> Result<(), EmbeddedError> {
        let path = self.root.join(MEMORY_FILE);
        let memory = Memory {
            store: self.store.clone(),
            versions,
            schemas,
        };
        let bytes =
            serde_json::to_vec_pretty(&memory).map_err(|error| EmbeddedError::io("write", &path)(error.into()))?;
        let written = fondaco_durable::replace_file(&path, &path.with_extension("new"), &bytes);
        written.map_err(EmbeddedError::io("write", &path))
    }

    /// The directories of versions, complete or not.
    pub(super) fn dirs(&self) -> Result<Vec<PathBuf>, EmbeddedError> {
        let entries = fs::read_dir(&self.root).map_err(EmbeddedError::io("list", &self.root))?;
        let mut dirs = Vec::new();
        for entry in entries {
            let entry = entry.map_err(EmbeddedError::io("list", &self.root))?;
            let name = entry.file_name();
            let is_ours = name.to_str().is_some_and(|name| parse(name).is_some());
            if is_ours && entry.path().is_dir() {
                dirs.push(entry.path());
            }
        }
        Ok(dirs)
    }
}

/// The version in a directory of this name, and whether it is complete; `None` for a name that is not given here.
fn parse(name: &str) -> Option<(VersionId, bool)> {
    let (kind, rest) = name.split_once('-')?;
    let (number, checksum) = rest.split_once('-')?;
    let id = VersionId {
        number: number.parse().ok()?,
        checksum: checksum.parse().ok()?,
    };
    match kind {
        "version" => Some((id, true)),
        "fetching" => Some((id, false)),
        _ => None,
    }
}

/// The complete version in a directory.
fn complete(dir: &Path) -> Option<Remembered> {
    let (id, is_complete) = parse(dir.file_name()?.to_str()?)?;
    is_complete.then_some(Remembered {
        version: id.number,
        checksum: id.checksum,
        store_created_unix_ms: 0,
        stream: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> VersionId {
        VersionId {
            number: VersionNumber::new(number).unwrap(),
            checksum: Checksum::of(&number.to_le_bytes()),
        }
    }

    fn remembered(number: u64) -> Remembered {
        Remembered {
            version: id(number).number,
            checksum: id(number).checksum,
            store_created_unix_ms: 0,
            stream: None,
        }
    }

    #[test]
    fn versions_are_remembered_in_order_and_found_without_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::open(dir.path(), &"cities".parse().unwrap()).unwrap();
        assert_eq!(place.remembered().unwrap().0, []);
        for number in [1, 3, 2] {
            fs::create_dir(place.version_dir(id(number))).unwrap();
        }
        fs::create_dir(place.fetching_dir(id(4))).unwrap();
        fs::create_dir(dir.path().join("version-x")).unwrap();
        assert_eq!(place.dirs().unwrap().len(), 4);
        place
            .remember(vec![remembered(1), remembered(3)], Default::default())
            .unwrap();
        assert_eq!(place.remembered().unwrap().0, [remembered(1), remembered(3)]);
        fs::write(dir.path().join(MEMORY_FILE), "{").unwrap();
        assert_eq!(place.remembered().unwrap().0, [3, 2, 1].map(remembered));
        // Without the file it is unknown on top of which version they are.
        fs::create_dir(dir.path().join("events-log")).unwrap();
        assert_eq!(place.remembered().unwrap().0, []);
    }

    #[test]
    fn the_directory_of_another_store_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::open(dir.path(), &"cities".parse().unwrap()).unwrap();
        place.remember(vec![], Default::default()).unwrap();
        drop(place);
        let place = Place::open(dir.path(), &"rivers".parse().unwrap()).unwrap();
        let error = place.remembered().unwrap_err().to_string();
        assert!(error.contains("\"cities\""), "{error}");
    }
}
