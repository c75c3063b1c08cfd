//! The command line: its commands, and the options that all commands share.
//!
//! Scripts depend on these names: a change needs an entry in the change log. Options of a single command are defined
//! next to that command.

use clap::{Parser, Subcommand};

use crate::commands::{
    backup, build, cluster, completions, config, inspect, look_up, nodes, push, rebalance, repair, roles, scan, status,
    store, versions,
};

/// A derived-data store: datasets are built offline into immutable versions, pushed to nodes,
/// swapped in atomically, and rolled back in an instant; others are written to at any time, and
/// replicated. All are served over the Redis protocol.
#[derive(Debug, Parser)]
#[command(name = "fondaco", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "\
Example: a cluster in one terminal; in another, a CSV and a key
  fondaco dev --nodes 3

  fondaco push cities cities.csv --key id --create
  redis-cli -p 6500 GET cities:7")]
pub struct Arguments {
    /// Print results as JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,

    /// Print no progress
    #[arg(long, short, global = true)]
    pub quiet: bool,

    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node or a whole cluster in one process, for trying things and for tests
    Dev(roles::DevOptions),
    /// Run a storage node
    Server(roles::ServerOptions),
    /// Run a router: it holds nothing, and serves everything by asking the nodes
    Router(roles::RouterOptions),
    /// Run a controller: the one that leads decides for the cluster
    Controller(roles::ControllerOptions),
    /// Create, list, show, alter, drop and restore stores
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Build a version of a store, fetch it, and swap it in
    Push(push::PushOptions),
    /// Build a version of a store: the first half of a push
    Build(build::BuildCommandOptions),
    /// Fetch a version that was built, and swap it in: the second half of a push
    Deploy(push::DeployOptions),
    /// Cancel the push of a store that is under way
    Cancel(push::CancelOptions),
    /// List the versions of a store
    Versions(versions::VersionsOptions),
    /// Go back to an earlier version of a store, at once
    Rollback(versions::RollbackOptions),
    /// Make a kept version of a store current, at once
    Swap(versions::SwapOptions),
    /// Print the value of a key
    Get(look_up::GetOptions),
    /// Print the values of several keys, of one store or of several
    Mget(look_up::MgetOptions),
    /// Print the keys of a store
    Scan(scan::ScanOptions),
    /// Show the cluster: its nodes, its stores, and the process that is asked
    Status(status::StatusOptions),
    /// List the nodes, and what each holds
    Nodes(nodes::NodesOptions),
    /// Restore what the cluster coordinates itself by
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Change which nodes hold what, by a plan
    #[command(subcommand)]
    Rebalance(rebalance::RebalanceCommand),
    /// Show what a node has lost, and give it up
    #[command(subcommand)]
    Repair(repair::RepairCommand),
    /// Write all records of a versioned store to a directory or a URL, while it serves
    Backup(backup::BackupOptions),
    /// Bring the records of a backup back into a versioned store, while it serves
    Restore(backup::RestoreOptions),
    /// Show what is in a version or a chunk, without a node
    Inspect(inspect::InspectOptions),
    /// Show and change the settings of a running node
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print completions for a shell
    Completions(completions::CompletionsOptions),
}
