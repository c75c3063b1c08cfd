//! The state that the thread of a node's agent shares with the threads that ask the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use fondaco_cluster::{ChangeSignal, ChangeWatcher, Mirror, Origin};
use fondaco_decisions::ReplicaKey;
use fondaco_model::{NodeId, StoreName, VersionNumber};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::disk::Disk;
use crate::error::AgentError;
use crate::fetches::Fetches;
use crate::uploads::Uploads;

/// The state of the agent that its thread and other threads share.
pub(super) struct Shared {
    pub(super) change_signal: Arc<ChangeSignal>,
    pub(super) mirror: Mirror,
    pub(super) disk: Arc<Disk>,
    pub(super) uploads: Arc<Uploads>,
    pub(super) fetches: Fetches,
    pub(super) status: Mutex<Status>,
    /// Rung when the status changes.
    pub(super) noted: ChangeSignal,
    pub(super) fatal: watch::Sender<Option<Arc<AgentError>>>,
    /// How many passes were begun, and how many of them are done.
    pub(super) passes: ChangeWatcher,
    pub(super) swaps: AtomicU64,
    /// Whether versions were reopened that requests do not see yet.
    pub(super) reopened: AtomicBool,
}

/// The results of the last pass.
#[derive(Default)]
pub(super) struct Status {
    pub(super) node: Option<NodeId>,
    /// The source of the view by which versions on the disk are served; `None` if they are not served.
    pub(super) settled: Origin,
    /// Why versions that are wanted are not here.
    pub(super) failures: BTreeMap<ReplicaKey, String>,
    /// Versions that are here, are not wanted, and are not named by any record.
    pub(super) unexplained: BTreeSet<ReplicaKey>,
}

impl Shared {
    pub(super) fn note(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock());
        self.noted.raise();
    }

    /// Why a version is not open here, if known.
    pub(super) fn why_not(&self, store: &StoreName, version: VersionNumber) -> Option<String> {
        let failure = self.status.lock().failures.get(&(store.clone(), version)).cloned();
        failure.or_else(|| self.disk.problem(store, version))
    }
}
