//! `fondaco config`: the settings of a running node.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use fondaco_control::SettingChanges;
use fondaco_control::http::SettingList;

use super::WrongUsage;
use crate::arguments::ControlPort;
use crate::client::Client;
use crate::output::{Output, table};

/// `fondaco config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show all settings
    Show(ShowOptions),
    /// Change settings, at once and for good
    Set(SetOptions),
}

/// `fondaco config show`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco config show --json")]
pub struct ShowOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco config set`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco config set fetch-rate-bytes-per-second=104857600")]
pub struct SetOptions {
    /// Names and values; all are changed or none
    #[arg(required = true, value_name = "NAME=VALUE")]
    changes: Vec<String>,

    #[command(flatten)]
    node: ControlPort,
}

/// Shows or changes settings.
pub fn run(command: ConfigCommand, output: &Output) -> anyhow::Result<()> {
    let settings: SettingList = match command {
        ConfigCommand::Show(options) => Client::new(&options.node)?.get("/v1/settings")?,
        ConfigCommand::Set(options) => {
            let changes = parse(&options.changes)?;
            Client::new(&options.node)?.patch("/v1/settings", &changes)?
        }
    };
    output.result(&settings, text)
}

fn parse(changes: &[String]) -> Result<SettingChanges, WrongUsage> {
    let mut parsed = BTreeMap::new();
    for change in changes {
        let number = change
            .split_once('=')
            .and_then(|(name, value)| Some((name, value.parse().ok()?)));
        let Some((name, value)) = number else {
            return Err(WrongUsage(format!(
                "invalid change {change:?}: write NAME=VALUE, the value a whole number"
            )));
        };
        parsed.insert(name.to_owned(), value);
    }
    Ok(SettingChanges(parsed))
}

fn text(list: &SettingList) -> String {
    let rows: Vec<Vec<String>> = list
        .settings
        .iter()
        .map(|setting| {
            vec![
                setting.name.clone(),
                setting.value.to_string(),
                setting.default.to_string(),
                format!("{} to {}", setting.min, setting.max),
                setting.summary.clone(),
            ]
        })
        .collect();
    table(
        &["NAME", "VALUE", "DEFAULT", "LIMITS", "MEANING"],
        &rows,
        &[false, true, true, false, false],
    )
}
