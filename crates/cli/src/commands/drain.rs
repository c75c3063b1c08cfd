//! `fondaco drain` and `fondaco maintenance`: nodes leave, for good or for a while.

use clap::Args;
use fondaco_api::{NewMark, NodeList};
use fondaco_model::cluster::NodeMark;

use super::{nodes, rebalance};
use crate::control_port::ControlPort;
use crate::output::Output;
use fondaco_admin::Client;

/// `fondaco drain`.
#[derive(Debug, Args)]
#[command(after_help = "\
The same as fondaco rebalance run --remove NODE. With --cancel the nodes stay: a plan that drains them ends, partitions that have
moved stay where they are now, and fondaco rebalance run --add NODE brings a node its share again.

Example:
  fondaco drain 4
  fondaco drain 4 --cancel")]
pub struct DrainOptions {
    /// The nodes to take all partitions from, for good
    #[arg(value_name = "NODE", required = true)]
    drained: Vec<u32>,

    /// Start, and do not wait for the end
    #[arg(long)]
    no_wait: bool,

    /// Keep nodes that were to leave
    #[arg(long, conflicts_with = "no_wait")]
    cancel: bool,

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
    if !options.cancel {
        return rebalance::remove(options.drained, options.no_wait, options.node, output);
    }
    let client = options.node.client()?;
    let known = client.get::<NodeList>("/v1/nodes")?.nodes;
    let leaves = |number: &u32| {
        known
            .iter()
            .any(|node| node.node == *number && node.mark == Some(NodeMark::Leaving))
    };
    if let Some(stays) = options.drained.iter().find(|number| !leaves(number)) {
        anyhow::bail!("cannot cancel the drain of node {stays}: it does not leave; fondaco nodes shows which nodes do");
    }
    mark(&client, options.drained, None, output)
}

/// Runs `fondaco maintenance`.
pub fn maintenance(options: &MaintenanceOptions, output: &Output) -> anyhow::Result<()> {
    let client = options.node.client()?;
    let mut marked = options.marked.clone();
    if let Some(group) = &options.group {
        let list: NodeList = client.get("/v1/nodes")?;
        let members = list.nodes.iter().filter(|node| node.group.as_ref() == Some(group));
        marked.extend(members.map(|node| node.node));
        if marked.is_empty() {
            anyhow::bail!("no node has the group {group:?}: fondaco nodes shows the groups");
        }
    }
    let next = (!options.end).then_some(NodeMark::Maintenance);
    mark(&client, marked, next, output)
}

fn mark(client: &Client, nodes: Vec<u32>, mark: Option<NodeMark>, output: &Output) -> anyhow::Result<()> {
    let mut list = NodeList { nodes: Vec::new() };
    for node in nodes {
        list = client.post(&format!("/v1/nodes/{node}/mark"), &NewMark { mark })?;
    }
    output.result(&list, |list| nodes::text(&list.nodes))
}
