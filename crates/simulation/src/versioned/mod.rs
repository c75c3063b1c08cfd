//! Versioned stores under faults, run from a seed: whether an acknowledged write can get lost.
//!
//! Coordinators run the real operations of `fondaco_client::quorum`. Replicas are those of `fondaco_replica`: the world
//! drives the code of nodes step by step through group commits, hinted handoff, new incarnations, anti-entropy,
//! tombstone garbage collection and catching up. Time, clocks, the network and disks are simulated: messages are lost,
//! late and duplicated; nodes crash, stop cleanly, lose power, pause, are cut off, have full disks and wrong clocks;
//! records become unreadable, and disks are lost or replaced by older copies. Partitions move, and coordinators use an
//! old routing table for a long time.
//!
//! The observations of clients form a [`History`], which is checked against the guarantees of stores ([`Promise`]). It
//! does not depend on the simulation, so real clusters can be checked with it, too.
//!
//! It does not test the engines on disk, the threads of a node, or sockets.

mod client;
mod coordinator;
mod delivery;
mod fault;
mod history;
mod judge;
mod machine;
mod message;
mod plans;
mod replica;
mod scenario;
mod sums;
mod topology;
mod upkeep;
mod world;

pub use history::{Broken, History, Knows, Promise, WriteNumber};
pub use scenario::{Flaw, Scenario};
pub use sums::{AddNumber, Sums};
pub use world::{Outcome, simulate, simulate_traced};
