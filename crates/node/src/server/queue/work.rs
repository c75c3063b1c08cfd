//! The work on single keys: waiting for earlier work on the key, and then begun.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_catalog::{EventStore, StoreTypes, VersionedStore};
use fondaco_protocol::replica::ReplicaRequest;

use super::completion::{Completer, Place};
use super::events::EventPart;
use crate::server::commands::events::{EventReply, EventWrite};
use crate::server::commands::operation::Operation;

/// The work on one key.
pub(in crate::server) enum Task {
    /// With the replicas of a versioned store.
    Operation(Arc<VersionedStore>, Operation),
    /// In the topic of a hybrid store.
    Event(Arc<EventStore>, EventWrite),
}

impl Task {
    pub(super) fn store(&self) -> &StoreTypes {
        match self {
            Self::Operation(store, _) => store,
            Self::Event(store, _) => store,
        }
    }

    /// Whether it changes nothing.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Operation(_, operation) if operation.is_read())
    }

    /// Whether the answer is `OK` unless it fails.
    pub(super) fn expects_ok(&self) -> bool {
        match self {
            Self::Operation(_, operation) => operation.unconditional().is_some(),
            Self::Event(_, write) => write.reply == EventReply::Ok,
        }
    }
}

/// The part of a request that concerns one key, before it is begun.
pub(super) struct Waiting {
    pub(super) place: Place,
    pub(super) key_hash: u64,
    pub(super) wire_key: Bytes,
    pub(super) task: Task,
}

/// The part of a request that concerns one key of a versioned store.
pub(in crate::server) struct Part {
    pub(super) place: Place,
    pub(in crate::server) store: Arc<VersionedStore>,
    /// With the name of the store before it.
    pub(in crate::server) wire_key: Bytes,
    pub(in crate::server) operation: Operation,
}

/// Work to be begun, and the completer to tell when it is done.
pub(in crate::server) enum Work {
    /// For the coordinator.
    Part(Part, Completer),
    /// For the topic of a hybrid store.
    Event(EventPart, Completer),
    /// For this node's own replica.
    Replica(ReplicaRequest, Completer),
}

impl Waiting {
    pub(super) fn into_work(self, completer: Completer) -> Work {
        let Self {
            place, wire_key, task, ..
        } = self;
        match task {
            Task::Operation(store, operation) => Work::Part(
                Part {
                    place,
                    store,
                    wire_key,
                    operation,
                },
                completer,
            ),
            Task::Event(store, write) => Work::Event(
                EventPart {
                    place,
                    store,
                    wire_key,
                    write,
                },
                completer,
            ),
        }
    }
}

impl Work {
    /// The place of its answer; `None` of requests of other nodes.
    pub(super) fn place(&self) -> Option<Place> {
        match self {
            Self::Part(Part { place, .. }, _) | Self::Event(EventPart { place, .. }, _) => Some(*place),
            Self::Replica(..) => None,
        }
    }
}
