//! What a node holds of the versioned stores: records under keys, kept by engines, changed by coordinators and
//! by other replicas.
//!
//! - [`Replicas`]: told of the cluster by the agent, asked by coordinators ([`ReplicaRequest`]), by each event loop
//!   through a [`WriteBatcher`];
//! - `writes`: gathered by the batcher of each event loop, into a queue for each shard, of which one thread commits what
//!   waits in groups. Those of keys that this node alone has need no coordinator;
//! - `reads`: at once what memory has, on threads of their own what it has not;
//! - `anti_entropy`: hash trees are made, partitions compared with other nodes', and deletions forgotten;
//! - `hints`: kept for nodes that are away, and handed over;
//! - `membership`: which stores and partitions the node holds, dropped stores, and what was lost;
//! - [`DrivenReplicas`]: the same without threads, on any [`Host`]: a simulation says when what waits is committed and
//!   synced, and polls the chores in the background.
//!
//! [`exchange`] is how two replicas of a partition are compared, without I/O.
//!
//! It coordinates nothing: how many replicas must have a write, and which of several values is answered, is
//! the business of `fondaco_client::quorum`.
//!
//! [`ReplicaRequest`]: fondaco_protocol::replica::ReplicaRequest

mod anti_entropy;
mod background;
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
mod space;
mod store;
mod table_key;
mod worker;
mod writes;

pub use anti_entropy::exchange;
pub use driven::DrivenReplicas;
pub use error::ReplicasError;
pub use host::Host;
pub use membership::losses::Loss;
pub use metrics::{REPLICA_COUNTERS, ReplicaCounter};
pub use options::{DroppedReplica, Engines, ReplicaOptions, ReplicaView, ReplicatedStore};
pub use peers::Peers;
pub use reads::listing::{KeysListed, RecordsPage};
pub use replicas::{ReplicaStatus, Replicas};
pub use table_key::REPLICA_KEY_BYTES_MAX;
pub use writes::batcher::WriteBatcher;
pub use writes::direct::{DirectEnd, DirectPlace, DirectWrite};
