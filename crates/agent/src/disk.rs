//! The versions on a node's disk: found at the start, opened, extended by fetches, and dropped.
//!
//! The map holds facts, not decisions. A version that cannot be opened is listed without an open handle, and also
//! without a manifest if the manifest is damaged or a fetch is incomplete. A version that is given up is moved into the
//! trash, so that its name is free; it can be restored from there for a while. Leftovers of a fetch are deleted at
//! once. Files and directories with names that this program does not give are left alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fondaco_catalog::SharedCatalog;
use fondaco_decisions::{LocalVersion, ReplicaKey};
use fondaco_fetch::discard_leftovers;
use fondaco_format::{FormatError, MANIFEST_FILE, Manifest, Version};
use fondaco_model::{PartitionId, PartitionSet, StoreName, VersionNumber};
use parking_lot::Mutex;

use crate::data_dir::{DataDir, VersionDir, delete_tree, leave_alone, list, version_dirs};
use crate::error::AgentError;
use crate::reaper::{Reaper, Remains};
use crate::trash::Trash;

/// How many directories may wait for deletion before the node delays its next fetches.
const DELETIONS_WAITING_MAX: usize = 16;

/// All versions on the disk of a node.
pub(crate) struct Disk {
    dir: DataDir,
    versions: Mutex<BTreeMap<ReplicaKey, OnDisk>>,
    reaper: Reaper,
    trash: Trash,
    /// How much of the disk must stay free, in bytes: kept versions are deleted first.
    free_bytes_min: u64,
}

/// A version on the disk.
struct OnDisk {
    local: LocalVersion,
    version: Option<Arc<Version>>,
    /// Why it cannot be opened, if it cannot.
    problem: Option<String>,
    /// Damage found while it was open earlier, which no fetch has repaired since.
    damage: BTreeMap<PartitionId, String>,
    /// Whether it was opened after a repair.
    is_repaired: bool,
}

impl Disk {
    /// Opens all complete versions. Versions that are given up are kept for `keep_deleted`.
    pub(crate) fn open(
        dir: DataDir,
        catalog: &Arc<SharedCatalog>,
        keep_deleted: Duration,
        reserve_bytes: u64,
    ) -> Result<Self, AgentError> {
        let reaper = Reaper::start(Arc::clone(catalog)).map_err(AgentError::io("start", "reaper thread"))?;
        let (trash, others) = Trash::open(&dir, keep_deleted)?;
        let disk = Self {
            dir,
            versions: Mutex::default(),
            reaper,
            trash,
            free_bytes_min: reserve_bytes.saturating_mul(2),
        };
        for path in others {
            // Under a name that no later process uses.
            disk.bury(None, disk.trash.discard(&path)?);
        }
        disk.scan()?;
        warn_of_mappings();
        Ok(disk)
    }

    /// The data directory.
    pub(crate) fn dir(&self) -> &DataDir {
        &self.dir
    }

    /// The versions on the disk, as the model sees them.
    pub(crate) fn local(&self) -> BTreeMap<ReplicaKey, LocalVersion> {
        let mut versions = self.versions.lock();
        versions
            .iter_mut()
            .map(|(key, found)| {
                found.notice_damage(key);
                (key.clone(), found.local.clone())
            })
            .collect()
    }

    /// A version, if it is open, even if only in part.
    pub(crate) fn version(&self, store: &StoreName, version: VersionNumber) -> Option<Arc<Version>> {
        self.versions.lock().get(&(store.clone(), version))?.version.clone()
    }

    /// Whether a version was repaired, and is open, but not as this one that requests see.
    pub(crate) fn is_repaired_since(&self, key: &ReplicaKey, seen: &Arc<Version>) -> bool {
        let versions = self.versions.lock();
        let found = versions.get(key).filter(|found| found.is_repaired);
        let opened = found.and_then(|found| found.version.as_ref());
        opened.is_some_and(|opened| !Arc::ptr_eq(opened, seen))
    }

    /// Like [`version`](Self::version), if its manifest has this checksum: another store may have had the name.
    pub(crate) fn version_with(
        &self,
        store: &StoreName,
        version: VersionNumber,
        manifest_checksum: &str,
    ) -> Option<Arc<Version>> {
        let versions = self.versions.lock();
        let found = versions.get(&(store.clone(), version))?;
        let is_it = found.local.manifest_checksum.as_deref() == Some(manifest_checksum);
        found.version.clone().filter(|_| is_it)
    }

