//! `fondaco nodes`: the nodes of the cluster, and the data that each holds.

use clap::Args;
use fondaco_control::http::{ClusterNode, LoadResource, NodeList, ResourceUseResource};
use fondaco_model::cluster::NodeMark;
use serde::Serialize;

use crate::client::Client;
use crate::control_port::ControlPort;
use crate::output::{self, Output, table};

/// `fondaco nodes`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco nodes --http 10.0.0.7:6580")]
pub struct NodesOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco nodes`.
pub fn nodes(options: &NodesOptions, output: &Output) -> anyhow::Result<()> {
    let client = Client::new(&options.node)?;
    let list: NodeList = client.get("/v1/nodes")?;
    // Without a leading controller their load is not known.
    let load: LoadResource = client.get("/v1/load").unwrap_or_default();
    let load_of = |node: &ClusterNode| {
        load.nodes
            .iter()
            .find(|load| load.node == node.node)
            .map(|load| load.load)
    };
    let list = LoadedNodes {
        nodes: list
            .nodes
            .into_iter()
            .map(|node| LoadedNode {
                load: load_of(&node),
                node,
            })
            .collect(),
    };
    output.result(&list, |list| {
        let nodes: Vec<ClusterNode> = list.nodes.iter().map(|one| one.node.clone()).collect();
        let loads: Vec<Option<ResourceUseResource>> = list.nodes.iter().map(|one| one.load).collect();
        loaded_text(&nodes, &loads)
    })
}

/// The nodes with their load, as JSON.
#[derive(Serialize)]
struct LoadedNodes {
    nodes: Vec<LoadedNode>,
}

/// A node with its load.
#[derive(Serialize)]
struct LoadedNode {
    #[serde(flatten)]
    node: ClusterNode,
    /// What it uses; null if the leading controller does not know.
    load: Option<ResourceUseResource>,
}

/// The nodes as a table. A column is left out if its feature is not in use, so that all its cells are the same.
pub fn text(nodes: &[ClusterNode]) -> String {
    loaded_text(nodes, &vec![None; nodes.len()])
}

fn loaded_text(nodes: &[ClusterNode], loads: &[Option<ResourceUseResource>]) -> String {
    if nodes.is_empty() {
        return "no nodes yet: the leading controller assigns a number to each node that it finds\n".to_owned();
    }
    let mut columns = vec![
        Column::right("NODE", |node| node.node.to_string()),
        Column::left("STATE", state),
        Column::right("PARTITIONS", |node| node.partitions.to_string()),
    ];
    if nodes.iter().any(|node| node.partitions_next.is_some()) {
        columns.push(Column::right("PLANNED", |node| {
            node.partitions_next.map_or_else(String::new, |next| next.to_string())
        }));
    }
    if nodes.iter().any(|node| node.zone != nodes[0].zone) {
        columns.push(Column::left("ZONE", |node| node.zone.clone()));
    }
    if nodes.iter().any(|node| node.group.is_some()) {
        columns.push(Column::left("GROUP", |node| node.group.clone().unwrap_or_default()));
    }
    if nodes.iter().any(|node| node.weight != nodes[0].weight) {
        columns.push(Column::right("WEIGHT", |node| node.weight.to_string()));
    }
    if nodes.iter().any(|node| node.protocol != nodes[0].protocol) {
        columns.push(Column::right("PROTOCOL", |node| node.protocol.to_string()));
    }
    columns.push(Column::left("RESP", |node| node.resp.clone()));
    columns.push(Column::left("HTTP", |node| node.http.clone()));
    let mut header: Vec<&str> = columns.iter().map(|column| column.name).collect();
    let mut right: Vec<bool> = columns.iter().map(|column| column.right).collect();
    let row = |node: &ClusterNode| columns.iter().map(|column| (column.cell)(node)).collect();
    let mut rows: Vec<Vec<String>> = nodes.iter().map(row).collect();
    if loads.iter().any(Option::is_some) {
        header.extend(["CPU", "REQUESTS/S"]);
        right.extend([true; 2]);
        for (row, load) in rows.iter_mut().zip(loads) {
            let cells = load.map(|load| {
                [
                    format!("{:.0} %", load.cpu_percent),
                    format!("{:.0}", load.requests_per_second),
                ]
            });
            row.extend(cells.unwrap_or_default());
        }
    }
    table(&header, &rows, &right)
}

/// A column of the table of nodes.
struct Column {
    name: &'static str,
    /// Whether it is right-aligned.
    right: bool,
    cell: fn(&ClusterNode) -> String,
}

impl Column {
    fn left(name: &'static str, cell: fn(&ClusterNode) -> String) -> Self {
        Self {
            name,
            right: false,
            cell,
        }
    }

    fn right(name: &'static str, cell: fn(&ClusterNode) -> String) -> Self {
        Self {
            name,
            right: true,
            cell,
        }
    }
}

fn state(node: &ClusterNode) -> String {
    match (node.live, node.late.as_slice()) {
        (false, _) => match node.absent_since_unix_ms {
            Some(since) => format!("absent since {}", output::moment(since)),
            None => "absent".to_owned(),
        },
        (true, []) => match (node.mark, node.backup) {
            (Some(NodeMark::Leaving), _) => "live, leaving".to_owned(),
            (Some(NodeMark::Maintenance), _) => "live, in maintenance".to_owned(),
            (None, true) => "live, backup".to_owned(),
            (None, false) => "live".to_owned(),
        },
        (true, late) => format!("live, late with {}", late.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> ClusterNode {
        ClusterNode {
            node: number,
            identity: String::new(),
            zone: "default".to_owned(),
            group: None,
            weight: 1,
            resp: format!("10.0.0.{number}:6500"),
            http: format!("10.0.0.{number}:6580"),
            live: true,
            absent_since_unix_ms: None,
            partitions: 16,
            partitions_next: None,
            late: Vec::new(),
            host: None,
            backup: false,
            mark: None,
            protocol: 1,
        }
    }

    #[test]
    fn a_feature_that_is_not_in_use_has_no_column() {
        let mut nodes = [node(1), node(2)];
        nodes[1].live = false;
        assert_eq!(
            text(&nodes),
            "NODE  STATE   PARTITIONS  RESP           HTTP\n   \
             1  live            16  10.0.0.1:6500  10.0.0.1:6580\n   \
             2  absent          16  10.0.0.2:6500  10.0.0.2:6580\n"
        );
    }

    #[test]
    fn columns_that_differ_between_nodes_are_shown() {
        let mut nodes = [node(1), node(2)];
        nodes[1].zone = "b".to_owned();
        nodes[1].late = vec!["pymk".to_owned()];
        nodes[0].partitions_next = Some(0);
        nodes[0].protocol = 2;
        let text = text(&nodes);
        assert!(
            text.contains("ZONE") && text.contains("PLANNED") && text.contains("PROTOCOL"),
            "{text}"
        );
        assert!(text.contains("live, late with pymk"), "{text}");
        assert!(!text.contains("WEIGHT") && !text.contains("GROUP"), "{text}");
    }
}
