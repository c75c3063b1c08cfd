//! How partitions get their nodes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How partitions get their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The partitions clockwise, to the next distinct nodes: the preference list of Dynamo.
    Ring,
    /// As a ring, spread over zones.
    Zoned,
    /// Nodes form groups, each group holds a complete copy, and partitions are dealt differently in
    /// each group.
    Grouped,
    /// Every node holds everything.
    All,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::Zoned => "zoned",
            Self::Grouped => "grouped",
            Self::All => "all",
        })
    }
}
