//! `fondaco rebalance`: moves partitions between nodes according to a plan, which can be viewed first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use fondaco_control::http::{
    ClusterNode, ClusterResource, NewPlan, PlanResource, ReplicaStateName, RoutingResource, StoreList,
};
use serde::Serialize;

use super::nodes;
use crate::client::Client;
use crate::control_port::ControlPort;
use crate::interrupt::Interrupt;
use crate::output::{self, Output, table};
use crate::progress::{Display, INTERVAL};

/// The least increase of the routing table's epoch by a plan, from before its start to its end.
const EPOCHS_OF_A_PLAN: u64 = 2;

/// `fondaco rebalance`.
#[derive(Debug, Subcommand)]
pub enum RebalanceCommand {
    /// Show what a plan would move, and change nothing
    Plan(PlanOptions),
    /// Start a plan, and watch it to the end
    Run(RunOptions),
    /// Show the progress of the running plan
    Status(StatusOptions),
    /// Cancel the running plan
    Cancel(CancelOptions),
}

/// `fondaco rebalance plan`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco rebalance plan --add 4")]
pub struct PlanOptions {
    #[command(flatten)]
    request: RequestOptions,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco rebalance run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nodes fetch the partitions assigned to them. When all have them, they take over, and the previous owners delete theirs.

Example:
  fondaco rebalance run --add 4
  fondaco rebalance run --remove 2")]
pub struct RunOptions {
    #[command(flatten)]
    request: RequestOptions,

    /// Start the plan, and do not wait for its end
    #[arg(long)]
    no_wait: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco rebalance status`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco rebalance status --json")]
pub struct StatusOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco rebalance cancel`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco rebalance cancel")]
pub struct CancelOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// The changes that the plan makes.
#[derive(Debug, Clone, Args)]
struct RequestOptions {
    /// Nodes to give their share of partitions; if neither option is used, all live nodes without partitions
    #[arg(long, value_name = "NODE,…", value_delimiter = ',')]
    add: Vec<u32>,

