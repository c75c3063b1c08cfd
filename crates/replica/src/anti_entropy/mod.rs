//! Anti-entropy: compares a partition with its other replicas by their hash trees ([`exchange`]: the steps,
//! [`comparing`] and [`serving`]: the two sides, [`reconciling`]: the thread), and collects tombstones that all
//! replicas have ([`tombstone_collection`]).

pub(crate) mod comparing;
pub mod exchange;
pub(crate) mod reconciling;
pub(crate) mod schedule;
pub(crate) mod serving;
pub(crate) mod tombstone_collection;
pub(crate) mod tree_builder;
