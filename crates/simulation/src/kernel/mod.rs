//! The parts that all simulated worlds are made of: the events to come, the network, disks, processes, clients, and the notes
//! about a run.
//!
//! A world counts time in a unit of its own, milliseconds or microseconds. All randomness comes from the generator that it passes
//! in, and events at the same time happen in the order in which they were added: so a seed gives one run.

mod agenda;
mod caller;
mod disk;
mod network;
mod notes;
mod outcome;
mod process;

pub use agenda::Agenda;
pub use caller::Caller;
pub use disk::FaultyDisk;
pub(crate) use disk::{DiskCopy, WriteFailure};
pub(crate) use network::{Chances, Fate, Network, Place};
pub(crate) use notes::Notes;
pub use outcome::Violation;
pub(crate) use process::{Receipt, Running};