    /// Nodes to take all partitions from
    #[arg(long, value_name = "NODE,…", value_delimiter = ',')]
    remove: Vec<u32>,
}

/// The progress of a plan, as JSON.
#[derive(Serialize)]
struct Progress {
    /// Whether a plan is running.
    under_way: bool,
    /// How often the routing table has changed.
    epoch: u64,
    /// The bytes that the nodes have fetched, for any reason.
    bytes_done: u64,
    bytes_total: u64,
    nodes: Vec<ClusterNode>,
}

/// Runs `fondaco rebalance`.
pub fn run(command: RebalanceCommand, output: &Output) -> anyhow::Result<()> {
    match command {
        RebalanceCommand::Plan(options) => {
            let client = Client::new(&options.node)?;
            let plan: PlanResource = client.post("/v1/routing/plans", &options.request.plan(&client, true)?)?;
            output.result(&plan, |plan| plan_text(plan) + "nothing was changed\n")
        }
        RebalanceCommand::Run(options) => begin(&options, output),
        RebalanceCommand::Status(options) => {
            let progress = look(&Client::new(&options.node)?)?;
            output.result(&progress, progress_text)
        }
        RebalanceCommand::Cancel(options) => {
            let client = Client::new(&options.node)?;
            client.delete("/v1/routing/plan")?;
            let progress = look(&client)?;
            output.result(&progress, |_| {
                "the plan is cancelled: the owners of partitions stay as they are\n".to_owned()
            })
        }
    }
}

fn begin(options: &RunOptions, output: &Output) -> anyhow::Result<()> {
    let client = Client::new(&options.node)?;
    let interrupt = Interrupt::listen()?;
    let before: RoutingResource = client.get("/v1/routing")?;
    let plan: PlanResource = client.post("/v1/routing/plans", &options.request.plan(&client, false)?)?;
    if options.no_wait {
        return output.result(&plan, |plan| {
            plan_text(plan) + "it is running: see fondaco rebalance status\n"
        });
    }
    if !output.is_json() {
        output.note(plan_text(&plan).trim_end());
    }
    let mut display = Display::new(output.is_quiet());
    let mut planned: Option<Vec<u64>> = None;
    let ended = loop {
        let progress = look(&client).context("cannot watch the plan any more; it continues")?;
        // The epoch rises when a plan starts, when it is cancelled, and once more when it is complete.
        if !progress.under_way && progress.epoch >= before.epoch + EPOCHS_OF_A_PLAN {
            break progress;
        }
        if interrupt.is_asked() {
            bail!("the plan continues: see fondaco rebalance status, or cancel it with fondaco rebalance cancel");
        }
        // Nodes are polled after the plan, which may have ended in between.
        if let Some(next) = progress.nodes.iter().map(|node| node.partitions_next).collect() {
            planned = Some(next);
        }
        show(&mut display, &progress);
        std::thread::sleep(INTERVAL);
    };
    drop(display);
    let owned = || ended.nodes.iter().map(|node| node.partitions).collect::<Vec<_>>();
    if planned.is_some_and(|planned| planned != owned()) {
        bail!("the plan was cancelled: the nodes hold the same partitions as before");
    }
    output.result(&ended, |ended| nodes::text(&ended.nodes))
}

fn show(display: &mut Display, progress: &Progress) {
    let fraction = progress.bytes_done as f64 / progress.bytes_total.max(1) as f64;
    let details = format!(
        "{} of {}",
        output::bytes(progress.bytes_done),
        output::bytes(progress.bytes_total)
    );
    display.show("moving", fraction.min(1.0), &details);
}

impl RequestOptions {
    fn plan(&self, client: &Client, dry_run: bool) -> anyhow::Result<NewPlan> {
        let mut add: BTreeSet<u32> = self.add.iter().copied().collect();
        let remove: BTreeSet<u32> = self.remove.iter().copied().collect();
        if add.is_empty() && remove.is_empty() {
            let cluster: ClusterResource = client.get("/v1/cluster")?;
            let idle = cluster.nodes.iter().filter(|node| node.live && node.partitions == 0);
            add = idle.map(|node| node.node).collect();
        }
        Ok(NewPlan { add, remove, dry_run })
    }
}

fn look(client: &Client) -> anyhow::Result<Progress> {
    let routing: RoutingResource = client.get("/v1/routing")?;
    let cluster: ClusterResource = client.get("/v1/cluster")?;
    let stores = client.get::<StoreList>("/v1/stores")?.stores;
    let versions = stores.iter().flat_map(|store| &store.versions);
    let fetching = versions
        .flat_map(|version| &version.nodes)
        .filter(|replica| replica.state == ReplicaStateName::Fetching || replica.bytes_total > 0);
    let (mut bytes_done, mut bytes_total) = (0, 0);
    for replica in fetching {
        bytes_done += replica.bytes_done;
        bytes_total += replica.bytes_total;
    }
    Ok(Progress {
        under_way: routing.next.is_some(),
        epoch: routing.epoch,
        bytes_done,
        bytes_total,
        nodes: cluster.nodes,
    })
}

fn plan_text(plan: &PlanResource) -> String {
    let mut counts = BTreeMap::<u32, (u64, u64)>::new();
    for step in &plan.moves {
        if let Some(node) = step.from {
            counts.entry(node).or_default().0 += 1;
        }
        if let Some(node) = step.to {
            counts.entry(node).or_default().1 += 1;
        }
    }
    let rows: Vec<Vec<String>> = counts
        .iter()
        .map(|(node, (gives, gets))| vec![node.to_string(), gets.to_string(), gives.to_string()])
        .collect();
    let mut text = table(&["NODE", "GETS", "GIVES UP"], &rows, &[true; 3]);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{} replicas of partitions are fetched, of every version that stores keep",
        plan.fetches
    );
    text
}

fn progress_text(progress: &Progress) -> String {
    let mut text = match progress.under_way {
        true => format!(
            "a plan is running: {} of {} fetched\n",
            output::bytes(progress.bytes_done),
            output::bytes(progress.bytes_total)
        ),
        false => format!("no plan is running; the routing table has epoch {}\n", progress.epoch),
    };
    text.push_str(&nodes::text(&progress.nodes));
    text
}

#[cfg(test)]
mod tests {
    use fondaco_control::http::MoveResource;

    use super::*;

    #[test]
    fn a_plan_is_summarised_per_node() {
        let step = |partition, from, to| MoveResource { partition, from, to };
        let plan = PlanResource {
            moves: vec![
                step(0, Some(1), Some(4)),
                step(1, Some(1), Some(4)),
                step(2, None, Some(2)),
            ],
            fetches: 3,
        };
        assert_eq!(
            plan_text(&plan),
            "NODE  GETS  GIVES UP\n   1     0         2\n   2     1         0\n   4     2         0\n\
             3 replicas of partitions are fetched, of every version that stores keep\n"
        );
    }
}
