//! `fondaco nodes`: the nodes of the cluster, and the data that each holds.

use clap::{Args, Subcommand};
use fondaco_api::{ClusterNode, LoadResource, NodeList, ResourceUseResource};
use fondaco_model::cluster::NodeMark;
use serde::Serialize;

use crate::control_port::ControlPort;
use crate::output::{self, Output, table};

/// `fondaco nodes`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  fondaco nodes --http 10.0.0.7:6580\n  fondaco nodes forget 4",
    args_conflicts_with_subcommands = true
)]
pub struct NodesOptions {
    #[command(subcommand)]
    command: Option<NodesCommand>,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco nodes …`.
#[derive(Debug, Subcommand)]
enum NodesCommand {
    /// Forget a node that was drained and stopped: it is listed no more
    Forget(ForgetOptions),
}

/// `fondaco nodes forget`.
#[derive(Debug, Args)]
#[command(after_help = "\
The node's number is not given to another one. If it comes back with its data directory, it is listed again, and leaves.

Example:
  fondaco nodes forget 4")]
struct ForgetOptions {
    /// The nodes
    #[arg(value_name = "NODE", required = true)]
    forgotten: Vec<u32>,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco nodes`.
pub fn nodes(options: &NodesOptions, output: &Output) -> anyhow::Result<()> {
    if let Some(NodesCommand::Forget(options)) = &options.command {
        return forget(options, output);
    }
    let client = options.node.client()?;
    let list: NodeList = client.get("/v1/nodes")?;
    // Without a leading controller their load is not known.
    let load: LoadResource = client.get("/v1/load").unwrap_or_default();
    let loaded = |node: ClusterNode| {
        let of_node = load.nodes.iter().find(|load| load.node == node.node);
        let of_node = of_node.filter(|_| node.live);
        LoadedNode {
            load: of_node.map(|one| one.load),
            held_bytes: of_node.map(|one| one.held_bytes),
            node,
        }
    };
    let list = LoadedNodes {
        nodes: list.nodes.into_iter().map(loaded).collect(),
    };
    output.result(&list, |list| loaded_text(&list.nodes))
}

fn forget(options: &ForgetOptions, output: &Output) -> anyhow::Result<()> {
    let client = options.node.client()?;
    for node in &options.forgotten {
        client.delete(&format!("/v1/nodes/{node}"))?;
    }
    let list: NodeList = client.get("/v1/nodes")?;
    output.result(&list, |list| text(&list.nodes))
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
    /// The resources that the node uses; null if it is absent, or if the leading controller does not know them.
    load: Option<ResourceUseResource>,
    /// The bytes of all partitions that it holds; null as above.
    held_bytes: Option<u64>,
}

/// The nodes as a table. A column is left out if its feature is not in use, so that all its cells are the same.
pub fn text(nodes: &[ClusterNode]) -> String {
    let nodes = nodes.iter().map(|node| LoadedNode {
        node: node.clone(),
        load: None,
        held_bytes: None,
    });
    loaded_text(&nodes.collect::<Vec<_>>())
}

fn loaded_text(loaded: &[LoadedNode]) -> String {
    let nodes: Vec<ClusterNode> = loaded.iter().map(|one| one.node.clone()).collect();
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
    if loaded.iter().any(|one| one.load.is_some()) {
        header.extend(["DATA", "CPU", "REQUESTS/S", "SHARE"]);
        right.extend([true; 4]);
        let loads = loaded.iter().filter_map(|one| one.load);
        let all: f64 = loads.map(|load| load.requests_per_second).sum();
        for (row, one) in rows.iter_mut().zip(loaded) {
            let cells = one.load.zip(one.held_bytes).map(|(load, held_bytes)| {
                [
                    output::bytes(held_bytes),
                    format!("{:.0} %", load.cpu_percent),
                    format!("{:.0}", load.requests_per_second),
                    match all > 0.0 {
                        true => format!("{:.0} %", load.requests_per_second / all * 100.0),
                        false => "-".to_owned(),
                    },
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
            Some(since) => format!("absent since {}", output::timestamp(since)),
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
    fn the_data_and_the_share_of_requests_of_live_nodes_are_shown() {
        let loaded = |number, load: Option<(f64, u64)>| LoadedNode {
            node: ClusterNode {
                live: load.is_some(),
                ..node(number)
            },
            load: load.map(|(requests_per_second, _)| ResourceUseResource {
                cpu_percent: 40.0,
                requests_per_second,
                ..Default::default()
            }),
            held_bytes: load.map(|(_, held_bytes)| held_bytes),
        };
        let text = loaded_text(&[
            loaded(1, Some((75.0, 3 << 20))),
            loaded(2, Some((25.0, 1 << 20))),
            loaded(3, None),
        ]);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows[0].ends_with(&["DATA", "CPU", "REQUESTS/S", "SHARE"]), "{text}");
        assert!(rows[1].ends_with(&["3.0", "MiB", "40", "%", "75", "75", "%"]), "{text}");
        assert!(rows[2].ends_with(&["40", "%", "25", "25", "%"]), "{text}");
        assert!(rows[3].ends_with(&["10.0.0.3:6580"]), "{text}");
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
