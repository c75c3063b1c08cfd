//! The names of strategies, for settings and protocols.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{ClusterAware, NearestFirst, PreferenceOrder, RoundRobin, SetCover, Sticky, Strategy};

/// A strategy that can be selected by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StrategyName {
    /// `sticky`: [`Sticky`].
    #[default]
    Sticky,
    /// `nearest`: [`NearestFirst`].
    Nearest,
    /// `preferred`: [`PreferenceOrder`].
    Preferred,
    /// `round-robin`: [`RoundRobin`].
    RoundRobin,
    /// `set-cover`: [`SetCover`].
    SetCover,
    /// `cluster`: [`ClusterAware`], with borrowing.
    Cluster,
}

/// The text is not the name of a strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown strategy {text:?}: use sticky, nearest, preferred, round-robin, set-cover or cluster")]
pub struct StrategyNameError {
    text: String,
}

impl StrategyName {
    /// All names.
    pub const ALL: [Self; 6] = [
        Self::Sticky,
        Self::Nearest,
        Self::Preferred,
        Self::RoundRobin,
        Self::SetCover,
        Self::Cluster,
    ];

    /// The name as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sticky => "sticky",
            Self::Nearest => "nearest",
            Self::Preferred => "preferred",
            Self::RoundRobin => "round-robin",
            Self::SetCover => "set-cover",
            Self::Cluster => "cluster",
        }
    }

    /// The strategy of this name.
    pub fn strategy(self) -> Arc<dyn Strategy> {
        match self {
            Self::Sticky => Arc::new(Sticky),
            Self::Nearest => Arc::new(NearestFirst),
            Self::Preferred => Arc::new(PreferenceOrder),
            Self::RoundRobin => Arc::new(RoundRobin),
            Self::SetCover => Arc::new(SetCover),
            Self::Cluster => Arc::new(ClusterAware::default()),
        }
    }
}

impl fmt::Display for StrategyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StrategyName {
    type Err = StrategyNameError;

    fn from_str(text: &str) -> Result<Self, StrategyNameError> {
        let known = Self::ALL.into_iter().find(|name| name.as_str() == text);
        known.ok_or_else(|| StrategyNameError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_refused_with_a_list_of_all() {
        for name in StrategyName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        let error = "Sticky".parse::<StrategyName>().unwrap_err().to_string();
        assert!(error.contains("\"Sticky\""), "{error}");
        for name in StrategyName::ALL {
            assert!(error.contains(name.as_str()), "{error}");
        }
    }
}
