//! A whole cluster in one thread, run from a seed.
//!
//! Controllers, nodes, readers and operators run the real code of `fondaco-model` and `fondaco-client`; their
//! environment is simulated: time, the network, the coordination service, disks and sources. All randomness comes from
//! one seed, so that a failed run can be repeated.
//!
//! It does not test sockets, files or ZooKeeper: other tests use real ones. It shows that the decisions are right in
//! whatever order events happen.
//!
//! Versioned stores have a separate simulation: [`versioned`]; and so have the streams of hybrid stores: [`streams`].
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
mod kernel;
mod link;
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
pub mod streams;
pub mod versioned;
mod world;

pub use kernel::{Agenda, Caller, FaultyDisk, Violation};
pub use outcome::Outcome;
pub use scenario::{Flaw, Scenario, Step};
pub use service::CoordinationCounts;
pub use world::{simulate, simulate_traced};
