//! The command line: its commands, and the options that several of them share.
//!
//! Scripts are written against these names: they change only with a line in the change log. The
//! options of one command alone stand with that command.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

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

/// How to reach the cluster: by either port of any of its processes, whatever their role. Each tells the other.
#[derive(Debug, Clone, Args)]
pub struct ControlPort {
    /// The control port of any process of the cluster: host:port, or a URL; 127.0.0.1:6580 unless said
    #[arg(long, env = "FONDACO_HTTP", value_name = "ADDRESS")]
    pub http: Option<String>,

    /// The RESP port of any process of the cluster: host:port. One of both is enough
    #[arg(long, env = "FONDACO_RESP", value_name = "HOST:PORT")]
    pub resp: Option<String>,

    /// Who you are at the RESP port
    #[arg(long, env = "FONDACO_USER", requires = "password")]
    pub user: Option<String>,

    /// The password at the RESP port
    #[arg(long, env = "FONDACO_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,

    /// The token of the control port
    #[arg(long, env = "FONDACO_TOKEN", hide_env_values = true)]
    pub token: Option<String>,

    #[command(flatten)]
    pub tls: Tls,
}

/// How to speak TLS to a node.
#[derive(Debug, Clone, Args)]
pub struct Tls {
    /// Speak TLS, and trust the usual authorities of the web
    #[arg(long, env = "FONDACO_TLS")]
    pub tls: bool,

    /// Speak TLS, and trust the certificates in this PEM file
    #[arg(long, env = "FONDACO_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

impl Tls {
    /// Whether TLS is wanted.
    pub fn is_wanted(&self) -> bool {
        self.tls || self.ca.is_some()
    }
}
