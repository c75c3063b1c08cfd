//! `fondaco server`, `router` and `controller`: one process of a cluster, set up by a configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use fondaco_api::Role;
use fondaco_roles::{Config, Fondaco};
use serde::Serialize;

use super::configuration::ConfigurationFile;
use super::{LogFormat, LogOptions, Signals, Started, announce, start_log};
use crate::output::Output;

/// `fondaco server`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without zookeeper the server is a cluster of one, and needs no other process. Flags override the file;
docs/operations.md lists all settings of the file.

Example:
  fondaco server --config /etc/fondaco.toml")]
pub struct ServerOptions {
    #[command(flatten)]
    process: ProcessOptions,

    #[command(flatten)]
    serving: ServingOptions,

    /// The data directory
    #[arg(long, env = "FONDACO_DATA", value_name = "DIRECTORY")]
    data: Option<PathBuf>,

    /// The group of the node, for the placement grouped
    #[arg(long, env = "FONDACO_GROUP", value_name = "NAME")]
    group: Option<String>,

    /// The node's share of partitions, relative to other nodes
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    weight: Option<u32>,

    /// The machine that it runs on: replicas of a partition are on different machines [default: the host of its
    /// advertised address]
    #[arg(long, env = "FONDACO_HOST", value_name = "NAME")]
    host: Option<String>,

    /// Hold nothing, and wait to replace a node that dies
    #[arg(long)]
    backup: bool,
}

/// `fondaco router`.
#[derive(Debug, Args)]
#[command(after_help = "\
A router stores nothing: to a Redis client it looks like one node with all the data.

Example:
  fondaco router --config /etc/fondaco-router.toml")]
pub struct RouterOptions {
    #[command(flatten)]
    process: ProcessOptions,

    #[command(flatten)]
    serving: ServingOptions,
}

/// `fondaco controller`.
#[derive(Debug, Args)]
#[command(after_help = "\
Run two or more: one leads, and another takes over when the leader fails.

Example:
  fondaco controller --config /etc/fondaco-controller.toml")]
pub struct ControllerOptions {
    #[command(flatten)]
    process: ProcessOptions,

    /// The directory for its decisions; without one it keeps them in memory
    #[arg(long, env = "FONDACO_DATA", value_name = "DIRECTORY")]
    data: Option<PathBuf>,
}

/// Options of every process of a cluster.
#[derive(Debug, Args)]
struct ProcessOptions {
    /// The configuration file, TOML
    #[arg(long, env = "FONDACO_CONFIG", value_name = "FILE")]
    config: PathBuf,

    /// The address of the HTTP port
    #[arg(long, env = "FONDACO_HTTP", value_name = "HOST:PORT")]
    http: Option<String>,

    /// The address at which others reach the HTTP port; the default is the listening address
    #[arg(long, env = "FONDACO_HTTP_ADVERTISED", value_name = "HOST:PORT")]
    http_advertised: Option<String>,

    /// The ZooKeeper servers: host:port, several separated by commas
    #[arg(long, env = "FONDACO_ZOOKEEPER", value_name = "SERVERS")]
    zookeeper: Option<String>,

    /// The path in ZooKeeper below which the cluster keeps its entries
    #[arg(long, env = "FONDACO_ROOT", value_name = "PATH")]
    root: Option<String>,

    /// The token of the control port
    #[arg(long, env = "FONDACO_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// Serve beyond loopback even without users or a token; with users, serve HTTP without a token
    #[arg(long)]
    allow_insecure: bool,

    #[command(flatten)]
    log: LogOptions,
}

/// Options of processes that serve RESP.
#[derive(Debug, Args)]
struct ServingOptions {
    /// The address of the RESP port
    #[arg(long, env = "FONDACO_RESP", value_name = "HOST:PORT")]
    resp: Option<String>,

    /// The address at which others reach the RESP port; the default is the listening address
    #[arg(long, env = "FONDACO_RESP_ADVERTISED", value_name = "HOST:PORT")]
    resp_advertised: Option<String>,

    /// The zone: replicas are spread over zones, and reads prefer replicas in the same zone
    #[arg(long, env = "FONDACO_ZONE", value_name = "NAME")]
    zone: Option<String>,

