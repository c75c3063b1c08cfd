//! Commands on keys of versioned stores, and what nodes ask of one another's replicas.
//!
//! - `parse`, `lifetime`: what a request asks of which keys;
//! - `operation`, `effect`: what that is, what it makes of a value, and how it is answered;
//! - `admission`: whether the client may ask it, and here;
//! - `pipeline`, `waiting_replies`: which requests of a connection are under way, and how they are answered in order;
//! - `completion`: how a connection hears, from other threads, too, that they are done;
//! - `coordinate`: reading and writing on replicas;
//! - `direct`: writing what this node alone has;
//! - `gets`: reading what it has in memory;
//! - `context`: causal contexts as clients see them.

mod admission;
mod completion;
mod context;
mod coordinate;
mod direct;
mod effect;
mod gets;
mod lifetime;
mod operation;
mod parse;
mod pipeline;
mod waiting_replies;

pub(in crate::server) use admission::{
    is_look_up, is_on_versioned_store, is_on_versioned_stores, is_operation, is_replica, replica_command,
};
pub(in crate::server) use coordinate::begin;
pub(in crate::server) use direct::{Batcher, tell};
pub(in crate::server) use gets::{AnsweredGets, First, Gets};
pub(in crate::server) use parse::{Request, parse};
pub(in crate::server) use pipeline::{Accepted, Pipeline, Work};

/// What no store does: it would have to change several keys at once, or all.
pub(in crate::server) const NOT_DONE: &str = "ERR versioned stores do what concerns one key: this is not done";
