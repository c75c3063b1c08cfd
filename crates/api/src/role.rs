//! The roles of processes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The role of a process in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A cluster of one: coordinates itself, decides, holds all partitions and serves them.
    Single,
    /// Holds partitions and serves them.
    Node,
    /// Serves everything by asking the nodes, and holds nothing.
    Router,
    /// Decides for the cluster while it is the leader, and waits for leadership while it is not.
    Controller,
}

impl Role {
    /// Its name on the control port.
    pub fn word(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Node => "node",
            Self::Router => "router",
            Self::Controller => "controller",
        }
    }

    /// Whether it answers Redis clients.
    pub fn serves_resp(self) -> bool {
        self != Self::Controller
    }

    /// Whether it has partitions, and a directory for them.
    pub fn holds_data(self) -> bool {
        matches!(self, Self::Single | Self::Node)
    }

    /// Whether it stands for election as the leader.
    pub fn decides(self) -> bool {
        matches!(self, Self::Single | Self::Controller)
    }
}
