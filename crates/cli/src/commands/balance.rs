//! `fondaco balance`: how the cluster evens out its load by itself.

use std::collections::BTreeMap;

use clap::{Args, Subcommand, ValueEnum};
use fondaco_api::{AdviceResource, LoadResource, SettingChanges, SettingList, SettingResource, SettingText};
use serde::Serialize;

use crate::control_port::ControlPort;
use crate::output::{self, Output};

/// `fondaco balance`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Without options it shows what is set. All settings whose names begin with balance can be changed by fondaco config, too.

Example:
  fondaco balance --mode act --hours 22:00-06:00
  fondaco balance advice"
)]
pub struct BalanceOptions {
    #[command(subcommand)]
    command: Option<BalanceCommand>,

    /// The reaction when load is uneven, or nodes come, leave or die
    #[arg(long, value_enum)]
    mode: Option<Mode>,

    /// The partitions to move when nodes struggle
    #[arg(long, value_enum)]
    policy: Option<Policy>,

    /// Over how long load is averaged, such as 50s; a decision is made every three fifths of it
    #[arg(long, value_name = "DURATION", value_parser = output::parse_span_ms)]
    window: Option<u64>,

    /// How long after a plan nothing moves, such as 60s
    #[arg(long, value_name = "DURATION", value_parser = output::parse_span_ms)]
    cool_down: Option<u64>,

    /// When plans are run, UTC; at other times they are proposed. "always" for any time
    #[arg(long, value_name = "HH:MM-HH:MM", value_parser = parse_hours)]
    hours: Option<(u64, u64)>,

    #[command(flatten)]
    node: ControlPort,
}

#[derive(Debug, Subcommand)]
enum BalanceCommand {
    /// Show the reasons that make the load hard to balance, or partitions unsafe, with remedies
    Advice(AdviceOptions),
}

/// `fondaco balance advice`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco balance advice")]
struct AdviceOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// Advice, as JSON.
#[derive(Serialize)]
struct AdviceList {
    advice: Vec<AdviceResource>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// Nothing
    Off,
    /// It proposes plans, for you to run
    Propose,
    /// It runs plans
    Act,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Policy {
    /// One partition of one struggling node, at random
    One,
    /// One partition of each struggling node
    Each,
    /// As many partitions of each struggling node as needed
    Enough,
}

/// Runs `fondaco balance`.
pub fn balance(options: &BalanceOptions, output: &Output) -> anyhow::Result<()> {
    if let Some(BalanceCommand::Advice(options)) = &options.command {
        let load: LoadResource = options.node.client()?.get("/v1/load")?;
        let list = AdviceList { advice: load.advice };
        return output.result(&list, |list| advice_text(&list.advice));
    }
    let client = options.node.client()?;
    let mut changes = BTreeMap::new();
    let mut set = |name: &str, value: Option<u64>| {
        changes.extend(value.map(|value| (name.to_owned(), SettingText::Number(value))));
    };
    set("balance-mode", options.mode.map(|mode| mode as u64));
    set("balance-policy", options.policy.map(|policy| policy as u64));
    set("balance-window-ms", options.window);
    set("balance-cool-down-ms", options.cool_down);
    set("balance-from-minute", options.hours.map(|(from, _)| from));
    set("balance-to-minute", options.hours.map(|(_, to)| to));
    let mut list: SettingList = match changes.is_empty() {
        true => client.get("/v1/settings")?,
        false => client.patch("/v1/settings", &SettingChanges(changes))?,
    };
    list.settings.retain(|setting| setting.name.starts_with("balance-"));
    output.result(&list, |list| text(&list.settings))
}

fn advice_text(advice: &[AdviceResource]) -> String {
    if advice.is_empty() {
        return "nothing to advise: partitions, nodes, zones and machines fit one another, as far as nodes have reported\n".to_owned();
    }
    let each = advice.iter().map(|one| format!("- {}\n  {}\n", one.problem, one.help));
    each.collect()
}

fn text(settings: &[SettingResource]) -> String {
    let value = |name: &str| {
        let found = settings.iter().find(|setting| setting.name == name);
        found.map_or(0, |setting| setting.value.number())
    };
    let mode = match value("balance-mode") {
        0 => "off: the cluster does nothing by itself",
        1 => "propose: the cluster proposes plans: fondaco rebalance list",
        _ => "act: the cluster runs plans by itself",
    };
    let policy = match value("balance-policy") {
        0 => "one partition of one struggling node at a time",
        1 => "one partition of each struggling node at a time",
        _ => "of each struggling node as many partitions as it takes",
    };
    let window = value("balance-window-ms");
    let clock = |minute: u64| format!("{:02}:{:02}", minute / 60, minute % 60);
    let hours = match (value("balance-from-minute"), value("balance-to-minute")) {
        (from, to) if from == to => "always".to_owned(),
        (from, to) => format!("{} to {} UTC", clock(from), clock(to)),
    };
    format!(
        "mode:       {mode}\n\
         policy:     {policy}\n\
         window:     {}, with a decision every {}\n\
         cool-down:  {} after a plan\n\
         hours:      {hours}\n\
         struggling: above {} % of the processors, {} % of memory, {} % of the disk\n\
         calm:       below {}, {} and {} %\n",
        output::span(window),
        output::span(window * 3 / 5),
        output::span(value("balance-cool-down-ms").max(window)),
        value("balance-cpu-percent"),
        value("balance-memory-percent"),
        value("balance-disk-percent"),
        value("balance-cpu-calm-percent"),
        value("balance-memory-calm-percent"),
        value("balance-disk-calm-percent"),
    )
}

/// Two times of the day, as minutes since midnight; equal ones mean any time.
fn parse_hours(text: &str) -> Result<(u64, u64), String> {
    if text == "always" {
        return Ok((0, 0));
    }
    let minute = |text: &str| {
        let (hours, minutes) = text.split_once(':')?;
        let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
        (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
    };
    let parsed = text
        .split_once('-')
        .and_then(|(from, to)| Some((minute(from)?, minute(to)?)));
    parsed.ok_or_else(|| "use HH:MM-HH:MM, such as 22:00-06:00, or always".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_parsed() {
        assert_eq!(parse_hours("22:00-06:30"), Ok((1320, 390)));
        assert_eq!(parse_hours("always"), Ok((0, 0)));
        for wrong in ["", "22-6", "24:00-06:00", "22:60-06:00", "22:00"] {
            assert!(parse_hours(wrong).is_err(), "{wrong}");
        }
    }
}
