//! The commands, one file per family, in the order of the command line.

pub mod backup;
pub mod balance;
pub mod build;
pub mod canary;
pub mod cluster;
mod compact;
pub mod completions;
pub mod config;
mod declaration_options;
pub mod deploy;
pub mod diff;
pub mod drain;
pub mod export;
pub mod follow;
pub mod graph;
mod graph_input;
pub mod hook;
mod hook_group;
pub mod inspect;
pub mod look_up;
pub mod mirror;
pub mod nodes;
pub mod push;
mod push_outcome;
mod push_progress;
mod read_options;
pub mod rebalance;
pub mod repair;
pub mod roles;
pub mod scan;
pub mod schema;
pub mod status;
pub mod store;
mod store_flags;
mod stream_options;
mod target_options;
pub mod task;
pub mod user;
mod versioned_options;
pub mod versions;
pub mod why;

/// The arguments are well-formed but contradict each other: exit code 2, as for malformed arguments.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUsage(pub String);