    /// Why a version cannot be opened, if it cannot.
    pub(crate) fn problem(&self, store: &StoreName, version: VersionNumber) -> Option<String> {
        let versions = self.versions.lock();
        let found = versions.get(&(store.clone(), version))?;
        found.problem.clone().or_else(|| found.local.damage.clone())
    }

    /// Whether any file of a version is here.
    pub(crate) fn has(&self, key: &ReplicaKey) -> bool {
        self.versions.lock().contains_key(key)
    }

    /// All open versions.
    pub(crate) fn open_versions(&self) -> Vec<Arc<Version>> {
        self.versions
            .lock()
            .values()
            .filter_map(|found| found.version.clone())
            .collect()
    }

    /// The open versions of a store, but for this one.
    pub(crate) fn others(&self, store: &StoreName, version: VersionNumber) -> Vec<Arc<Version>> {
        let versions = self.versions.lock();
        let of_store = versions
            .iter()
            .filter(|((name, number), _)| name == store && *number != version);
        of_store.filter_map(|(_, found)| found.version.clone()).collect()
    }

    /// The directories that files of a version may be in: the complete one, and the one being fetched.
    pub(crate) fn dirs_of(&self, store: &StoreName, version: VersionNumber) -> [PathBuf; 2] {
        [self.dir.version(store, version), self.dir.fetching(store, version)]
    }

    /// The directories of the other versions of a store that are complete.
    pub(crate) fn siblings(&self, store: &StoreName, version: VersionNumber) -> Vec<PathBuf> {
        let own = self.dir.version(store, version);
        let mut dirs = version_dirs(&self.dir.store(store));
        dirs.retain(|dir| *dir != own);
        dirs
    }

    /// Opens a version again after a fetch has added files, or has left some: reads its indexes into
    /// memory, and replaces the version that was open. `repaired` are the partitions that a fetch has verified or
    /// fetched again. A version that was not open before is first given to `prepare`.
    ///
    /// # Errors
    /// It cannot be opened, or an index cannot be read.
    pub(crate) fn reopen(
        &self,
        store: &StoreName,
        version: VersionNumber,
        repaired: &PartitionSet,
        prepare: impl FnMut(&Arc<Version>),
    ) -> Result<(), AgentError> {
        let was_open = self.version(store, version).is_some();
        let mut damage = None;
        let found = self.find(store, version).map(|found| {
            let mut found = found?;
            match found.warm() {
                // Everything served so far is still served, except for unreadable files.
                Err(error) if was_open && is_damage(&error) => damage = Some(error),
                warmed => warmed?,
            }
            Ok(found)
        });
        let (mut found, outcome) = match found.transpose() {
            Ok(found) => (found, damage.map_or(Ok(()), |error| Err(error.into()))),
            // The open version stays: its files are not the reason for the failure.
            Err(error) if !is_damage(&error) && self.version(store, version).is_some() => return Err(error.into()),
            Err(error) => (Some(self.not_open(store, version, &error)), Err(error.into())),
        };
        let before = self.damage(store, version);
        if let Some(found) = &mut found {
            found.is_repaired = before.keys().any(|&partition| repaired.contains(partition));
            found.damage = before;
            found.damage.retain(|&partition, _| !repaired.contains(partition));
            found.version.iter().filter(|_| !was_open).for_each(prepare);
        }
        self.put(store, version, found);
        warn_of_mappings();
        outcome
    }

    /// Puts a version in place that a fetch has opened before all files of these partitions are complete.
    pub(crate) fn serve_on_demand(
        &self,
        store: &StoreName,
        version: VersionNumber,
        opened: Version,
        partitions: &PartitionSet,
    ) {
        let damage = self.damage(store, version);
        let empty: PartitionSet = opened.empty().collect();
        let before = self
            .versions
            .lock()
            .get(&(store.clone(), version))
            .map(|found| found.local.open.clone());
        let open = before.unwrap_or_default().with(&empty);
        let held: PartitionSet = opened.held().collect();
        let mut found = OnDisk {
            damage,
            ..OnDisk::unfinished()
        };
        found.local = LocalVersion {
            manifest_checksum: Some(opened.identity().to_string()),
            on_demand: partitions.without(&partitions.without(&held)).without(&open),
            open,
            empty,
            ..LocalVersion::default()
        };
        found.version = Some(Arc::new(opened));
        self.put(store, version, Some(found));
    }

