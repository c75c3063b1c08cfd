//! The controller of a cluster: any number of processes stand for election, and the leader decides.
//!
//! - `controller`: the election, and the model's decisions, carried out by conditional writes;
//! - `cluster_load`, `journal`: the load that nodes report, and the decisions that were made about it;
//! - `balancer`, `balance_settings`: whether partitions should move;
//! - `machines`, `hook`: machines on demand.
//!
//! The model decides; this crate observes, asks the model, and carries out its decisions.

mod balance_settings;
mod balancer;
mod cluster_load;
mod config;
mod controller;
mod hook;
mod journal;
mod machines;

pub use balance_settings::move_rates;
pub use balancer::input_of;
pub use cluster_load::{ClusterLoad, NodeSummary, Sample};
pub use config::{Hook, MachinesConfig};
pub use controller::{BalancerParts, ControllerCounts, ControllerWork};
pub use journal::{Journal, Kept};
