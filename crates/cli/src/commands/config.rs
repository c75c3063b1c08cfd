//! `fondaco config`: the settings of a running node.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use fondaco_api::{SettingChanges, SettingList, SettingResource, SettingText};

use super::WrongUsage;
use crate::control_port::ControlPort;
use crate::output::{self, Output, table};

/// `fondaco config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show all settings
    Show(ShowOptions),
    /// Change settings, immediately and permanently
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
#[command(after_help = "Example:
  fondaco config set fetch-rate-bytes-per-second=100MiB
  fondaco config set large/maxclients=50000        # for processes with template = \"large\"
  fondaco config set large/maxclients=default      # as the others again")]
pub struct SetOptions {
    /// NAME=VALUE or TEMPLATE/NAME=VALUE; either all of them are changed or none. The value default takes back what was set
    #[arg(required = true, value_name = "NAME=VALUE")]
    changes: Vec<String>,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco config`.
pub fn run(command: ConfigCommand, output: &Output) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Show(options) => {
            let settings: SettingList = options.node.client()?.get("/v1/settings")?;
            output.result(&settings, text)
        }
        ConfigCommand::Set(options) => {
            let changes = parse(&options.changes)?;
            let client = options.node.client()?;
            let before: SettingList = client.get("/v1/settings")?;
            let after: SettingList = client.patch("/v1/settings", &changes)?;
            output.result(&after, |after| changes_text(&before, after, &changes))
        }
    }
}

/// Each changed setting with its old and new value.
fn changes_text(before: &SettingList, after: &SettingList, changes: &SettingChanges) -> String {
    let named = after
        .settings
        .iter()
        .filter(|setting| changes.0.contains_key(&setting.name));
    let of_template = |name: &&String| name.contains('/');
    let of_templates = changes.0.keys().filter(of_template);
    let of_templates = of_templates.map(|name| format!("{name}: changed\n"));
    let line = |setting: &SettingResource| {
        let former = before.settings.iter().find(|former| former.name == setting.name);
        let former = former.map_or_else(|| "?".to_owned(), |former| shown(&former.name, &former.value));
        format!(
            "{}: {former} -> {}\n",
            setting.name,
            shown(&setting.name, &setting.value)
        )
    };
    named.map(line).chain(of_templates).collect()
}

/// The value of a setting, in the unit that its name implies.
fn shown(name: &str, value: &SettingText) -> String {
    let value = match value {
        SettingText::Number(value) => *value,
        SettingText::Share(share) => return share.to_string(),
        SettingText::Text(text) => return format!("{text:?}"),
    };
    match unit(name) {
        _ if value == 0 => "0".to_owned(),
        Some(Unit::Milliseconds) => output::span(value),
        Some(Unit::Seconds) => output::span(value.saturating_mul(1000)),
        Some(Unit::Bytes) => size(value),
        None => value.to_string(),
    }
}

/// The unit of a setting.
#[derive(Clone, Copy)]
enum Unit {
    Milliseconds,
    Seconds,
    Bytes,
}

fn unit(name: &str) -> Option<Unit> {
    match name {
        name if name.ends_with("-ms") => Some(Unit::Milliseconds),
        name if name.contains("bytes") => Some(Unit::Bytes),
        name if name.ends_with("-seconds") => Some(Unit::Seconds),
        _ => None,
    }
}

/// A size in bytes, exactly: in a larger unit only if it is a whole number.
fn size(bytes: u64) -> String {
    let units = SIZES.iter().rev().filter(|(_, unit)| bytes.is_multiple_of(*unit));
    let (name, unit) = units.copied().next().unwrap_or(("B", 1));
    format!("{}{name}", bytes / unit)
}

/// Units of sizes, as in the configuration file.
const SIZES: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Parses the value of a setting: a number, optionally with a unit; or what the node reads, of the settings of traces.
fn value(name: &str, text: &str) -> Option<SettingText> {
    if text == "default" {
        return Some(SettingText::Text(text.to_owned()));
    }
    let name = name.split_once('/').map_or(name, |(_, name)| name);
    match name.replace('_', "-").as_str() {
        "traces-endpoint" => Some(SettingText::Text(text.to_owned())),
        "traces-sample" => {
            let share = text.parse().ok().filter(|share: &f64| share.is_finite());
            Some(share.map_or_else(|| SettingText::Text(text.to_owned()), SettingText::Share))
        }
        _ => number(name, text).map(SettingText::Number),
    }
}

fn number(name: &str, text: &str) -> Option<u64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    match unit(name)? {
        Unit::Milliseconds => output::parse_span_ms(text).ok(),
        Unit::Seconds => {
            let ms = output::parse_span_ms(text).ok()?;
            ms.is_multiple_of(1000).then_some(ms / 1000)
        }
        Unit::Bytes => {
            // The longest first, since each of them ends with a B.
            let (number, unit) = SIZES
                .iter()
                .rev()
                .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
            number.trim().parse::<u64>().ok()?.checked_mul(*unit)
        }
    }
}

fn parse(changes: &[String]) -> Result<SettingChanges, WrongUsage> {
    let mut parsed = BTreeMap::new();
    for change in changes {
        let number = change
            .split_once('=')
            .and_then(|(name, text)| Some((name, value(name, text)?)));
        let Some((name, value)) = number else {
            return Err(WrongUsage(format!(
                "invalid change {change:?}: write NAME=VALUE, the value a whole number, a duration such as 30s, or a size \
                 such as 64MiB"
            )));
        };
        parsed.insert(name.to_owned(), value);
    }
    Ok(SettingChanges(parsed))
}

fn text(list: &SettingList) -> String {
    let mut rows = Vec::new();
    for setting in &list.settings {
        rows.push(vec![
            setting.name.clone(),
            shown(&setting.name, &setting.value),
            shown(&setting.name, &setting.default),
            match (&setting.min, &setting.max) {
                (Some(min), Some(max)) => format!("{} to {}", shown(&setting.name, min), shown(&setting.name, max)),
                _ => "a URL".to_owned(),
            },
            setting.summary.clone(),
        ]);
        for (template, value) in &setting.templates {
            let mut row = vec![String::new(); 5];
            row[0] = format!("{template}/{}", setting.name);
            row[1] = shown(&setting.name, value);
            rows.push(row);
        }
    }
    table(
        &["NAME", "VALUE", "DEFAULT", "LIMITS", "MEANING"],
        &rows,
        &[false, true, true, false, false],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_and_shown_in_their_units() {
        for (name, text, number, shown_as) in [
            ("forward-timeout-ms", "1s", 1000, "1s"),
            ("forward-timeout-ms", "250", 250, "250ms"),
            ("client-idle-seconds", "10m", 600, "10m"),
            ("fetch-rate-bytes-per-second", "100MiB", 100 << 20, "100MiB"),
            ("bulk-bytes-max", "65601", 65601, "65601B"),
            ("clients-max", "5", 5, "5"),
            ("router-cache-bytes", "0", 0, "0"),
        ] {
            let number = SettingText::Number(number);
            assert_eq!(shown(name, &number), shown_as, "{name}");
            assert_eq!(value(name, text), Some(number), "{name}={text}");
        }
        assert_eq!(value("client-idle-seconds", "100ms"), None);
        assert_eq!(value("clients-max", "5MiB"), None);
        assert_eq!(value("bulk-bytes-max", "many"), None);
    }
}
