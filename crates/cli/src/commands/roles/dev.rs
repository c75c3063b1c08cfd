//! `fondaco dev`: a node or a whole cluster in one process, for experiments and tests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use fondaco_api::{DevMember, Role};
use fondaco_model::{Placement, StoreName};
use fondaco_push::partition_count;
use fondaco_roles::{Config, Dev, DevConfig, Fondaco, ZooKeeperConfig};
use serde::Serialize;

use super::super::WrongUsage;
use super::super::build::PARTITIONS_DEFAULT;
use super::{HTTP_DEFAULT, LogFormat, LogOptions, RESP_DEFAULT, Signals, Started, announce, resolve, start_log};
use crate::output::{Output, table};

/// The default number of replicas, if there are that many nodes.
const REPLICAS_DEFAULT: u32 = 2;
/// The most nodes in one process: each has its own threads and files.
const NODES_MAX: u32 = 32;

/// `fondaco dev`.
#[derive(Debug, Args)]
#[command(after_help = "\
With several nodes, --resp and --http are the ports of the first router; all other members get free ports.
Stop and start a member by its name:
  curl -X POST http://127.0.0.1:6580/v1/dev/members/node-2/stop
  curl -X POST http://127.0.0.1:6580/v1/dev/members/node-2/start

Example:
  fondaco dev --data /tmp/fondaco
  fondaco dev --data /tmp/fondaco-cluster --nodes 3 --replicas 2")]
pub struct DevOptions {
    /// The data directory; its data is kept for the next start
    #[arg(long, env = "FONDACO_DATA", default_value = "fondaco-data", value_name = "DIRECTORY")]
    data: PathBuf,

    /// How many nodes to run; more than one also starts routers and controllers
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    nodes: u32,

    /// How many nodes hold each partition; the default is two, or one with a single node
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    replicas: Option<u32>,

    /// How many routers to run in a cluster
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    routers: u32,

    /// How many controllers to run in a cluster: one leads, the others stand by
    #[arg(long, default_value_t = 2, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    controllers: u32,

    /// The number of zones, assigned to the members of a cluster in turn; with more than one, replicas are spread over
    /// them
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    zones: u32,

    /// The number of groups of nodes, which the nodes join in turn; with more than one, each group has a complete copy of
    /// the data, and --replicas is their number
    #[arg(long, default_value_t = 1, value_name = "COUNT", conflicts_with_all = ["zones", "replicas"], value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    groups: u32,

    /// Coordinate through ZooKeeper, not within the process: host:port, several separated by commas
    #[arg(long, env = "FONDACO_ZOOKEEPER", value_name = "SERVERS")]
    zookeeper: Option<String>,

    /// The path in ZooKeeper below which the cluster keeps its entries
    #[arg(long, env = "FONDACO_ROOT", default_value = "/fondaco/dev", value_name = "PATH")]
    root: String,

    /// The address of the RESP port; port 0 picks a free port
    #[arg(long, env = "FONDACO_RESP", default_value = RESP_DEFAULT, value_name = "HOST:PORT")]
    resp: String,

    /// The address of the HTTP port; port 0 picks a free port
    #[arg(long, env = "FONDACO_HTTP", default_value = HTTP_DEFAULT, value_name = "HOST:PORT")]
    http: String,

    /// The number of event loops that serve RESP; 0 is one per core
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    loops: usize,

    /// The number of partitions: a power of two, fixed when the data directory is created
    #[arg(long, env = "FONDACO_PARTITIONS", default_value_t = PARTITIONS_DEFAULT, value_name = "COUNT")]
    partitions: u32,

    /// Require this token on the control port
    #[arg(long, env = "FONDACO_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// Serve on addresses beyond loopback without authentication
    #[arg(long)]
    allow_insecure: bool,

    /// The store for keys whose prefix names no store, so that frameworks with their own prefixes run unchanged
    #[arg(long, env = "FONDACO_DEFAULT_STORE", value_name = "STORE")]
    default_store: Option<StoreName>,

    #[command(flatten)]
    log: LogOptions,
}

/// The addresses of the ports, as JSON.
#[derive(Serialize)]
struct Serving {
    resp: SocketAddr,
    http: SocketAddr,
    data: String,
    pid: u32,
    /// The members of a cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<DevMember>,
}

