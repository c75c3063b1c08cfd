//! Dropped versions: kept for a while, so that they can be restored, then deleted.
//!
//! ```text
//! DATA/trash/UNIX_MS.STORE.version-N/    a version, or some of its partitions, and when it was given up
//! DATA/trash/deleting-K/                 data being deleted
//! ```
//!
//! A version is deleted when its time or its store's is over, or, the oldest first, when the disk needs the space. It is
//! restored when the node wants it again: a version with the wanted checksum is the wanted version.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{fs, io};

use fondaco_fetch::move_partitions;
use fondaco_format::{MANIFEST_FILE, Manifest};
use fondaco_model::{PartitionId, PartitionSet, StoreName, VersionNumber};
use fondaco_protocol::now_unix_ms;
use parking_lot::Mutex;

use crate::data_dir::{DataDir, VersionDir};
use crate::error::AgentError;

/// How many versions of one store are kept: as many as a store can have as backups, and some more. Frequent pushes
/// would use up all files and inodes otherwise.
const OF_STORE_MAX: usize = 128;

/// The trash of a data directory.
pub(crate) struct Trash {
    dir: PathBuf,
    grace_ms: u64,
    items: Mutex<Vec<Item>>,
    last: AtomicU64,
}

/// A version in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    path: PathBuf,
    store: StoreName,
    version: VersionNumber,
    since_unix_ms: u64,
}

impl Item {
    fn parse(path: &Path) -> Option<Self> {
        let (since, rest) = path.file_name()?.to_str()?.split_once('.')?;
        let (store, version) = rest.rsplit_once('.')?;
        let VersionDir::Complete(version) = VersionDir::parse(version)? else {
            return None;
        };
        Some(Self {
            path: path.to_owned(),
            store: store.parse().ok()?,
            version,
            since_unix_ms: since.parse().ok()?,
        })
    }
}

impl Trash {
    /// Lists the trash. Also returns the other directories in it, which are to be deleted.
    pub(crate) fn open(dir: &DataDir, grace: Duration) -> Result<(Self, Vec<PathBuf>), AgentError> {
        let dir = dir.trash();
        let mut items = Vec::new();
        let mut others = Vec::new();
        for entry in fs::read_dir(&dir).map_err(AgentError::io("list", &dir))? {
            let path = entry.map_err(AgentError::io("list", &dir))?.path();
            match Item::parse(&path) {
                Some(item) => items.push(item),
                None => others.push(path),
            }
        }
        items.sort_by_key(|item| item.since_unix_ms);
        let trash = Self {
            dir,
            grace_ms: grace.as_millis() as u64,
            items: Mutex::new(items),
            last: AtomicU64::new(0),
        };
        Ok((trash, others))
    }

    /// Moves a version into the trash, if it exists.
    pub(crate) fn keep(&self, dir: &Path, store: &StoreName, version: VersionNumber) -> Result<(), AgentError> {
        let mut items = self.items.lock();
        let item = self.new_item(store, version);
        match fondaco_durable::rename(dir, &item.path) {
            Ok(()) => items.push(item),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(AgentError::io("move to the trash", dir)(error)),
        }
        Ok(())
    }

    /// Moves some partitions of a version into the trash, if they exist.
    pub(crate) fn keep_partitions(
        &self,
        dir: &Path,
        store: &StoreName,
        version: VersionNumber,
        goes: impl Fn(PartitionId) -> bool,
    ) -> Result<(), AgentError> {
        let mut items = self.items.lock();
        let item = self.new_item(store, version);
        let moved = move_partitions(dir, &item.path, goes);
        // After an error, some partitions may have been moved.
        if item.path.exists() {
            items.push(item);
        }
        moved?;
        Ok(())
    }

    /// A new name for a dropped version. The caller holds the lock.
    fn new_item(&self, store: &StoreName, version: VersionNumber) -> Item {
        let mut since_unix_ms = now_unix_ms();
        loop {
            let path = self.dir.join(format!("{since_unix_ms}.{store}.version-{version}"));
            if !path.exists() {
                return Item {
                    path,
                    store: store.clone(),
                    version,
                    since_unix_ms,
                };
            }
            since_unix_ms += 1;
        }
    }

