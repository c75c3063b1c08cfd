//! Versioned stores under faults, run from a seed: whether a write that was acknowledged can get lost.
//!
//! Coordinators drive the real operations of `fondaco_client::quorum`; replicas keep real records in hash trees,
//! compare them by the real exchange of `fondaco_replica`, choose who keeps hints and when deletions may be
//! forgotten by the rules of `fondaco_model`. Simulated are time, clocks, the network and disks: messages are lost,
//! late and doubled, nodes die, lose power, pause, are cut off, have full disks and wrong clocks. Partitions move, and
//! who coordinates goes by an old routing table for long.
//!
//! What clients saw is a [`History`], and that is held to what stores promise ([`Promise`]). It knows nothing of
//! the simulation, so that real clusters can be held to it, too.
//!
//! It is not a test of engines, of the threads of a node or of sockets.

mod belonging;
mod client;
mod comparing;
mod coordinator;
mod delivery;
mod disk;
mod fault;
mod history;
mod judge;
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
