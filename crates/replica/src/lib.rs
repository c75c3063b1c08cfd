//! What a node holds of the versioned stores: records under keys, kept by engines, changed by coordinators and
//! by other replicas.
//!
//! - [`Replicas`]: told of the cluster by the agent, asked by coordinators ([`ReplicaRequest`]), by each event loop
//!   through a [`WriteBatcher`];
//! - writes: gathered by the batcher of each event loop (`batcher`), into a queue for each shard, of which one thread
//!   commits what waits in groups (`committer`, `commit`). Those of keys that this node alone has need no coordinator
//!   (`direct`);
//! - reads: at once what memory has, on threads of their own what it has not (`reads`);
//! - [`admitted()`]: by which routing tables it may be asked, [`has_caught_up()`]: whether it may be counted on after it
//!   has lost something, [`written()`]: what a write makes of a record, and [`exchange`]: how two replicas of a
//!   partition are compared; all without I/O, for those who simulate them too;
//! - in the background: tables of dropped stores are deleted (`dropping`), hints are handed over (`handoff`), hash trees made (`growing`), partitions compared with
//!   other nodes' (`reconciling`), and deletions forgotten (`sweeper`).
//!
//! It coordinates nothing: how many replicas must have a write, and which of several values is answered, is
//! the business of [`fondaco_client::quorum`].
//!
//! [`ReplicaRequest`]: fondaco_client::quorum::ReplicaRequest

mod admitted;
mod answer;
mod batcher;
mod catching_up;
mod client_peers;
mod commit;
mod committer;
mod comparing;
mod direct;
mod dropping;
mod error;
pub mod exchange;
mod going_back;
mod growing;
mod handoff;
mod hints;
mod incarnation;
mod listing;
mod losses;
mod metrics;
mod options;
mod pace;
mod partition;
mod peers;
mod queue;
mod reads;
mod recall;
mod reconciling;
mod replicas;
mod scanning;
mod serving;
mod shared;
mod space;
mod store;
mod sweeper;
mod table_key;
mod troubles;
mod turns;
mod views;
mod worker;
mod written;

pub use admitted::admitted;
pub use batcher::WriteBatcher;
pub use catching_up::{Compared, Other, has_enough};
pub use client_peers::ClientPeers;
pub use direct::{DirectEnd, DirectPlace, DirectWrite};
pub use error::ReplicasError;
pub use listing::{KeysListed, RecordsPage};
pub use losses::Loss;
pub use metrics::{REPLICA_COUNTERS, ReplicaCounter};
pub use options::{DroppedReplica, Engines, ReplicaOptions, ReplicaView, ReplicatedStore};
pub use peers::Peers;
pub use replicas::{ReplicaStatus, Replicas};
pub use table_key::REPLICA_KEY_BYTES_MAX;
pub use written::written;