    /// Renames a path that is to be deleted, and returns its new path; `None` if nothing was there.
    pub(crate) fn discard(&self, path: &Path) -> Result<Option<PathBuf>, AgentError> {
        loop {
            let discarded = self.dir.join(format!("deleting-{}", self.last.fetch_add(1, Relaxed)));
            match fondaco_durable::rename(path, &discarded) {
                Ok(()) => return Ok(Some(discarded)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                // An earlier process could not delete it.
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(AgentError::io("move to the trash", path)(error)),
            }
        }
    }

    /// Restores the missing ones of these partitions of a version, if the version with this manifest is here. If
    /// nothing of the version is at `to`, restores all of it. Returns whether anything was restored.
    pub(crate) fn take_back(
        &self,
        store: &StoreName,
        version: VersionNumber,
        manifest_checksum: &str,
        wanted: &PartitionSet,
        to: &Path,
    ) -> Result<bool, AgentError> {
        let has_manifest = |path: &Path| {
            let manifest = fs::read(path.join(MANIFEST_FILE)).ok();
            let identity = manifest.and_then(|bytes| Manifest::identity(&bytes).ok());
            identity.is_some_and(|identity| identity.to_string() == manifest_checksum)
        };
        let mut items = self.items.lock();
        let mut taken = false;
        // The newest first.
        for at in (0..items.len()).rev() {
            let item = &items[at];
            if item.store != *store || item.version != version || !has_manifest(&item.path) {
                continue;
            }
            if to.exists() {
                if !has_manifest(to) {
                    break;
                }
                // The partitions that stay in the trash keep their grace period.
                taken |= move_partitions(&item.path, to, |partition| wanted.contains(partition))?;
                continue;
            }
            let moved = fondaco_durable::create_directory(to.parent().unwrap_or(to))
                .and_then(|()| fondaco_durable::rename(&item.path, to));
            moved.map_err(AgentError::io("take back from the trash", &item.path))?;
            items.remove(at);
            taken = true;
        }
        Ok(taken)
    }

    /// Takes out one version that is to be deleted now: its time is over, `is_forgotten` names its store, or the disk
    /// needs the space. Returns its path.
    pub(crate) fn due(
        &self,
        is_forgotten: impl Fn(&StoreName) -> bool,
        needs_space: bool,
    ) -> Result<Option<PathBuf>, AgentError> {
        let mut items = self.items.lock();
        let now_unix_ms = now_unix_ms();
        let mut counts: BTreeMap<&StoreName, usize> = BTreeMap::new();
        for item in items.iter() {
            *counts.entry(&item.store).or_default() += 1;
        }
        let is_due = |(at, item): (usize, &Item)| {
            now_unix_ms.saturating_sub(item.since_unix_ms) >= self.grace_ms
                || is_forgotten(&item.store)
                || counts.get(&item.store).is_some_and(|&count| count > OF_STORE_MAX)
                || needs_space && at == 0
        };
        let Some(at) = items.iter().enumerate().position(is_due) else {
            return Ok(None);
        };
        let discarded = self.discard(&items[at].path)?;
        items.remove(at);
        Ok(discarded)
    }

    /// How many versions are kept.
    pub(crate) fn len(&self) -> usize {
        self.items.lock().len()
    }
}

fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
    )
}

#[cfg(test)]
mod tests {
    use fondaco_format::Checksum;

    use super::*;

    fn version(number: u64) -> VersionNumber {
        VersionNumber::new(number).unwrap()
    }

    fn store(name: &str) -> StoreName {
        name.parse().unwrap()
    }

    /// A manifest of an unknown format, and the checksum that identifies its version.
    fn manifest(content: &str) -> (String, String) {
        let inner = format!("{{\"format_version\": 9, \"content\": {content:?}}}");
        let identity = Checksum::of(inner.as_bytes()).to_string();
        (
            format!("{{\"manifest\": {inner}, \"checksum\": {identity:?}}}"),
            identity,
        )
    }

    struct Kept {
        dir: tempfile::TempDir,
        data: DataDir,
    }

    impl Kept {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let data = DataDir::open(dir.path()).unwrap();
            Self { dir, data }
        }

        fn open(&self, grace: Duration) -> Trash {
            Trash::open(&self.data, grace).unwrap().0
        }

        fn give_up(&self, trash: &Trash, name: &str, number: u64, content: &str) {
            let dir = self.dir.path().join("given-up");
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join(MANIFEST_FILE), manifest(content).0).unwrap();
            trash.keep(&dir, &store(name), version(number)).unwrap();
        }
    }

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn given_up_versions_are_restored_by_manifest_also_after_restart() {
        let kept = Kept::new();
        let trash = kept.open(DAY);
        kept.give_up(&trash, "a.version-2", 1, "one");
        kept.give_up(&trash, "a.version-2", 1, "another");
        fs::create_dir(kept.data.trash().join("deleting-0")).unwrap();
        let (trash, others) = Trash::open(&kept.data, DAY).unwrap();
        assert_eq!(others, [kept.data.trash().join("deleting-0")]);
        let checksum = |content: &str| manifest(content).1;
        let to = kept.dir.path().join("stores/a.version-2/version-1");
        let take = |checksum: &str| {
            trash
                .take_back(&store("a.version-2"), version(1), checksum, &PartitionSet::EMPTY, &to)
                .unwrap()
        };
        assert!(!take(&checksum("a third")));
        assert!(take(&checksum("one")));
        assert_eq!(fs::read_to_string(to.join(MANIFEST_FILE)).unwrap(), manifest("one").0);
        assert_eq!(trash.len(), 1);
    }

    #[test]
    fn trash_is_deleted_when_expired_forgotten_or_on_full_disks() {
        let kept = Kept::new();
        let trash = kept.open(DAY);
        for (name, number) in [("a", 1), ("b", 2), ("a", 3)] {
            kept.give_up(&trash, name, number, "");
        }
        assert_eq!(trash.due(|_| false, false).unwrap(), None);
        assert!(trash.due(|name| *name == store("b"), false).unwrap().is_some());
        assert!(trash.due(|name| *name == store("b"), false).unwrap().is_none());
        assert!(trash.due(|_| false, true).unwrap().is_some());
        assert_eq!(trash.items.lock()[0].version, version(3), "the oldest went first");
        drop(trash);
        let later = kept.open(Duration::ZERO);
        assert!(later.due(|_| false, false).unwrap().is_some());
        assert_eq!(later.len(), 0);
    }

    #[test]
    fn the_number_of_kept_versions_of_a_store_is_bounded() {
        let kept = Kept::new();
        let trash = kept.open(DAY);
        kept.give_up(&trash, "b", 1, "");
        for number in 1..=OF_STORE_MAX as u64 + 3 {
            kept.give_up(&trash, "a", number, "");
        }
        while trash.due(|_| false, false).unwrap().is_some() {}
        assert_eq!(trash.len(), OF_STORE_MAX + 1);
        assert!(
            trash
                .items
                .lock()
                .iter()
                .all(|item| item.store == store("b") || item.version > version(3))
        );
    }
}
