//! `fondaco cluster`: decisions about the whole cluster that only an operator can make.

use std::io::{self, IsTerminal, Write};

use anyhow::bail;
use clap::{Args, Subcommand};
use fondaco_api::{Adoption, ClusterResource};

use crate::control_port::ControlPort;
use crate::output::Output;

/// `fondaco cluster`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Restore the entries in the coordination service after it lost them
    Adopt(AdoptOptions),
}

/// `fondaco cluster adopt`.
#[derive(Debug, Args)]
#[command(after_help = "\
After ZooKeeper was emptied, lost an entry, or was restored from an older copy, nodes keep serving from
the entries they saw last, delete nothing, and are not ready. This command ends that state. Run it against a
node that ran before the loss; fondaco status --http ADDRESS shows the entries that it misses.

Example:
  fondaco cluster adopt --http 10.0.0.7:6580 --yes")]
pub struct AdoptOptions {
    /// Accept the entries that are in the coordination service now, instead of those that the node remembers
    #[arg(long)]
    present: bool,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco cluster`.
pub fn run(command: ClusterCommand, output: &Output) -> anyhow::Result<()> {
    match command {
        ClusterCommand::Adopt(options) => adopt(&options, output),
    }
}

fn adopt(options: &AdoptOptions, output: &Output) -> anyhow::Result<()> {
    let client = options.node.client()?;
    let question = match options.present {
        true => "accept the entries that are in the coordination service now",
        false => "replace all entries in the coordination service with those that this node remembers",
    };
    if !options.yes {
        if !io::stdin().is_terminal() {
            bail!("this would {question}: confirm with --yes");
        }
        write!(io::stderr(), "{question}? [y/N] ")?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            bail!("nothing was changed");
        }
    }
    let adoption = Adoption {
        present: options.present,
    };
    let cluster: ClusterResource = client.post("/v1/cluster/adopt", &adoption)?;
    output.result(&cluster, |cluster| {
        format!(
            "the entries of cluster {} are consistent again\nnext: fondaco status\n",
            cluster.identity
        )
    })
}
