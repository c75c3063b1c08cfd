//! The command line: its commands, and the options that all commands share.
//!
//! Scripts depend on these names: a change needs an entry in the change log. Options of a single command are defined
//! next to that command.

use clap::{Parser, Subcommand};

use crate::commands::{
    backup, balance, build, canary, cluster, completions, config, deploy, diff, drain, export, follow, graph, hook,
    inspect, look_up, mirror, nodes, push, rebalance, repair, roles, scan, schema, status, store, task, user, versions,
    why,
};

/// A store for derived data. Batch stores: datasets are built offline into immutable versions, pushed to nodes,
/// swapped in atomically, and rolled back instantly. Versioned stores: replicated, written to at any time.
/// Both are served over the Redis protocol.
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

    /// Do not print progress
    #[arg(long, short, global = true)]
    pub quiet: bool,

    #[command(subcommand)]
    pub command: Command,
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node or a whole cluster in one process, for trying things and for tests
    Dev(roles::DevOptions),
    /// Run a storage node
    Server(roles::ServerOptions),
    /// Run a router: it stores nothing, and answers requests by asking the nodes
    Router(roles::RouterOptions),
    /// Run a controller: the elected leader makes the decisions for the cluster
    Controller(roles::ControllerOptions),
    /// Create, list, show, alter, drop and restore stores
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Build a version of a store, fetch it, and swap it in
    Push(Box<push::PushOptions>),
    /// Build a version of a store: the first half of a push
    Build(build::BuildCommandOptions),
    /// Build a version in the tasks of an engine such as Spark, which divides and sorts the rows
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// Fetch a built version, and swap it in: the second half of a push
    Deploy(deploy::DeployOptions),
    /// Cancel the running push of a store
    Cancel(push::CancelOptions),
    /// Show, pause, resume, abort or promote the canary of a push
    Canary(canary::SteerOptions),
    /// List the versions of a store
    Versions(versions::VersionsOptions),
    /// Compare two versions of a store: how many keys differ
    Diff(diff::DiffOptions),
    /// Return to an earlier version of a store, at once
    Rollback(versions::RollbackOptions),
    /// Make a kept version of a store current, at once, or one that its gates hold
    Swap(versions::SwapOptions),
    /// Print the value of a key
    Get(look_up::GetOptions),
    /// Print the values of several keys, of one store or of several
    Mget(look_up::MgetOptions),
    /// Register and show the schemas of a store's values
    #[command(subcommand)]
    Schema(schema::SchemaCommand),
    /// Print the keys of a store
    Scan(scan::ScanOptions),
    /// Print the changes of a store as they come
    Follow(follow::FollowOptions),
    /// Write the changes of a store to a topic of Kafka as they come
    Mirror(mirror::MirrorOptions),
    /// Write the rows of a store or a version to a Parquet file or as an Arrow stream, with their types
    Export(export::ExportOptions),
    /// Ask graphs
    #[command(subcommand)]
    Graph(graph::GraphCommand),
    /// Show the cluster: its nodes, its stores, and the process that answers
    Status(status::StatusOptions),
    /// List the nodes, and the data that each holds
    Nodes(nodes::NodesOptions),
    /// Restore the cluster's entries in the coordination service
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Move partitions between nodes according to a plan
    #[command(subcommand)]
    Rebalance(rebalance::RebalanceCommand),
    /// Show or change how the cluster evens out its load by itself
    Balance(balance::BalanceOptions),
    /// Show the decisions of the cluster about its load, with reasons
    Why(why::WhyOptions),
    /// Take all partitions from nodes, for good
    Drain(drain::DrainOptions),
    /// Take nodes out of service for a while, or back into it
    Maintenance(drain::MaintenanceOptions),
    /// Manage the users of the cluster
    #[command(subcommand)]
    User(user::UserCommand),
    /// Show the latest changes, with the users who made them
    Audit(user::AuditOptions),
    /// Show the data that a node has lost, and accept the loss
    #[command(subcommand)]
    Repair(repair::RepairCommand),
    /// Back up all records of a versioned store to a directory or a URL, while it serves
    Backup(backup::BackupOptions),
    /// Restore the records of a backup into a versioned store, while it serves
    Restore(backup::RestoreOptions),
    /// Show the contents of a version or a chunk, without a node
    Inspect(inspect::InspectOptions),
    /// Show and change the settings of a running node
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Start and stop nodes for a controller
    #[command(subcommand)]
    Hook(hook::HookCommand),
    /// Print completions for a shell
    Completions(completions::CompletionsOptions),
}
