//! `fondaco nodes`: the nodes of the cluster, and the data that each holds.

use clap::Args;
use fondaco_control::http::{ClusterNode, NodeList};

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
    let list: NodeList = Client::new(&options.node)?.get("/v1/nodes")?;
    output.result(&list, |list| text(&list.nodes))
}

/// The nodes as a table. A column is left out if its feature is not in use, so that all its cells are the same.
pub fn text(nodes: &[ClusterNode]) -> String {
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
    columns.push(Column::left("RESP", |node| node.resp.clone()));
    columns.push(Column::left("HTTP", |node| node.http.clone()));
    let header: Vec<&str> = columns.iter().map(|column| column.name).collect();
    let right: Vec<bool> = columns.iter().map(|column| column.right).collect();
    let row = |node: &ClusterNode| columns.iter().map(|column| (column.cell)(node)).collect();
    table(&header, &nodes.iter().map(row).collect::<Vec<_>>(), &right)
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
        (true, []) => "live".to_owned(),
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
        let text = text(&nodes);
        assert!(text.contains("ZONE") && text.contains("PLANNED"), "{text}");
        assert!(text.contains("live, late with pymk"), "{text}");
        assert!(!text.contains("WEIGHT") && !text.contains("GROUP"), "{text}");
    }
}
