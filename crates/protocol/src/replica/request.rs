//! What a replica is asked: one typed request for each command between nodes.
//!
//! The same value travels over the wire ([`ReplicaRequest::write`], [`ReplicaRequest::parse`]) and, on the
//! node itself, through [`LocalReplica`](super::LocalReplica) without any. Records are opaque here: bytes as
//! the model encodes them, so that passing one on costs no decoding.

use std::num::NonZeroU64;

use bytes::Bytes;
use fondaco_model::versioned::{Update, VectorClock};
use fondaco_model::{NodeId, PartitionId, StoreName};

/// A question or an order for one replica of a versioned store. Never forwarded: who is asked for what it does
/// not hold says `NOTHERE`.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaRequest {
    /// The number of the store: its name may be another's by now.
    pub store_id: u16,
    /// The name of the store. With a key behind it, it says which partition the key lies in.
    pub store: StoreName,
    /// How long the one who asks will wait, in milliseconds: what is not begun by then is not to be begun.
    pub timeout_ms: u64,
    /// The epoch of the routing table by which whoever asks has chosen whom to ask, and counts who answers; none where
    /// nothing is counted. Of a comparison it is the one that who is asked is to know at least.
    pub epoch: Option<NonZeroU64>,
    /// What is to be done.
    pub operation: ReplicaOperation,
}

/// What a replica is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplicaOperation {
    /// `FONDACO.RGET`: tell what is held under keys.
    Get {
        /// How much of each record.
        part: RecordPart,
        /// The keys, all of one store, in any order and of any partitions.
        keys: Vec<Bytes>,
    },
    /// `FONDACO.RGET … OTHER`: tell what is held under keys, as far as the one who asks does not have it from another.
    GetOther {
        /// The keys, as of `Get`.
        keys: Vec<KnownKey>,
    },
    /// `FONDACO.RPUT`: give a value a new dot, and tell the record that comes of it.
    Put {
        /// What the value takes the place of.
        over: PutOver,
        /// The key.
        key: Bytes,
        /// What the writer has seen.
        context: VectorClock,
        /// The value, or the tombstone.
        update: Update,
        /// Whether the store's quota of writes was charged with it by the node or the router that it comes from.
        is_charged: bool,
    },
    /// `FONDACO.RMERGE`: join records with those that are held.
    Merge {
        /// Keys with encoded records.
        records: Vec<KeyRecord>,
    },
    /// `FONDACO.RHINT`: keep records for a node that cannot be reached.
    Hint {
        /// Whose they are.
        target: NodeId,
        /// Keys with encoded records.
        records: Vec<KeyRecord>,
    },
    /// `FONDACO.RTREE`: tell hashes of the hash tree of a partition.
    Tree {
        /// The partition.
        partition: PartitionId,
        /// The depth of the nodes of the tree: how many bits of a key's hash tell them apart; the root's is 0.
        depth: u8,
        /// The nodes of the tree whose children are asked for, by their numbers at that depth.
        nodes: Vec<u32>,
    },
    /// `FONDACO.RSYNC`: compare leaves of the hash tree of a partition, record by record.
    Sync {
        /// The partition.
        partition: PartitionId,
        /// The depth of the leaves.
        depth: u8,
        /// The leaves, and what the one who asks holds in them.
        leaves: Vec<LeafDigests>,
    },
    /// `FONDACO.RHINTS`: tell how old the oldest hint is that is kept for any node.
    OldestHint,
}

/// A key, and what the one who asks has from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKey {
    /// The key, without the name of the store.
    pub key: Bytes,
    /// What it has.
    pub known: Known,
}

/// What is known of the record under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nothing: the record is to be told.
    Nothing,
    /// A record with this [digest](fondaco_model::versioned::Record::digest): another one is to be told.
    Digest(u64),
    /// Another replica is asked for the record: its digest is to be told.
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

/// What one side holds in a leaf of a hash tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafDigests {
    /// The number of the leaf at its depth.
    pub leaf: u32,
    /// One for each record: four bytes of the key's hash, and four of the record's digest.
    pub digests: Vec<u64>,
}

/// How much of a record is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordPart {
    /// All of it.
    Full,
    /// Its context alone.
    Context,
}

/// What a value takes the place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOver {
    /// Of what the context covers, and of nothing else.
    Context,
    /// Of that, and of everything that the replica holds when it carries this out, be it late: to be asked of the
    /// only replica that there is, and of no second one.
    All,
    /// Of everything that the replica holds, on condition that the context covers it: else `CONFLICT`.
    Unchanged,
}

/// The commands between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaCommand {
    /// `FONDACO.RGET store-id timeout-ms epoch FULL|CONTEXT store key…`, or `… OTHER store (key known)…`
    Get,
    /// `FONDACO.RPUT store-id timeout-ms epoch CONTEXT|ALL|UNCHANGED store key context update [CHARGED]`
    Put,
    /// `FONDACO.RMERGE store-id timeout-ms epoch store (key record)…`
    Merge,
    /// `FONDACO.RHINT store-id timeout-ms epoch store target-node (key record)…`
    Hint,
    /// `FONDACO.RTREE store-id timeout-ms epoch store partition depth node…`
    Tree,
    /// `FONDACO.RSYNC store-id timeout-ms epoch store partition depth (leaf digests)…`
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
    /// The command that it travels as.
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
