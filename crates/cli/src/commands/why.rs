//! `fondaco why`: the decisions of the cluster about its load, with reasons.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use fondaco_api::{DecisionList, DecisionResource, PlanResource, PushResource, StoreResource};
use fondaco_decisions::balance::{BalanceInput, Outcome, decide};
use fondaco_model::{PushState, StoreName};
use serde::Serialize;

use super::versions::on_demand_text;
use super::{canary, diff, rebalance};
use crate::control_port::ControlPort;
use crate::output::{self, Output, table};

/// `fondaco why`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco why
  fondaco why 17 --replay
  fondaco why --store pymk
  fondaco why 17 --json > decision.json && fondaco why --replay-file decision.json")]
pub struct WhyOptions {
    /// The number of a decision; without it, the last ones are listed
    #[arg(value_name = "DECISION")]
    decision: Option<u64>,

    /// Explain the last push of this store, its gates and its canary, in place of decisions
    #[arg(long, value_name = "STORE", conflicts_with_all = ["decision", "moves", "replay_file"])]
    store: Option<StoreName>,

    /// How many decisions are listed
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3000), conflicts_with = "decision")]
    last: u32,

    /// List only decisions to move something or to request a machine, or with advice
    #[arg(long, conflicts_with = "decision")]
    moves: bool,

    /// Make the decision again from its input, and compare
    #[arg(long, requires = "decision")]
    replay: bool,

    /// Make a decision again that was saved as JSON; no cluster is needed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["decision", "moves"])]
    replay_file: Option<PathBuf>,

    #[command(flatten)]
    node: ControlPort,
}

/// A decision that was made again, as JSON.
#[derive(Serialize)]
struct Replayed {
    /// Whether both decisions are the same.
    same: bool,
    /// The decision at that time.
    then: DecisionResource,
    /// The reasons of the decision that was made again.
    reasons: Vec<String>,
    /// Whether it moves something.
    moves: bool,
}

/// Runs `fondaco why`.
pub fn why(options: &WhyOptions, output: &Output) -> anyhow::Result<()> {
    if let Some(file) = &options.replay_file {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let decision = serde_json::from_str(&text);
        let decision = decision.with_context(|| format!("{} is no decision of fondaco why --json", file.display()))?;
        return replay(decision, output);
    }
    let client = options.node.client()?;
    if let Some(name) = &options.store {
        let push: PushResource = client.get(&format!("/v1/stores/{name}/push"))?;
        let store: StoreResource = client.get(&format!("/v1/stores/{name}"))?;
        let copying = on_demand_text(&store.versions);
        return output.result(&push, |push| push_text(name, push) + &copying);
    }
    let Some(number) = options.decision else {
        let query = format!("/v1/decisions?count={}&moves={}", options.last, options.moves);
        let list: DecisionList = client.get(&query)?;
        return output.result(&list, |list| list_text(&list.decisions));
    };
    let decision: DecisionResource = client.get(&format!("/v1/decisions/{number}"))?;
    match options.replay {
        true => replay(decision, output),
        false => {
            // An old plan is not known any more.
            let plan = decision
                .plan
                .map(|plan| client.get::<PlanResource>(&format!("/v1/plans/{plan}")));
            let plan = plan.and_then(Result::ok);
            let failures: Vec<String> = plan.iter().flat_map(rebalance::failures).collect();
            output.result(&decision, |decision| {
                failures
                    .iter()
                    .fold(text(decision), |text, failure| format!("{text}  {failure}\n"))
            })
        }
    }
}

/// The state of a push, its gates, and what they found.
fn push_text(name: &StoreName, push: &PushResource) -> String {
    let reason = push
        .error
        .as_ref()
        .map_or_else(String::new, |error| format!(": {error}"));
    let mut text = format!(
        "the push of version {} of store {name} is {}{reason}\n",
        push.version, push.state
    );
    if !push.gates.is_empty() {
        text += &format!("gates: {}\n", push.gates);
    }
    if let Some(compared) = &push.compared {
        text += &diff::text(compared);
    }
    if let Some(of_push) = &push.canary {
        text += &canary::explain(push.version, of_push);
    }
    if push.state == PushState::Held {
        let version = push.version;
        text += &format!("next: fondaco swap {name} --to {version}, fondaco cancel {name}, or push a better version\n");
    }
    text
}

