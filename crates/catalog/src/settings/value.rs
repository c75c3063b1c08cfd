//! Values of settings, as people write them: most are whole numbers, one is a share, and one an address.
//!
//! A share is kept as a number of billionths, so that all but the address are numbers.

use super::{Setting, SettingError, SettingSpec};

/// A share of 1.
pub const WHOLE_SHARE: u64 = 1_000_000_000;

/// The longest address of a collector, in bytes.
const ENDPOINT_BYTES_MAX: usize = 512;

/// How the value of a setting is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
    /// A whole number.
    Number,
    /// A share from 0 to 1, such as 0.001.
    Share,
    /// The URL of a collector of traces, or nothing.
    Collector,
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingValue {
    /// A number; of a share, its billionths.
    Number(u64),
    /// A text.
    Text(String),
}

impl SettingSpec {
    /// How its value is written.
    pub fn kind(&self) -> SettingKind {
        match self.setting {
            Setting::TracesSample => SettingKind::Share,
            Setting::TracesEndpoint => SettingKind::Collector,
            _ => SettingKind::Number,
        }
    }

    /// A number as the setting's value is written.
    pub fn written(&self, number: u64) -> String {
        match self.kind() {
            SettingKind::Number => number.to_string(),
            SettingKind::Share => (number as f64 / WHOLE_SHARE as f64).to_string(),
            SettingKind::Collector => String::new(),
        }
    }

    /// Reads a value.
    pub(crate) fn read(&self, text: &str) -> Result<SettingValue, SettingError> {
        let number = match self.kind() {
            SettingKind::Number => text.parse().ok(),
            SettingKind::Share => {
                let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
                share.map(|share| (share * WHOLE_SHARE as f64).round() as u64)
            }
            SettingKind::Collector => {
                return match text.is_empty() || is_collector(text) {
                    true => Ok(SettingValue::Text(text.to_owned())),
                    false => Err(SettingError::Collector {
                        name: self.name,
                        value: text.into(),
                    }),
                };
            }
        };
        let within = number.filter(|number| (self.min..=self.max).contains(number));
        within.map(SettingValue::Number).ok_or_else(|| self.invalid(text))
    }
}

/// Whether it is a URL that traces can be sent to. It must have no password: every caller may read settings.
fn is_collector(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let Some(rest) = rest.filter(|_| text.len() <= ENDPOINT_BYTES_MAX) else {
        return false;
    };
    let (authority, _path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_host = match host.strip_prefix('[') {
        Some(inner) => inner
            .strip_suffix(']')
            .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()),
        None => {
            !host.is_empty()
                && host
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }
    };
    is_host
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
        && rest
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"?#@\"<>\\^`{|}".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn shares_are_written_as_they_were_read() {
        let settings = Settings::default();
        for (text, billionths) in [("0", 0), ("0.001", 1_000_000), ("1", WHOLE_SHARE), ("1e-9", 1)] {
            let (setting, value) = Settings::parse("traces-sample", text).unwrap();
            assert_eq!(value, SettingValue::Number(billionths));
            settings.apply(setting, &value).unwrap();
            let written = settings.written(setting);
            assert_eq!(written.parse::<f64>().unwrap(), text.parse::<f64>().unwrap());
        }
        for text in ["", "-0.1", "1.1", "NaN", "half", "5%"] {
            let error = Settings::parse("traces-sample", text).unwrap_err().to_string();
            assert!(error.contains("use a share from 0 to 1, such as 0.001"), "{error}");
        }
    }

    #[test]
    fn only_urls_of_collectors_are_taken() {
        for text in [
            "",
            "http://127.0.0.1:4318",
            "https://collector.example/v1/traces",
            "http://[::1]:4318/",
            "http://[::1]",
        ] {
            let (_, value) = Settings::parse("traces-endpoint", text).unwrap();
            assert_eq!(value, SettingValue::Text(text.into()));
        }
        for text in [
            "collector:4318",
            "ftp://collector",
            "http://",
            "http://:4318",
            "http://collector:0",
            "http://collector:port",
            "http://user:word@collector",
            "http://collector/a b",
            "http://collector?x",
            "http://[::1:4318",
            &format!("http://collector/{}", "x".repeat(ENDPOINT_BYTES_MAX)),
        ] {
            let error = Settings::parse("traces-endpoint", text).unwrap_err().to_string();
            assert!(error.contains("http://127.0.0.1:4318"), "{error}");
        }
    }

    #[test]
    fn traces_are_on_only_with_a_collector() {
        let settings = Settings::default();
        let set = |name, text| {
            let (setting, value) = Settings::parse(name, text).unwrap();
            settings.apply(setting, &value).unwrap();
        };
        set("traces-sample", "0.5");
        assert_eq!(settings.traces_share(), None);
        set("traces-endpoint", "http://127.0.0.1:4318");
        assert_eq!(settings.traces_share(), Some(WHOLE_SHARE / 2));
        set("traces-sample", "0");
        assert_eq!(settings.traces_share(), Some(0));
        set("traces-endpoint", "");
        assert_eq!(settings.traces_share(), None);
    }
}
