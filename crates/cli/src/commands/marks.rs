//! `fondaco drain` and `fondaco maintenance`: nodes leave, for good or for a while.

use clap::Args;
use fondaco_control::http::{NewMark, NodeList};
use fondaco_model::cluster::NodeMark;

use super::{nodes, rebalance};
use crate::client::Client;
use crate::control_port::ControlPort;
use crate::output::Output;

/// `fondaco drain`.
#[derive(Debug, Args)]
#[command(after_help = "\
The same as fondaco rebalance run --remove NODE.

Example:
  fondaco drain 4")]
pub struct DrainOptions {
    /// The nodes to take all partitions from, for good
    #[arg(value_name = "NODE", required = true)]
    drained: Vec<u32>,

    /// Start, and do not wait for the end
    #[arg(long)]
    no_wait: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco maintenance`.
#[derive(Debug, Args)]
#[command(after_help = "\
Requests go to other nodes where those have the data, and the node gets no partitions. It keeps what it has, and goes on
fetching and comparing, so that it is up to date when the maintenance ends. A group of nodes is marked by naming it.

Example:
  fondaco maintenance 4
  fondaco maintenance --group blue
  fondaco maintenance 4 --end")]
pub struct MaintenanceOptions {
    /// The nodes
    #[arg(value_name = "NODE", required_unless_present = "group")]
    marked: Vec<u32>,

    /// All nodes of a group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// End the maintenance
    #[arg(long)]
    end: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco drain`.
pub fn drain(options: DrainOptions, output: &Output) -> anyhow::Result<()> {
    rebalance::remove(options.drained, options.no_wait, options.node, output)
}

/// Runs `fondaco maintenance`.
pub fn maintenance(options: &MaintenanceOptions, output: &Output) -> anyhow::Result<()> {
    let client = Client::new(&options.node)?;
    let mut marked = options.marked.clone();
    if let Some(group) = &options.group {
        let list: NodeList = client.get("/v1/nodes")?;
        let members = list.nodes.iter().filter(|node| node.group.as_ref() == Some(group));
        marked.extend(members.map(|node| node.node));
        if marked.is_empty() {
            anyhow::bail!("no node has the group {group:?}: fondaco nodes shows the groups");
        }
    }
    let mark = NewMark {
        mark: (!options.end).then_some(NodeMark::Maintenance),
    };
    let mut list = NodeList { nodes: Vec::new() };
    for node in marked {
        list = client.post(&format!("/v1/nodes/{node}/mark"), &mark)?;
    }
    output.result(&list, |list| nodes::text(&list.nodes))
}
