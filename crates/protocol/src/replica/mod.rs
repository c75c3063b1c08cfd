//! Requests to a replica of a versioned store, and the replies: a [`ReplicaRequest`] and a [`ReplicaReply`], over the
//! wire or, on the node itself, to a [`LocalReplica`].

mod local;
mod reply;
mod request;
mod wire;

pub use local::{LocalReplica, OnReply};
pub use reply::{Held, ReplicaError, ReplicaErrorCode, ReplicaReply};
pub use request::{
    KeyRecord, Known, KnownKey, LeafDigests, PutOver, RecordPart, ReplicaCommand, ReplicaOperation, ReplicaRequest,
};
pub use wire::{ReplicaRequestError, Splices};
