//! The nodes that a request asks, as operators and requests choose them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text_form::stored_as_text;
use crate::word::words;

words! {
    /// A strategy of the client library, by its name.
    StrategyName "strategy":
    /// The same key to the same node, so that the replicas' caches divide the keys between them.
    #[default]
    Sticky = "sticky",
    /// Nodes in the client's zone before others.
    Nearest = "nearest",
    /// The first node of each partition's list.
    Preferred = "preferred",
    /// The nodes of each partition in turn.
    RoundRobin = "round-robin",
    /// The fewest nodes that have all keys.
    SetCover = "set-cover",
    /// Some groups of nodes, as many as the fan-out says.
    Cluster = "cluster",
}

/// The fan-out of a store's requests that say none themselves. Its text is the strategy, or `cluster:GROUPS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StoreFanOut {
    /// The strategy.
    pub strategy: StrategyName,
    /// How many groups of nodes a request of several keys asks; all by default. Of strategy `cluster` only.
    pub groups: Option<u32>,
}

/// The text is no fan-out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid fan-out {text:?}: use a strategy ({known}), or cluster:GROUPS with 1 group or more")]
pub struct StoreFanOutError {
    text: String,
    known: String,
}

impl fmt::Display for StoreFanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.groups {
            Some(groups) => write!(f, "{}:{groups}", self.strategy),
            None => self.strategy.fmt(f),
        }
    }
}

impl FromStr for StoreFanOut {
    type Err = StoreFanOutError;

    fn from_str(text: &str) -> Result<Self, StoreFanOutError> {
        let parsed = match text.split_once(':') {
            None => text.parse().ok().map(|strategy| Self { strategy, groups: None }),
            Some(("cluster", groups)) => groups.parse().ok().filter(|&groups| groups > 0).map(|groups| Self {
                strategy: StrategyName::Cluster,
                groups: Some(groups),
            }),
            Some(_) => None,
        };
        parsed.ok_or_else(|| StoreFanOutError {
            text: text.chars().take(40).collect(),
            known: StrategyName::ALL
                .iter()
                .map(|known| known.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        })
    }
}

stored_as_text!(StoreFanOut, StoreFanOutError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fan_outs_are_read_back_and_others_are_refused() {
        let all = StrategyName::ALL.iter().map(|name| name.as_str());
        for text in all.chain(["cluster:2"]) {
            assert_eq!(text.parse::<StoreFanOut>().unwrap().to_string(), text);
        }
        for text in ["", "Sticky", "cluster:0", "cluster:", "sticky:2", "cluster:2:3"] {
            let error = text.parse::<StoreFanOut>().unwrap_err().to_string();
            assert!(
                error.contains(&format!("{text:?}")) && error.contains("round-robin"),
                "{error}"
            );
        }
    }
}