/// Runs a node or a cluster until it is told to stop.
pub fn dev(options: DevOptions, output: &Output) -> anyhow::Result<()> {
    // The first lines of output should be the addresses printed below, not log lines.
    start_log(
        options.log.log.as_deref().unwrap_or("warn"),
        options.log.log_format.unwrap_or(LogFormat::Text),
    )?;
    let is_cluster = options.nodes > 1 || options.zookeeper.is_some();
    refuse_the_other_kind(&options.data, is_cluster)?;
    let config = config(&options)?;
    let mut signals = Signals::listen()?;
    let data = config.data_dir.display().to_string();
    let (started, resp, http, members) = match is_cluster {
        false => {
            let Some(running) = signals.wait_serving(Fondaco::begin(config)?)? else {
                return Ok(());
            };
            let resp = running.resp_addr().context("a node serves RESP")?;
            let http = running.http_addr();
            (Started::One(Box::new(running)), resp, http, Vec::new())
        }
        true => {
            let dev = Dev::start(DevConfig {
                common: config,
                nodes: options.nodes,
                routers: options.routers,
                controllers: options.controllers,
                zones: options.zones,
                groups: options.groups,
            })?;
            let (resp, http) = dev.addresses().context("the router runs")?;
            let members = dev.members();
            (Started::Cluster(dev), resp, http, members)
        }
    };
    let serving = Serving {
        resp,
        http,
        data,
        pid: std::process::id(),
        members,
    };
    announce(output, &serving, text);
    signals.wait(started)
}

fn config(options: &DevOptions) -> anyhow::Result<Config> {
    let replicas = options.replicas.unwrap_or(REPLICAS_DEFAULT.min(options.nodes));
    if replicas > options.nodes {
        let nodes = options.nodes;
        let reason = format!("{replicas} replicas need at least as many nodes, but --nodes is {nodes}: raise --nodes");
        return Err(WrongUsage(reason).into());
    }
    for (count, what) in [(options.zones, "zones"), (options.groups, "groups")] {
        if count > options.nodes {
            let nodes = options.nodes;
            let reason = format!("{count} {what} need at least as many nodes, but --nodes is {nodes}: raise --nodes");
            return Err(WrongUsage(reason).into());
        }
    }
    let mut config = Config::local(&options.data, partition_count(options.partitions)?);
    config.program = std::env::current_exe().ok();
    config.resp_listen = resolve(&options.resp)?;
    config.http_listen = resolve(&options.http)?;
    config.loops = options.loops;
    config.token.clone_from(&options.token);
    config.allow_insecure = options.allow_insecure;
    config.default_store.clone_from(&options.default_store);
    config.cluster.replicas = replicas;
    config.cluster.nodes_initial = options.nodes;
    if options.zones > 1 {
        config.cluster.placement = Placement::Zoned;
    }
    if options.groups > 1 {
        config.cluster.placement = Placement::Grouped;
        config.cluster.replicas = options.groups;
    }
    config.zookeeper = options.zookeeper.as_ref().map(|connect| ZooKeeperConfig {
        connect: connect.clone(),
        root: options.root.clone(),
        session_timeout: ZooKeeperConfig::SESSION_TIMEOUT_DEFAULT,
        auth: None,
        ca: None,
        identity: None,
    });
    Ok(config)
}

/// A single node and a cluster lay out their data differently: neither may start in the data directory of the other.
fn refuse_the_other_kind(data: &Path, is_cluster: bool) -> anyhow::Result<()> {
    let (node, cluster) = (data.join("node.json").exists(), data.join("node-1").exists());
    match is_cluster {
        true if node => bail!("{data:?} has the data of a single node: omit --nodes, or choose another --data"),
        false if cluster => bail!("{data:?} has the data of a cluster: use --nodes, or choose another --data"),
        _ => Ok(()),
    }
}

fn text(serving: &Serving) -> String {
    let http = match serving.http.to_string().as_str() {
        HTTP_DEFAULT => String::new(),
        http => format!(" --http {http}"),
    };
    let next = format!("next: fondaco push STORE FILE --key COLUMN --create{http}\n");
    if serving.members.is_empty() {
        return format!(
            "fondaco serves\n  RESP  {}   redis-cli -p {}\n  HTTP  http://{}\n  data  {}\n{next}",
            serving.resp,
            serving.resp.port(),
            serving.http,
            serving.data,
        );
    }
    let address = |address: &Option<String>| address.clone().unwrap_or_else(|| "-".to_owned());
    let rows: Vec<Vec<String>> = serving
        .members
        .iter()
        .map(|member| vec![member.name.clone(), address(&member.resp), address(&member.http)])
        .collect();
    let nodes = serving.members.iter().filter(|member| member.role == Role::Node);
    format!(
        "fondaco serves a cluster of {} nodes, data in {}\n{}\
         through the router: redis-cli -p {}\nthrough any node:   redis-cli -c -p PORT\n{next}",
        nodes.count(),
        serving.data,
        table(&["MEMBER", "RESP", "HTTP"], &rows, &[]),
        serving.resp.port(),
    )
}
