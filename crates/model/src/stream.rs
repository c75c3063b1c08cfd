//! The stream of a hybrid store: where its events come from, and how they count.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::versioned::EngineKind;

/// The settings of a hybrid store's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSettings {
    /// Where events come from. It never changes.
    pub source: StreamSource,
    /// How long before the start of a push its version reads the stream from, in milliseconds.
    pub rewind_ms: u64,
    /// How old the newest event that a version has read may be when it begins to answer, in milliseconds, if there are
    /// more.
    pub lag_ms: u64,
    /// How much later than it happened an event may be logged, in milliseconds: later ones do not count.
    pub grace_ms: u64,
    /// Where nodes keep the events. It never changes.
    pub engine: EngineKind,
}

/// Where the events of a store come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StreamSource {
    /// The log inside a process that is a whole cluster, with so many partitions.
    Log(u32),
}

/// The text names no source of events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown source of events {found:?}: use log, or log:PARTITIONS with 1 to {PARTITIONS_MAX}")]
pub struct StreamSourceError {
    /// The text.
    pub found: String,
}

/// The most partitions of a log.
const PARTITIONS_MAX: u32 = 1024;
const PARTITIONS_DEFAULT: u32 = 4;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

impl StreamSettings {
    /// The settings for a source, with all defaults: a day of rewind, ten seconds of lag, a week of grace, and events in trees
    /// on disk.
    pub fn of(source: StreamSource) -> Self {
        Self {
            source,
            rewind_ms: DAY_MS,
            lag_ms: 10_000,
            grace_ms: 7 * DAY_MS,
            engine: EngineKind::Disk,
        }
    }

    /// What is wrong with them.
    ///
    /// # Errors
    /// An engine that does not keep the events.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.engine {
            EngineKind::Disk | EngineKind::Log => Ok(()),
            other => Err(format!("engine {other} for the events of a stream: use disk or log")),
        }
    }
}

impl fmt::Display for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(partitions) => write!(f, "log:{partitions}"),
        }
    }
}

impl FromStr for StreamSource {
    type Err = StreamSourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let partitions = match text.split_once(':') {
            None if text == "log" => Some(PARTITIONS_DEFAULT),
            Some(("log", number)) => number.parse().ok(),
            _ => None,
        };
        let partitions = partitions.filter(|partitions| (1..=PARTITIONS_MAX).contains(partitions));
        let found = || StreamSourceError { found: text.to_owned() };
        partitions.map(Self::Log).ok_or_else(found)
    }
}

impl TryFrom<String> for StreamSource {
    type Error = StreamSourceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<StreamSource> for String {
    fn from(source: StreamSource) -> Self {
        source.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_its_text() {
        for (text, source) in [("log", "log:4"), ("log:1", "log:1"), ("log:1024", "log:1024")] {
            assert_eq!(text.parse::<StreamSource>().unwrap().to_string(), source);
        }
        for text in ["", "logs", "log:", "log:0", "log:1025", "log:x"] {
            let error = text.parse::<StreamSource>().unwrap_err();
            assert!(error.to_string().contains("use log"), "{error}");
        }
    }
}
