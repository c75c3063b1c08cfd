//! A whole cluster in one thread, run from a seed.
//!
//! Controllers, nodes, readers and operators decide by the real code of `fondaco-model` and
//! `fondaco-client`; what surrounds them is simulated: time, the network, the coordination service,
//! disks and sources. Everything that could be random comes from one seed, so that a run that went
//! wrong goes wrong again.
//!
//! It is not a test of sockets, files or ZooKeeper: those have tests with real ones. What it shows is
//! that the decisions are right in whatever order things happen.
//!
//! Versioned stores have a world of their own: [`versioned`].
//!
//! ```
//! use fondaco_simulation::{Scenario, simulate};
//!
//! let outcome = simulate(&Scenario::from_seed(7)).expect("no rule is broken");
//! assert!(outcome.pushes_swapped > 0);
//! ```

mod controller;
mod data;
mod event;
mod fault;
mod link;
mod network;
mod node;
mod operator;
mod oracle;
mod outcome;
mod process;
mod reader;
mod record;
mod scenario;
mod script;
mod service;
pub mod versioned;
mod world;

pub use outcome::{Outcome, Violation};
pub use scenario::{Flaw, Scenario, Step};
pub use service::CoordinationCounts;
pub use world::{simulate, simulate_traced};