    /// The complete partitions of a version.
    pub(crate) fn complete(&self, store: &StoreName, version: VersionNumber) -> PartitionSet {
        let versions = self.versions.lock();
        let found = versions.get(&(store.clone(), version));
        found.map(|found| found.local.open.clone()).unwrap_or_default()
    }

    /// Reads the indexes of a version that was opened without them into memory, and replaces the open version, which
    /// needs twice as many open files.
    ///
    /// # Errors
    /// An index cannot be read: the open version stays.
    pub(crate) fn warm(&self, store: &StoreName, version: VersionNumber) -> Result<(), FormatError> {
        let opened = self.version(store, version).filter(|opened| !opened.is_partial());
        let Some(opened) = opened else {
            return Ok(());
        };
        let [complete, _] = self.dirs_of(store, version);
        let again = open(&complete).and_then(|mut found| {
            found.warm()?;
            Ok(found)
        });
        let Ok(found) = again else {
            // Too many files may be open, or an index is damaged: `warm` finds that and remembers it.
            return opened.warm();
        };
        let mut versions = self.versions.lock();
        let key = (store.clone(), version);
        // A fetch may have added files in the meantime, or the version may be gone.
        if let Some(present) = versions.get_mut(&key)
            && present
                .version
                .as_ref()
                .is_some_and(|present| Arc::ptr_eq(present, &opened))
        {
            present.notice_damage(&key);
            present.local.open = found.local.open;
            present.version = found.version;
            drop(versions);
            self.reaper.take(Remains {
                version: Some(opened),
                dir: None,
            });
        }
        Ok(())
    }

    /// The known damage of a version.
    fn damage(&self, store: &StoreName, version: VersionNumber) -> BTreeMap<PartitionId, String> {
        let key = (store.clone(), version);
        let mut versions = self.versions.lock();
        let Some(found) = versions.get_mut(&key) else {
            return BTreeMap::new();
        };
        found.notice_damage(&key);
        found.damage.clone()
    }

    /// The files of a version on the disk.
    fn find(&self, store: &StoreName, version: VersionNumber) -> Option<Result<OnDisk, FormatError>> {
        let [complete, growing] = self.dirs_of(store, version);
        match (complete.is_dir(), growing.is_dir()) {
            (true, _) => Some(open(&complete)),
            (false, true) => Some(Ok(OnDisk::unfinished())),
            (false, false) => None,
        }
    }

    /// A version that cannot be opened. Its damaged files, even the manifest, are fetched again. All other files stay,
    /// since there may be no other copy.
    fn not_open(&self, store: &StoreName, version: VersionNumber, error: &FormatError) -> OnDisk {
        let [complete, _] = self.dirs_of(store, version);
        let mut found = OnDisk::unfinished();
        found.problem = Some(error.to_string());
        if !matches!(error, FormatError::CorruptManifest { .. }) {
            let manifest = fs::read(complete.join(MANIFEST_FILE)).ok();
            let identity = manifest.and_then(|bytes| Manifest::identity(&bytes).ok());
            found.local.manifest_checksum = identity.map(|identity| identity.to_string());
        }
        found
    }

    fn put(&self, store: &StoreName, version: VersionNumber, found: Option<OnDisk>) {
        let key = (store.clone(), version);
        let before = match found {
            Some(found) => self.versions.lock().insert(key, found),
            None => self.versions.lock().remove(&key),
        };
        self.bury(before, None);
    }

    /// Restores the missing ones of these partitions from the trash, if the version with this manifest is there. If
    /// nothing of the version is on the disk, restores all of it. Returns whether anything was restored.
    pub(crate) fn take_back(
        &self,
        store: &StoreName,
        version: VersionNumber,
        manifest_checksum: &str,
        wanted: &PartitionSet,
    ) -> Result<bool, AgentError> {
        let [complete, growing] = self.dirs_of(store, version);
        if growing.exists() {
            return Ok(false);
        }
        let taken = self
            .trash
            .take_back(store, version, manifest_checksum, wanted, &complete)?;
        if taken {
            tracing::info!(%store, %version, "taken back from the trash");
        }
        Ok(taken)
    }

