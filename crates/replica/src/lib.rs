//! The replicas of a node: records of versioned stores, kept by storage engines, changed by coordinators and by other
//! replicas.
//!
//! - [`Replicas`]: gets the cluster state from the agent, and requests from coordinators ([`ReplicaRequest`]), through
//!   a [`WriteBatcher`] in each event loop;
//! - `writes`: the batcher of each event loop puts them into a queue per shard, and one thread per shard commits them
//!   in groups (group commit). Writes of keys that only this node owns need no coordinator;
//! - `reads`: at once from memory, otherwise on threads of their own;
//! - `anti_entropy`: builds hash trees, compares partitions with other nodes, and collects tombstones;
//! - `changes`: change capture, for clients that follow a partition;
//! - `hints`: kept for absent nodes, and handed off when they return;
//! - `membership`: the stores and partitions that the node holds, dropped stores, and lost data;
//! - [`DrivenReplicas`]: the same without threads, on any [`Host`]: a simulation decides when writes are committed and
//!   synced, and polls the background chores.
//!
//! [`exchange`] compares two replicas of a partition, without I/O.
//!
//! This crate coordinates nothing: `fondaco_client::quorum` decides how many replicas must have a write, and which of
//! several values is returned.
//!
//! [`ReplicaRequest`]: fondaco_protocol::replica::ReplicaRequest

mod anti_entropy;
mod background;
mod changes;
mod disk_space;
mod driven;
mod error;
mod hints;
mod host;
mod membership;
mod metrics;
mod options;
mod pace;
mod partition;
mod peers;
mod reads;
mod replicas;
mod shared;
mod store;
mod table_key;
mod worker;
mod writes;

pub use anti_entropy::exchange;
pub use changes::{
    ChangePosition, ChangePositions, Changes, ChangesError, ChangesFrom, RecordChange, put_number, take_number,
};
pub use driven::DrivenReplicas;
pub use error::ReplicasError;
pub use host::Host;
pub use membership::losses::Loss;
pub use membership::lost_writes::note_losses_of;
pub use metrics::{REPLICA_COUNTERS, ReplicaCounter};
pub use options::{DroppedReplica, Engines, ReplicaOptions, ReplicaView, ReplicatedStore};
pub use peers::Peers;
pub use reads::in_memory::Recalled;
pub use reads::listing::{KeysListed, RecordsPage};
pub use replicas::{ReplicaStatus, Replicas};
pub use table_key::{REPLICA_KEY_BYTES_MAX, tree_position};
pub use writes::batcher::WriteBatcher;
pub use writes::direct::{DirectEnd, DirectPlace, DirectWrite};
