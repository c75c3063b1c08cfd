//! Versioned stores under faults, run from a seed: whether a write that was acknowledged can get lost.
//!
//! Coordinators drive the real operations of `fondaco_client::quorum`. Replicas are those of `fondaco_replica`: they commit
//! in groups, keep hints and hand them over, begin incarnations, compare partitions, forget deletions and catch up by the
//! code of nodes, which the world drives step by step. Simulated are time, clocks, the network and disks: messages are lost,
//! late and doubled; nodes die, are stopped in good order, lose power, pause, are cut off, have full disks and wrong clocks;
//! records become unreadable, and disks are lost or replaced by older copies. Partitions move, and coordinators go by an old
//! routing table for long.
//!
//! What clients saw is a [`History`], and that is held to what stores promise ([`Promise`]). It knows nothing of
//! the simulation, so that real clusters can be held to it, too.
//!
//! It is not a test of the engines on disk, of the threads of a node or of sockets.

mod client;
mod coordinator;
mod delivery;
mod disk;
mod fault;
mod history;
mod judge;
mod machine;
mod message;
mod network;
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
