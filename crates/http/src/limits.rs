//! Limits on the work that the port does at a time and that waits for clients or the disk.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::changes::Followers;

/// How many streams a process serves.
const STREAMS_MAX: usize = 64;

/// How many files are sent at a time: more would compete for the disk.
pub(crate) const FILES_AT_ONCE_MAX: usize = 8;

/// How many pages are read at a time, for all backups together: others wait, so that clients get most of the disk.
const PAGES_AT_ONCE_MAX: usize = 2;

/// How many parts of changes are read at a time.
const PARTS_AT_ONCE_MAX: usize = 4;

/// How much the port does at a time.
pub struct Limits {
    /// How many streams of events may be open.
    pub(crate) streams: Arc<Semaphore>,
    /// How many files may be sent to peers.
    pub(crate) files: Arc<Semaphore>,
    /// How many pages of records may be read.
    pub(crate) pages: Arc<Semaphore>,
    /// How many parts of the changes of stores may be read.
    pub(crate) parts: Arc<Semaphore>,
    /// The followers of changes.
    pub(crate) followers: Followers,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            files: Arc::new(Semaphore::new(FILES_AT_ONCE_MAX)),
            pages: Arc::new(Semaphore::new(PAGES_AT_ONCE_MAX)),
            parts: Arc::new(Semaphore::new(PARTS_AT_ONCE_MAX)),
            followers: Followers::default(),
        }
    }
}

impl Limits {
    /// The followers of changes, to be counted.
    pub fn followers(&self) -> Followers {
        self.followers.clone()
    }
}
