//! Versioned stores: reads and writes that several replicas must answer.
//!
//! As [`read`](crate::read), this is the logic without sockets, clock or runtime. An [`Operation`](crate::operation::Operation), be it a
//! [`Get`], a [`Write`] or an [`Update`], says what to send to whom, is told what came back, and yields an answer.
//! What it asks of a replica is a [`ReplicaRequest`], over the wire or, on the node itself, of a [`LocalReplica`].
//! The client drives it with tokio, a simulation from a seed.

mod counts;
mod get;
mod no_quorum;
mod replicas;
mod update;
mod write;

use std::time::Duration;

pub use counts::{QuorumCounters, QuorumCounts};
pub use get::Get;
pub use no_quorum::{MissingReplica, NoQuorum, QuorumPart};
pub use replicas::Home;
pub use update::{AddedMeanwhile, Decide, Edit, EditOptions, Expiry, Update, Updated};
pub use write::{Intent, Write, WriteTimes, Written};

/// How long replicas are waited for that are preferred and not required.
const PREFERRED_WAIT_US: u64 = 10_000;

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 2)
}
