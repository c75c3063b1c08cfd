//! `fondaco repair`: lists the data that a node has lost, and accepts losses.

use clap::{Args, Subcommand};
use fondaco_api::{LossList, LossResource};

use crate::control_port::ControlPort;
use crate::output::{Output, table};

/// `fondaco repair`.
#[derive(Debug, Subcommand)]
pub enum RepairCommand {
    /// List the acknowledged writes that a node has lost
    Losses(LossesOptions),
    /// Accept a loss: the node's remaining data counts as complete, and can be read again
    AcceptLoss(AcceptLossOptions),
}

/// `fondaco repair losses`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco repair losses --http 10.0.0.7:6580")]
pub struct LossesOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco repair accept-loss`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco repair accept-loss log-5f3a9c21 --http 10.0.0.7:6580")]
pub struct AcceptLossOptions {
    /// The id of the loss, as fondaco repair losses shows it
    loss: String,
    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco repair`.
pub fn run(command: RepairCommand, output: &Output) -> anyhow::Result<()> {
    match command {
        RepairCommand::Losses(options) => {
            let list: LossList = options.node.client()?.get("/v1/losses")?;
            output.result(&list, |list| text(&list.losses))
        }
        RepairCommand::AcceptLoss(options) => {
            let path = format!("/v1/losses/{}/accept", options.loss);
            let loss: LossResource = options.node.client()?.post(&path, &())?;
            output.result(&loss, |loss| format!("accepted loss {}: {}\n", loss.id, loss.lost))
        }
    }
}

fn text(losses: &[LossResource]) -> String {
    if losses.is_empty() {
        return "nothing is lost\n".to_owned();
    }
    let row = |loss: &LossResource| {
        vec![
            loss.id.clone(),
            loss.partitions_behind.to_string(),
            loss.partitions_alone.to_string(),
            loss.lost.clone(),
        ]
    };
    let header = ["LOSS", "PARTITIONS", "ON NO OTHER NODE", "WHAT"];
    table(
        &header,
        &losses.iter().map(row).collect::<Vec<_>>(),
        &[false, true, true, false],
    )
}
