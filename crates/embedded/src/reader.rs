//! The reader: look-ups in the present version.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use fondaco_model::{PartitionSet, StoreName, VersionNumber};

use crate::error::EmbeddedError;
use crate::fallback::Fallback;
use crate::follow::{FollowOptions, Following, Shared, Status, follow};
use crate::scan::Scan;
use crate::snapshot::{Open, Snapshot, open_version};
use crate::values::Values;

/// Reads a store within this process. Shared by any number of threads; look-ups in the files of a version take no lock.
pub struct Reader {
    store: StoreName,
    /// Asked for what is not here.
    fallback: Option<Fallback>,
    shared: Arc<Shared>,
    /// Dropped with the reader: the thread that follows a store.
    following: Option<Following>,
}

impl Reader {
    /// Opens the directory of a version: maps its files, and reads only their headers.
    ///
    /// # Errors
    /// No version, one of a format that this release does not know, one of a graph, or a damaged one.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, EmbeddedError> {
        let open = Open::new(open_version(directory.as_ref())?, None)?;
        Ok(Self {
            store: open.version.manifest().store.clone(),
            fallback: None,
            shared: Arc::new(Shared::of_one(open)),
            following: None,
        })
    }

    /// Follows a store of a cluster: opens the last complete version in the directory, and has a thread fetch the current
    /// version and each later one, and swap it in. Without a version in the directory it returns before the first one is
    /// there: see [`wait_ready`](Self::wait_ready). If the cluster does not answer, it starts without it.
    ///
    /// Of a hybrid store another thread reads the topic, into an engine in the directory, and a version is swapped in once its stream was
    /// read as far as nodes demand it (`--max-lag` of the store).
    ///
    /// # Errors
    /// Another process uses the directory, or it is that of another store. Without a version in the directory also: the
    /// cluster has no such store, refuses the credentials, or the store is a versioned one, or a graph.
    pub fn follow(options: FollowOptions) -> Result<Self, EmbeddedError> {
        let store = options.store.clone();
        let (shared, following, fallback) = follow(options)?;
        Ok(Self {
            store,
            fallback,
            shared,
            following: Some(following),
        })
    }

    /// The store.
    pub fn store(&self) -> &StoreName {
        &self.store
    }

    /// Whether the reader follows a store.
    pub fn follows(&self) -> bool {
        self.following.is_some()
    }

    /// The status: whether it has the current version of the cluster, and why not.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Waits until a version is there, and has read its stream.
    ///
    /// # Errors
    /// [`EmbeddedError::Timeout`] with the reason.
    pub fn wait_ready(&self, timeout: Duration) -> Result<(), EmbeddedError> {
        let is_ready = || self.shared.current.load().as_ref().is_some_and(|open| open.answers());
        self.shared.wait(timeout, |_| is_ready())
    }

    /// Waits until it reads this version.
    ///
    /// # Errors
    /// [`EmbeddedError::Timeout`] with the reason.
    pub fn wait_for(&self, version: VersionNumber, timeout: Duration) -> Result<(), EmbeddedError> {
        self.shared.wait(timeout, |status| status.version == Some(version))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// A damaged file; or the key is not here, and the [fallback](FollowOptions::fallback) is off, or the cluster does not answer. Never a
    /// wrong value.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, EmbeddedError> {
        let (key, present) = (key.as_ref(), self.present());
        let Some(fallback) = &self.fallback else {
            return present?.get(key);
        };
        let is_lacking = present.as_ref().is_ok_and(|present| present.lacks_events());
        match present.and_then(|present| present.get(key)) {
            Err(here) if here.is_absence() => fallback.get(key, here),
            Ok(here) if is_lacking => Ok(fallback.get(key, EmbeddedError::NoVersion).unwrap_or(here)),
            found => found,
        }
    }

    /// The values of many keys, all of one version. Several times faster than single look-ups: memory accesses overlap,
    /// and keys that are not in memory are read in the order of the files, with the reads of others under way.
    ///
    /// # Errors
    /// As [`get`](Self::get), for any of the keys.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Values, EmbeddedError> {
        match (&self.fallback, self.present()) {
            (None, Ok(present)) => Values::read(&present, keys),
            (None, Err(error)) => Err(error),
            (Some(fallback), Ok(present)) => fallback.get_many_beside(&present, keys),
            (Some(fallback), Err(here)) => fallback.get_all(keys, here),
        }
    }

    /// The records of some partitions of the present version, piece by piece; `None` for all partitions that are held.
    ///
    /// # Errors
    /// One of the partitions is not held, or the version does not have it. The cluster is not asked.
    pub fn scan(&self, partitions: Option<&PartitionSet>) -> Result<Scan, EmbeddedError> {
        self.snapshot()?.scan(partitions)
    }

    /// The present version, for several calls.
    ///
    /// # Errors
    /// There is no version yet.
    pub fn snapshot(&self) -> Result<Snapshot, EmbeddedError> {
        Ok(Snapshot::new(Arc::clone(&*self.present()?)))
    }

    /// The number of the present version in the cluster; `None` for a directory that was opened by itself.
    pub fn version(&self) -> Option<VersionNumber> {
        self.shared.version()
    }

    /// Reads all indexes of the present version into memory, and verifies them: a look-up then reads the disk at most
    /// once.
    ///
    /// # Errors
    /// A damaged file, or a failed read.
    pub fn warm(&self) -> Result<(), EmbeddedError> {
        Ok(self.present()?.version.warm()?)
    }

    #[inline]
    fn present(&self) -> Result<Present, EmbeddedError> {
        let present = self.shared.current.load();
        match present.is_some() {
            true => Ok(Present(present)),
            false => Err(EmbeddedError::NoVersion),
        }
    }
}

/// The present version, for the time of one call.
struct Present(Guard<Option<Arc<Open>>>);

impl std::ops::Deref for Present {
    type Target = Arc<Open>;

    #[inline]
    fn deref(&self) -> &Arc<Open> {
        self.0
            .as_ref()
            .expect("it was there when this was made, and a guard does not change")
    }
}
