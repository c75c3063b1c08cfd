//! `fondaco rebalance`: moves partitions between nodes according to a plan, which can be viewed first.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use fondaco_api::{
    ClusterNode, ClusterResource, NewMove, NewPlan, PlanList, PlanResource, RoutingResource, StoreList,
    StuckStoreResource,
};
use fondaco_model::cluster::{MoveState, PlanMaker, PlanState, ReplicaState};
use serde::Serialize;

use super::nodes;
use crate::control_port::ControlPort;
use crate::interrupt::Interrupt;
use crate::output::{self, Output, table};
use crate::progress::{Display, INTERVAL};
use fondaco_admin::Client;

/// `fondaco rebalance`.
#[derive(Debug, Subcommand)]
pub enum RebalanceCommand {
    /// Make a plan and show it; it moves nothing before it is run
    Plan(PlanOptions),
    /// Run a plan, and watch it to the end
    Run(RunOptions),
    /// Show the progress of the running plan, or of another one
    Status(StatusOptions),
    /// List the plans
    List(ListOptions),
    /// Pause the running plan: moves that have begun are completed
    #[command(after_help = "Example:\n  fondaco rebalance pause")]
    Pause(StateOptions),
    /// Resume the paused plan
    #[command(after_help = "Example:\n  fondaco rebalance resume")]
    Resume(StateOptions),
    /// Cancel the running plan, or a proposed one
    #[command(after_help = "Example:\n  fondaco rebalance cancel")]
    Cancel(StateOptions),
    /// Split each partition in two, so that more nodes can share them
    #[command(after_help = "\
Both halves of a partition stay on the nodes that have it, and are moved like any other. Versions that were built before
stay as they are. It takes effect at once, and cannot be undone.

Example:
  fondaco rebalance split")]
    Split(SplitOptions),
}

/// `fondaco rebalance split`.
#[derive(Debug, Args)]
pub struct SplitOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco rebalance plan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco rebalance plan --add 4
  fondaco rebalance plan --move 17:2:5")]
pub struct PlanOptions {
    #[command(flatten)]
    request: RequestOptions,

    /// Show the plan, and do not save it
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco rebalance run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nodes fetch the partitions assigned to them, a few at a time. When the next owners of a partition have it, they take
over, and the previous ones delete theirs.

Example:
  fondaco rebalance run 12
  fondaco rebalance run --add 4
  fondaco rebalance run --remove 2")]
pub struct RunOptions {
    /// The number of a proposed plan; without it, a plan is made
    #[arg(value_name = "PLAN", conflicts_with_all = ["add", "remove", "moves", "even", "moves_per_node", "reason"])]
    plan: Option<u64>,

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
    /// The number of the plan; by default the latest that was run
    #[arg(value_name = "PLAN")]
    plan: Option<u64>,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco rebalance list`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco rebalance list")]
pub struct ListOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco rebalance pause`, `resume`, `cancel`.
#[derive(Debug, Args)]
pub struct StateOptions {
    /// The number of the plan; by default the one under way
    #[arg(value_name = "PLAN")]
    plan: Option<u64>,

    #[command(flatten)]
    node: ControlPort,
}

/// The moves that the plan shall make.
#[derive(Debug, Clone, Default, Args)]
struct RequestOptions {
    /// Nodes to give their share of partitions; without any option, all live nodes without partitions
    #[arg(long, value_name = "NODE,…", value_delimiter = ',')]
    add: Vec<u32>,

    /// Nodes to take all partitions from, for good
    #[arg(long, value_name = "NODE,…", value_delimiter = ',')]
    remove: Vec<u32>,

    /// Replicas to move: partition, present node, next node
    #[arg(long = "move", value_name = "PARTITION:FROM:TO,…", value_delimiter = ',', value_parser = parse_move)]
    moves: Vec<NewMove>,

    /// Give every node its share by weight again, whatever was moved before
    #[arg(long)]
    even: bool,

    /// How many moves a node takes part in at a time [default: 2]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    moves_per_node: Option<u32>,

