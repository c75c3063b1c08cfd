//! Requests to a replica: one typed request for each command between nodes.
//!
//! The same value travels over the wire ([`ReplicaRequest::write`], [`ReplicaRequest::parse`]) and, on the node itself,
//! through [`LocalReplica`](super::LocalReplica) without encoding. Records are opaque here: bytes as the model encodes
//! them, so that forwarding one needs no decoding.

use std::num::NonZeroU64;

use bytes::Bytes;
use fondaco_model::versioned::{Update, VectorClock};
use fondaco_model::{NodeId, PartitionCount, PartitionId, StoreName};

/// A request to one replica of a versioned store. Never forwarded: a node without the partition answers `NOTHERE`.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaRequest {
    /// The number of the store, because its name may belong to another store by now.
    pub store_id: u16,
    /// The name of the store. With the key, it determines the partition.
    pub store: StoreName,
    /// How long the requester waits, in milliseconds: a request that has not begun by then must not begin.
    pub timeout_ms: u64,
    /// The epoch of the routing table by which the requester chose the replicas, and counts their replies; `None` if
    /// nothing is counted. In anti-entropy it is the minimum epoch that the replica must know.
    pub epoch: Option<NonZeroU64>,
    /// The operation.
    pub operation: ReplicaOperation,
}

/// An operation of a replica.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplicaOperation {
    /// `FONDACO.RGET`: return the records of keys.
    Get {
        /// The requested part of each record.
        part: RecordPart,
        /// The keys, all of one store, in any order and of any partitions.
        keys: Vec<Bytes>,
    },
    /// `FONDACO.RGET … OTHER`: return the records of keys, unless the requester has them from another replica.
    GetOther {
        /// The keys, as of `Get`.
        keys: Vec<KnownKey>,
    },
    /// `FONDACO.RPUT`: give a value a new dot, and return the resulting record.
    Put {
        /// The values that are replaced.
        over: PutOver,
        /// The key.
        key: Bytes,
        /// The writer's context.
        context: VectorClock,
        /// The value, or the tombstone.
        update: Update,
        /// Whether the sending node or router has charged the store's write quota with it.
        is_charged: bool,
    },
    /// `FONDACO.RMERGE`: merge records with the stored ones.
    Merge {
        /// Keys with encoded records.
        records: Vec<KeyRecord>,
    },
    /// `FONDACO.RHINT`: keep records for a node that cannot be reached.
    Hint {
        /// The node that they are for.
        target: NodeId,
        /// Keys with encoded records.
        records: Vec<KeyRecord>,
    },
    /// `FONDACO.RTREE`: return hashes of the Merkle tree of a partition.
    Tree {
        /// How many partitions there are, as far as the requester knows.
        partitions: PartitionCount,
        /// The partition.
        partition: PartitionId,
        /// The depth of the nodes of the tree: how many bits of a key's hash select them; the root's is 0.
        depth: u8,
        /// The nodes of the tree whose children are requested, by their numbers at that depth.
        nodes: Vec<u32>,
    },
    /// `FONDACO.RSYNC`: compare leaves of the Merkle tree of a partition, record by record.
    Sync {
        /// How many partitions there are, as far as the requester knows.
        partitions: PartitionCount,
        /// The partition.
        partition: PartitionId,
        /// The depth of the leaves.
        depth: u8,
        /// The leaves, and the requester's digests in them.
        leaves: Vec<LeafDigests>,
    },
    /// `FONDACO.RHINTS`: return the age of the oldest hint for any node.
    OldestHint,
}

/// A key, and what the requester knows of its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKey {
    /// The key, without the name of the store.
    pub key: Bytes,
    /// The known part.
    pub known: Known,
}

/// The requester's knowledge of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nothing: the record is requested.
    Nothing,
    /// A record with this [digest](fondaco_model::versioned::Record::digest): only another one is requested.
    Digest(u64),
    /// The record was requested from another replica: the digest is requested here.
    Awaited,
}

/// A key and the record under it, encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key, without the name of the store.
    pub key: Bytes,
    /// The record, as [`Record::encode`](fondaco_model::versioned::Record::encode) writes it.
    pub record: Bytes,
}

/// One side's records in a leaf of a Merkle tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafDigests {
    /// The number of the leaf at its depth.
    pub leaf: u64,
    /// One for each record: four bytes of the key's hash, and four of the record's digest.
    pub digests: Vec<u64>,
}

/// The requested part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordPart {
    /// All of it.
    Full,
    /// Only its context.
    Context,
    /// No record, but the members of the set with this key ([`fondaco_model::member`]): two encoded sets of ids, behind the
    /// length of the first in four bytes. The first are members; of the second, the replica knows that they were removed.
    Members,
}

/// The values that a write replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOver {
    /// Those that the context covers, and no others.
    Context,
    /// Also everything that the replica has when it carries this out, even late: only for a sole replica, and never for
    /// a second one.
    All,
    /// Everything that the replica has, on condition that the context covers it: else `CONFLICT`.
    Unchanged,
}

/// The commands between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaCommand {
    /// `FONDACO.RGET store-id timeout-ms epoch FULL|CONTEXT|MEMBERS store key…`, or `… OTHER store (key known)…`
    Get,
    /// `FONDACO.RPUT store-id timeout-ms epoch CONTEXT|ALL|UNCHANGED store key context update [CHARGED]`
    Put,
    /// `FONDACO.RMERGE store-id timeout-ms epoch store (key record)…`
    Merge,
    /// `FONDACO.RHINT store-id timeout-ms epoch store target-node (key record)…`
    Hint,
    /// `FONDACO.RTREE store-id timeout-ms epoch store partitions partition depth node…`
    Tree,
    /// `FONDACO.RSYNC store-id timeout-ms epoch store partitions partition depth (leaf digests)…`
    Sync,
    /// `FONDACO.RHINTS store-id timeout-ms epoch store`
    OldestHint,
}

impl ReplicaCommand {
    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "FONDACO.RGET",
            Self::Put => "FONDACO.RPUT",
            Self::Merge => "FONDACO.RMERGE",
            Self::Hint => "FONDACO.RHINT",
            Self::Tree => "FONDACO.RTREE",
            Self::Sync => "FONDACO.RSYNC",
            Self::OldestHint => "FONDACO.RHINTS",
        }
    }
}

impl ReplicaOperation {
    /// The number of keys that it names.
    pub fn key_count(&self) -> usize {
        match self {
            Self::Get { keys, .. } => keys.len(),
            Self::GetOther { keys } => keys.len(),
            Self::Put { .. } => 1,
            Self::Merge { records } | Self::Hint { records, .. } => records.len(),
            Self::Tree { .. } | Self::Sync { .. } | Self::OldestHint => 0,
        }
    }

    /// Its command on the wire.
    pub const fn command(&self) -> ReplicaCommand {
        match self {
            Self::Get { .. } | Self::GetOther { .. } => ReplicaCommand::Get,
            Self::Put { .. } => ReplicaCommand::Put,
            Self::Merge { .. } => ReplicaCommand::Merge,
            Self::Hint { .. } => ReplicaCommand::Hint,
            Self::Tree { .. } => ReplicaCommand::Tree,
            Self::Sync { .. } => ReplicaCommand::Sync,
            Self::OldestHint => ReplicaCommand::OldestHint,
        }
    }
}
