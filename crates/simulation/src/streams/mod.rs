//! The streams of hybrid stores under faults, run from a seed: whether an event can get lost, or count twice.
//!
//! Nodes run the real overlays and feeds of `fondaco_stream`, step by step. Topics, disks and clocks are simulated:
//! nodes are killed and lose power, writes fail, with or without effect, and disks are full; topics are away, answer
//! with few records or with an old end, repeat events, get more partitions, lose their first or last records, or are
//! made again. Event times are late, ahead and equal; clocks jump. Versions are pushed, with and without a cut, and
//! dropped; partitions move between nodes; streams are paused. While a step waits for its topic, other steps, events
//! and faults come in between, as they do with several threads.
//!
//! After each round of faults, the answers of all nodes must be those of a simple model: all events of a key in the order of
//! their times, applied to the version's value.
//!
//! It does not test Kafka, the engines on disk, or the threads of a node.

mod check;
mod events;
mod faults;
mod model;
mod node;
mod scenario;
mod topic;
mod world;

pub use scenario::{Flaw, Scenario, Source};
pub use world::{Outcome, simulate, simulate_traced};