    /// The reason, for readers of the list of plans
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// The progress of a plan, as JSON.
#[derive(Serialize)]
struct Progress {
    /// The plan; null if none was run.
    plan: Option<PlanResource>,
    /// Whether it is under way.
    under_way: bool,
    /// The bytes that the nodes have fetched, for any reason.
    bytes_done: u64,
    bytes_total: u64,
    nodes: Vec<ClusterNode>,
}

/// Takes all partitions from nodes, for good.
pub fn remove(nodes: Vec<u32>, no_wait: bool, node: ControlPort, output: &Output) -> anyhow::Result<()> {
    let options = RunOptions {
        plan: None,
        request: RequestOptions {
            remove: nodes,
            ..RequestOptions::default()
        },
        no_wait,
        node,
    };
    begin(&options, output)
}

/// Runs `fondaco rebalance`.
pub fn run(command: RebalanceCommand, output: &Output) -> anyhow::Result<()> {
    match command {
        RebalanceCommand::Plan(options) => {
            let client = options.node.client()?;
            let new = options.request.plan(&client, options.dry_run, false)?;
            let plan: PlanResource = client.post("/v1/plans", &new)?;
            output.result(&plan, |plan| match options.dry_run {
                true => plan_text(plan) + "nothing was saved or changed\n",
                false => plan_text(plan) + &format!("nothing moves yet: fondaco rebalance run {}\n", plan.number),
            })
        }
        RebalanceCommand::Run(options) => begin(&options, output),
        RebalanceCommand::Status(options) => {
            let progress = progress_of(&options.node.client()?, options.plan)?;
            output.result(&progress, progress_text)
        }
        RebalanceCommand::List(options) => {
            let list: PlanList = options.node.client()?.get("/v1/plans")?;
            output.result(&list, |list| list_text(&list.plans))
        }
        RebalanceCommand::Pause(options) => change(&options, "pause", output),
        RebalanceCommand::Split(options) => split(&options, output),
        RebalanceCommand::Resume(options) => change(&options, "resume", output),
        RebalanceCommand::Cancel(options) => {
            let client = options.node.client()?;
            let number = options.number(&client)?;
            client.delete(&format!("/v1/plans/{number}"))?;
            let plan: PlanResource = client.get(&format!("/v1/plans/{number}"))?;
            output.result(&plan, |plan| {
                format!(
                    "plan {} is cancelled: {} of {} partitions had moved; the others stay where they are\n",
                    plan.number, plan.partitions_done, plan.partitions
                )
            })
        }
    }
}

fn split(options: &SplitOptions, output: &Output) -> anyhow::Result<()> {
    let routing: RoutingResource = options
        .node
        .client()?
        .post("/v1/routing/split", &serde_json::json!({}))?;
    output.result(&routing, |routing| {
        format!(
            "there are {} partitions now; the halves of each are where it was\n",
            routing.partitions
        )
    })
}

fn change(options: &StateOptions, what: &str, output: &Output) -> anyhow::Result<()> {
    let client = options.node.client()?;
    let number = options.number(&client)?;
    let plan: PlanResource = client.post(&format!("/v1/plans/{number}/{what}"), &serde_json::json!({}))?;
    output.result(&plan, |plan| {
        format!("plan {} is {}\n", plan.number, plan_state(plan.state))
    })
}

impl StateOptions {
    /// The plan that is meant.
    fn number(&self, client: &Client) -> anyhow::Result<u64> {
        if let Some(number) = self.plan {
            return Ok(number);
        }
        let list: PlanList = client.get("/v1/plans")?;
        let plan = list.plans.iter().find(|plan| is_under_way(plan));
        plan.map(|plan| plan.number)
            .context("no plan is under way: fondaco rebalance list shows those that were made")
    }
}

fn begin(options: &RunOptions, output: &Output) -> anyhow::Result<()> {
    let client = options.node.client()?;
    let interrupt = Interrupt::listen()?;
    let plan: PlanResource = match options.plan {
        Some(number) => client.post(&format!("/v1/plans/{number}/run"), &serde_json::json!({}))?,
        None => client.post("/v1/plans", &options.request.plan(&client, false, true)?)?,
    };
    if options.no_wait {
        return output.result(&plan, |plan| {
            plan_text(plan) + "it is running: see fondaco rebalance status\n"
        });
    }
    if !output.is_json() {
        output.note(plan_text(&plan).trim_end());
    }
    let mut display = Display::new(output.is_quiet());
    let ended = loop {
        let progress =
            progress_of(&client, Some(plan.number)).context("cannot watch the plan any more; it continues")?;
        if !progress.under_way {
            break progress;
        }
        if interrupt.is_asked() {
            bail!("the plan continues: see fondaco rebalance status, or cancel it with fondaco rebalance cancel");
        }
        show(&mut display, &progress);
        std::thread::sleep(INTERVAL);
    };
    drop(display);
    let plan = ended.plan.as_ref();
    if plan.is_some_and(|plan| plan.state == PlanState::Cancelled) {
        bail!(
            "the plan was cancelled: fondaco rebalance status {} shows what has moved",
            plan.map_or(0, |plan| plan.number)
        );
    }
    if let Some(failed) = plan.and_then(|plan| plan.moves.iter().find(|one| one.error.is_some())) {
        let reason = failed.error.as_deref().unwrap_or_default();
        bail!(
            "not all partitions have moved: partition {}: {reason}; make another plan for the rest",
            failed.partition
        );
    }
    let stuck = plan.into_iter().flat_map(|plan| plan.stuck.iter().map(stuck_text));
    let stuck: Vec<String> = stuck.collect();
    if !stuck.is_empty() {
        bail!(
            "the partitions have moved, but not all of their data: {}; push each such store again, or start its former node",
            stuck.join("; ")
        );
    }
    output.result(&ended, |ended| nodes::text(&ended.nodes))
}

fn show(display: &mut Display, progress: &Progress) {
    let (done, all) = progress
        .plan
        .as_ref()
        .map_or((0, 0), |plan| (plan.partitions_done, plan.partitions));
    let bytes = progress.bytes_done as f64 / progress.bytes_total.max(1) as f64;
    let fraction = (done as f64 + bytes.min(0.99)) / all.max(1) as f64;
    let details = format!("{done} of {all} partitions");
    display.show("moving", fraction.min(1.0), &details);
}

impl RequestOptions {
    fn plan(&self, client: &Client, dry_run: bool, run: bool) -> anyhow::Result<NewPlan> {
        let mut new = NewPlan {
            add: self.add.iter().copied().collect(),
            remove: self.remove.iter().copied().collect(),
            moves: self.moves.clone(),
            even: self.even,
            moves_per_node: self.moves_per_node,
            reason: self.reason.clone(),
            dry_run,
            run,
        };
        if new.add.is_empty() && new.remove.is_empty() && new.moves.is_empty() && !new.even {
            let cluster: ClusterResource = client.get("/v1/cluster")?;
            let idle = cluster.nodes.iter().filter(|node| node.live && node.partitions == 0);
            let idle = idle.filter(|node| !node.backup && node.mark.is_none());
            new.add = idle.map(|node| node.node).collect();
        }
        Ok(new)
    }
}

fn parse_move(text: &str) -> Result<NewMove, String> {
    let numbers: Option<Vec<u32>> = text.split(':').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[partition, from, to]) => Ok(NewMove { partition, from, to }),
        _ => Err("use PARTITION:FROM:TO, such as 17:2:5".to_owned()),
    }
}

fn is_under_way(plan: &PlanResource) -> bool {
    matches!(plan.state, PlanState::Running | PlanState::Paused)
}

/// A plan with this number, or the latest that was run.
fn progress_of(client: &Client, number: Option<u64>) -> anyhow::Result<Progress> {
    let plan = match number {
        Some(number) => Some(client.get::<PlanResource>(&format!("/v1/plans/{number}"))?),
        None => {
            let plans = client.get::<PlanList>("/v1/plans")?.plans;
            plans
                .into_iter()
                .find(|plan| !matches!(plan.state, PlanState::Proposed | PlanState::Replaced))
        }
    };
    let cluster: ClusterResource = client.get("/v1/cluster")?;
    let stores = client.get::<StoreList>("/v1/stores")?.stores;
    let versions = stores.iter().flat_map(|store| &store.versions);
    let fetching = versions
        .flat_map(|version| &version.nodes)
        .filter(|replica| replica.state == ReplicaState::Fetching || replica.bytes_total > 0);
    let (mut bytes_done, mut bytes_total) = (0, 0);
    for replica in fetching {
        bytes_done += replica.bytes_done;
        bytes_total += replica.bytes_total;
    }
    Ok(Progress {
        // Partitions that have switched are still to be finished when a plan is cancelled.
        under_way: plan.as_ref().is_some_and(is_under_way),
        plan,
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
    let _ = write!(
        text,
        "{} replicas of partitions are fetched, of every version that stores keep: about {}, {} of them from other zones",
        plan.fetches,
        output::bytes(plan.bytes),
        output::bytes(plan.bytes_between_zones),
    );
    let _ = match plan.seconds {
        0 => writeln!(text),
        seconds => writeln!(text, "; about {} min", seconds.div_ceil(60)),
    };
    text
}

fn plan_state(state: PlanState) -> &'static str {
    match state {
        PlanState::Proposed => "proposed",
        PlanState::Running => "running",
        PlanState::Paused => "paused",
        PlanState::Done => "done",
        PlanState::Cancelled => "cancelled",
        PlanState::Replaced => "replaced",
    }
}

fn list_text(plans: &[PlanResource]) -> String {
    if plans.is_empty() {
        return "no plan was made yet: fondaco rebalance plan\n".to_owned();
    }
    let row = |plan: &PlanResource| {
        vec![
            plan.number.to_string(),
            plan_state(plan.state).to_owned(),
            match (plan.by, &plan.user) {
                (PlanMaker::Operator, Some(user)) => user.clone(),
                (PlanMaker::Operator, None) => "operator".to_owned(),
                (PlanMaker::Analyzer, _) => "analyzer".to_owned(),
            },
            output::timestamp(plan.made_unix_ms),
            format!("{} of {}", plan.partitions_done, plan.partitions),
            output::bytes(plan.bytes),
            plan.reason.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = plans.iter().map(row).collect();
    let right = [true, false, false, false, true, true, false];
    table(
        &["PLAN", "STATE", "BY", "MADE", "MOVED", "BYTES", "REASON"],
        &rows,
        &right,
    )
}

/// The partitions that did not move, and the stores that they moved without, each with the reason.
pub fn failures(plan: &PlanResource) -> impl Iterator<Item = String> {
    let given_up = plan.moves.iter().filter(|one| one.state == MoveState::GivenUp);
    let given_up = given_up.filter_map(|one| {
        let reason = one.error.as_ref()?;
        Some(format!("partition {} was given up: {reason}", one.partition))
    });
    given_up.chain(plan.stuck.iter().map(stuck_text))
}

fn stuck_text(stuck: &StuckStoreResource) -> String {
    let partitions: Vec<String> = stuck.partitions.iter().map(u32::to_string).collect();
    format!(
        "store \"{}\" did not move with partitions {}: {}",
        stuck.store,
        partitions.join(", "),
        stuck.error
    )
}

fn progress_text(progress: &Progress) -> String {
    let mut text = match &progress.plan {
        None => "no plan was run yet\n".to_owned(),
        Some(plan) => {
            let moved = format!(
                "plan {} is {}: {} of {} partitions have moved\n",
                plan.number,
                plan_state(plan.state),
                plan.partitions_done,
                plan.partitions
            );
            failures(plan).fold(moved, |text, failure| text + &failure + "\n")
        }
    };
    text.push_str(&nodes::text(&progress.nodes));
    text
}

#[cfg(test)]
mod tests {
    use fondaco_api::MoveResource;

    use super::*;

    #[test]
    fn a_plan_is_summarised_per_node() {
        let step = |partition, from, to| MoveResource {
            partition,
            from,
            to,
            state: MoveState::Waiting,
            error: None,
        };
        let plan = PlanResource {
            number: 7,
            state: PlanState::Proposed,
            by: PlanMaker::Operator,
            user: None,
            reason: String::new(),
            made_unix_ms: 0,
            ended_unix_ms: None,
            moves: vec![
                step(0, Some(1), Some(4)),
                step(1, Some(1), Some(4)),
                step(2, None, Some(2)),
            ],
            fetches: 3,
            partitions: 3,
            partitions_done: 0,
            stuck: Vec::new(),
            moves_per_node: 2,
            leaving: Default::default(),
            bytes: 3 << 20,
            bytes_between_zones: 0,
            seconds: 61,
        };
        assert_eq!(
            plan_text(&plan),
            "NODE  GETS  GIVES UP\n   1     0         2\n   2     1         0\n   4     2         0\n\
             3 replicas of partitions are fetched, of every version that stores keep: about 3.0 MiB, 0 B of them from \
             other zones; about 2 min\n"
        );
    }

    #[test]
    fn moves_are_parsed() {
        let one = parse_move("17:2:5").unwrap();
        assert_eq!((one.partition, one.from, one.to), (17, 2, 5));
        for wrong in ["", "17", "17:2", "17:2:5:6", "17:a:5", "-1:2:3"] {
            assert!(parse_move(wrong).is_err(), "{wrong}");
        }
    }
}
