//! The parts of a request's state: its keys, its stores, its sub-requests.

use bytes::Bytes;
use fondaco_model::cluster::TopologyStore;
use fondaco_model::{NodeId, PartitionId, StoreName, VersionNumber};
use smallvec::SmallVec;

use crate::error::ClientError;

/// Indices of keys in a request.
pub type KeyPlaces = SmallVec<[u32; 6]>;

/// The state of one key.
#[derive(Debug)]
pub(super) struct KeyState {
    /// Its part; meaningless when its store is unknown, and its answer final.
    pub(super) part: u16,
    pub(super) partition: PartitionId,
    /// Outstanding sub-requests that may answer it.
    pub(super) pending: u8,
    /// It waits for a newer topology, or for nodes to catch up.
    pub(super) waiting: bool,
    /// It had to wait, at this version: no node that should have it could answer it.
    pub(super) stranded: bool,
    /// Nodes that were asked for it, at this version, since it last waited.
    pub(super) asked: SmallVec<[NodeId; 3]>,
    pub(super) answer: Option<Result<Option<Bytes>, ClientError>>,
}

/// The keys of one store.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: StoreName,
    /// The number of the store of all its keys.
    pub(super) id: u16,
    /// The version at which all its keys are read.
    pub(super) version: VersionNumber,
    /// Whether this is the version of the store's canary.
    pub(super) is_canary: bool,
    /// Raised whenever the store or the version changes: answers to earlier requests do not count.
    pub(super) generation: u32,
    /// A node contradicted the topology: a newer topology may change the version.
    pub(super) in_flux: bool,
}

impl Part {
    /// The part of a store, at the version of its canary or at its current version; `None` if it has no version.
    pub(super) fn of(name: &StoreName, store: &TopologyStore, is_canary: bool) -> Option<Self> {
        Some(Self {
            name: name.clone(),
            id: store.id,
            version: version_of(store, is_canary)?,
            is_canary,
            generation: 0,
            in_flux: false,
        })
    }
}

/// The version of a store that a part reads: the current one, if it has no canary.
pub(super) fn version_of(store: &TopologyStore, is_canary: bool) -> Option<VersionNumber> {
    let canary = store.canary.as_ref().filter(|_| is_canary);
    canary.map_or(store.current, |canary| Some(canary.version))
}

/// Why a sub-request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    First,
    /// Another one failed.
    Retry,
    /// Another one was not sent, or its node lacked the keys.
    Redirect,
    /// Another one takes long.
    Hedge,
}

/// A request to one node: some keys of one store.
#[derive(Debug)]
pub(super) struct Sub {
    pub(super) part: u16,
    pub(super) generation: u32,
    pub(super) keys: KeyPlaces,
    pub(super) purpose: Purpose,
    /// Whether its latency was recorded.
    pub(super) learnt: bool,
}
