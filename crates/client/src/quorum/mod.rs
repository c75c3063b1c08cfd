//! Versioned stores: reads and writes that several replicas must answer.
//!
//! Like [`read`](crate::read), this is the logic without sockets, clock or runtime. An
//! [`Operation`](crate::operation::Operation), i.e. a [`Get`], a [`Write`] or an [`Update`], tells which request to
//! send to which node, receives the outcomes, and yields an answer. Its requests to replicas are [`ReplicaRequest`]s,
//! sent over the wire or passed to a [`LocalReplica`] on the node itself. The client drives it with tokio, a simulation
//! from a seed.

mod counts;
mod get;
mod no_quorum;
mod replicas;
mod update;
mod write;

use std::time::Duration;

pub use counts::{QuorumCounters, QuorumCounts};
pub use get::Get;
pub use no_quorum::{MissingReplica, NoQuorum, QuorumPart, WriteFate};
pub use replicas::Home;
pub(crate) use replicas::SettledReplicas;
pub use update::{AddedMeanwhile, Decide, Edit, EditOptions, Expiry, Update, Updated};
pub use write::{Intent, Write, WriteTimes, Written};

/// How long to wait for replicas that are preferred but not required.
const PREFERRED_WAIT_US: u64 = 10_000;

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 2)
}