    /// Deletes expired versions from the trash, a few at a time. To be called every second.
    pub(crate) fn collect(&self, is_forgotten: impl Fn(&StoreName) -> bool) -> Result<(), AgentError> {
        while !self.is_behind_with_deleting() {
            let available_bytes = self.dir.available_bytes();
            let needs_space = available_bytes.is_some_and(|bytes| bytes < self.free_bytes_min);
            match self.trash.due(&is_forgotten, needs_space)? {
                Some(dir) => self.bury(None, Some(dir)),
                None => break,
            }
        }
        Ok(())
    }

    /// Empties the trash until this number of bytes is free beyond the reserve, or the trash is empty. Waits for the disk.
    pub(crate) fn free_space(&self, bytes: u64) -> Result<(), AgentError> {
        let needed = bytes.saturating_add(self.free_bytes_min);
        while self.dir.available_bytes().is_some_and(|available| available < needed) {
            match self.trash.due(|_| false, true)? {
                Some(dir) => delete_tree(&dir)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Deletes a directory in the background, if it exists.
    pub(crate) fn delete(&self, dir: &Path) -> Result<(), AgentError> {
        self.trash.discard(dir).map(|dir| self.bury(None, dir))
    }

    /// How many versions are in the trash.
    pub(crate) fn trashed(&self) -> usize {
        self.trash.len()
    }

    /// Whether too many deletions are waiting: no fetch should begin before some are done.
    pub(crate) fn is_behind_with_deleting(&self) -> bool {
        self.reaper.waiting() >= DELETIONS_WAITING_MAX
    }

    /// Gives a version up with all its files.
    pub(crate) fn drop_version(&self, store: &StoreName, version: VersionNumber) -> Result<(), AgentError> {
        let before = self.versions.lock().remove(&(store.clone(), version));
        let [complete, growing] = self.dirs_of(store, version);
        let kept = self.trash.keep(&complete, store, version);
        self.bury(before, self.trash.discard(&growing)?);
        kept?;
        // The store's own directory goes with its last version; while there are others, it stays.
        let _ = fs::remove_dir(self.dir.store(store));
        tracing::info!(%store, %version, "dropped from the disk");
        Ok(())
    }

    /// Gives some partitions of a version up: moves them into the trash. A reader that has them open continues.
    pub(crate) fn drop_partitions(
        &self,
        store: &StoreName,
        version: VersionNumber,
        partitions: &PartitionSet,
    ) -> Result<(), AgentError> {
        if self.version(store, version).is_none() {
            return Ok(());
        }
        let goes = |partition| partitions.contains(partition);
        let dir = self.dir.version(store, version);
        self.trash.keep_partitions(&dir, store, version, goes)?;
        self.reopen(store, version, partitions, |_| {})?;
        tracing::info!(%store, %version, partitions = partitions.len(), "moved partitions to the trash");
        Ok(())
    }

    /// Gives up the fetched partitions of an open version that are not wanted any more, except for those that are open,
    /// and deletes partial files. Files of other partitions stay, since there may be no other copy.
    pub(crate) fn discard_unopened(
        &self,
        store: &StoreName,
        version: VersionNumber,
        unwanted: &PartitionSet,
    ) -> Result<(), AgentError> {
        let Some(opened) = self.version(store, version) else {
            return Ok(());
        };
        let dir = self.dir.version(store, version);
        discard_leftovers(&dir)?;
        let unwanted = unwanted.without(&opened.held().collect());
        let goes = |partition| unwanted.contains(partition);
        self.trash.keep_partitions(&dir, store, version, goes)
    }

    /// Moves all partitions of a version but these into the trash: a fetch found others there.
    pub(crate) fn keep_only(
        &self,
        store: &StoreName,
        version: VersionNumber,
        partitions: &PartitionSet,
    ) -> Result<(), AgentError> {
        let dir = self.dir.version(store, version);
        let goes = |partition| !partitions.contains(partition);
        self.trash.keep_partitions(&dir, store, version, goes)
    }

    /// Has the former catalog dropped once no thread reads it any more. To be called after each new one.
    pub(crate) fn catalog_changed(&self) {
        self.reaper.take(Remains::FORMER_CATALOG);
    }

    fn bury(&self, before: Option<OnDisk>, dir: Option<PathBuf>) {
        let version = before.and_then(|before| before.version);
        if version.is_some() || dir.is_some() {
            self.reaper.take(Remains { version, dir });
        }
    }

    /// Finds the files of an earlier process.
    fn scan(&self) -> Result<(), AgentError> {
        for entry in list(&self.dir.stores())? {
            let name = entry.file_name();
            let Some(store) = name.to_str().and_then(|name| name.parse::<StoreName>().ok()) else {
                leave_alone(&entry);
                continue;
            };
            for entry in list(&entry.path())? {
                match entry.file_name().to_str().and_then(VersionDir::parse) {
                    Some(VersionDir::Complete(version) | VersionDir::Fetching(version)) => {
                        let found = self.find(&store, version).map(|found| {
                            found.unwrap_or_else(|error| {
                                tracing::error!(%store, %version, %error, "a version cannot be opened");
                                self.not_open(&store, version, &error)
                            })
                        });
                        self.put(&store, version, found);
                    }
                    None => leave_alone(&entry),
                }
            }
            // Succeeds only if it is empty.
            let _ = fs::remove_dir(entry.path());
        }
        Ok(())
    }
}

impl OnDisk {
    fn unfinished() -> Self {
        Self {
            local: LocalVersion::default(),
            version: None,
            problem: None,
            damage: BTreeMap::new(),
            is_repaired: false,
        }
    }

    /// Reads the indexes into memory; no other thread has the version yet.
    fn warm(&mut self) -> Result<(), FormatError> {
        match self.version.as_mut().and_then(Arc::get_mut) {
            Some(version) => version.warm_and_close(),
            None => Ok(()),
        }
    }

    /// Records damage that requests have met since the last pass.
    fn notice_damage(&mut self, (store, number): &ReplicaKey) {
        let met = self
            .version
            .as_ref()
            .map(|version| version.damaged())
            .unwrap_or_default();
        for (partition, damage) in met {
            self.damage.entry(partition).or_insert_with(|| {
                tracing::error!(
                    %store, version = %number, %partition, %damage,
                    "a file of a version is damaged: requests for unreadable keys get an error, and the partition is fetched again"
                );
                damage
            });
        }
        self.local.damaged = self
            .damage
            .keys()
            .copied()
            .filter(|&partition| self.local.open.contains(partition))
            .collect();
        let mut partitions = self
            .damage
            .iter()
            .filter(|(partition, _)| self.local.damaged.contains(**partition));
        self.local.damage = partitions.next().map(|(partition, damage)| match partitions.count() {
            0 => format!("partition {partition} is damaged: {damage}"),
            others => format!("partition {partition} and {others} others are damaged: {damage}"),
        });
    }
}

/// Whether files are damaged. A disk that does not answer now, a file of another release, or a limit of the system is
/// no reason to drop anything.
fn is_damage(error: &FormatError) -> bool {
    matches!(
        error,
        FormatError::Corrupt { .. } | FormatError::CorruptManifest { .. } | FormatError::NoManifest { .. }
    )
}

/// Warns while there is still room for one or two more versions.
fn warn_of_mappings() {
    let (mappings, mappings_max) = fondaco_format::mappings();
    if mappings > mappings_max / 4 * 3 {
        tracing::warn!(
            mappings,
            mappings_max,
            "files of versions use most of the memory mappings of this process: raise vm.max_map_count, keep \
             fewer versions, or build with a larger chunk size"
        );
    }
}

fn open(dir: &Path) -> Result<OnDisk, FormatError> {
    let version = Version::open(dir)?;
    Ok(OnDisk {
        local: LocalVersion {
            manifest_checksum: Some(version.identity().to_string()),
            open: version.held().collect(),
            empty: version.empty().collect(),
            ..LocalVersion::default()
        },
        version: Some(Arc::new(version)),
        problem: None,
        damage: BTreeMap::new(),
        is_repaired: false,
    })
}