/// Makes a decision again.
fn replay(then: DecisionResource, output: &Output) -> anyhow::Result<()> {
    let Some(input) = then.input.clone() else {
        bail!(
            "decision {} was made too long ago: its input is not kept any more",
            then.number
        );
    };
    let input: BalanceInput = serde_json::from_value(input).context("the input of the decision cannot be read")?;
    let again = decide(&input);
    let advice: Vec<(&str, &str)> = again
        .advice
        .iter()
        .map(|one| (one.problem.as_str(), one.help.as_str()))
        .collect();
    let advised: Vec<(&str, &str)> = then
        .advice
        .iter()
        .map(|one| (one.problem.as_str(), one.help.as_str()))
        .collect();
    let moved = |outcome: &Outcome| match outcome {
        Outcome::Nothing => Vec::new(),
        Outcome::Move { moves, .. } => {
            let moves = moves
                .iter()
                .map(|one| (one.partition.get(), one.from.get(), one.to.get()));
            moves.collect::<Vec<_>>()
        }
    };
    let relief: Vec<(u32, u32, u32)> = then
        .relief
        .iter()
        .map(|one| (one.partition, one.from, one.to))
        .collect();
    let replayed = Replayed {
        same: again.reasons == then.reasons
            && advice == advised
            && moved(&again.outcome) == relief
            && again.request() == then.request,
        moves: matches!(again.outcome, Outcome::Move { .. }),
        reasons: again.reasons,
        then,
    };
    let same = replayed.same;
    output.result(&replayed, |replayed| {
        let mut shown = text(&replayed.then);
        shown.push_str(match replayed.same {
            true => "made again: the same\n",
            false => "made again: something else, because this program decides differently\n",
        });
        for reason in replayed.reasons.iter().filter(|_| !replayed.same) {
            // Writing to a string does not fail.
            let _ = writeln!(shown, "  now: {reason}");
        }
        shown
    })?;
    if !same {
        bail!("the decision differs from the one that was made then");
    }
    Ok(())
}

fn outcome(decision: &DecisionResource) -> String {
    match (decision.moves, decision.plan, decision.request) {
        (false, _, Some(request)) => format!("request {request}"),
        (false, _, None) => "nothing".to_owned(),
        (true, Some(plan), _) => format!("plan {plan}"),
        (true, None, _) => "already proposed".to_owned(),
    }
}

fn list_text(decisions: &[DecisionResource]) -> String {
    if decisions.is_empty() {
        return "no decision was made yet: fondaco balance shows how often one is made\n".to_owned();
    }
    let row = |one: &DecisionResource| {
        let advice = one.advice.iter().map(|advice| advice.problem.clone());
        let reasons: Vec<String> = one.reasons.iter().cloned().chain(advice).collect();
        vec![
            one.number.to_string(),
            output::timestamp(one.at_unix_ms),
            outcome(one),
            reasons.join("; "),
        ]
    };
    let rows: Vec<Vec<String>> = decisions.iter().map(row).collect();
    table(
        &["DECISION", "MADE", "OUTCOME", "WHY"],
        &rows,
        &[true, false, false, false],
    )
}

fn text(decision: &DecisionResource) -> String {
    let mut text = format!(
        "decision {}, {}: {}\n",
        decision.number,
        output::timestamp(decision.at_unix_ms),
        outcome(decision)
    );
    // Writing to a string does not fail.
    for reason in &decision.reasons {
        let _ = writeln!(text, "  {reason}");
    }
    for advice in &decision.advice {
        let _ = writeln!(text, "  {}\n    remedy: {}", advice.problem, advice.help);
    }
    text
}
