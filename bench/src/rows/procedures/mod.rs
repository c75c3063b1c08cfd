//! The parts of rows that are more than a load: functions that the steps of a row call by name.

pub mod after_swap;
pub mod balance;
pub mod beside;
pub mod bulk;
pub mod cluster_push;
pub mod convergence;
pub mod in_process;
pub mod loading;
pub mod many_swaps;
pub mod move_partition;
pub mod node_death;
pub mod router_cache;
pub mod scale;
pub mod setup;
pub mod streams;
pub mod swap;
pub mod versioned;

use std::collections::HashMap;

use super::fan_out::Cluster;
use crate::dataset::elsewhere::Elsewhere;

/// The state of a row's functions between calls.
#[derive(Default)]
pub struct Kept {
    /// The version that is pushed next.
    pub source: Option<Elsewhere>,
    pub sources: u64,
    pub engines: Vec<in_process::Opened>,
    pub router_cache: Option<router_cache::Counts>,
    pub convergence: Option<convergence::Filled>,
    /// The node that dies next.
    pub victim: usize,
    /// Events that were sent so far.
    pub sent: u64,
    pub probes: Option<streams::fresh::Probes>,
    pub stores: Vec<String>,
    /// By their numbers of groups.
    pub simulated: HashMap<u32, Cluster>,
}