    /// The template of its settings, see fondaco config set --help
    #[arg(long, env = "FONDACO_TEMPLATE", value_name = "NAME")]
    template: Option<String>,

    /// The number of event loops that serve RESP; 0 is one per core
    #[arg(long, value_name = "COUNT")]
    loops: Option<usize>,
}

/// The addresses of the ports, as JSON.
#[derive(Serialize)]
struct Serving {
    role: Role,
    resp: Option<SocketAddr>,
    http: SocketAddr,
    data: Option<String>,
    pid: u32,
}

/// Runs a storage node.
pub fn server(options: ServerOptions, output: &Output) -> anyhow::Result<()> {
    let mut file = options.process.read()?;
    options.serving.override_in(&mut file);
    override_with(&mut file.data, options.data);
    override_with(&mut file.group, options.group);
    override_with(&mut file.weight, options.weight);
    override_with(&mut file.host, options.host);
    file.backup |= options.backup;
    let role = match file.zookeeper {
        Some(_) => Role::Node,
        None => Role::Single,
    };
    run(file.into_config(role)?, output)
}

/// Runs a router.
pub fn router(options: RouterOptions, output: &Output) -> anyhow::Result<()> {
    let mut file = options.process.read()?;
    options.serving.override_in(&mut file);
    run(file.into_config(Role::Router)?, output)
}

/// Runs a controller.
pub fn controller(options: ControllerOptions, output: &Output) -> anyhow::Result<()> {
    let mut file = options.process.read()?;
    override_with(&mut file.data, options.data);
    run(file.into_config(Role::Controller)?, output)
}

impl ProcessOptions {
    /// Reads the file, applies the flags over it, and starts the log.
    fn read(self) -> anyhow::Result<ConfigurationFile> {
        let mut file = ConfigurationFile::read(&self.config)?;
        let filter = self.log.log.as_deref().or(file.log_filter()).unwrap_or("info");
        let format = self.log.log_format.or(file.log_format()).unwrap_or(LogFormat::Text);
        start_log(filter, format)?;
        override_with(&mut file.http, self.http);
        override_with(&mut file.http_advertised, self.http_advertised);
        override_with(&mut file.token, self.token);
        file.override_zookeeper(self.zookeeper, self.root)?;
        file.allow_insecure |= self.allow_insecure;
        Ok(file)
    }
}

impl ServingOptions {
    fn override_in(self, file: &mut ConfigurationFile) {
        override_with(&mut file.resp, self.resp);
        override_with(&mut file.resp_advertised, self.resp_advertised);
        override_with(&mut file.zone, self.zone);
        override_with(&mut file.template, self.template);
        override_with(&mut file.loops, self.loops);
    }
}

fn override_with<T>(value: &mut Option<T>, flag: Option<T>) {
    if flag.is_some() {
        *value = flag;
    }
}

/// Runs a process until it is told to stop.
fn run(config: Config, output: &Output) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let role = config.role;
    let data = role.holds_data().then(|| config.data_dir.display().to_string());
    let Some(running) = signals.wait_serving(Fondaco::begin(config)?)? else {
        return Ok(());
    };
    let serving = Serving {
        role,
        resp: running.resp_addr(),
        http: running.http_addr(),
        data,
        pid: std::process::id(),
    };
    announce(output, &serving, text);
    signals.wait(Started::One(Box::new(running)))
}

fn text(serving: &Serving) -> String {
    let role = match serving.role {
        Role::Single | Role::Node => "a node",
        Role::Router => "a router",
        Role::Controller => "a controller",
    };
    let mut text = format!("fondaco runs {role}:");
    if let Some(resp) = serving.resp {
        text.push_str(&format!(" RESP on {resp},"));
    }
    text.push_str(&format!(" HTTP on {}", serving.http));
    if let Some(data) = &serving.data {
        text.push_str(&format!(", data in {data}"));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_flag_that_is_set_overrides_the_file() {
        let mut value = Some("file");
        override_with(&mut value, None);
        assert_eq!(value, Some("file"));
        override_with(&mut value, Some("flag"));
        assert_eq!(value, Some("flag"));
    }
}
