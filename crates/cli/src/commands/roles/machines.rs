//! The section `[machines]` of a configuration file: how a leading controller gets machines on demand.

use std::fmt;
use std::time::Duration;

use anyhow::bail;
use fondaco_decisions::balance::MachineSettings;
use fondaco_roles::{Hook, MachinesConfig};
use serde::Deserialize;

/// The longest timeout of a hook: an hour.
const TIMEOUT_SECONDS_MAX: u64 = 3600;

/// The longest wait between requests, or before a node is returned: a week.
const WAIT_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// The section.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MachinesSection {
    hook_command: Option<Vec<String>>,
    hook_url: Option<String>,
    hook_timeout_seconds: Option<u64>,
    nodes_min: Option<u32>,
    nodes_max: Option<u32>,
    cool_down_seconds: Option<u64>,
    calm_seconds: Option<u64>,
    #[serde(default)]
    enlarge: bool,
    #[serde(default)]
    returns: Returns,
}

/// The nodes that may be returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Returns {
    /// Those that came through the hook.
    #[default]
    Own,
    /// All.
    All,
}

impl fmt::Debug for MachinesSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address or an argument may have a secret.
        f.debug_struct("MachinesSection").finish_non_exhaustive()
    }
}

impl MachinesSection {
    pub(super) fn into_config(self) -> anyhow::Result<MachinesConfig> {
        let hook = match (self.hook_command, self.hook_url) {
            (Some(command), None) if !command.is_empty() => Hook::Command(command),
            (None, Some(url)) if url.starts_with("http://") || url.starts_with("https://") => Hook::Url(url),
            (None, Some(url)) => bail!("invalid hook-url {url:?}: use http://… or https://…"),
            _ => bail!("[machines] needs either hook-command, a program with its arguments, or hook-url"),
        };
        let seconds = |name: &str, value: Option<u64>, default: Duration, most: u64| match value {
            Some(value) if value > most => bail!("invalid {name} {value} in [machines]: use 0 to {most}"),
            value => Ok(value.map_or(default, Duration::from_secs)),
        };
        let timeout = seconds(
            "hook-timeout-seconds",
            self.hook_timeout_seconds,
            MachinesConfig::TIMEOUT_DEFAULT,
            TIMEOUT_SECONDS_MAX,
        )?;
        let cool_down = MachinesConfig::COOL_DOWN_DEFAULT;
        let cool_down = seconds("cool-down-seconds", self.cool_down_seconds, cool_down, WAIT_SECONDS_MAX)?;
        let calm = MachinesConfig::CALM_DEFAULT;
        let calm = seconds("calm-seconds", self.calm_seconds, calm, WAIT_SECONDS_MAX)?;
        let Some(nodes_max) = self.nodes_max else {
            bail!("[machines] needs nodes-max, the most nodes that the cluster may have");
        };
        let nodes_min = self.nodes_min.unwrap_or(1);
        if nodes_min == 0 || nodes_min > nodes_max {
            bail!("invalid nodes-min {nodes_min} in [machines]: use 1 to {nodes_max}, which is nodes-max");
        }
        Ok(MachinesConfig {
            hook,
            timeout,
            settings: MachineSettings {
                nodes_min,
                nodes_max,
                cool_down_ms: cool_down.as_millis() as u64,
                calm_ms: calm.as_millis() as u64,
                enlarges: self.enlarge,
                returns_all: self.returns == Returns::All,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> anyhow::Result<MachinesConfig> {
        toml::from_str::<MachinesSection>(text)?.into_config()
    }

    #[test]
    fn a_hook_has_defaults_and_limits() {
        let hook = "hook-command = [\"/bin/hook\", \"x\"]\n";
        let defaults = config(&format!("{hook}nodes-max = 4")).unwrap();
        assert_eq!(defaults.timeout, Duration::from_secs(60));
        let settings = defaults.settings;
        assert_eq!((settings.nodes_min, settings.nodes_max), (1, 4));
        assert_eq!((settings.cool_down_ms, settings.calm_ms), (600_000, 1_800_000));
        assert!(!settings.enlarges && !settings.returns_all);
        let all = format!(
            "{hook}nodes-max = 4\nnodes-min = 2\ncool-down-seconds = 1\ncalm-seconds = 2\nenlarge = true\n\
             returns = \"all\"\nhook-timeout-seconds = 3"
        );
        let all = config(&all).unwrap();
        assert_eq!(all.timeout, Duration::from_secs(3));
        assert!(all.settings.enlarges && all.settings.returns_all && all.settings.calm_ms == 2000);
        for (text, reason) in [
            (hook.to_owned(), "nodes-max"),
            ("nodes-max = 4".to_owned(), "hook-command"),
            (format!("{hook}hook-url = \"http://a\"\nnodes-max = 4"), "either"),
            ("hook-command = []\nnodes-max = 4".to_owned(), "either"),
            ("hook-url = \"ftp://a\"\nnodes-max = 4".to_owned(), "hook-url"),
            (format!("{hook}nodes-max = 4\nnodes-min = 5"), "nodes-min"),
            (format!("{hook}nodes-max = 4\ncalm-seconds = 9000000"), "calm-seconds"),
        ] {
            let error = config(&text).map(drop).unwrap_err().to_string();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }
}
