//! Carrying out commands on keys of versioned stores, and requests of other nodes to this node's replica.
//!
//! - `admission`: whether the client may ask it, and here;
//! - `pipeline`, `waiting_replies`: which requests of a connection are under way, and how they are answered in order;
//! - `completion`: how a connection hears, from other threads, too, that they are done;
//! - `coordinate`: reading and writing on replicas;
//! - `direct`: writing what this node alone has;
//! - `gets`: reading what it has in memory.

mod admission;
mod completion;
mod coordinate;
mod direct;
mod gets;
mod pipeline;
mod waiting_replies;

pub(in crate::server) use admission::{is_replica, replica_command};
pub(in crate::server) use coordinate::begin;
pub(in crate::server) use direct::{Batcher, tell};
pub(in crate::server) use gets::{AnsweredGets, First, Gets};
pub(in crate::server) use pipeline::{Accepted, Pipeline, Work};
