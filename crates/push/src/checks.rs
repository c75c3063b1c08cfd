//! The checks that the pushing program makes before a version goes live: sample look-ups and a command.
//!
//! The cluster holds a version that is fetched and has passed all its gates until this program confirms it. If the program dies, the version
//! does not go live.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fondaco_admin::{AdminError, Client};
use fondaco_api::{LookupResponse, LookupValue};
use fondaco_model::StoreName;
use fondaco_os::command;
use serde::Deserialize;
use serde_json::Value;

use crate::error::PushError;
use crate::observer::Job;

/// How many sample look-ups a push may have.
const SAMPLES_MAX: usize = 10_000;

/// How many failed samples a reason names.
const SHOWN_MAX: usize = 5;

/// The checks of a pushed version.
#[derive(Debug, Clone)]
pub struct Checks {
    /// Look-ups in the new version.
    pub samples: Vec<Sample>,
    /// A command of the shell, which must succeed. Its environment has `FONDACO_STORE`, `FONDACO_VERSION` and `FONDACO_HTTP`.
    pub command: Option<String>,
    /// How long look-ups and command may take together.
    pub time_max: Duration,
}

/// A key and the value that it must have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The key; of several parts as the text of a JSON list.
    pub key: String,
    /// The text of the value, or its JSON; null if the key must be absent.
    pub value: Value,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            samples: Vec::new(),
            command: None,
            time_max: Duration::from_secs(600),
        }
    }
}

impl Checks {
    /// The samples of a file: a JSON object with `key` and `value` on each line.
    ///
    /// # Errors
    /// The file cannot be read, or a line is no sample.
    pub fn read_samples(path: &Path) -> Result<Vec<Sample>, PushError> {
        let text = std::fs::read_to_string(path).map_err(PushError::file("read", path))?;
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let sample = |(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                PushError::WrongOptions(format!(
                    "line {number} of {path:?} is no sample: {error}; write {{\"key\": \"7\", \"value\": \"seven\"}}"
                ))
            })
        };
        let samples: Vec<Sample> = lines.map(sample).collect::<Result<_, _>>()?;
        match samples.len() {
            1..=SAMPLES_MAX => Ok(samples),
            count => Err(PushError::WrongOptions(format!(
                "{path:?} has {count} samples: use 1 to {SAMPLES_MAX}"
            ))),
        }
    }

    /// Whether the push has no checks.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.command.is_none()
    }

    /// Checks the version, and returns why it must not go live.
    pub(crate) fn check(&self, client: &Client, store: &StoreName, version: u64, job: Job<'_>) -> Option<String> {
        let until = Instant::now() + self.time_max;
        if let Err(reason) = self.check_samples(client, store, version, until, job) {
            return Some(reason);
        }
        let line = self.command.as_ref()?;
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(line);
        shell.env("FONDACO_STORE", store.as_str());
        shell.env("FONDACO_VERSION", version.to_string());
        shell.env("FONDACO_HTTP", client.address());
        let left = until.saturating_duration_since(Instant::now());
        let stopped = || job.is_cancelled().then_some("the push was cancelled");
        let ended = command::run(&mut shell, b"", Some(left), &stopped);
        ended
            .err()
            .map(|reason| format!("the command {line:?} fails: {}", reason.trim_end()))
    }

    fn check_samples(
        &self,
        client: &Client,
        store: &StoreName,
        version: u64,
        until: Instant,
        job: Job<'_>,
    ) -> Result<(), String> {
        let mut failed = Vec::new();
        for sample in &self.samples {
            if job.is_cancelled() {
                return Err("the push was cancelled".to_owned());
            }
            if Instant::now() >= until {
                return Err(format!("the samples took longer than {} s", self.time_max.as_secs()));
            }
            let found = look_up(client, store, version, &sample.key);
            let found = found.map_err(|error| format!("sample {:?} cannot be looked up: {error}", sample.key))?;
            if !sample.is_met_by(found.as_ref()) {
                failed.push(format!(
                    "{:?} has {} in place of {}",
                    sample.key,
                    shown(found.as_ref()),
                    sample.value
                ));
            }
        }
        match failed.len() {
            0 => Ok(()),
            count => {
                failed.truncate(SHOWN_MAX);
                let of = self.samples.len();
                Err(format!("{count} of {of} samples fail: {}", failed.join(", ")))
            }
        }
    }
}

impl Sample {
    fn is_met_by(&self, found: Option<&LookupValue>) -> bool {
        match found {
            None => self.value.is_null(),
            Some(LookupValue::Decoded(decoded)) => decoded.json == self.value,
            Some(LookupValue::Base64(text)) => self.value.as_str() == Some(text),
            Some(LookupValue::Utf8(text)) => {
                self.value.as_str() == Some(text)
                    || serde_json::from_str::<Value>(text).is_ok_and(|json| json == self.value)
            }
        }
    }
}

fn shown(found: Option<&LookupValue>) -> String {
    let text = match found {
        None => "no value".to_owned(),
        Some(LookupValue::Decoded(decoded)) => decoded.json.to_string(),
        Some(LookupValue::Utf8(text) | LookupValue::Base64(text)) => format!("{text:?}"),
    };
    text.chars().take(100).collect()
}

fn look_up(client: &Client, store: &StoreName, version: u64, key: &str) -> Result<Option<LookupValue>, AdminError> {
    let key: String = url::form_urlencoded::byte_serialize(key.as_bytes()).collect();
    // In a path, a plus is a plus.
    let key = key.replace('+', "%20");
    let found: LookupResponse = client.get(&format!("/v1/stores/{store}/versions/{version}/keys/{key}"))?;
    Ok(found.values.into_iter().next().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: Value) -> Sample {
        Sample {
            key: "7".to_owned(),
            value,
        }
    }

    #[test]
    fn a_sample_is_met_by_its_text_or_its_json() {
        let text = |text: &str| LookupValue::Utf8(text.to_owned());
        assert!(sample("a".into()).is_met_by(Some(&text("a"))));
        assert!(sample(serde_json::json!({"b": 1})).is_met_by(Some(&text("{ \"b\":1 }"))));
        assert!(sample(Value::Null).is_met_by(None));
        assert!(!sample(Value::Null).is_met_by(Some(&text("a"))));
        assert!(!sample("a".into()).is_met_by(Some(&text("b"))) && !sample("a".into()).is_met_by(None));
    }

    #[test]
    fn a_line_that_is_no_sample_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples.jsonl");
        for (text, expected) in [
            ("{\"key\": \"7\", \"value\": 1}\n\n7\n", "line 3"),
            ("{\"key\": \"7\"}\n", "line 1"),
            ("", "0 samples"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Checks::read_samples(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(Checks::read_samples(&dir.path().join("absent")).is_err());
    }
}
