//! `fondaco status`: what a node is and does.

use std::time::Duration;

use clap::Args;
use fondaco_control::http::NodeStatus;

use crate::arguments::ControlPort;
use crate::client::Client;
use crate::output::{self, Output};

/// `fondaco status`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco status --http 10.0.0.7:6580")]
pub struct StatusOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// Shows the node.
pub fn status(options: &StatusOptions, output: &Output) -> anyhow::Result<()> {
    let status = Client::new(&options.node)?.status()?;
    output.result(&status, text)
}

fn text(status: &NodeStatus) -> String {
    let known = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), output::bytes);
    let lines = [
        (
            "ready",
            match status.not_ready.as_slice() {
                [] => "yes".to_owned(),
                reasons => format!("no: {}", reasons.join("; ")),
            },
        ),
        (
            "program",
            format!("fondaco {}, pid {}", status.program_version, status.pid),
        ),
        ("up for", output::duration(Duration::from_millis(status.uptime_ms))),
        ("RESP", status.resp_addr.clone()),
        ("HTTP", status.http_addr.clone()),
        ("data", status.data_directory.clone()),
        ("disk left", known(status.disk_available_bytes)),
        (
            "memory",
            format!("{} resident, mapped files included", known(status.resident_bytes)),
        ),
        ("partitions", status.partitions.to_string()),
        ("stores", status.stores.to_string()),
        ("clients", status.clients.to_string()),
    ];
    lines
        .iter()
        .map(|(name, value)| format!("{name:<11}{value}\n"))
        .collect()
}
